"""The reasons about a dataset, as one backup's planner, retention and runs give them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime

from zvault.api.status import NEXT_RUN_UNKNOWN
from zvault.config.schema import Backup
from zvault.core.explanation import (
    ExplainedDecision,
    ExplainedSide,
    explain_choice,
    explain_damage,
    explain_lag,
    explain_transfer,
    find_lag_cause,
    format_error_line,
    summarize_retention,
)
from zvault.core.integrity.damage import DamagedFile
from zvault.core.model import Dataset
from zvault.core.policy.cron_schedule import ScheduleInterval, describe_schedule
from zvault.core.policy.retention import KeepDecision
from zvault.core.replication.lag import DatasetLag, describe_lag_basis
from zvault.core.replication.plan_model import TransferPlan
from zvault.core.replication.sent_reason import find_blocking_plan
from zvault.core.replication.unchanged_datasets import NOTHING_UNCHANGED
from zvault.ops.context import Context
from zvault.ops.explain.dataset_place import DatasetPlace
from zvault.ops.explain.knowledge import KnowledgeSource
from zvault.ops.removable_disk import is_disk_away
from zvault.ops.replication.find_unchanged import list_unchanged_among
from zvault.ops.replication.lag import measure_lags
from zvault.ops.replication.listing import BothListings, choose_snapshots
from zvault.ops.replication.plan_all import plan_all
from zvault.ops.retention.prune import drop_stuck
from zvault.ops.retention.prune_plan import PrunePlan, plan_prune
from zvault.ops.stream.parallel import describe_wait


@dataclass(frozen=True, slots=True)
class PlannedDataset:
    """The plan of a dataset, None where it is not known or there is none; and the conflict that it waits for."""

    plan: TransferPlan | None = None
    blocked_by: TransferPlan | None = None


@dataclass(frozen=True)
class ExplainCase:
    """A place within a backup, as it was seen, with what is known besides."""

    context: Context
    knowledge: KnowledgeSource
    backup: Backup
    sides: BothListings
    place: DatasetPlace

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
        return f"vault {self.backup.vault} is {'away, its disk unplugged' if self._away else 'down'}; {since}"

    @property
    def look(self) -> str:
        """A sentence on how to see more of a vault that is down."""
        first = "plug its disk in, then " * self._away
        return f"{first}'zvaultctl plan {self.backup.name}' brings it up to look"

    @property
    def _away(self) -> bool:
        return is_disk_away(self.context, self.context.env.vault(self.backup.its_vault))

    async def lag(self) -> DatasetLag | None:
        """The dataset's lag, as far as it is known."""
        if self.place.source is None or not self.place.taken:
            return None
        before = self.knowledge.lags(self.backup) if not self.sides.vault_seen else None
        found = await self.sides.compute(measure_lags, self.context, self.backup, self.sides, before=before)
        return found.get(self.place.source.name)

    async def plan(self) -> PlannedDataset:
        """Plan what a run would do with the dataset as things are."""
        if not self.sides.vault_seen or self.place.source is None or not self.place.taken:
            return PlannedDataset()
        plans = {str(plan.dataset): plan for plan in await plan_all(self.context, self.backup, self.sides)}
        mine = plans.get(self.place.source.name)
        return PlannedDataset(mine, find_blocking_plan(mine, plans) if mine is not None else None)

    async def verdicts(self) -> dict[ExplainedSide, list[KeepDecision]]:
        """Return the next pruning's verdict on each snapshot of the dataset, by side."""
        if self.sends and not self.sides.vault_seen:
            return {}
        clients, found = self.context.clients, dict[ExplainedSide, list[KeepDecision]]()
        names = {one.name for one in (self.place.source, self.place.vault) if one is not None}
        for plan in await self.sides.compute(plan_prune, self.context, self.backup, self.sides):
            mine = await plan.compute(_judged_of, plan, names)
            if mine:
                zfs = clients.source_of if plan.side == "source" else clients.vault_of
                narrowed = await drop_stuck(zfs(self.backup), replace(plan, judged=mine))
                found[plan.side] = list(narrowed.verdicts)
        return found


