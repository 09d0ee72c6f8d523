"""The reasons about a dataset, as one backup's planner, retention and runs give them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime

from zvault.api.status import NEXT_RUN_UNKNOWN
from zvault.config.schema import Backup
from zvault.core.explanation import (
    Reason,
    Side,
    chosen,
    damage,
    kept_of,
    lag_cause,
    lag_of,
    told,
    transfer,
)
from zvault.core.integrity.damage import Damage
from zvault.core.model import Dataset
from zvault.core.policy.retention import KeepDecision
from zvault.core.policy.schedule import Interval, describe
from zvault.core.replication.lag import DatasetLag, basis
from zvault.core.replication.plan_model import TransferPlan
from zvault.core.replication.sent_reason import blocker
from zvault.core.replication.unchanged import NOTHING_UNCHANGED
from zvault.ops.context import Context
from zvault.ops.explain.knowledge import Knowledge
from zvault.ops.explain.place import Place
from zvault.ops.replication.lag import lags
from zvault.ops.replication.parallel import describe_wait
from zvault.ops.replication.plan import plan_all
from zvault.ops.replication.sides import Sides, snapshot_choices
from zvault.ops.replication.unchanged import unchanged_among
from zvault.ops.retention.prune import without_stuck
from zvault.ops.retention.prune_plan import PrunePlan, plan_prune


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan of a dataset, None where it is not known or there is none; and the conflict that it waits for."""

    plan: TransferPlan | None = None
    blocked_by: TransferPlan | None = None


@dataclass(frozen=True)
class Case:
    """A place within a backup, as it was seen, with what is known besides."""

    context: Context
    knowledge: Knowledge
    backup: Backup
    sides: Sides
    place: Place

    def when(self, seconds: float) -> str:
        """A time in words, in the zone of the configuration."""
        return datetime.fromtimestamp(seconds, self.context.env.zone).strftime("%Y-%m-%d %H:%M")

    @property
    def sends(self) -> bool:
        """True if the backup has a vault, and does not make snapshots only."""
        return self.backup.vault is not None

    @property
    def down(self) -> str:
        """That the vault is down, and of when is what is known of it."""
        seen = self.knowledge.vault_seen(self.backup)
        since = (
            f"it was last looked at {self.when(seen)}" if seen is not None else "nobody has looked at it yet"
        )
        return f"vault {self.backup.vault} is down; {since}"

    @property
    def look(self) -> str:
        """A sentence on how to see more of a vault that is down."""
        return f"'zvaultctl plan {self.backup.name}' brings it up to look"

    async def lag(self) -> DatasetLag | None:
        """The dataset's lag, as far as it is known."""
        if self.place.source is None or not self.place.taken:
            return None
        before = self.knowledge.lags(self.backup) if not self.sides.vault_seen else None
        found = await self.sides.compute(lags, self.context, self.backup, self.sides, before=before)
        return found.get(self.place.source.name)

    async def plan(self) -> Planned:
        """Plan what a run would do with the dataset as things are."""
        if not self.sides.vault_seen or self.place.source is None or not self.place.taken:
            return Planned()
        plans = {str(plan.dataset): plan for plan in await plan_all(self.context, self.backup, self.sides)}
        mine = plans.get(self.place.source.name)
        return Planned(mine, blocker(mine, plans) if mine is not None else None)

    async def verdicts(self) -> dict[Side, list[KeepDecision]]:
        """Return the next pruning's verdict on each snapshot of the dataset, by side."""
        if self.sends and not self.sides.vault_seen:
            return {}
        clients, found = self.context.clients, dict[Side, list[KeepDecision]]()
        names = {one.name for one in (self.place.source, self.place.vault) if one is not None}
        for plan in await self.sides.compute(plan_prune, self.context, self.backup, self.sides):
            mine = await plan.compute(_judged_of, plan, names)
            if mine:
                zfs = clients.source_of if plan.side == "source" else clients.vault_of
                narrowed = await without_stuck(zfs(self.backup), replace(plan, judged=mine))
                found[plan.side] = list(narrowed.verdicts)
        return found


