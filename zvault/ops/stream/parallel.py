"""Several datasets at once, within what a vault and a source host may have at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial

from zvault.core.replication.run_order import RunOrder
from zvault.ops.stream.stream_slots import Limits, StreamSlots, TakenSlots
from zvault.zfs.repair.damage_name_guard import DamageNameGuard

WAIT_TOLD_AFTER = 10.0
"""Seconds for which a run waits for a slot before it says so."""


def describe_wait(slots: StreamSlots, guard: DamageNameGuard, owner: str) -> str | None:
    """What the streams of an owner wait for that others have, in words; None where they wait for nothing."""
    return slots.describe_wait(owner) or guard.describe_wait(owner)


async def carry_out_in_parallel(
    order: RunOrder,
    slots: StreamSlots,
    owner: str,
    limits: Callable[[str], Mapping[str, int]],
    carry_out: Callable[[str], Awaitable[bool]],
    tell: Callable[[str], None],
) -> None:
    """Carry out what is in ``order``, as many at once as ``owner`` gets slots for; ``limits`` are those of one.

    ``carry_out`` tells whether it went well; where not, it is up to it what to do about ``order``. What it raises
    stops all others and is raised. Cancelled, everything under way is. ``tell`` is told of a long wait for a slot; what
    waits for one holds up only its own lane.
    """
    moved_on = asyncio.Event()
    begun: set[str] = set()

    async def one(name: str) -> None:
        if await carry_out(name):
            order.done(name)

    def ended(_: asyncio.Task[None], name: str, taken: TakenSlots) -> None:
        # Not in the task: one that is cancelled before its first step never comes to a finally.
        begun.discard(name)
        slots.give(taken)
        moved_on.set()

    async def follow(lane: str) -> None:
        while order.ready() or begun:
            if (name := order.take(lane)) is None:
                moved_on.clear()
                await moved_on.wait()
                continue
            begun.add(name)
            taken = await _take(slots, partial(limits, name), owner, tell)
            task = group.create_task(one(name), name=f"transfer of {name}")
            task.add_done_callback(partial(ended, name=name, taken=taken))

    try:
        async with asyncio.TaskGroup() as group:
            for lane in order.lanes:
                group.create_task(follow(lane), name=f"streams of {owner} {lane}".rstrip())
    except ExceptionGroup as several:
        raise several.exceptions[0] from None


async def _take(slots: StreamSlots, limits: Limits, owner: str, tell: Callable[[str], None]) -> TakenSlots:
    with _told_later(lambda: slots.describe_wait(owner), tell):
        return await slots.take(limits, owner)


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
