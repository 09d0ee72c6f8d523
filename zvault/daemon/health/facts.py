"""What the daemon knows of a backup, as core/health judges it. Nothing is asked of a pool here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from zvault.api.runs import RunDocument
from zvault.config.schema import Backup
from zvault.core.dates import reject_future
from zvault.core.health.backup import BackupFacts, ProofFacts
from zvault.core.integrity.verification import PROOF_LEVELS, LevelProof, ProofLevel, describe_proof_age
from zvault.core.policy.overdue import count_missed_times, is_overdue
from zvault.core.replication.lag import DatasetLag
from zvault.daemon.backup_runs import BackupRuns
from zvault.daemon.history import RunHistory
from zvault.daemon.jobs.verify_job import VERIFY_TRIGGER
from zvault.ops.context import Context
from zvault.ops.removable_disk import is_disk_away, is_disk_out_of_care
from zvault.ops.state.older_vault import find_older_vault

UNNAMED_CONFLICT = ("what its error names",)
"""Of a conflict that an earlier daemon has seen only the run's error is kept."""


def find_worst_lag(lags: Mapping[str, DatasetLag], now: float) -> float | None:
    """A backup's lag now: its worst dataset's; None while any is unknown."""
    return _worst([lag.age(now) for lag in lags.values()])


def find_worst_age(made: Mapping[str, int | None], now: float) -> float | None:
    """Return the age of the newest snapshot of the dataset where it is the oldest, in seconds; None while any has none.

    One that is dated later than now tells nothing of its age.
    """
    return _worst(_ages(made, now))


def _ages(made: Mapping[str, int | None], now: float) -> list[float | None]:
    dates = [reject_future(one, now) for one in made.values()]
    return [None if at is None else now - at for at in dates]


def _worst(ages: Sequence[float | None]) -> float | None:
    return None if None in ages else _at_least(ages)


def _at_least(ages: Sequence[float | None]) -> float | None:
    """The worst of those that are known."""
    return max((age for age in ages if age is not None), default=None)


def make_backup_facts(
    context: Context,
    runs: BackupRuns,
    history: RunHistory,
    backup: Backup,
    *,
    started: float,
    next_run: float | None,
    not_read: str,
) -> BackupFacts:
    """One backup, of the source and the vault that it has now. ``started``: when this daemon did."""
    name, env = backup.name, context.env
    now, way = env.clock.time(), env.way(backup)
    lags = runs.lags.get(name, {})
    last, success = history.last(name, way=way), history.last(name, "ok", way=way)
    began = reject_future(success["started"], now) if success is not None else None
    made_by = history.made_since(name, way=way)
    lag = runs.turns.lag(name, find_worst_lag(lags, now))
    running = runs.runner.running(name)
    proofs = runs.proofs.noted(name)
    made = runs.made.get(name, {})
    snapshot_age = find_worst_age(made, now)
    ages = [it.age(now) for it in lags.values()] if backup.vault is not None else _ages(made, now)
    at_least = _at_least(ages)
    success_age = now - began if began is not None else None
    age = lag if lag is not None else snapshot_age
    age = age if age is not None else _at_least([success_age, at_least])
    return BackupFacts(
        name=name,
        result=last["result"] if last is not None else None,
        error=last["error"] if last is not None else None,
        made_by=made_by,
        success_age=success_age,
        lag=lag,
        max_lag=backup.max_lag,
        absent=tuple(
            one for one, it in lags.items() if it.newest_on_vault is None and it.pending is not None
        ),
        marked=tuple(one for one, it in lags.items() if it.newest_on_vault is None and it.base is not None),
        ahead=tuple(_ahead(lags, made, now)),
        at_least=at_least,
        missed=_missed(context, runs, backup, age, started),
        sends=backup.vault is not None,
        snapshot_age=snapshot_age,
        bare=tuple(one for one, at in made.items() if at is None) if any(made.values()) else (),
        due_for=now - next_run if next_run is not None and running is None else 0.0,
        not_read=not_read,
        being_read=runs.readings.being_read(name),
        proofs=dict(_proofs(backup, proofs, now)) if proofs is not None else None,
        proofs_wanted=any(_interval(backup, level) is not None for level in PROOF_LEVELS),
        held_back=sum(count for (one, _), count in runs.counters.over_limit.items() if one == name),
        exposed=context.records.exposed.last(name, way),
        conflicts=_conflicts(runs, name, last) if made_by is None else (),
        older=find_older_vault(context.env, context.records, backup.vault)
        if backup.vault is not None
        else "",
        running=running is not None and running.waiting is None,
        restore=runs.restore_times.estimate_whole(backup),
        max_restore=backup.max_restore,
        away=backup.vault is not None and is_disk_away(context, env.vault(backup.vault)),
        unprovable=_unprovable(context, runs, backup),
        snapshot_error=runs.snapshot_troubles.get(name) if backup.snapshot.timetable is not None else None,
    )


