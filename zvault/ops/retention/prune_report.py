"""What pruning would do, as a document: a verdict on every snapshot, and what would be freed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import groupby

from zvault.api.backups import ExcessDocument, PruneDocument, Side, VerdictDocument
from zvault.config.schema import Backup
from zvault.core.errors import NotFound, ZvaultError
from zvault.core.model import Snapshot
from zvault.core.names import SnapshotName
from zvault.core.policy.prune_limit import PruneExcess
from zvault.core.policy.retention import KeepDecision
from zvault.ops.context import Context
from zvault.ops.replication.listing import BothListings, list_both_sides
from zvault.ops.retention.prune import drop_stuck
from zvault.ops.retention.prune_plan import PrunePlan, plan_prune
from zvault.ops.vaults.vault import Vaults
from zvault.system.side_threads import LongList
from zvault.zfs.client import Zfs

APIECE = 100
"""Neighbours that go together are sized one by one up to so many; beyond, only all together: it costs a walk each."""


async def make_prune_document(
    context: Context, vaults: Vaults, backup: Backup, *, bring_up: bool, over_limit: bool = False
) -> PruneDocument:
    """Report what pruning a backup would destroy now, and why. ``bring_up`` lets its vault be brought up to look."""
    if backup.vault is None:
        return await make_prune_part(
            context, backup, await list_both_sides(context, backup, None), over_limit=over_limit
        )
    if bring_up:
        async with vaults[backup.vault].use(f"plan {backup.name}", lambda _: None) as vault:
            sides = await list_both_sides(context, backup, vault.zfs)
            return await make_prune_part(context, backup, sides, over_limit=over_limit)
    if not await context.clients.pool_is_up(context.env.vault(backup.vault)):
        raise make_vault_down_error(backup.vault)
    sides = await list_both_sides(context, backup, context.clients.vault_of(backup))
    return await make_prune_part(context, backup, sides, over_limit=over_limit)


def make_vault_down_error(vault: str) -> NotFound:
    """The error of a look that needs the daemon."""
    return NotFound(
        f"vault '{vault}' is down, so what it has cannot be seen",
        "only the daemon brings vaults up",
        "start zvaultd, or import the vault's pool",
    )


async def make_prune_part(
    context: Context, backup: Backup, sides: BothListings, *, over_limit: bool = False
) -> PruneDocument:
    """A backup's ``prune`` rows; ``freed``, the bytes by side, None where not known; ``over_limit``."""
    judged = await sides.compute(plan_prune, context, backup, sides, over_limit=over_limit)
    return await make_plans_document(context, backup, judged)


async def make_plans_document(
    context: Context, backup: Backup, plans: Sequence[PrunePlan], *, lifted: Set[str] = frozenset()
) -> PruneDocument:
    """The same of prune plans. ``lifted`` are tags of holds on the source that are released before."""
    document: PruneDocument = {
        "backup": backup.name,
        "vault": backup.vault,
        "prune": LongList(),
        "freed": {},
        "over_limit": [],
    }
    for judged in plans:
        zfs = (
            context.clients.source_of(backup) if judged.side == "source" else context.clients.vault_of(backup)
        )
        plan = await drop_stuck(zfs, judged, lifted=lifted)
        sizes, document["freed"][plan.side] = await _sizes(zfs, plan)
        document["prune"] += await plan.compute(_verdict_documents, plan, sizes)
        document["over_limit"] += [make_excess_document(plan.side, over) for over in plan.over]
    return document


def _verdict_documents(plan: PrunePlan, sizes: Mapping[str, int]) -> list[VerdictDocument]:
    return [
        make_verdict_document(plan.side, verdict, sizes.get(verdict.snapshot.name))
        for verdict in plan.verdicts
    ]


def make_verdict_document(side: Side, verdict: KeepDecision, size: int | None) -> VerdictDocument:
    """Describe whether a snapshot would be pruned, and why; ``size`` is what that would free."""
    return {
        "side": side,
        "snapshot": verdict.snapshot.name,
        "keep": verdict.keep,
        "reason": verdict.reason,
        "bytes": size,
    }


def make_excess_document(side: Side, over: PruneExcess) -> ExcessDocument:
    """A dataset of which prune_limit holds something back."""
    return {
        "side": side,
        "dataset": over.dataset,
        "selected": over.selected,
        "snapshots": over.count,
        "allowed": over.allowed,
    }


async def _sizes(zfs: Zfs, plan: PrunePlan) -> tuple[dict[str, int], int | None]:
    """What each selected snapshot frees when it goes after its older neighbours, and what all free together."""
    runs, ranges = await plan.compute(_ranges, plan)
    try:
        answers = await zfs.lzc.range_space(ranges)
        return await plan.compute(_sizes_of, runs, answers)
    except ZvaultError:
        return {}, None  # one has just gone, say: better no figure than a wrong one


def _ranges(plan: PrunePlan) -> tuple[list[list[SnapshotName]], list[tuple[SnapshotName, SnapshotName]]]:
    """The names of each run of neighbours that go, none of one beyond APIECE, and from where to where each size is
    asked.
    """
    runs: list[list[SnapshotName]] = []
    ranges: list[tuple[SnapshotName, SnapshotName]] = []
    for run in group_neighbours(plan.verdicts):
        names = [snap.name for snap in (run if len(run) <= APIECE else run[-1:])]
        ranges += [(run[0].name, name) for name in names]
        runs.append(names if len(run) <= APIECE else [])
    return runs, ranges


def _sizes_of(
    runs: Sequence[Sequence[SnapshotName]], answers: Sequence[int]
) -> tuple[dict[str, int], int | None]:
    """What each selected snapshot frees, and all together, by what was answered."""
    sizes: dict[str, int] = {}
    total, left = 0, iter(answers)
    for run in runs:
        if not run:
            total += next(left)
            continue
        before = 0
        for name in run:
            freed = next(left)
            sizes[name] = freed - before
            before = freed
        total += before
    return sizes, total


def group_neighbours(verdicts: Sequence[KeepDecision]) -> Iterator[list[Snapshot]]:
    """The selected snapshots, oldest first, in runs with nothing kept between them.

    A block that only snapshots of a run refer to goes with the run. None is shared by two runs alone: what lies
    between refers to it too. So the runs' sizes add up.
    """
    for (_, keep), run in groupby(verdicts, key=lambda verdict: (verdict.snapshot.dataset, verdict.keep)):
        if not keep:
            yield [verdict.snapshot for verdict in run]
