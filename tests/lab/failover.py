"""A host fails in the middle of a run, in one of several ways, and the other one that shares the vault takes over.

All but ``Storage`` is the same for each kind of storage: failover_s3.py has a bucket, failover_rbd.py an RBD image.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from failover_hosts import (
    ADDRESS,
    ASLEEP,
    BEAT,
    COPY,
    POOL,
    RATE_MIB,
    SOURCE,
    TXGS,
    api,
    backup,
    committed,
    findings,
    first,
    last_run,
    left_nothing,
    log,
    on,
    other,
    run,
    vault,
)
from peer import hashes
from report_to_host import PEER_SSH
from world import eventually, shell, snapshots

TAKEN_WITHIN = 60.0
"""Seconds besides the lease until another host has the vault."""
SSH_PORTS = "22, 2222"


@dataclass(frozen=True)
class Wrote:
    """What reached the storage from a host after another had the vault: what ``counts``, and how many were ignored."""

    counts: Sequence[str] = ()
    ignored: int = 0


class Storage(Protocol):
    """The storage of the vault that both hosts share.

    ``units``: those of its servers on a host. ``ports``: its TCP ports, as in a set of nft. ``bound``: the lease, in
    seconds.
    """

    units: str
    ports: str
    bound: float

    def holder(self) -> str:
        """The host that has the vault, by the storage's own word; "" where none has."""

    def after(self, taker: str) -> Wrote:
        """What others wrote since ``taker`` took the vault over last. The vault is down."""

    def late(self, host: str, asked: float, answered: float = 0.0) -> None:
        """Have each request of a host reach the storage so many seconds late, and each answer the host."""


# What befalls a host


def kill(storage: Storage, host: str) -> None:
    """As a host that crashes: nothing of zvault is left to say anything."""
    on(host, f"systemctl kill -s KILL zvaultd {storage.units}; systemctl --no-block stop zvaultd")


def stop(storage: Storage, host: str) -> None:
    """As a host that is frozen."""
    on(host, f"systemctl kill -s STOP --kill-whom=all zvaultd {storage.units}")


def hang(storage: Storage, host: str) -> None:
    """zvaultd alone: its server, its streams and its lease go on."""
    on(host, "systemctl kill -s STOP --kill-whom=main zvaultd")


def sleep(storage: Storage, host: str) -> None:
    """As when somebody closes the lid all the same; the clock wakes it."""
    on(host, "systemd-run -q systemctl suspend")


def cut_from_store(storage: Storage, host: str) -> None:
    """No packet from or to the storage."""
    table = "table inet cut { chain out { type filter hook output priority 0; tcp dport PORTS drop; };"
    table += " chain in { type filter hook input priority 0; tcp sport PORTS drop; }; }"
    on(host, f"nft {shlex.quote(table.replace('PORTS', f'{{ {storage.ports} }}'))}")


def cut_from_other(storage: Storage, host: str) -> None:
    """No packet from or to the other host, but for the source and the storage, which are there."""
    kept = f"{{ {SSH_PORTS}, {storage.ports} }}"
    rule = f"ip WHO {ADDRESS[other(host)]} tcp dport != {kept} tcp sport != {kept} drop; ip WHO {ADDRESS[other(host)]} "
    rule += "meta l4proto != tcp drop;"
    table = f"table inet cut {{ chain out {{ type filter hook output priority 0; {rule.replace('WHO', 'daddr')} }};"
    table += f" chain in {{ type filter hook input priority 0; {rule.replace('WHO', 'saddr')} }}; }}"
    on(host, f"nft {shlex.quote(table)}")


def late(asked: float, answered: float, storage: Storage, host: str) -> None:
    """The store gets each request late, or the host each answer."""
    storage.late(host, asked, answered)


def start(storage: Storage, host: str) -> None:
    """zvaultd is started, as by a boot."""
    on(host, "systemctl start zvaultd")


def go_on(storage: Storage, host: str) -> None:
    """What was stopped goes on."""
    on(host, "systemctl kill -s CONT --kill-whom=all zvaultd; systemctl start zvaultd")