def _judged_of(plan: PrunePlan, names: Set[str]) -> tuple[KeepDecision, ...]:
    """The verdicts on these datasets."""
    groups = (group for group in plan.groups if len(group) and next(iter(group)).snapshot.dataset in names)
    return tuple(one for group in groups for one in group)


PRUNED_ELSEWHERE = Reason(
    "kept",
    "unknown",
    'the vault\'s own host prunes it, by rules that are not known here (prune.vault = "elsewhere")',
    "'zvaultctl explain' on that host tells",
    "unknown",
    "vault",
)


def nothing_sent(backup: Backup) -> Reason:
    """Explain that a backup without a vault sends nothing."""
    what = "only prunes" if backup.prunes_only else "makes snapshots only"
    return Reason("sent", "no", f"the backup {what} (snapshots_only): it sends nothing anywhere")


async def about_dataset(case: Case) -> list[Reason]:
    """All that is to be said of a dataset."""
    place, planned = case.place, await case.plan()
    reasons = [selection(case)]
    if place.taken and place.source is not None:
        reasons += [await _snapshot(case, place.source), *_own_time(case)]
        reasons += [_sent(case, planned), *_lag(case, planned, await case.lag())]
    verdicts = await case.verdicts()
    for side, one in _sides(place):
        if side in verdicts:
            reasons.append(kept_of(verdicts[side], side, case.backup.name))
        elif one.snapshots:
            reasons.append(_unjudged(case, side))
    return [*reasons, *damages(case, None), *_runs(case), *_health(case)]


def selection(case: Case) -> Reason:
    """Explain whether the backup takes the dataset; if only the vault has it, what it is there."""
    if case.place.stray:
        return Reason("selected", "no", case.place.stray)
    return chosen("selected", case.place.choice)


def _sides(place: Place) -> Iterator[tuple[Side, Dataset]]:
    if place.source is not None:
        yield "source", place.source
    if place.vault is not None:
        yield "vault", place.vault


async def _snapshot(case: Case, dataset: Dataset) -> Reason:
    """Whether the next run makes a snapshot of it."""
    context, backup = case.context, case.backup
    unchanged = NOTHING_UNCHANGED
    if backup.snapshot.skip_unchanged and backup.snapshot.make:
        if not case.sides.vault_seen:
            why = f"{case.down}; snapshot.skip_unchanged depends on what it has"
            return Reason("snapshot", "unknown", why, case.look, "unknown")
        vault, now = context.clients.vault_of(backup), context.env.clock.time()
        unchanged = await unchanged_among(context, backup, vault, case.sides, now)
    return chosen("snapshot", snapshot_choices(context.env, backup, [dataset], unchanged)[dataset.name])


def _own_time(case: Case) -> Iterator[Reason]:
    """When snapshots are made apart from the runs."""
    if (times := case.backup.snapshot.timetable) is not None:
        key = "every" if isinstance(times, Interval) else "schedule"
        why = f"snapshot.{key} makes them, also while the vault is away; the next run sends them"
        yield Reason("next snapshot", describe(times), why)


def _sent(case: Case, planned: Planned) -> Reason:
    if not case.sends:
        return nothing_sent(case.backup)
    if planned.plan is not None:
        return transfer(planned.plan, planned.blocked_by)
    return Reason(
        "sent", "unknown", f"{case.down}, so what a run would send is not known", case.look, "unknown"
    )


