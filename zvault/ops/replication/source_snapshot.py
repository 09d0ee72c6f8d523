"""The source's side before a run sends anything: its listing, and one snapshot of everything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from zvault.config.schema import Backup
from zvault.core.errors import Refused
from zvault.core.model import Tree
from zvault.core.names import make_snapname
from zvault.ops.state.clients import Clients
from zvault.ops.state.environment import Clock
from zvault.zfs.changes import Changes, LzcFailure

A_MOMENT = 5.0
"""Seconds a listing of the source is good for within a run that has changed nothing yet."""

TRIES = 5
"""Names hold whole seconds: a run started by hand right after another may find its name taken."""


class RecentSource:
    """The source as it is now, give or take a moment; listed again if it took long to bring up the vault."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._seen: tuple[float, Tree] | None = None

    def forget(self) -> None:
        """It may be another by now."""
        self._seen = None

    async def tree(self, backup: Backup) -> Tree:
        """Its datasets. Raises NotFound, HostUnreachable."""
        began = time.monotonic()
        if self._seen is None or began - self._seen[0] > A_MOMENT:
            self._seen = began, await self._clients.source_of(backup).tree(backup.source.dataset)
        return self._seen[1]


async def snapshot_all(lzc: Changes, backup: Backup, datasets: Sequence[str], clock: Clock) -> str:
    """Snapshot datasets at one moment, by one call: all or none. Returns the snapname. Raises Refused, LzcFailure."""
    for _ in range(TRIES):
        snapname = make_snapname(backup.snapshot.prefix, clock.now())
        try:
            await lzc.snapshot([f"{name}@{snapname}" for name in datasets], {})
        except LzcFailure as failure:
            if not all(kind == "SnapshotExists" for _, kind, _ in failure.errors):
                raise
            await asyncio.sleep(1.0)
        else:
            return snapname
    raise Refused(
        f"cannot name a snapshot of '{backup.source}'",
        f"'{snapname}' and its predecessors exist already",
        "check that the clock runs",
    )
