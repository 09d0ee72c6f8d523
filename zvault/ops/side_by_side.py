"""Several datasets at once, within what a vault and a source host may have at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from zvault.core.errors import Refused, ZvaultError
from zvault.core.order import Order

Limits = Callable[[], Mapping[str, int]]
"""What one stream takes a place of, and how many each has at this moment: the configuration may change."""


class Places:
    """How many streams go at once into each vault and from each host, counted over all runs.

    Who waits gets a place in turn, but nobody waits behind one who waits for something else. A run waits for one
    place at a time, so runs that share a vault get its places by turns, however many datasets each has.
    """

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()
        self._waiting: list[tuple[Limits, asyncio.Future[tuple[str, ...]]]] = []

    async def take(self, limits: Limits) -> tuple[str, ...]:
        """Wait for a place of everything in ``limits``; what is returned has to be given back."""
        turn: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
        self._waiting.append((limits, turn))
        self._serve()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give(turn.result())
            raise

    def give(self, places: tuple[str, ...]) -> None:
        """Give back what was taken."""
        self._taken.subtract(places)
        self._serve()

    def _serve(self) -> None:
        still: list[tuple[Limits, asyncio.Future[tuple[str, ...]]]] = []
        for limits, turn in self._waiting:
            if turn.done():
                continue
            try:
                wanted = limits()
            except Exception as error:  # the waiter's own trouble, not that of whoever serves it
                turn.set_exception(error)
                continue
            if all(self._taken[key] < places for key, places in wanted.items()):
                self._taken.update(wanted.keys())
                turn.set_result(tuple(wanted))
            else:
                still.append((limits, turn))
        self._waiting = still


async def side_by_side(
    order: Order,
    places: Places,
    limits: Callable[[str], Mapping[str, int]],
    carry_out: Callable[[str], Awaitable[bool]],
) -> None:
    """Carry out what is in ``order``, as many at once as there are places for; ``limits`` are those of one.

    ``carry_out`` tells whether it went well; where not, it is up to it what to do about ``order``. What it raises
    stops all others and is raised. Cancelled, everything under way is.
    """
    moved_on = asyncio.Event()
    under_way: set[asyncio.Task[None]] = set()

    async def one(name: str) -> None:
        if await carry_out(name):
            order.done(name)

    def ended(task: asyncio.Task[None], taken: tuple[str, ...]) -> None:
        # Not in the task: one that is cancelled before its first step never comes to a finally.
        under_way.discard(task)
        places.give(taken)
        moved_on.set()

    try:
        async with asyncio.TaskGroup() as group:
            while order.ready() or under_way:
                if (name := order.take()) is None:
                    moved_on.clear()
                    await moved_on.wait()
                    continue
                taken = await places.take(partial(limits, name))
                task = group.create_task(one(name), name=f"transfer of {name}")
                under_way.add(task)
                task.add_done_callback(partial(ended, taken=taken))
    except ExceptionGroup as several:
        raise several.exceptions[0] from None


def orphaned(dataset: str, cause: str, error: ZvaultError) -> ZvaultError:
    """What is told of a dataset that has to come after one that failed."""
    orphan = Refused(
        f"{dataset} was not sent",
        f"it comes after {cause}, which failed",
        "it follows once that one went well",
    )
    orphan.retryable = error.retryable
    return orphan


def in_a_ring(dataset: str) -> ZvaultError:
    """What is told of datasets of which each has to come after another."""
    return Refused(
        f"{dataset} was not sent", "it and others each have to come after another", "please report it"
    )