def _lag(case: Case, planned: Planned, lag: DatasetLag | None) -> Iterator[Reason]:
    if lag is None:
        return
    last = case.knowledge.last_run(case.backup)
    error = case.knowledge.failed(last["id"], lag.dataset) if last is not None else None
    if error is None and last is not None and last["result"] == "failed":
        error = last["error"]
    cause, seconds = "", lag.age(case.context.env.clock.time())
    if lag.pending or seconds is None:
        scheduled = case.knowledge.known and case.backup.scheduled
        running = case.knowledge.running(case.backup)
        cause = lag_cause(planned.plan, planned.blocked_by, running=running, error=error, scheduled=scheduled)
        if running and (wait := describe_wait(case.context, case.backup.name)) is not None:
            cause = f"{cause}; it waits for {wait}"
    elif case.backup.max_lag is not None and seconds > case.backup.max_lag:
        cause = f"no newer snapshot was made: {_last_run(case)}"
    told_by = basis(lag, case.context.env.zone, case.context.env.clock.time())
    if not case.sides.vault_seen:
        told_by = f"{case.down}; as far as was seen {told_by}"
    yield lag_of(seconds, case.backup.max_lag, told_by, cause)


def _last_run(case: Case) -> str:
    last = case.knowledge.last_run(case.backup)
    if last is None:
        return (
            "no run of it is known" if case.knowledge.known else "zvaultd is not running, so no run is known"
        )
    return f"the last run, {last['id']}, began {case.when(last['started'])} ({last['result']})"


def _unjudged(case: Case, side: Side) -> Reason:
    """Why no rule counts for what is there."""
    if case.sends and not case.sides.vault_seen:
        why = f"{case.down}; a run judges what to prune once it is up"
        return Reason("kept", "unknown", why, case.look, "unknown", side)
    if side == "vault" and case.backup.prune.vault == "elsewhere":
        return PRUNED_ELSEWHERE
    return Reason("kept", "all kept", "nothing prunes what the backup does not take", side=side)


def damages(case: Case, snapname: str | None) -> Iterator[Reason]:
    """Yield the damage of it on the vault; of a dataset, in all of its snapshots."""
    if case.backup.vault is None or (case.place.vault is None and case.place.target is None):
        return
    name = case.place.vault.name if case.place.vault is not None else case.place.target
    condition = case.context.records.conditions.get(case.backup.vault)
    if condition is None:
        why = f"nobody has looked at the pool of vault {case.backup.vault} for damage yet"
        yield Reason("damage", "unknown", why, level="unknown", side="vault")
        return
    found: Sequence[Damage] = [
        one
        for one in condition.damages
        if one.dataset == name and (snapname is None or one.snapname == snapname)
    ]
    told_of = [case.knowledge.unhealed(case.backup.vault, one) for one in found]
    yield damage(
        found, f"as seen {case.when(condition.at)}", [one for one in told_of if one], case.backup.vault
    )


def _runs(case: Case) -> Iterator[Reason]:
    """How the last run fared with it, and when the next one is."""
    if not case.knowledge.known:
        yield Reason(
            "last run", "unknown", "zvaultd is not running: its history is not read", level="unknown"
        )
        return
    last, name = case.knowledge.last_run(case.backup), case.place.named
    if last is None:
        yield Reason("last run", "none", "no run of this backup has ended yet")
    else:
        failed = case.knowledge.failed(last["id"], name) if name is not None else None
        error = failed or last["error"]
        why = f"{last['id']}, begun {case.when(last['started'])}" + (f": {told(error)}" if error else "")
        advice = error["next"] if error is not None else ""
        yield Reason("last run", last["result"] or "unknown", why, advice, "warning" if error else "ok")
    due = case.knowledge.next_run(case.backup)
    state = (
        "under way"
        if case.knowledge.running(case.backup)
        else case.when(due)
        if due is not None
        else NEXT_RUN_UNKNOWN
        if case.backup.scheduled
        else "by hand"
    )
    yield Reason("next run", state, "", f"'zvaultctl run {case.backup.name}' starts one now")


def _health(case: Case) -> Iterator[Reason]:
    """What is not well with the backup and its vault, as their health says it."""
    for topic, verdict in case.knowledge.verdicts(case.backup):
        for one in verdict["findings"]:
            yield Reason(topic, one["state"], f"{one['what']}: {one['why']}", one["next"], one["level"])