def wake(storage: Storage, host: str) -> None:
    """It wakes by itself."""
    eventually("the host awake", partial(_answers, host), seconds=2 * ASLEEP, every=1)
    assert int(on(host, "cat /sys/power/suspend_stats/success")), on(host, "dmesg | tail -30")


def _answers(host: str) -> bool:
    argv = [*PEER_SSH, "-o", "ConnectTimeout=2", "true"]
    with suppress(subprocess.TimeoutExpired):
        return host != "peer" or subprocess.run(argv, capture_output=True, timeout=5).returncode == 0
    return False


def connect(storage: Storage, host: str) -> None:
    """Its packets come and go."""
    on(host, "nft delete table inet cut")


def in_time(storage: Storage, host: str) -> None:
    """The store answers as ever."""
    storage.late(host, 0.0)


Act = Callable[[Storage, str], None]


@dataclass(frozen=True)
class Kind:
    """One way to fail in the middle of a run, and how a host comes back from it.

    ``taken``: whether the other host takes over. ``within``: seconds for that, besides the lease.
    """

    name: str
    strike: Act
    back: Act
    taken: bool = True
    within: float = TAKEN_WITHIN

    def __str__(self) -> str:
        return self.name


KILLED = Kind("killed", kill, start)
STOPPED = Kind("stopped and continued", stop, go_on)
ASLEEP_KIND = Kind("asleep", sleep, wake)
HUNG = Kind("zvaultd hung", hang, go_on, within=3 * BEAT + TAKEN_WITHIN)
CUT_OFF = Kind("cut from the store", cut_from_store, connect)
ALONE = Kind("cut from the other", cut_from_other, connect, taken=False)


def answers_late(asked: float, answered: float = 0.0, *, taken: bool) -> Kind:
    """A store that gets what a host asks, or gives its answers, so late."""
    told = f"requests {asked:g} s late" if asked else f"answers {answered:g} s late"
    return Kind(told, partial(late, asked, answered), in_time, taken)


# One failure


@dataclass
class Row:
    """What one failure showed. ``seconds`` until another had the vault, None where none was to."""

    kind: Kind
    victim: str
    seconds: float | None = None
    stood_by: float = 0.0
    acknowledged: int = 0
    began: int = 0
    wrote: Wrote = Wrote()
    same: bool | None = None
    scrub: str = ""

    @property
    def lost(self) -> int:
        """Transaction groups that the one had written for sure, and that the other did not find."""
        return max(0, self.acknowledged + 1 - self.began) if self.seconds is not None else 0

    def __str__(self) -> str:
        taken = f"{self.seconds:.0f} s" if self.seconds is not None else "not"
        hashed = {True: "equal", False: "DIFFERENT", None: "-"}[self.same]
        return (
            f"| {self.kind} | {self.victim} | {taken} | {self.stood_by:.0f} s | {len(self.wrote.counts)} |"
            f" {self.wrote.ignored} | {self.lost} | {hashed} | {self.scrub or '-'} |"
        )


FAILED: list[Row] = []
"""Of this process, oldest first."""

HEAD = (
    "| what befell it | host | taken over after | stood by after | double writers | ignored puts | lost txgs | hashes |"
    " scrub |\n|---|---|---|---|---|---|---|---|---|"
)


def one_runs_and_the_other_skips() -> None:
    """Of two hosts whose first run is due."""
    results = eventually(
        lambda: f"{ {host: last_run(host) for host in ADDRESS} }{log('lab')}{log('peer')}",
        lambda: (
            all(last_run(host)["ended"] for host in ADDRESS)
            and {host: last_run(host)["result"] for host in ADDRESS}
        ),
        seconds=240,
        every=4,
    )
    print(results)
    assert sorted(results.values()) == ["ok", "skipped"], log("lab") + log("peer")


def write(number: int, mib: int) -> None:
    """New files on the source, so that there is something to send for some seconds."""
    shell(f"rm -f /{SOURCE}/*; head -c {mib << 20} /dev/urandom >/{SOURCE}/{number}; zpool sync tank")


def wait_until_idle() -> None:
    """Until no host has a run. Any test may come first, and both hosts begin with a run of their own."""
    for host in ADDRESS:
        eventually(
            lambda at=host: log(at), lambda at=host: backup(at)["state"] == "idle", seconds=240, every=2
        )


