"""What can be wrong with a vault, and whether it is. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from zvault.core.errors import DeviceGone, ErrorDocument, JournalMissing
from zvault.core.health.space import AMPLE_SHARE, FULL_SOON_SPAN
from zvault.core.health.vault_conditions import (
    ALMOST_FULL,
    DEGRADED,
    DEVICE_GONE,
    DRIFT,
    ERROR,
    FOREIGN_DEVICE,
    FULL_SOON,
    HALF_RECEIVED_ERRORS,
    HALF_UP,
    JOURNAL_BACKLOG,
    JOURNAL_MISSING,
    NEVER_SEEN,
    POOL_UNWELL,
    PUT_BACK,
    READ_ONLY,
    REBOOT,
    RISKY_PROPERTIES,
    SCRUB_MISSED,
    SCRUB_OVERDUE,
    STALLED,
    STORE_TROUBLE,
    UNPROVEN,
    VAULT_CONDITIONS,
    VAULT_DAMAGED,
    VAULT_GONE,
    VAULT_UNKNOWN_LONG,
    WAS_DEGRADED,
)
from zvault.core.health.verdict import DAY_SECONDS, HealthFinding, HealthVerdict, make_finding
from zvault.core.integrity.damage import DamageKind, advise_on_damage, describe_damage_kinds
from zvault.core.units import format_duration, format_size

LEAST_FREE = 0.05
"""Share of a pool below which it is almost full."""

JOURNAL_FULL = 0.9
"""Share of a block store's journal above which it is full."""

BACKLOG_FOR = 600.0
"""Seconds for which a journal may be full: while much is written it always is."""

SCRUB_GRACE_SHARE = 0.1
"""A scrub that is due is overdue after this share of the time until it was due, and a day at least."""


@dataclass(frozen=True, slots=True)
class VaultHealthFacts:
    """The facts about a vault from which it is judged. None: not known.

    ``pool_state``: as ``zpool list`` has it, None while the pool is not imported. ``readonly``: it was imported so.
    ``locked``: devices that take no writes.
    ``multihost``, ``panics``: its pool has multihost=on, failmode=panic. ``networked``: zvault brings its devices up.
    ``foreign``: devices that the pool needs and that are not the vault's own, as last seen.
    ``older``: how much older its pool is than it was, in words. ``doubted_for``: seconds since its storage was lost and
    may not have kept everything; None where there is no such doubt.
    ``lost``: devices that are gone, in words. ``troubles``: of block stores, in words. ``looked``: whether any look at
    the pool is on record. ``errors``: on ZFS's list, without ``unexplained`` ones, which are there while datasets are
    ``half_received``; ``damage_kinds``: the kinds of those that were named.
    ``scrub_age``, ``scrub_due``: seconds since the last scrub, and after how many one is due; None
    where that is not known, or scrubs are off; ``scrub_by_age``: whether an age is what makes it due. ``was_degraded``,
    ``free``, ``size``: as last seen. ``full_in``: seconds until it is full at the pace of late, None where it does not
    fill, or nobody knows. ``journal_full_for``: seconds. ``stalls``, ``drift``: what was told of its storage, in words.
    """

    name: str
    pool: str
    state: Literal["up", "down", "partial", "gone"]
    pool_state: str | None = None
    readonly: bool = False
    locked: tuple[str, ...] = ()
    multihost: bool = False
    panics: bool = False
    networked: bool = False
    foreign: tuple[str, ...] = ()
    older: str = ""
    doubted_for: float | None = None
    error: ErrorDocument | None = None
    lost: tuple[str, ...] = ()
    troubles: tuple[str, ...] = ()
    looked: bool = False
    errors: int = 0
    damage_kinds: frozenset[DamageKind] = frozenset()
    unexplained: int = 0
    half_received: tuple[str, ...] = ()
    scrub_age: float | None = None
    scrub_due: float | None = None
    scrub_by_age: bool = True
    scrubbing: bool = False
    scrub_why: str = ""
    was_degraded: bool = False
    free: int | None = None
    size: int | None = None
    journal_full_for: float = 0.0
    full_in: float | None = None
    stalls: tuple[str, ...] = ()
    drift: str = ""


def judge_vault(facts: VaultHealthFacts, unknown_for: float = 0.0) -> HealthVerdict:
    """The verdict. ``unknown_for``: seconds for which something about the vault has been unknown without a break."""
    verdict = HealthVerdict.of(_found(facts), VAULT_CONDITIONS)
    if not verdict.open or unknown_for < DAY_SECONDS:
        return verdict
    why = f"for {format_duration(unknown_for)}: {verdict.findings[-1].why}"
    return HealthVerdict.of(
        [*verdict.findings, make_finding(VAULT_UNKNOWN_LONG, facts.name, why)], VAULT_CONDITIONS
    )


def _found(facts: VaultHealthFacts) -> Iterator[HealthFinding]:
    yield from _storage(facts)
    yield from _contents(facts)
    if facts.troubles:
        yield make_finding(STORE_TROUBLE, facts.name, "; ".join(facts.troubles))
    if facts.journal_full_for > BACKLOG_FOR:
        why = f"its journal has been full for {format_duration(facts.journal_full_for)}"
        yield make_finding(JOURNAL_BACKLOG, facts.name, why)
    if facts.stalls:
        yield make_finding(STALLED, facts.name, "; ".join(facts.stalls))
    if facts.drift:
        yield make_finding(DRIFT, facts.name, facts.drift)


