"""Keeping the host awake: one set of inhibitor locks a vault, for as long as anybody writes to its devices.

A host that suspends in the middle of network block I/O hangs: the freezer waits 20 s for the pending request, and an
export that has begun was seen to hang for 661 s. So a sleep is refused exactly while a device is written, brought up
or taken down; never ``idle``, which would keep a screen lit. A shutdown is only delayed (daemon/monitors/), unless the
configuration says otherwise: nothing is lost by it, and the one that a UPS asks for cannot wait for hours.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from zvault.core.errors import ZvaultError
from zvault.core.policy.sleep import InhibitEvent, InhibitMode, group_by_mode
from zvault.system.logind import hold_inhibitor
from zvault.system.tasks import finish_work

Say = Callable[[str], None]


class VaultInhibitor:
    """The locks of one vault, counted: the first user takes them, the last releases them.

    ``modes`` gives the mode of logind's lock for each event, as it is configured when the locks are taken. ``refused``
    are the events that a lock is held for; ``since`` is when they were taken, in seconds since the epoch, None while
    none is held; ``problem`` says why one could not be had: then work goes on without it.
    """

    def __init__(
        self, modes: Callable[[], Mapping[InhibitEvent, InhibitMode]], clock: Callable[[], float] = time.time
    ) -> None:
        self.refused: tuple[str, ...] = ()
        self.since: float | None = None
        self.problem: ZvaultError | None = None
        self._modes = modes
        self._clock = clock
        self._needed = 0
        self._turn = asyncio.Lock()
        self._lock: AsyncExitStack | None = None

    @property
    def held(self) -> bool:
        """True if the host is kept awake."""
        return self.since is not None

    @asynccontextmanager
    async def during(self, why: str, say: Say) -> AsyncIterator[None]:
        """Keep the host awake for a block; ``why`` is shown to who wants it to sleep."""
        self._needed += 1
        try:
            await self._take(why, say)
            yield
        finally:
            await finish_work(self._release())

    async def _take(self, why: str, say: Say) -> None:
        async with self._turn:
            if self._lock is not None:
                return
            refused: list[str] = []
            self.problem = None
            # Whoever is cancelled between two locks must not leave the first one held for ever.
            async with AsyncExitStack() as locks:
                for mode, events in group_by_mode(self._modes()).items():
                    lock = await locks.enter_async_context(hold_inhibitor(why=why, what=events, mode=mode))
                    refused += events.split(":") if lock.held else []
                    self.problem = self.problem or lock.problem
                self._lock, self.refused = locks.pop_all(), tuple(refused)
            self.since = self._clock() if refused else None
        if self.problem is not None:
            say(f"going on without an inhibitor: {self.problem}")

    async def _release(self) -> None:
        self._needed -= 1
        async with self._turn:
            if not self._needed and self._lock is not None:
                held, self._lock, self.since, self.refused = self._lock, None, None, ()
                await held.aclose()
