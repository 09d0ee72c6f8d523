"""The source's side before a run sends anything: its listing, and one snapshot of everything."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Container, Sequence
from dataclasses import dataclass, field

from zvault.config.schema import Backup
from zvault.core.errors import Refused
from zvault.core.model import Tree
from zvault.ops.state.clients import Clients
from zvault.ops.state.environment import Clock
from zvault.ops.state.source_tree import source_tree
from zvault.zfs.changes import Changes, LzcFailure, NamesGone

A_MOMENT = 5.0
"""Seconds a listing of the source is good for within a run that has changed nothing yet."""

TRIES = 5
"""Names hold whole seconds: a run started by hand right after another may find its name taken."""

RELISTINGS = 3
"""How often the source is listed again because a dataset vanished; after that those that are gone are left out."""

NAMED = 5
"""Datasets named in one warning."""


class RecentSource:
    """The source as it is now, give or take a moment; listed again if it took long to bring up the vault."""

    def __init__(self, clients: Clients, clock: Clock) -> None:
        self._clients, self._clock = clients, clock
        self._seen: tuple[float, Tree] | None = None

    def forget(self) -> None:
        """It may be another by now."""
        self._seen = None

    async def tree(self, backup: Backup) -> Tree:
        """Its datasets. Raises NotFound, HostUnreachable."""
        began = self._clock.monotonic()
        if self._seen is None or began - self._seen[0] > A_MOMENT:
            self._seen = began, await source_tree(self._clients, backup, sizes=False)
        return self._seen[1]


@dataclass
class SourceSnapshot:
    """A run's snapshot of all its datasets at one moment, by one call: all or none.

    ``listed`` lists their names anew: one that was renamed or destroyed since the last listing fails the call for all.
    ``left_out`` are those that were there whenever one looked, and never when the snapshot was made. ``taken`` are
    snapnames that the vault is known to have: none of them is given for some seconds, and then the clock's in any case,
    for nothing on a vault may keep a source from getting snapshots; unless it ``must_be_free``, where the source has
    its snapshots already. ``made`` are the snapshots' full names.
    """

    lzc: Changes
    backup: Backup
    listed: Callable[[], Awaitable[Sequence[str]]]
    clock: Clock
    taken: Container[str] = ()
    must_be_free: bool = False
    left_out: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)

    async def make(self) -> str:
        """Make it. Returns the snapname; none where no dataset is to have it. Raises Refused, NotFound, LzcFailure."""
        names = list(await self.listed())
        taken = relisted = waited = 0
        while names:
            snapname = self.backup.snapshot.names.make(self.clock.now())
            if snapname in self.taken and (waited < TRIES or self.must_be_free):
                waited += 1
                if waited > TRIES:
                    raise self._no_name(f"the vault has '{snapname}' and its predecessors")
                await asyncio.sleep(1.0)
                continue
            wanted = [f"{name}@{snapname}" for name in names]
            try:
                await self.lzc.snapshot(wanted, {})
            except NamesGone as error:
                if relisted < RELISTINGS:
                    relisted += 1
                    names = list(await self.listed())
                else:
                    names = self._without(names, error, snapname)
            except LzcFailure as failure:
                taken += 1
                if not _is_taken(failure):
                    raise
                if taken == TRIES:
                    raise self._no_name(f"'{snapname}' and its predecessors exist already") from None
                await asyncio.sleep(1.0)
            else:
                self.made = wanted
                return snapname
        return ""

    def _no_name(self, why: str) -> Refused:
        return Refused(f"cannot name a snapshot of '{self.backup.source}'", why, "check that the clock runs")

    def _without(self, names: Sequence[str], error: NamesGone, snapname: str) -> list[str]:
        """The names without those that are gone. Raises the error where none is, or none is left."""
        gone = error.among(f"{name}@{snapname}" for name in names)
        left = [name for name in names if f"{name}@{snapname}" not in gone]
        if not gone or not left:
            raise error
        self.left_out += [name for name in names if f"{name}@{snapname}" in gone]
        return left

    @property
    def warning(self) -> str:
        """What was left out, in words; empty where nothing was."""
        if not self.left_out:
            return ""
        named = ", ".join(self.left_out[:NAMED])
        more = f" and {len(self.left_out) - NAMED} more" if len(self.left_out) > NAMED else ""
        return (
            f"left out of this run's snapshot: {named}{more}: listed, but gone when the snapshot was made,"
            f" {RELISTINGS + 1} times"
        )


def _is_taken(failure: LzcFailure) -> bool:
    """Whether nothing but a snapshot of that name, or a dataset that is gone besides, stands in the way."""
    return all(kind == "SnapshotExists" or code == errno.ENOENT for _, kind, code in failure.errors)
