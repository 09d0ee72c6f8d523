"""Destroy what a prune plan dooms, in batches, and say what could not be."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from zvault.core.errors import ZvaultError
from zvault.core.model import Snapshot
from zvault.ops.context import Context, Emit
from zvault.ops.plan import PrunePlan
from zvault.zfs.client import Zfs
from zvault.zfs.lzc import Lzc, LzcFailure

BATCH = 100
"""Snapshots destroyed in one call: all of a batch go in one transaction group, or none."""


async def prune(context: Context, vault: Zfs, plans: Sequence[PrunePlan], emit: Emit) -> int:
    """Carry out prune plans; returns how many snapshots went. What is busy is skipped and named."""
    count = 0
    for plan in plans:
        lzc = (context.source if plan.side == "source" else vault).lzc
        gone: list[Snapshot] = []
        for start in range(0, len(plan.doomed), BATCH):
            try:
                gone += await destroy(lzc, plan.doomed[start : start + BATCH], emit)
            except ZvaultError as error:
                emit("warning", text=f"pruning the {plan.side}: {error}")
                break
        if gone:
            emit("pruned", side=plan.side, count=len(gone), snapshots=[snap.name for snap in gone])
        count += len(gone)
    return count


async def destroy(lzc: Lzc, snapshots: Sequence[Snapshot], emit: Emit) -> list[Snapshot]:
    """Destroy snapshots; those that turn out held, cloned or busy are left and told. Returns those destroyed."""
    left = list(snapshots)
    while left:
        try:
            await lzc.destroy([snap.name for snap in left])
        except LzcFailure as failure:
            busy = {name for name, _, code in failure.errors if code in {errno.EBUSY, errno.EEXIST}}
            if not busy & {snap.name for snap in left}:
                raise
            for name, kind, _ in failure.errors:
                emit("warning", text=f"kept {name}: {_WHY.get(kind, 'it is busy')}")
            left = [snap for snap in left if snap.name not in busy]
        else:
            return left
    return []


_WHY = {"SnapshotIsHeld": "somebody holds it ('zfs holds' tells who)", "SnapshotIsCloned": "a clone needs it"}
