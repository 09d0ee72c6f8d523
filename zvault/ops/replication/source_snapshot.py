"""The source's side before a run sends anything: its listing, and one snapshot of all that can have one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Container, Sequence
from dataclasses import dataclass, field

from zvault.config.schema import Backup
from zvault.core.errors import Refused
from zvault.core.model import Tree
from zvault.core.names import DatasetName, split_snapshot
from zvault.core.replication.snapshot_refusal import ALREADY_ERRNOS, NO_ROOM, SnapshotAnswer
from zvault.ops.replication.read_only_source import is_read_only_refusal
from zvault.ops.state.clients import ZfsClients
from zvault.ops.state.environment import WallClock
from zvault.ops.state.source_tree import list_source
from zvault.zfs.changes import Changes, LzcFailure, NamesGone

A_MOMENT = 5.0
"""Seconds a listing of the source is good for within a run that has changed nothing yet."""

SNAPNAME_TRIES = 5
"""Names hold whole seconds: a run started by hand right after another may find its name taken."""

RELISTINGS = 3
"""How often the source is listed again because a dataset vanished; after that those that are gone are left out."""

MOST_REFUSED_CALLS = 20
"""Calls that some datasets refuse. Each names one more at least, nearly always all that do; where a pool names another
one each time, what is left after so many gets no snapshot in this run."""

REFUSED_NAMED = 5
"""Datasets named in one warning."""


class RecentSource:
    """The source as it is now, give or take a moment; listed again if it took long to bring up the vault."""

    def __init__(self, clients: ZfsClients, clock: WallClock) -> None:
        self._clients, self._clock = clients, clock
        self._seen: tuple[float, Tree] | None = None

    def forget(self) -> None:
        """It may be another by now."""
        self._seen = None

    async def tree(self, backup: Backup) -> Tree:
        """Its datasets. Raises NotFound, HostUnreachable."""
        began = self._clock.monotonic()
        if self._seen is None or began - self._seen[0] > A_MOMENT:
            self._seen = began, await list_source(self._clients, backup, sizes=False)
        return self._seen[1]


@dataclass
class SourceSnapshot:
    """A run's snapshot of all its datasets at one moment, by one call, which makes all of them or none.

    ``listed`` lists their names anew: one that was renamed or destroyed since the last listing fails the call for all.
    ``taken`` are snapnames that the vault is known to have: none of them is given for some seconds, and then the
    clock's in any case, for nothing on a vault may keep a source from getting snapshots; unless it ``must_be_free``,
    where the source has its snapshots already. ``make_room`` is called once where there is no room; it tells whether
    there may be some now.

    ``made`` are the snapshots' full names. ``left_out`` are datasets that were there whenever one looked, and never
    when the snapshot was made. ``refused`` are those of which ZFS makes none, with its answer.
    """

    lzc: Changes
    backup: Backup
    listed: Callable[[], Awaitable[Sequence[str]]]
    clock: WallClock
    taken: Container[str] = ()
    must_be_free: bool = False
    make_room: Callable[[], Awaitable[bool]] | None = None
    left_out: list[str] = field(default_factory=list)
    refused: dict[DatasetName, SnapshotAnswer] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)

    async def make(self) -> str:
        """Make it. Returns the snapname; none where no dataset is to have it, or can.

        Raises Refused, NotFound; LzcFailure for a pool that is read-only.
        """
        names = list(await self.listed())
        taken = relisted = waited = refusals = 0
        while names:
            snapname = self.backup.snapshot.names.make(self.clock.now())
            if snapname in self.taken and (waited < SNAPNAME_TRIES or self.must_be_free):
                waited += 1
                if waited > SNAPNAME_TRIES:
                    raise self._no_name(f"the vault has '{snapname}' and its predecessors")
                await asyncio.sleep(1.0)
                continue
            wanted = [f"{name}@{snapname}" for name in names]
            try:
                await self.lzc.snapshot(wanted, {})
            except NamesGone as error:
                # One dataset that had vanished since the listing failed the run, with nothing sent.
                if relisted < RELISTINGS:
                    relisted += 1
                    names = [name for name in await self.listed() if name not in self.refused]
                else:
                    names = self._without(names, error, snapname)
            except LzcFailure as failure:
                if await self._found_room(failure):
                    continue
                if refusers := find_refusers(failure, names):
                    refusals += 1
                    if refusals == MOST_REFUSED_CALLS:
                        refusers = dict.fromkeys(map(DatasetName, names), next(iter(refusers.values())))
                    self.refused |= refusers
                    names = [name for name in names if name not in refusers]
                    continue
                taken += 1
                if taken == SNAPNAME_TRIES:
                    raise self._no_name(f"'{snapname}' and its predecessors exist already") from None
                await asyncio.sleep(1.0)
            else:
                self.made = wanted
                return snapname
        return ""

    async def _found_room(self, failure: LzcFailure) -> bool:
        """Where there was no room: have some made, once. Raises the failure of a pool that is read-only."""
        if is_read_only_refusal(failure):
            raise failure  # of the whole pool, whichever dataset it names: the run goes on without a snapshot
        make_room, full = self.make_room, any(code in NO_ROOM for _, _, code in failure.errors)
        if make_room is None or not full:
            return False
        self.make_room = None
        return await make_room()

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
        """The warning that names what was left out; empty where nothing was."""
        if not self.left_out:
            return ""
        named = ", ".join(self.left_out[:REFUSED_NAMED])
        more = f" and {len(self.left_out) - REFUSED_NAMED} more" if len(self.left_out) > REFUSED_NAMED else ""
        return (
            f"left out of this run's snapshot: {named}{more}: listed, but gone when the snapshot was made,"
            f" {RELISTINGS + 1} times"
        )


def find_refusers(failure: LzcFailure, names: Sequence[str]) -> dict[DatasetName, SnapshotAnswer]:
    """Those of the datasets of which ZFS would not make a snapshot, with its answer; none where nothing but a snapshot
    of that name, or a dataset that is gone, stands in the way.

    A limit is told of a dataset, and is for all below it. What names nobody, as of a pool that is full, is for all.
    """
    found: dict[DatasetName, SnapshotAnswer] = {}
    asked = set(names)
    for told, kind, code in failure.errors:
        if kind == "SnapshotExists" or code in ALREADY_ERRNOS:
            continue
        dataset, answer = (
            split_snapshot(told)[0],
            SnapshotAnswer(code, os.strerror(code) if code else failure.why),
        )
        if dataset in asked:
            found[DatasetName(dataset)] = answer
            continue
        below = [one for one in map(DatasetName, names) if not dataset or one.is_within(dataset)]
        found |= dict.fromkeys(below or map(DatasetName, names), answer)
    return found
