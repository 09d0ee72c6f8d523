"""What pruning would do, as a document: a verdict on every snapshot, and what would be freed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from zvault.core.errors import NotFound, ZvaultError
from zvault.core.model import Snapshot
from zvault.core.retention import Verdict
from zvault.ops.context import Context
from zvault.ops.plan import PrunePlan, Sides, look, plan_prune
from zvault.ops.prune import without_stuck
from zvault.ops.vault import Vaults
from zvault.zfs.client import Zfs

Document = dict[str, Any]

APIECE = 100
"""Neighbours that go together are sized one by one up to so many; beyond, only all together: it costs a walk each."""


async def prune_document(
    context: Context, vaults: Vaults, name: str, *, bring_up: bool, over_limit: bool = False
) -> Document:
    """What pruning a backup would destroy now, and why. ``bring_up`` lets its vault be brought up to look."""
    backup = context.backup(name)
    if bring_up:
        async with vaults[backup.vault].use(f"plan {name}", lambda _: None) as vault:
            sides = await look(context, backup, vault.zfs)
            return await prune_part(context, name, sides, over_limit=over_limit)
    if not await context.pool_is_up(backup.vault):
        raise vault_is_down(backup.vault)
    sides = await look(context, backup, context.vault_zfs(backup.vault))
    return await prune_part(context, name, sides, over_limit=over_limit)


def vault_is_down(vault: str) -> NotFound:
    """The error of a look that needs the daemon."""
    return NotFound(
        f"vault '{vault}' is down, so what it has cannot be seen",
        "only the daemon brings vaults up",
        "start zvaultd, or import the vault's pool",
    )


async def prune_part(context: Context, name: str, sides: Sides, *, over_limit: bool = False) -> Document:
    """A backup's ``prune`` rows; ``freed``, the bytes by side, None where not known; ``over_limit``."""
    backup = context.backup(name)
    document: Document = {"backup": name, "vault": backup.vault, "prune": [], "freed": {}, "over_limit": []}
    for judged in plan_prune(context, backup, sides, over_limit=over_limit):
        zfs = context.source_of(backup) if judged.side == "source" else context.vault_zfs(backup.vault)
        plan = await without_stuck(zfs, judged)
        sizes, document["freed"][plan.side] = await _sizes(zfs, plan)
        document["prune"] += [_row(plan.side, verdict, sizes) for verdict in plan.verdicts]
        document["over_limit"] += [
            {
                "side": plan.side,
                "dataset": over.dataset,
                "doomed": over.doomed,
                "snapshots": over.count,
                "allowed": over.allowed,
            }
            for over in plan.over
        ]
    return document


def _row(side: str, verdict: Verdict, sizes: dict[str, int]) -> Document:
    return {
        "side": side,
        "snapshot": verdict.snapshot.name,
        "keep": verdict.keep,
        "reason": verdict.reason,
        "bytes": sizes.get(verdict.snapshot.name),
    }


async def _sizes(zfs: Zfs, plan: PrunePlan) -> tuple[dict[str, int], int | None]:
    """What each doomed snapshot frees when it goes after its older neighbours, and what all free together."""
    runs = list(neighbours(plan.verdicts))
    ranges = [(run[0].name, end.name) for run in runs for end in (run if len(run) <= APIECE else run[-1:])]
    try:
        answers = await zfs.lzc.range_space(ranges)
    except ZvaultError:
        return {}, None  # one has just gone, say: better no figure than a wrong one
    sizes, total, left = {}, 0, iter(answers)
    for run in runs:
        if len(run) > APIECE:
            total += next(left)
            continue
        before = 0
        for snap in run:
            freed = next(left)
            sizes[snap.name] = freed - before
            before = freed
        total += before
    return sizes, total


def neighbours(verdicts: Sequence[Verdict]) -> Iterator[list[Snapshot]]:
    """The doomed snapshots, oldest first, in runs with nothing kept between them.

    A block that only snapshots of a run refer to goes with the run. None is shared by two runs alone: what lies
    between refers to it too. So the runs' sizes add up.
    """
    for (_, keep), run in groupby(verdicts, key=lambda verdict: (verdict.snapshot.dataset, verdict.keep)):
        if not keep:
            yield [verdict.snapshot for verdict in run]
