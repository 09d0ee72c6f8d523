"""Look at both sides once and plan: what to send, and what to prune."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from zvault.config.schema import Backup
from zvault.core.errors import NotFound
from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.names import excluded, parse_tag
from zvault.core.replication import Action, Ours, TransferPlan, find_base, plan_transfer
from zvault.core.retention import Excess, KeepRules, Verdict, decide, excess, spare
from zvault.ops.context import Context
from zvault.zfs.client import Zfs


@dataclass(frozen=True)
class Sides:
    """What one look at source and vault saw. ``holds`` are the source's, by snapshot name.

    ``pairs`` gives each selected source dataset with its counterpart's name on the vault, parents first.
    """

    source: Tree
    vault: Tree
    pairs: tuple[tuple[Dataset, str], ...]
    holds: Mapping[str, set[str]] = field(default_factory=dict)
    vault_seen: bool = True


def ours_of(backup: Backup) -> Ours:
    """Tells the snapshots that zvault made for this backup: by the exact form of their name."""
    return partial(_is_ours, backup.snapshot.prefix)


def _is_ours(prefix: str, snapshot: Snapshot) -> bool:
    return parse_tag(prefix, snapshot.tag) is not None


def selected(backup: Backup, source: Tree) -> list[Dataset]:
    """The datasets a backup takes, parents first. Raises NotFound when its excludes leave none."""
    chosen = [dataset for dataset in source if excluded(dataset.name, backup.exclude) is None]
    if not chosen:
        raise NotFound(
            f"nothing is left of '{backup.source}' to back up",
            f"'exclude' leaves out all {len(source)} datasets",
            "narrow 'exclude' in zvault.toml",
        )
    return chosen


async def look(context: Context, backup: Backup, vault: Zfs | None) -> Sides:
    """List both sides, once each. ``vault`` None leaves the vault's side empty (it is down)."""
    source = await context.source.tree(backup.source.dataset)
    pairs = tuple((dataset, context.target_of(backup, dataset.name)) for dataset in selected(backup, source))
    held = [snap.name for dataset, _ in pairs for snap in dataset.snapshots if snap.userrefs]
    holds = await context.source.holds(held)
    root = context.target_of(backup, backup.source.dataset)
    there = await vault.tree_or_none(root) if vault is not None else Tree()
    return Sides(source, there, pairs, holds, vault is not None)


async def plan_all(context: Context, backup: Backup, sides: Sides) -> list[TransferPlan]:
    """Plan every selected dataset, parents first."""
    ours = ours_of(backup)
    plans = []
    for dataset, target in sides.pairs:
        there = sides.vault.get(target)
        interrupted = None
        if there is not None and there.resume_token:
            interrupted = await context.source.interrupted(there.resume_token)
        plans.append(plan_transfer(dataset, there, target, ours=ours, interrupted=interrupted))
    return plans


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What to prune on one side; ``verdicts`` holds every snapshot with its reason.

    ``over`` are the datasets of which nothing goes because prune_limit does not let so much go at once.
    """

    side: str
    verdicts: tuple[Verdict, ...]
    over: tuple[Excess, ...] = ()

    @property
    def doomed(self) -> list[Snapshot]:
        """The snapshots to destroy."""
        return [verdict.snapshot for verdict in self.verdicts if not verdict.keep]


def plan_prune(
    context: Context, backup: Backup, sides: Sides, *, over_limit: bool = False
) -> list[PrunePlan]:
    """Plan the pruning of both sides. Bases, held snapshots and those not sent yet are protected.

    ``over_limit`` lets go what prune_limit holds back.
    """
    ours = ours_of(backup)
    share = 1.0 if over_limit else backup.prune_limit
    source, vault = _Judge(context, ours, share), _Judge(context, ours, share)
    for dataset, target in sides.pairs:
        there = sides.vault.get(target)
        found = find_base(dataset, there) if there is not None else None
        guards = _source_guards(dataset, found[0].createtxg if found else 0, sides.holds)
        source.judge(dataset, backup.keep.source, guards)
        if there is not None:
            kept = {found[1].guid: "the base of the next incremental"} if found else _all(there)
            kept |= {snap.guid: "held on the vault" for snap in there.snapshots if snap.userrefs}
            vault.judge(there, backup.keep.vault, kept)
    return [source.plan("source"), vault.plan("vault")]


class _Judge:
    """Collects the verdicts on one side, each dataset within the limit of what one run may prune."""

    def __init__(self, context: Context, ours: Ours, share: float) -> None:
        self.now, self.zone = context.clock.time(), context.zone
        self.ours, self.share = ours, share
        self.verdicts: list[Verdict] = []
        self.over: list[Excess] = []

    def judge(self, dataset: Dataset, rules: KeepRules, protected: Mapping[int, str]) -> None:
        verdicts = decide(
            dataset.snapshots, rules, now=self.now, zone=self.zone, protected=protected, ours=self.ours
        )
        over = excess(verdicts, self.share, self.ours)
        if over is not None:
            self.over.append(over)
            verdicts = spare(verdicts, over)
        self.verdicts += verdicts

    def plan(self, side: str) -> PrunePlan:
        return PrunePlan(side, tuple(self.verdicts), tuple(self.over))


def _source_guards(dataset: Dataset, base_txg: int, holds: Mapping[str, set[str]]) -> dict[int, str]:
    guards = {snap.guid: "not on the vault yet" for snap in dataset.snapshots if snap.createtxg > base_txg}
    for snap in dataset.snapshots:
        if snap.createtxg == base_txg:
            guards[snap.guid] = "the base of the next incremental"
        elif snap.userrefs:
            guards[snap.guid] = f"held by {', '.join(sorted(holds.get(snap.name, {'someone'})))}"
    return guards


def _all(dataset: Dataset) -> dict[int, str]:
    return {snap.guid: "no base is shared with the source any more" for snap in dataset.snapshots}


def moves(plan: TransferPlan) -> bool:
    """Whether a plan moves any byte."""
    return plan.action in {Action.FULL, Action.INCREMENTAL, Action.RESUME}
