"""Several datasets at once, within what a vault and a source host may have at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from zvault.core.replication.ordering import Order
from zvault.ops.stream.slots import Limits, Slots, Taken

WAIT_TOLD_AFTER = 10.0
"""Seconds for which a run waits for a slot before it says so."""


async def side_by_side(
    order: Order,
    slots: Slots,
    owner: str,
    limits: Callable[[str], Mapping[str, int]],
    carry_out: Callable[[str], Awaitable[bool]],
    tell: Callable[[str], None],
) -> None:
    """Carry out what is in ``order``, as many at once as ``owner`` gets slots for; ``limits`` are those of one.

    ``carry_out`` tells whether it went well; where not, it is up to it what to do about ``order``. What it raises
    stops all others and is raised. Cancelled, everything under way is. ``tell`` is told of a long wait for a slot.
    """
    moved_on = asyncio.Event()
    under_way: set[asyncio.Task[None]] = set()

    async def one(name: str) -> None:
        if await carry_out(name):
            order.done(name)

    def ended(task: asyncio.Task[None], taken: Taken) -> None:
        # Not in the task: one that is cancelled before its first step never comes to a finally.
        under_way.discard(task)
        slots.give(taken)
        moved_on.set()

    try:
        async with asyncio.TaskGroup() as group:
            while order.ready() or under_way:
                if (name := order.take()) is None:
                    moved_on.clear()
                    await moved_on.wait()
                    continue
                taken = await _take(slots, partial(limits, name), owner, tell)
                task = group.create_task(one(name), name=f"transfer of {name}")
                under_way.add(task)
                task.add_done_callback(partial(ended, taken=taken))
    except ExceptionGroup as several:
        raise several.exceptions[0] from None


async def _take(slots: Slots, limits: Limits, owner: str, tell: Callable[[str], None]) -> Taken:
    def say() -> None:
        if (why := slots.describe_wait(owner)) is not None:
            tell(f"waiting for {why}")

    later = asyncio.get_running_loop().call_later(WAIT_TOLD_AFTER, say)
    try:
        return await slots.take(limits, owner)
    finally:
        later.cancel()
