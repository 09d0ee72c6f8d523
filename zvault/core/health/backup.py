"""What can be wrong with a backup, and whether it is. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from zvault.core.errors import ErrorDocument
from zvault.core.health.backup_conditions import (
    BACKUP_CONDITIONS,
    BACKUP_LATE,
    BACKUP_VERY_LATE,
    BASE_AT_RISK,
    CONFLICT,
    DIFFERS,
    EXPOSED,
    FAILED,
    FIRST_RUN,
    HELD_BACK,
    INTERRUPTED,
    LAG_UNKNOWN,
    LAG_UNKNOWN_LONG,
    NEVER_PROVEN,
    NEW,
    NOT_READ,
    NOT_SNAPSHOTTED,
    NOT_STARTED,
    OVERDUE,
    PARTIAL,
    PROOF_OVERDUE,
    PROOF_UNKNOWN,
    RESTORE_SLOW,
    RESTORE_UNKNOWN,
    SNAPSHOTS_UNKNOWN,
    UNKNOWN_LONG,
)
from zvault.core.health.verdict import (
    DAY_SECONDS,
    HealthCondition,
    HealthFinding,
    HealthVerdict,
    make_finding,
)
from zvault.core.integrity.restore_time import RestoreEstimate
from zvault.core.units import format_duration

FAR_BEHIND_FACTOR = 3.0
"""Times ``max_lag`` beyond which a backup is very late: it does not catch up by itself."""

GRACE, LEAST_GRACE = 0.1, 3600.0
"""A proof is overdue this share of its interval after it was due, and so many seconds at least."""

START_WITHIN = 900.0
"""Seconds within which a run that is due has to begin."""

WRONG_CLOCK = "a clock was wrong then, or is now"
"""Why a date can be later than now."""

NAMED_DATASETS = 3
"""Datasets named in one sentence."""

LastResult = Literal["ok", "partial", "failed", "interrupted", "skipped"]


@dataclass(frozen=True, slots=True)
class ProofFacts:
    """The facts about one level of verification; ages in seconds, None where it never passed.

    ``since``: seconds since the level could first have been proven. ``max_age``: its interval, None if by hand only.
    ``ahead``: whether its age is not known because a date is later than now: that on which it passed, or could first
    have been proven.
    """

    age: float | None
    max_age: float | None
    differs: bool = False
    told: str = ""
    since: float | None = None
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class BackupFacts:
    """The facts about a backup from which it is judged. None: not known.

    ``result``, ``error``: of the last run that ended; None also where none ever did. ``made_by``: the host that says
    that it has made one since, in this one's place: then that run counts no more. ``success_age``: seconds since the
    last run without fault began. ``lag``, ``max_lag``: seconds; ``max_lag`` None where the user sets no limit.
    ``absent``, ``marked``: datasets of which the vault has no snapshot that the source has too, and of which only a
    bookmark is left as the base.
    ``ahead``: those whose newest snapshot is dated later than now, so that its age is not known. ``at_least``: the
    largest of the lags that are known of its datasets, or of their snapshots' ages where it makes nothing else.
    ``missed``: whether two times of the schedule passed without a backup. ``due_for``: seconds since a run was due that
    has not begun. ``not_read``: why its lag could not be read last, empty if it could. ``being_read``: something may
    have changed, and it is not known yet what. ``proofs``: by level.
    ``proofs_wanted``: whether any level has an interval. ``conflicts``: datasets that the last run left out for one.
    ``sends``: False where it makes snapshots only: then there is no lag; ``snapshot_age`` is how old the newest one is,
    in seconds, and ``bare`` the datasets without any where others have some. ``running``: whether a run of it is under
    way. ``exposed``: the vault's datasets that lie in the clear below what is encrypted, each with the latter's name.
    ``snapshot_error``: what was wrong with the last snapshot that it made apart from its runs.
    ``older``: how much older its vault is than it was, in words. ``restore``: how long it takes to restore all of it;
    ``max_restore``: seconds that it may, None where the user sets no limit. ``away``: whether its vault's disk is one
    that is plugged in now and then, and is not there. ``unprovable``: nobody can have looked yet at what is due of
    its proofs, for that disk is away, came lately, or is at work.
    """

    name: str
    result: LastResult | None = None
    error: ErrorDocument | None = None
    success_age: float | None = None
    lag: float | None = None
    max_lag: float | None = None
    absent: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()
    missed: bool = False
    due_for: float = 0.0
    not_read: str = ""
    being_read: bool = False
    proofs: Mapping[str, ProofFacts] | None = None
    proofs_wanted: bool = False
    held_back: int = 0
    conflicts: tuple[str, ...] = ()
    sends: bool = True
    snapshot_age: float | None = None
    bare: tuple[str, ...] = ()
    ahead: tuple[str, ...] = ()
    at_least: float | None = None
    made_by: str | None = None
    running: bool = False
    exposed: Mapping[str, str] = field(default_factory=dict)
    snapshot_error: ErrorDocument | None = None
    older: str = ""
    restore: RestoreEstimate | None = None
    max_restore: float | None = None
    away: bool = False
    unprovable: bool = False

    @property
    def never_ran(self) -> bool:
        """True if no run of it is known, and nothing of it on the vault, or on the source where that is all."""
        ran = self.result is not None or self.made_by is not None
        seen = self.lag is not None or self.snapshot_age is not None or self.bare or self.ahead
        return not ran and not seen

    @property
    def patience(self) -> float:
        """Seconds for which something about it may be unknown."""
        return DAY_SECONDS if self.max_lag is None else self.max_lag


def judge_backup(facts: BackupFacts, unknown_for: float = 0.0) -> HealthVerdict:
    """The verdict. ``unknown_for``: seconds for which something about the backup has been unknown without a break."""
    verdict = HealthVerdict.of(_found(facts), BACKUP_CONDITIONS)
    if not verdict.open or unknown_for < facts.patience:
        return verdict
    first = next(one for one in verdict.findings if one.condition.level == "unknown")
    if first.condition == FIRST_RUN:
        return verdict  # a first stream of many terabytes takes weeks, and nobody has to start anything
    if facts.away and facts.max_lag is None and not (facts.never_ran or facts.not_read):
        return (
            verdict  # a dataset that is new since waits for the disk like all else, and nobody said how long
        )
    lag = facts.sends and first.condition in (NEW, FIRST_RUN, LAG_UNKNOWN)
    condition = LAG_UNKNOWN_LONG if lag else UNKNOWN_LONG
    why = f"for {format_duration(unknown_for)}: {first.why}"
    return HealthVerdict.of(
        [*verdict.findings, make_finding(condition, facts.name, why, first.next)], BACKUP_CONDITIONS
    )


def is_late(verdict: HealthVerdict) -> bool:
    """True if the vault lies further behind than the user tolerates, or may do so."""
    return any(one.word == BACKUP_LATE.word for one in verdict.findings)


def _found(facts: BackupFacts) -> Iterator[HealthFinding]:
    yield from _lag(facts)
    yield from _last_run(facts)
    yield from _rest(facts)
    yield from _proofs(facts)
    yield from _restore(facts)


def _last_run(facts: BackupFacts) -> Iterator[HealthFinding]:
    conditions: dict[str, HealthCondition] = {
        "failed": FAILED,
        "partial": PARTIAL,
        "interrupted": INTERRUPTED,
    }
    condition = conditions.get(facts.result or "") if facts.made_by is None else None
    if condition is not None:
        error = facts.error
        why = _told(error) if error is not None else "no error is on record"
        yield make_finding(condition, facts.name, why, error["next"] if error is not None else "")
    if (error := facts.snapshot_error) is not None:
        yield make_finding(NOT_SNAPSHOTTED, facts.name, _told(error), error["next"])
    if facts.conflicts:
        yield make_finding(CONFLICT, facts.name, f"the last run left out {_named(facts.conflicts)}")


def _lag(facts: BackupFacts) -> Iterator[HealthFinding]:
    """How far it lies behind. One dataset whose lag is not known makes none better whose lag is."""
    lag, limit = facts.lag, facts.max_lag
    if facts.being_read and lag is None and not facts.not_read:
        yield make_finding(
            LAG_UNKNOWN, facts.name, "something may have changed: it is not known yet, but being read"
        )
        return
    known, least = (lag, "") if lag is not None else (facts.at_least, "at least ")
    if known is not None and limit is not None and known > limit:
        why = f"the lag is {least}{format_duration(known)}, max_lag is {format_duration(limit)}"
        yield make_finding(
            BACKUP_VERY_LATE if known > FAR_BEHIND_FACTOR * limit else BACKUP_LATE, facts.name, why
        )
    elif lag is None and limit is not None and facts.success_age is not None and facts.success_age > limit:
        ago = f"the last run without fault began {format_duration(facts.success_age)} ago"
        yield make_finding(
            BACKUP_LATE, facts.name, f"the lag is not known; {ago}, max_lag is {format_duration(limit)}"
        )
    if facts.missed:
        since = "and it never ran" if facts.never_ran else "since its last good run"
        yield make_finding(OVERDUE, facts.name, f"two of its times have passed {since}")
    if facts.due_for > START_WITHIN:
        yield make_finding(NOT_STARTED, facts.name, f"a run was due {format_duration(facts.due_for)} ago")
    if lag is not None or facts.snapshot_age is not None:
        return
    if facts.never_ran:
        on_vault = "nothing of it is known to be on the vault"
        condition = FIRST_RUN if facts.running else NEW
        yield make_finding(condition, facts.name, on_vault if facts.sends else "no snapshot of it is known")
    elif not facts.sends:
        without = f"there is none of {_named(facts.bare)}" if facts.bare else _ahead(facts)
        yield make_finding(SNAPSHOTS_UNKNOWN, facts.name, without or facts.not_read or "none of it is known")
    else:
        # One that was put back, or whose source was, has snapshots that can be restored: only none in common.
        lacks = f"the vault has no snapshot of {_named(facts.absent)} that the source has too"
        lacks = f"{lacks}: {facts.older}" if facts.older else lacks
        absent = lacks if facts.absent else _ahead(facts)
        why = absent or facts.not_read or "nobody has seen yet what the vault has"
        # A run that has just left it out does no better for being started again.
        tried = facts.absent and facts.result in {"partial", "failed"}
        advice = f"'zvaultctl explain {facts.absent[0]}' says what keeps it out" if tried else ""
        yield make_finding(LAG_UNKNOWN, facts.name, why, advice)


def _rest(facts: BackupFacts) -> Iterator[HealthFinding]:
    if facts.exposed:
        key = next(iter(facts.exposed.values()))
        named = _named(tuple(facts.exposed))
        yield make_finding(EXPOSED, facts.name, f"{named}: in the clear below {key}, which is encrypted")
    if facts.marked:
        yield make_finding(
            BASE_AT_RISK, facts.name, f"only a bookmark is left of the base of {_named(facts.marked)}"
        )
    if facts.held_back:
        datasets = "1 dataset" if facts.held_back == 1 else f"{facts.held_back} datasets"
        why = f"prune_limit holds snapshots of {datasets} back; the next runs prune them, oldest first"
        yield make_finding(HELD_BACK, facts.name, why)
    if facts.not_read and (facts.lag is not None or facts.snapshot_age is not None):
        yield make_finding(NOT_READ, facts.name, facts.not_read)


def _proofs(facts: BackupFacts) -> Iterator[HealthFinding]:
    for level, proof in (facts.proofs or {}).items():
        if proof.differs:
            yield make_finding(DIFFERS, facts.name, f"{level} found a difference; {proof.told}")
        if proof.max_age is None or facts.unprovable:
            continue
        limit = proof.max_age + max(GRACE * proof.max_age, LEAST_GRACE)
        wanted = f"it is to be every {format_duration(proof.max_age)}"
        does = f"'zvaultctl verify {facts.name} --level {level}' does it"
        if proof.age is not None and proof.age > limit:
            why = f"{level} last passed {format_duration(proof.age)} ago, {wanted}"
            yield make_finding(PROOF_OVERDUE, facts.name, why, does)
        elif proof.age is None and proof.ahead:
            why = f"when {level} last passed, or first could have, is dated later than now: {WRONG_CLOCK}"
            yield make_finding(PROOF_UNKNOWN, facts.name, why, does)
        elif proof.age is None and proof.since is not None and proof.since > limit:
            yield make_finding(NEVER_PROVEN, facts.name, f"{level} never passed, {wanted}", does)
    if facts.proofs is None and facts.proofs_wanted and not facts.never_ran:
        yield make_finding(PROOF_UNKNOWN, facts.name, "nobody has seen yet what the vault has of proofs")


def _restore(facts: BackupFacts) -> Iterator[HealthFinding]:
    """Whether it could be had back in time. Of what never ran there is nothing to have back."""
    limit = facts.max_restore
    if limit is None or facts.never_ran:
        return
    takes = facts.restore.seconds if facts.restore is not None else None
    told = facts.restore.describe() if facts.restore is not None else "unknown"
    if takes is None:
        yield make_finding(RESTORE_UNKNOWN, facts.name, f"the time to restore it is {told}")
    elif takes > limit:
        why = f"to restore it takes {told}, max_restore is {format_duration(limit)}"
        yield make_finding(RESTORE_SLOW, facts.name, why)


def _ahead(facts: BackupFacts) -> str:
    if not facts.ahead:
        return ""
    named = _named(facts.ahead)
    return f"the newest snapshot of {named} is dated later than now: {WRONG_CLOCK}"


def _named(datasets: tuple[str, ...]) -> str:
    more = len(datasets) - NAMED_DATASETS
    return ", ".join(datasets[:NAMED_DATASETS]) + (f" and {more} more" if more > 0 else "")


def _told(error: ErrorDocument) -> str:
    return f"{error['what']}: {error['why']}" if error["why"] else error["what"]
