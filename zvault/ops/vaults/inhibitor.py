"""Keeping the host awake: one inhibitor lock a vault, for as long as anybody writes to its devices.

A host that suspends in the middle of network block I/O hangs: the freezer waits 20 s for the pending request, and an
export that has begun was seen to hang for 661 s. So sleep and shutdown are blocked exactly while a device is written,
brought up or taken down; never ``idle``, which would keep a screen lit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from zvault.core.errors import ZvaultError
from zvault.system.logind import inhibit
from zvault.system.tasks import to_its_end

Say = Callable[[str], None]


class VaultInhibitor:
    """The lock of one vault, counted: the first user takes it, the last releases it.

    ``since`` is when it was taken, in seconds since the epoch, None while it is not held; ``problem`` says why it could
    not be had: then work goes on without it.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.since: float | None = None
        self.problem: ZvaultError | None = None
        self._clock = clock
        self._needed = 0
        self._turn = asyncio.Lock()
        self._lock: AsyncExitStack | None = None

    @property
    def held(self) -> bool:
        """Whether the host is kept awake."""
        return self.since is not None

    @asynccontextmanager
    async def during(self, why: str, say: Say) -> AsyncIterator[None]:
        """Keep the host awake for a block; ``why`` is shown to who wants it to sleep."""
        self._needed += 1
        try:
            await self._take(why, say)
            yield
        finally:
            await to_its_end(self._release())

    async def _take(self, why: str, say: Say) -> None:
        async with self._turn:
            if self._lock is not None:
                return
            held = AsyncExitStack()
            lock = await held.enter_async_context(inhibit(why=why))
            self._lock, self.problem = held, lock.problem
            self.since = self._clock() if lock.held else None
        if lock.problem is not None:
            say(f"going on without an inhibitor: {lock.problem}")

    async def _release(self) -> None:
        self._needed -= 1
        async with self._turn:
            if not self._needed and self._lock is not None:
                held, self._lock, self.since = self._lock, None, None
                await held.aclose()
