"""The protection of all bases of one run, made for many datasets at a time while others are being sent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from zvault.core.errors import NotFound, Refused, ToolFailed, ZvaultError
from zvault.core.model import Dataset, Snapshot
from zvault.ops.replication.base_guard import BaseGuard, list_perhaps_held
from zvault.ops.replication.batched_changes import BatchedChanges
from zvault.ops.replication.read_only_source import ProtectsWhereWritable
from zvault.system.side_threads import compute_aside
from zvault.system.tasks import cancel_tasks
from zvault.zfs.client import Zfs

GATHER = 1.0
"""Seconds that a base may wait for others to be advanced with it: each call waits for a transaction group, whatever it
has in it. Until then the former base and what was sent are both held.
"""


@dataclass
class RunBases:
    """The bases on one source for one vault. ``touched``: whether any base was to be advanced.

    ``refused`` are the datasets of which it could not be found out what is protected, or where that could not be put
    right, with the error: nothing may be sent of them, and it is no reason to send nothing of the others.
    """

    source: Zfs
    vault_guid: int
    touched: bool = False
    refused: dict[str, ZvaultError] = field(default_factory=dict)
    _guards: dict[str, BaseGuard] = field(default_factory=dict)
    _advancing: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _start: asyncio.Event | None = None

    def __post_init__(self) -> None:
        """Join what many ask for into one call."""
        self._writable = ProtectsWhereWritable(self.source.lzc)
        self._together = BatchedChanges(self._writable)

    @property
    def unprotected(self) -> bool:
        """True if nothing could be protected, as the source was imported read-only."""
        return self._writable.read_only

    async def learn(self, datasets: Collection[Dataset]) -> None:
        """Find out what is protected of these datasets, before anything is done with them."""
        size = sum(1 + len(one.snapshots) for one in datasets)
        asked = await compute_aside(
            size, None, lambda: [(one, list_perhaps_held(one, self.vault_guid)) for one in datasets]
        )
        try:
            holds = await self.source.held(asked)
        except ToolFailed:
            holds = await self._learn_alone(asked)
        self._guards |= await compute_aside(
            size,
            None,
            lambda: {one.name: BaseGuard.of(self._together, self.vault_guid, one, holds) for one in datasets},
        )

    async def _learn_alone(self, asked: Sequence[tuple[Dataset, Sequence[Snapshot]]]) -> dict[str, set[str]]:
        """The holds, asked of each dataset by itself, as of all together they could not be told."""
        holds: dict[str, set[str]] = {}
        for one in asked:
            try:
                holds |= await self.source.held([one])
            except ToolFailed as error:
                self.refused[one[0].name] = error
        return holds

    def guard(self, dataset: Dataset) -> BaseGuard:
        """The protection of the base of a dataset that was learned of."""
        return self._guards[dataset.name]

    async def cover(self, wanted: Sequence[tuple[BaseGuard, Sequence[Snapshot]]]) -> None:
        """Hold in one call what many streams start from and send.

        Where something cannot be held nothing is said: each stream covers what is still to be covered, and tells.
        """
        with contextlib.suppress(NotFound, ToolFailed):
            await BaseGuard.cover_all(wanted)

    async def distrust(self, on_vault: Mapping[str, Collection[int]]) -> None:
        """Correct the bookmarks of what the vault does not have after all; ``on_vault`` are GUIDs, by dataset."""
        told = {name: guids for name, guids in on_vault.items() if name not in self.refused}
        ended = await asyncio.gather(
            *(self._guards[name].distrust(guids) for name, guids in told.items()), return_exceptions=True
        )
        for name, error in zip(told, ended, strict=True):
            if isinstance(error, (NotFound, ToolFailed)):
                self.refused[name] = error
            elif error is not None:
                raise error

    async def correct(self, on_vault: Mapping[str, tuple[Dataset, Collection[int]]]) -> None:
        """As ``distrust``, of datasets whose holds nobody asked for: none is touched.

        Raises what one of them refuses, once all have had their turn, and Refused where the source is read-only.
        """
        guards = [
            (BaseGuard.of(self._together, self.vault_guid, dataset, {}), guids)
            for dataset, guids in on_vault.values()
        ]
        # Where one refused at once, the others went on while nobody waited, and a listing of before them was kept.
        ended = await asyncio.gather(
            *(guard.distrust(guids) for guard, guids in guards), return_exceptions=True
        )
        for error in ended:
            if error is not None:
                raise error
        if self.unprotected:
            raise Refused(
                "bookmarks on the source cannot be corrected",
                "its pool is imported read-only",
                "once it is imported writable they are corrected by themselves",
            )

    def advance_later(self, guard: BaseGuard, base: Snapshot) -> None:
        """The vault has ``base`` now: protect it and release the former one, while other streams continue, together
        with what is sent within GATHER seconds.
        """
        self.touched = True
        if self._start is None or self._start.is_set():
            self._start = asyncio.Event()
            asyncio.get_running_loop().call_later(GATHER, self._start.set)
        self._advancing[guard.dataset] = asyncio.create_task(
            self._advance(guard, base, self._start), name=f"advance the base of {guard.dataset}"
        )

    async def _advance(self, guard: BaseGuard, base: Snapshot, start: asyncio.Event) -> None:
        await start.wait()
        await guard.advance(base)

    async def wait_advanced(self) -> dict[str, ZvaultError]:
        """Wait until all bases have advanced, those that wait for others at once; the errors, by dataset."""
        if self._start is not None:
            self._start.set()
        tasks = self._take()
        try:
            ended = await asyncio.gather(*tasks.values(), return_exceptions=True)
        finally:
            self._forget(tasks)
        wrong = {}
        for name, error in zip(tasks, ended, strict=True):
            if isinstance(error, ZvaultError):
                wrong[name] = error
            elif error is not None:
                raise error
        return wrong

    async def stop(self) -> None:
        """Give up what is not done yet; the next run does it."""
        tasks = self._take()
        try:
            await cancel_tasks(*tasks.values())
        finally:
            self._forget(tasks)

    def _take(self) -> dict[str, asyncio.Task[None]]:
        tasks, self._advancing = self._advancing, {}
        return tasks

    def _forget(self, names: Mapping[str, object]) -> None:
        for name in names:
            self.source.forget(name)