def _storage(facts: VaultHealthFacts) -> Iterator[HealthFinding]:
    error, told, following = facts.error, "", ""
    if error is not None:
        told, following = ": ".join(filter(None, (error["what"], error["why"]))), error["next"]
    if error is not None and error["reason"] == JournalMissing.reason and facts.state != "up":
        yield make_finding(JOURNAL_MISSING, facts.name, told, following)
    elif facts.state == "gone":
        lost = "; ".join(facts.lost)
        imported = facts.lost and facts.pool_state is not None
        why = lost or told or "it cannot be looked at"
        yield make_finding(DEVICE_GONE if imported else VAULT_GONE, facts.name, why, following)
    elif facts.state == "partial":
        yield make_finding(
            HALF_UP, facts.name, told or "not all of its devices and its pool are up", following
        )
    elif error is not None:
        if error["reason"] == DeviceGone.reason and facts.state == "down" and "zvaultctl" not in following:
            # Nothing looks at the storage of a vault that is down, so this stays when the storage is back.
            again = f"the next run tries again, and 'zvaultctl vault up {facts.name}' does at once"
            following = "; ".join(filter(None, (following, again)))
        yield make_finding(ERROR, facts.name, told, following)
    if facts.pool_state == "DEGRADED":
        yield make_finding(DEGRADED, facts.name, f"its pool {facts.pool} is DEGRADED")
    elif facts.pool_state is not None and facts.pool_state != "ONLINE":
        why = f"its pool {facts.pool} is {facts.pool_state}"
        if facts.multihost:
            why = f"{why}, and has multihost=on: OpenZFS cannot resume it"
        # What the last try to bring it back met says more than that it is tried again.
        next_step = REBOOT.format(pool=facts.pool) if facts.multihost else following
        yield make_finding(POOL_UNWELL, facts.name, why, next_step, facts.pool_state)
    yield from _properties(facts)
    if facts.readonly:
        why, following = f"its pool {facts.pool} was imported read-only", ""
        if facts.locked:
            why = f"{why}, since {', '.join(facts.locked)} takes no writes"
            following = f"make its store writable; then 'zvaultctl vault down {facts.name}', and 'vault up'"
        yield make_finding(READ_ONLY, facts.name, why, following)
    if facts.pool_state is None and facts.was_degraded:
        yield make_finding(
            WAS_DEGRADED, facts.name, f"its pool {facts.pool} was DEGRADED when it was last seen"
        )


def _properties(facts: VaultHealthFacts) -> Iterator[HealthFinding]:
    """What an administrator set on the pool, and an outage of its storage makes worse."""
    risks = []
    if facts.panics:
        risks.append(("failmode=panic: the kernel panics when its storage fails", "failmode=continue"))
    if facts.multihost and facts.networked:
        risks.append(("multihost=on: ten seconds without a write suspend it for good", "multihost=off"))
    if risks:
        why = f"its pool {facts.pool} has {', and '.join(risk for risk, _ in risks)}"
        following = " and ".join(f"'zpool set {better} {facts.pool}'" for _, better in risks)
        yield make_finding(RISKY_PROPERTIES, facts.name, why, following)


def _contents(facts: VaultHealthFacts) -> Iterator[HealthFinding]:
    if facts.pool_state is None and not facts.looked and facts.state == "down":
        yield make_finding(NEVER_SEEN, facts.name, "it is down, and no look at its pool is on record")
    if facts.foreign:
        devices = ", ".join(facts.foreign)
        yield make_finding(FOREIGN_DEVICE, facts.name, f"its pool {facts.pool} lies on {devices} too")
    if facts.older:
        yield make_finding(PUT_BACK, facts.name, facts.older)
    if facts.doubted_for is not None:
        since = format_duration(facts.doubted_for)
        why = f"its server was lost below its pool {since} ago, and it was not scrubbed since"
        yield make_finding(UNPROVEN, facts.name, why)
    if facts.errors:
        why = f"ZFS has {_errors(facts.errors)} on its list{describe_damage_kinds(facts.damage_kinds)}"
        yield make_finding(VAULT_DAMAGED, facts.name, why, advise_on_damage(facts.name, facts.damage_kinds))
    if facts.unexplained:
        half = (
            f"half received is {', '.join(facts.half_received)}"
            if facts.half_received
            else "nothing is half received any more: the next whole scrub tells whether that is damage"
        )
        yield make_finding(
            HALF_RECEIVED_ERRORS, facts.name, f"ZFS has {_errors(facts.unexplained)} on its list, and {half}"
        )
    if facts.free is not None and facts.size and facts.free < LEAST_FREE * facts.size:
        why = f"{format_size(facts.free)} of {format_size(facts.size)} is free"
        yield make_finding(ALMOST_FULL, facts.name, why)
    elif _fills(facts) and facts.full_in is not None and facts.full_in < FULL_SOON_SPAN:
        free = f"{format_size(facts.free or 0)} of {format_size(facts.size or 0)} is free"
        yield make_finding(FULL_SOON, facts.name, f"{free}, enough for {format_duration(facts.full_in)}")
    age, due = facts.scrub_age, facts.scrub_due
    if (
        age is not None
        and due is not None
        and age > due + max(SCRUB_GRACE_SHARE * due, DAY_SECONDS)
        and not facts.scrubbing
    ):
        held = f"; {facts.scrub_why}" if facts.scrub_why else ""
        why = (
            f"the last scrub ended {format_duration(age)} ago; one was due after {format_duration(due)}{held}"
        )
        yield make_finding(SCRUB_OVERDUE if facts.scrub_by_age else SCRUB_MISSED, facts.name, why)


def _errors(count: int) -> str:
    return "1 error" if count == 1 else f"{count} errors"


def _fills(facts: VaultHealthFacts) -> bool:
    return facts.free is not None and bool(facts.size) and facts.free < AMPLE_SHARE * (facts.size or 0)