def under_way(host: str) -> bool:
    """Whether a host's stream has come some way."""
    found = backup(host)
    return found["state"] == "running" and found["bytes_done"] > 2 * RATE_MIB << 20


def fail(storage: Storage, kind: Kind, victim: str, number: int, mib: int = 48) -> Row:
    """A host fails in the middle of a run, the other takes over, and the first one cleans up and stands by.

    The stream goes on for ``mib`` seconds: longer than the other may take to ask for its turn, half a minute.
    """
    row, taker = Row(kind, victim), other(victim)
    wait_until_idle()
    write(number, mib)
    run(victim)
    eventually(lambda: log(victim), lambda: storage.holder() == victim, seconds=180, every=1)
    run(taker)
    eventually(
        lambda: f"{backup(taker)}",
        lambda: f"{victim} has the vault" in (backup(taker)["turn"]["waits"] or ""),
        every=1,
    )
    # It has just looked at the lease: later it does not know that the lease still counts until it looks again.
    assert vault(taker)["held_by"] == storage.holder() == victim
    eventually(lambda: f"{backup(victim)} {log(victim)}", lambda: under_way(victim), seconds=180, every=0.5)
    row.acknowledged = committed(victim)
    struck = time.monotonic()
    kind.strike(storage, victim)
    if kind.taken:
        within = storage.bound + kind.within
        eventually(lambda: log(taker), lambda: storage.holder() == taker, seconds=within, every=0.5)
        row.seconds = time.monotonic() - struck
    else:
        _goes_on(victim)
    _its_run_ends(row, taker)
    kind.back(storage, victim)
    eventually(lambda: log(victim), lambda: left_nothing(victim), seconds=240, every=2)
    eventually(lambda: f"{last_run(victim)}", lambda: backup(victim)["state"] == "idle", seconds=240, every=1)
    row.stood_by = time.monotonic() - struck
    assert "damaged" not in findings(victim), log(victim)
    FAILED.append(row)
    return row


def _goes_on(victim: str) -> None:
    """What befell it is no reason to stop: its run gets to its end."""
    run = last_run(victim)["id"]
    eventually(lambda: log(victim), lambda: last_run(victim)["ended"], seconds=240, every=1)
    made = last_run(victim)
    assert (made["id"], made["result"]) == (run, "ok"), (made, log(victim))


def _its_run_ends(row: Row, taker: str) -> None:
    """The other host's run, which resumes the stream if it took over."""

    def ended() -> bool:
        answer, _, txgs = on(taker, f"{api('/v1/history?backup=tank&limit=1')}; echo; {TXGS}").partition("\n")
        row.began = row.began or first(txgs)
        return bool(json.loads(answer)["runs"][0]["ended"])

    eventually(lambda: log(taker), ended, seconds=240, every=1)
    made = last_run(taker)
    assert made["result"] == "ok", (made, log(taker))
    kinds = re.findall(r'"kind": ?"([a-z-]+)"', on(taker, api(f"/v1/events?run={made['id']}")))
    assert "resume" in kinds or not row.kind.taken, (kinds, log(taker))


def judge_after_failures(storage: Storage) -> Row:
    """The vault after all that befell its hosts: where that is nothing yet (a test run alone), one is killed first."""
    if not FAILED:
        fail(storage, KILLED, "lab", 1)
    wait_until_idle()
    row = Row(KILLED, "lab")
    judge(row, newest=len(FAILED) + 1)
    return row


def judge(row: Row, newest: int = 1) -> None:
    """What is in the vault: whether it has all snapshots, the newest as they are on the source, and no fault."""
    on("lab", f"zvaultctl vault up {POOL}")
    try:
        there, here = snapshots(SOURCE), snapshots(COPY)
        row.same = (
            bool(there)
            and set(there) <= set(here)
            and all(hashes(f"{COPY}@{name}") == hashes(f"{SOURCE}@{name}") for name in there[-newest:])
        )
        found = shell(f"zpool scrub -w {POOL}; zpool status {POOL}")
        row.scrub = "clean" if "No known data errors" in found and "repaired 0B" in found else found
    finally:
        on("lab", f"zvaultctl vault down {POOL}")
