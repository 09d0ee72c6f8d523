"""Tells the caches of this host's listings what changed, each time before one of them is used."""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import time
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

from zvault.core.errors import ZvaultError
from zvault.system.process.json_child import JsonChild
from zvault.zfs.pool.event_reader import ChangedDatasets

FEED_DEADLINE = 10.0
"""Seconds for one answer. Reading events takes no lock of a pool."""

FEED_END_TIME = 2.0
"""Seconds for its last answer: whoever stops zvaultd waits for it."""

FEED_RESTART_PAUSE = 60.0
"""Seconds until a child that could not be used is started again. Until then everything is listed."""

EVENT_CHILD = Path(__file__).with_name("pool") / "event_child.py"
"""The program, started without site-packages: it needs nothing of them."""

SLEPT = 1.0
"""Seconds by which the two clocks below differ more than before, from which on the host was suspended."""


class ChangeFollower(Protocol):
    """A cache that has to hear what changed."""

    def followed(self) -> int:
        """Return how many datasets it knows."""
        ...

    def note(self, changed: ChangedDatasets) -> None:
        """Take in what changed, or that something was missed."""
        ...


class ChangeFeed:
    """One child for all clients of this host's pools (pool/event_child.py). After a suspend nothing is known.

    ``note`` is the file in which the child writes what it changes of the host, to put it back.
    """

    def __init__(self, note: Path) -> None:
        self._note = note
        self._child: JsonChild | None = None
        self._turn = asyncio.Lock()
        self._followers: WeakSet[ChangeFollower] = WeakSet()
        self._try_again = -math.inf
        self._asleep = _asleep()
        self._working = self._closed = False
        self.works = False
        """Whether events told of changes when they were last asked."""
        self._asked = self._told = 0  # the newest question that was begun, and that was answered

    def follow(self, follower: ChangeFollower) -> None:
        """Have it hear of every change from now on. The feed does not keep it alive."""
        self._followers.add(follower)

    async def collect(self) -> None:
        """Let every follower note all that changed on this host until now, or that it is not known. Never fails.

        Of many who call at once all but the first two are served by the second one's question, which is after theirs.
        """
        called = self._asked
        async with self._turn:
            if self._told > called:
                return
            self._asked += 1
            try:
                changed = await self._changed()
            except asyncio.CancelledError:
                # An answer may still be on its way, and what it tells would be missed.
                await self._drop()
                self._tell(ChangedDatasets(lost=True, missed=True))
                raise
            asleep = _asleep()
            if asleep - self._asleep > SLEPT:
                changed.lost = changed.missed = True
            self._asleep = asleep
            self._tell(changed)
            self._told = self._asked

    def _tell(self, changed: ChangedDatasets) -> None:
        for follower in list(self._followers):
            follower.note(changed)

    async def _changed(self) -> ChangedDatasets:
        """What the child tells. Where it cannot be used, what is missed is missed once."""
        worked, self._working = self._working, False
        try:
            child = await self._ready_child()
            if child is not None:
                followed = sum(one.followed() for one in self._followers)
                changed = ChangedDatasets.of(await child.ask({"datasets": followed}, FEED_DEADLINE))
                self._working = self.works = True
                return changed
        except (ZvaultError, KeyError, TypeError, ValueError):
            await self._drop()
        self.works = False
        return ChangedDatasets(lost=True, missed=worked)

    async def _ready_child(self) -> JsonChild | None:
        if self._child is None and not self._closed and time.monotonic() >= self._try_again:
            self._try_again = time.monotonic() + FEED_RESTART_PAUSE
            self._child = await JsonChild.start(
                [sys.executable, "-I", "-S", str(EVENT_CHILD), str(self._note)]
            )
            await self._child.read(FEED_DEADLINE)
        return self._child

    async def _drop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.close()

    async def close(self) -> None:
        """End the child, which first puts back what it changed of the host. None is started after that."""
        self._closed = True
        async with self._turn:
            if self._child is not None:
                with contextlib.suppress(ZvaultError):
                    await self._child.ask({"end": True}, FEED_END_TIME)
            await self._drop()


def _asleep() -> float:
    """Seconds for which the host was suspended since it was started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
