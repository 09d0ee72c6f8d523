"""Taking a vault's lease in an object store: when it may be had, and how it is taken from a host that keeps it.

Who may take it, by what the object says:

- there is none, or it was given back: whoever puts first;
- it is of this boot of this host: this host, at once. Its server does not run, or it would not ask;
- it is of this host before it rebooted: this host, once it is older than its bound. Another host that goes by the same
  machine-id and name would have renewed it;
- the store lost what it says: nobody, except by ``take_lease_over``;
- it is another host's: nobody, however old it is, except by ``take_lease_over``, which a person has to ask for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from zvault.core.errors import Busy, DeviceGone, HeldElsewhere, TakenOver, ZvaultError
from zvault.core.units import format_duration
from zvault.devices.s3_lease.lease_object import (
    LeaseContent,
    LeaseLost,
    LeaseObject,
    LeaseObjectStore,
    is_own_lease,
)

LEASE_POLL = 2.0
"""Seconds between two looks at a lease that is waited for."""


@dataclass(frozen=True, slots=True)
class BootClock:
    """Seconds that go on while the host sleeps, and how to let them pass; passed in for tests."""

    now: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
    sleep: Callable[[float], None] = time.sleep


def take_lease(
    store: LeaseObjectStore, mine: LeaseContent, *, resume: bool, say: Callable[[str], None], clock: BootClock
) -> str:
    """Take the lease where that needs nobody's leave; its ETag.

    ``resume``: a pool of this host's still waits for the device, so nobody may have had it in between. Raises Busy
    with who has it; Refused when it is lost for this pool; DeviceGone.
    """
    seen = store.read()
    if seen is not None and seen.is_lost:
        # Whose it was nobody knows: it may be ours, so that the pool which waits here is not given up for it.
        raise make_held_elsewhere_error(store, seen)
    if seen is not None and resume and seen.lease.boot != mine.boot:
        raise _gone_its_way(store, seen)
    if seen is not None and seen.lease.held and seen.lease.boot != mine.boot:
        if (seen.lease.machine, seen.lease.host) != (mine.machine, mine.host):
            raise make_held_elsewhere_error(store, seen)
        seen = _outlive(store, seen, say, clock)
    elif seen is not None and seen.lease.held and seen.lease.shut_out:
        raise Busy(
            f"the lease {store.place} was taken over, and not to the end",
            "the host that had it may still write",
            "run 'zvaultctl vault take' again",
        )
    # Many puts at once, some hundred requests: once, before there is a lease, and not each time a vault comes up.
    store.refuse_without_conditions(mine, at_once=seen is None)
    return _put(store, mine, seen)


def _outlive(
    store: LeaseObjectStore, seen: LeaseObject, say: Callable[[str], None], clock: BootClock
) -> LeaseObject:
    """Wait until a lease of this host's last boot is older than its bound."""
    if not seen.is_expired():
        wait = seen.lease.bound - seen.age + 1
        say(f"this host had the lease before it started anew: waiting {format_duration(wait)} for it to end")
        clock.sleep(wait)
        again = store.read()
        if again is None or again.etag != seen.etag:
            raise make_held_elsewhere_error(store, again or seen)
        seen = again
    say("this host had the lease before it started anew: taking it")
    return seen


def _put(store: LeaseObjectStore, mine: LeaseContent, seen: LeaseObject | None) -> str:
    """Put the lease in the place of what was seen; its ETag. Raises Busy with who was faster, DeviceGone.

    Of two who put at the same moment Ceph's RGW may answer one with 500 (seen with 18.2.7), and the answer to a put
    that was done may be lost. What is there then tells.
    """
    try:
        return store.put(mine, seen.etag if seen is not None else None)
    except (LeaseLost, DeviceGone) as error:
        now = store.read()
        changed = now is not None and (seen is None or now.etag != seen.etag)
        if now is not None and changed and now.lease.held:
            if now.lease.boot == mine.boot:
                return now.etag
            raise make_held_elsewhere_error(store, now) from None
        if isinstance(error, DeviceGone):
            raise
        why = "another host asked at the same moment"
        raise Busy(f"the lease {store.place} could not be taken", why, "try again") from None


