"""Keeps the kernel from being asked for the names of damaged objects while that would crash it.

``zpool status -v`` has the kernel look up the path of each object in the error log. In a dataset that is received in
full, and only in part so far, the objects that say how attributes are laid out may be missing: the look-up follows a
NULL pointer (``sa_find_idx_tab`` from ``zfs_obj_to_path``; 2.3.9 and 2.4.4), and every command on that pool hangs until
power is cut. ``zpool scrub -e`` panics txg_sync in the same state. Without ``-v``, ``zpool status`` is safe, and so are
``zfs list`` and zdb(8), which reads the pool from outside the kernel.

So the pool is asked what is half received right before. Between that and the last name no full receive of this process
begins there: a question is refused while one is under way, and one that is to begin waits for the question. A receive
that somebody else begins within those moments is not kept out; to be met it would have to fail within them as well.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from zvault.core.address import Address
from zvault.core.errors import Refused
from zvault.core.policy.automatic_repairs import RECHECK_ERRORS, WHOLE
from zvault.system.process.kernel_waits import KERNEL_WAITS
from zvault.zfs.host import ZfsHost
from zvault.zfs.pool.name_permit import NamePermit
from zvault.zfs.repair.half_received import list_half_received

PoolPlace = tuple[Address | None, str]
"""A pool by the host that it is on (None is this one) and its name."""


class NamesForbidden(Refused):
    """The names may not be asked for now. ``datasets`` are what is half received, where that is what forbids it."""

    def __init__(self, pool: str, why: str, datasets: Sequence[str] = ()) -> None:
        super().__init__(
            f"the names of what is damaged in '{pool}' are not asked for",
            why,
            "OpenZFS crashes the kernel over that question (zpool status -v, zpool scrub -e) while anything is half"
            " received in full and errors are on its list: have the backup's next run bring it whole, or 'zfs receive"
            " -A' of it has the run after that send it anew",
        )
        self.datasets = tuple(datasets)


class DamageNameGuard:
    """One for all pools of a daemon: it knows of the full receives that are under way, and issues permits."""

    def __init__(self) -> None:
        self._receives: Counter[PoolPlace] = Counter()
        self._questions: defaultdict[PoolPlace, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._waiting: list[tuple[str, PoolPlace]] = []
        """Full receives that wait for a question to end: whose each is, and where."""

    def describe_wait(self, owner: str) -> str | None:
        """What a full receive of an owner waits for, in words; None where none does."""
        place = next((place for name, place in self._waiting if name == owner), None)
        if place is None:
            return None
        return (
            f"the look at what is damaged in the pool {place[1]} to end: during a heal, or the recheck after a scrub,"
            " no full stream may be received there, as OpenZFS would crash the kernel"
        )

    @asynccontextmanager
    async def receive_full(self, address: Address | None, pool: str, owner: str = "") -> AsyncIterator[None]:
        """Have a full receive into a pool begin, go on and end within the block; waits for an open question to end,
        which may take hours, and tells meanwhile what its ``owner`` waits for (``describe_wait``).

        Raises DeadlineExceeded while a question that nobody waits for any more is still in the kernel.
        """
        place = address, pool
        async with self._turn(place, owner):
            if address is None:
                KERNEL_WAITS.refuse_look(pool)
            self._receives[place] += 1
        try:
            yield
        finally:
            self._receives[place] -= 1

    @asynccontextmanager
    async def _turn(self, place: PoolPlace, owner: str) -> AsyncIterator[None]:
        waits = owner, place
        self._waiting.append(waits)
        try:
            await self._questions[place].acquire()
        finally:
            self._waiting.remove(waits)
        try:
            yield
        finally:
            self._questions[place].release()

    @asynccontextmanager
    async def permit_names(self, host: ZfsHost, pool: str) -> AsyncIterator[NamePermit]:
        """Permit to ask for the names of what is damaged in a pool, within the block.

        Raises NamesForbidden, and ToolFailed where it cannot be told what is half received: then there may be any.
        """
        place = host.address, pool
        async with self._questions[place]:
            await RECHECK_ERRORS.require_known({WHOLE: partial(self._refuse_half, host, pool)})
            permit = NamePermit(pool)
            try:
                yield permit
            finally:
                permit.close()

    async def _refuse_half(self, host: ZfsHost, pool: str) -> None:
        if half := await list_half_received(host, pool):
            raise NamesForbidden(pool, f"half received: {', '.join(half)}", half)
        if self._receives[host.address, pool]:
            raise NamesForbidden(pool, "a full stream is being received there at this moment")