def _unprovable(context: Context, runs: BackupRuns, backup: Backup) -> bool:
    """Whether nobody can have looked yet at proofs that came due while the vault's disk was in the cupboard."""
    if backup.vault is None or not (vault := context.env.vault(backup.vault)).removable:
        return False
    verifying = runs.runner.find_run(backup.name, VERIFY_TRIGGER) is not None
    return verifying or runs.runner.is_at_work(backup.name) or is_disk_out_of_care(context, vault)


def _ahead(lags: Mapping[str, DatasetLag], made: Mapping[str, int | None], now: float) -> Iterator[str]:
    """The datasets whose newest snapshot is dated later than now."""
    yield from (one for one, it in lags.items() if it.newest_on_vault is not None and it.age(now) is None)
    yield from (one for one, at in made.items() if at is not None and reject_future(at, now) is None)


def _missed(context: Context, runs: BackupRuns, backup: Backup, age: float | None, started: float) -> bool:
    """True if two of its times went by, by its lag, or the age of its snapshots where it makes nothing else; where that
    is not known, since its last run without fault, or by the datasets of which it is known. None: nothing of it is.

    Where lag has a limit that says more, but for what never ran.
    """
    schedule, env = backup.every or backup.schedule, context.env
    if schedule is None or (backup.max_lag is not None and age is not None):
        return False
    if backup.vault is not None and env.vault(backup.vault).removable:
        return False  # its disk comes when somebody plugs it in
    since = datetime.fromtimestamp(started if age is None else env.clock.time() - age, UTC)
    run = runs.runner.running(backup.name)
    missed = count_missed_times(schedule, since, env.clock.now(), env.zone)
    return is_overdue(missed, at_work=run is not None and run.waiting is None, began=age is not None)


def _conflicts(runs: BackupRuns, name: str, last: RunDocument | None) -> tuple[str, ...]:
    if last is None or last["result"] in (None, "ok"):
        return ()
    known = runs.counters.conflicts.get(name)
    if known is not None:
        return tuple(sorted(known))
    return UNNAMED_CONFLICT if last["error"] is not None and last["error"]["reason"] == "conflict" else ()


def _proofs(
    backup: Backup, proofs: Mapping[ProofLevel, LevelProof], now: float
) -> Iterator[tuple[str, ProofFacts]]:
    first = proofs.get("guids", LevelProof()).since
    since = reject_future(first, now)
    for level in PROOF_LEVELS:
        proof = proofs.get(level, LevelProof())
        proven = reject_future(proof.proven, now)
        known = since if proof.proven is None else proven
        yield (
            level,
            ProofFacts(
                age=now - proven if proven is not None else None,
                max_age=_interval(backup, level),
                differs=proof.result == "differs",
                told=describe_proof_age(proof.proven, now),
                since=now - since if since is not None else None,
                ahead=known is None and (proof.proven is not None or first is not None),
            ),
        )


def _interval(backup: Backup, level: ProofLevel) -> float | None:
    """How often a level is to be proven. GUIDs are compared by each run, so their age is the backup's."""
    return backup.interval(level) if level != "guids" else None