def take_lease_over(
    store: LeaseObjectStore, mine: LeaseContent, of: str, say: Callable[[str], None], clock: BootClock
) -> str:
    """Take the lease from the host whose boot is ``of``, and return its ETag once that host writes no more.

    Of two who try at once one wins. The old holder finds its lease replaced when it renews it, stops its server, and
    says so; if it says nothing it has stopped by its own rule after its bound. Raises Busy when another was faster.
    """
    seen = store.read()
    if seen is None or not seen.lease.held:
        return _put(store, mine, seen)
    theirs = seen.lease
    if theirs.boot != of:
        raise make_held_elsewhere_error(store, seen)
    shut_out = "" if seen.is_expired() else _to_be_shut_out(theirs, mine)
    if not shut_out:
        say(f"{theirs.host} has not renewed its lease for {format_duration(seen.age)}: it has stopped")
        return _put(store, mine, seen)
    wait = max(theirs.bound, mine.bound if theirs.shut_out else 0.0)
    waiting = replace(mine, shut_out=shut_out, bound=max(mine.bound, wait))
    etag = _put(store, waiting, seen)
    say(f"{theirs.host} is shut out; waiting until it says so, at most {format_duration(wait)}")
    give_up = clock.now() + wait
    while clock.now() < give_up:
        clock.sleep(min(LEASE_POLL, max(0.0, give_up - clock.now())))
        now = _still_mine(store, mine)
        etag = now.etag
        if not now.lease.shut_out:
            say(f"{theirs.host} has stopped its server, and says so")
            return etag
    say(f"{theirs.host} said nothing; by its own rule it has stopped")
    return _put(store, mine, replace(seen, etag=etag))


def _to_be_shut_out(theirs: LeaseContent, mine: LeaseContent) -> str:
    """The boot that has to say that it stopped; one that nobody has when there are two, or when it was asked before."""
    if theirs.boot == mine.boot:
        return theirs.shut_out and f"{theirs.shut_out}+"
    return f"{theirs.boot}+{theirs.shut_out}" if theirs.shut_out else theirs.boot


def _still_mine(store: LeaseObjectStore, mine: LeaseContent) -> LeaseObject:
    now = store.read()
    if now is None or now.lease.boot != mine.boot:
        if now is not None and now.lease.held:
            raise make_held_elsewhere_error(store, now)
        raise Busy(f"the lease {store.place} is gone", "somebody removed it meanwhile", "begin again")
    return now


def acknowledge_shutout(store: LeaseObjectStore, mine: LeaseContent) -> None:
    """Say that this host, which was shut out, writes no more. Nothing where nobody waits for it."""
    try:
        seen = store.read()
        if seen is not None and seen.lease.shut_out == mine.boot:
            store.put(replace(seen.lease, shut_out=""), seen.etag)
    except (ZvaultError, LeaseLost):
        return  # they wait for the bound instead


def make_held_elsewhere_error(store: LeaseObjectStore, seen: LeaseObject) -> HeldElsewhere:
    """Another host has the lease."""
    renewed = f"and renewed its lease {format_duration(seen.age)} ago"
    if seen.is_expired():
        renewed = f"but has not renewed its lease for {format_duration(seen.age)}, and so has stopped writing"
    if is_own_lease(seen.lease):
        # "Take it down there" named the very host on which it was read.
        return HeldElsewhere(
            f"the vault's device in {store.place} is held by another machine with this host's name and machine-id",
            f"{seen.lease.owner()}, {renewed}; one of the two is a clone of the other",
            "give one of them an identity of its own: a new /etc/machine-id ('systemd-machine-id-setup' once the file"
            " is gone), 'zgenhostid -f', and another name ('hostnamectl hostname')",
        )
    advice = "take it down there; if that host is gone for good, 'zvaultctl vault take' takes it over"
    if seen.is_lost:
        longest = format_duration(seen.lease.bound)
        advice = (
            "see that the vault is down on every host that may have it; then 'zvaultctl vault take' takes it over,"
            f" once any of them must have stopped: within {longest}"
        )
    return HeldElsewhere(
        f"the vault's device in {store.place} is held by {seen.lease.host}",
        f"{seen.lease.owner()}, {renewed}",
        advice,
    )


def _gone_its_way(store: LeaseObjectStore, seen: LeaseObject) -> TakenOver:
    lease = seen.lease
    state = lease.owner() if lease.held else f"{lease.host} had it, and has given it back"
    return TakenOver(
        f"the vault's device in {store.place} was another's meanwhile",
        f"{state}; what this host's pool has in memory no longer fits what is there",
        "the suspended pool can only be given up: with 'hosts' zvaultd does so, else reboot this host",
    )
