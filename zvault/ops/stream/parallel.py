"""Several datasets at once, within what a vault and a source host may have at a time."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial

from zvault.core.replication.run_order import RunOrder
from zvault.ops.stream.stream_slots import StreamSlots, TakenSlots
from zvault.zfs.repair.damage_name_guard import DamageNameGuard

WAIT_TOLD_AFTER = 10.0
"""Seconds for which a run waits for a slot before it says so."""


def describe_wait(slots: StreamSlots, guard: DamageNameGuard, owner: str) -> str | None:
    """What the streams of an owner wait for that others have, in words; None where they wait for nothing."""
    return slots.describe_wait(owner) or guard.describe_wait(owner)


class ParallelWork(ABC):
    """Carries out what is in ``order``, as many at once as ``owner`` gets slots for.

    What ``carry_out`` raises stops all others and is raised. Cancelled, everything under way is. What waits for a slot
    holds up only its own lane.
    """

    def __init__(self, order: RunOrder, slots: StreamSlots, owner: str) -> None:
        self.order, self.slots, self.owner = order, slots, owner
        self._begun: set[str] = set()
        self._moved_on = asyncio.Event()

    @abstractmethod
    def list_limits(self, name: str) -> Mapping[str, int]:
        """What one takes a slot of, and how many slots each has at this moment."""

    @abstractmethod
    async def carry_out(self, name: str) -> bool:
        """Do one, and return whether that went well. Where not, what becomes of ``order`` is up to this."""

    @abstractmethod
    def tell(self, text: str) -> None:
        """Tell of a long wait for a slot."""

    async def execute(self) -> None:
        """Carry out all that can be."""
        try:
            async with asyncio.TaskGroup() as group:
                for lane in self.order.lanes:
                    name = f"streams of {self.owner} {lane}".rstrip()
                    group.create_task(self._follow(lane, group), name=name)
        except ExceptionGroup as several:
            raise several.exceptions[0] from None

    async def _follow(self, lane: str, group: asyncio.TaskGroup) -> None:
        while self.order.ready() or self._begun:
            if (name := self.order.take(lane)) is None:
                self._moved_on.clear()
                await self._moved_on.wait()
                continue
            self._begun.add(name)
            with _told_later(partial(self.slots.describe_wait, self.owner), self.tell):
                taken = await self.slots.take(partial(self.list_limits, name), self.owner)
            task = group.create_task(self.carry_out(name), name=f"transfer of {name}")
            task.add_done_callback(partial(self._end, name, taken))

    def _end(self, name: str, taken: TakenSlots, task: asyncio.Task[bool]) -> None:
        """Go on after one. Not in its task: one that is cancelled before its first step never comes to a finally."""
        if not task.cancelled() and task.exception() is None and task.result():
            self.order.done(name)
        self._begun.discard(name)
        self.slots.give(taken)
        self._moved_on.set()


@contextmanager
def _told_later(why: Callable[[], str | None], tell: Callable[[str], None]) -> Iterator[None]:
    """Tell what is waited for, if the block has not ended after WAIT_TOLD_AFTER and ``why`` still knows any."""

    def say() -> None:
        if (known := why()) is not None:
            tell(f"waiting for {known}")

    later = asyncio.get_running_loop().call_later(WAIT_TOLD_AFTER, say)
    try:
        yield
    finally:
        later.cancel()


@asynccontextmanager
async def tell_while_waiting(
    turn: AbstractAsyncContextManager[None], why: Callable[[], str | None], tell: Callable[[str], None]
) -> AsyncIterator[None]:
    """The block within ``turn``; tells what is waited for, if that one takes long to be entered."""
    async with AsyncExitStack() as stack:
        with _told_later(why, tell):
            await stack.enter_async_context(turn)
        yield