def _judged_of(plan: PrunePlan, names: Set[str]) -> tuple[KeepDecision, ...]:
    """The verdicts on these datasets."""
    groups = (group for group in plan.groups if len(group) and next(iter(group)).snapshot.dataset in names)
    return tuple(one for group in groups for one in group)


PRUNED_ELSEWHERE = ExplainedDecision(
    "kept",
    "unknown",
    'the vault\'s own host prunes it, by rules that are not known here (prune.vault = "elsewhere")',
    "'zvaultctl explain' on that host tells",
    "unknown",
    "vault",
)


def explain_nothing_sent(backup: Backup) -> ExplainedDecision:
    """Explain that a backup without a vault sends nothing."""
    what = "only prunes" if backup.prunes_only else "makes snapshots only"
    return ExplainedDecision("sent", "no", f"the backup {what} (snapshots_only): it sends nothing anywhere")


async def explain_dataset(case: ExplainCase) -> list[ExplainedDecision]:
    """All that is to be said of a dataset."""
    place, planned = case.place, await case.plan()
    reasons = [explain_selection(case)]
    if place.taken and place.source is not None:
        reasons += [await _snapshot(case, place.source), *_own_time(case)]
        reasons += [_sent(case, planned), *_lag(case, planned, await case.lag())]
    verdicts = await case.verdicts()
    for side, one in _sides(place):
        if side in verdicts:
            reasons.append(summarize_retention(verdicts[side], side, case.backup.name))
        elif one.snapshots:
            reasons.append(_unjudged(case, side))
    return [*reasons, *explain_damages(case, None), *_runs(case), *_health(case)]


def explain_selection(case: ExplainCase) -> ExplainedDecision:
    """Explain whether the backup takes the dataset; if only the vault has it, what it is there."""
    if case.place.stray:
        return ExplainedDecision("selected", "no", case.place.stray)
    return explain_choice("selected", case.place.choice)


def _sides(place: DatasetPlace) -> Iterator[tuple[ExplainedSide, Dataset]]:
    if place.source is not None:
        yield "source", place.source
    if place.vault is not None:
        yield "vault", place.vault


async def _snapshot(case: ExplainCase, dataset: Dataset) -> ExplainedDecision:
    """Whether the next run makes a snapshot of it."""
    context, backup = case.context, case.backup
    unchanged = NOTHING_UNCHANGED
    if backup.snapshot.skip_unchanged and backup.snapshot.make:
        if not case.sides.vault_seen:
            why = f"{case.down}; snapshot.skip_unchanged depends on what it has"
            return ExplainedDecision("snapshot", "unknown", why, case.look, "unknown")
        vault, now = context.clients.vault_of(backup), context.env.clock.time()
        unchanged = await list_unchanged_among(context, backup, vault, case.sides, now)
    return explain_choice(
        "snapshot", choose_snapshots(context.env, backup, [dataset], unchanged)[dataset.name]
    )


def _own_time(case: ExplainCase) -> Iterator[ExplainedDecision]:
    """When snapshots are made apart from the runs."""
    if (times := case.backup.snapshot.timetable) is not None:
        key = "every" if isinstance(times, ScheduleInterval) else "schedule"
        why = f"snapshot.{key} makes them, also while the vault is away; the next run sends them"
        yield ExplainedDecision("next snapshot", describe_schedule(times), why)


def _sent(case: ExplainCase, planned: PlannedDataset) -> ExplainedDecision:
    if not case.sends:
        return explain_nothing_sent(case.backup)
    if planned.plan is not None:
        return explain_transfer(planned.plan, planned.blocked_by)
    return ExplainedDecision(
        "sent", "unknown", f"{case.down}, so what a run would send is not known", case.look, "unknown"
    )


