"""The protection of all bases of one run, made for many datasets at a time while others are being sent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from zvault.core.errors import NotFound, ToolFailed, ZvaultError
from zvault.core.model import Dataset, Snapshot
from zvault.ops.replication.base_guard import BaseGuard, perhaps_held
from zvault.ops.replication.batched_changes import BatchedChanges
from zvault.system.computing import compute
from zvault.system.tasks import cancel
from zvault.zfs.client import Zfs

GATHER = 1.0
"""Seconds that a base may wait for others to be advanced with it: each call waits for a transaction group, whatever it
has in it. Until then the former base and what was sent are both held.
"""


@dataclass
class Bases:
    """The bases on one source for one vault. ``touched``: whether any base was to be advanced."""

    source: Zfs
    vault_guid: int
    touched: bool = False
    _guards: dict[str, BaseGuard] = field(default_factory=dict)
    _advancing: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _start: asyncio.Event | None = None

    def __post_init__(self) -> None:
        """What many ask for goes together into one call."""
        self._together = BatchedChanges(self.source.lzc)

    async def learn(self, datasets: Collection[Dataset]) -> None:
        """Find out what is protected of these datasets, before anything is done with them."""
        size = sum(1 + len(one.snapshots) for one in datasets)
        perhaps = await compute(
            size, None, lambda: [(one, perhaps_held(one, self.vault_guid)) for one in datasets]
        )
        holds = await self.source.held(perhaps)
        self._guards |= await compute(
            size,
            None,
            lambda: {one.name: BaseGuard.of(self._together, self.vault_guid, one, holds) for one in datasets},
        )

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
        await asyncio.gather(*(self._guards[name].distrust(guids) for name, guids in on_vault.items()))

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
            await cancel(*tasks.values())
        finally:
            self._forget(tasks)

    def _take(self) -> dict[str, asyncio.Task[None]]:
        tasks, self._advancing = self._advancing, {}
        return tasks

    def _forget(self, names: Mapping[str, object]) -> None:
        for name in names:
            self.source.forget(name)