def _lag(case: ExplainCase, planned: PlannedDataset, lag: DatasetLag | None) -> Iterator[ExplainedDecision]:
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
        cause = find_lag_cause(
            planned.plan, planned.blocked_by, running=running, error=error, scheduled=scheduled
        )
        slots, guard = case.context.activity.slots, case.context.clients.damage_names
        if running and (wait := describe_wait(slots, guard, case.backup.name)) is not None:
            cause = f"{cause}; it waits for {wait}"
    elif case.backup.max_lag is not None and seconds > case.backup.max_lag:
        cause = f"no newer snapshot was made: {_last_run(case)}"
    told_by = describe_lag_basis(lag, case.context.env.zone, case.context.env.clock.time())
    if not case.sides.vault_seen:
        told_by = f"{case.down}; as far as was seen {told_by}"
    yield explain_lag(seconds, case.backup.max_lag, told_by, cause)


def _last_run(case: ExplainCase) -> str:
    last = case.knowledge.last_run(case.backup)
    if last is None:
        return (
            "no run of it is known" if case.knowledge.known else "zvaultd is not running, so no run is known"
        )
    return f"the last run, {last['id']}, began {case.when(last['started'])} ({last['result']})"


def _unjudged(case: ExplainCase, side: ExplainedSide) -> ExplainedDecision:
    """Why no rule counts for what is there."""
    if case.sends and not case.sides.vault_seen:
        why = f"{case.down}; a run judges what to prune once it is up"
        return ExplainedDecision("kept", "unknown", why, case.look, "unknown", side)
    if side == "vault" and case.backup.prune.vault == "elsewhere":
        return PRUNED_ELSEWHERE
    return ExplainedDecision("kept", "all kept", "nothing prunes what the backup does not take", side=side)


def explain_damages(case: ExplainCase, snapname: str | None) -> Iterator[ExplainedDecision]:
    """Yield the damage of it on the vault; of a dataset, in all of its snapshots."""
    if case.backup.vault is None or (case.place.vault is None and case.place.target is None):
        return
    name = case.place.vault.name if case.place.vault is not None else case.place.target
    condition = case.context.records.conditions.get(case.backup.vault)
    if condition is None:
        why = f"nobody has looked at the pool of vault {case.backup.vault} for damage yet"
        yield ExplainedDecision("damage", "unknown", why, level="unknown", side="vault")
        return
    found: Sequence[DamagedFile] = [
        one
        for one in condition.damages
        if one.dataset == name and (snapname is None or one.snapname == snapname)
    ]
    told_of = [case.knowledge.unhealed(case.backup.vault, one) for one in found]
    yield explain_damage(
        found, f"as seen {case.when(condition.at)}", [one for one in told_of if one], case.backup.vault
    )


def _runs(case: ExplainCase) -> Iterator[ExplainedDecision]:
    """How the last run fared with it, and when the next one is."""
    if not case.knowledge.known:
        yield ExplainedDecision(
            "last run", "unknown", "zvaultd is not running: its history is not read", level="unknown"
        )
        return
    last, name = case.knowledge.last_run(case.backup), case.place.named
    if last is None:
        yield ExplainedDecision("last run", "none", "no run of this backup has ended yet")
    else:
        failed = case.knowledge.failed(last["id"], name) if name is not None else None
        error = failed or last["error"]
        why = f"{last['id']}, begun {case.when(last['started'])}" + (
            f": {format_error_line(error)}" if error else ""
        )
        advice = error["next"] if error is not None else ""
        yield ExplainedDecision(
            "last run", last["result"] or "unknown", why, advice, "warning" if error else "ok"
        )
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
    yield ExplainedDecision("next run", state, "", f"'zvaultctl run {case.backup.name}' starts one now")


def _health(case: ExplainCase) -> Iterator[ExplainedDecision]:
    """What is not well with the backup and its vault, as their health says it."""
    for topic, verdict in case.knowledge.verdicts(case.backup):
        for one in verdict["findings"]:
            yield ExplainedDecision(
                topic, one["state"], f"{one['what']}: {one['why']}", one["next"], one["level"]
            )
