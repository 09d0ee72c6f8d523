"""How many streams go at once into each vault and from each source host, over all runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping

Limits = Callable[[], Mapping[str, int]]
"""What one stream takes a slot of, and how many slots each has at this moment: the configuration may change."""


class Slots:
    """How many streams go at once into each vault and from each host, counted over all runs.

    Who waits gets a slot in turn, but nobody waits behind one who waits for something else. A run waits for one
    slot at a time, so runs that share a vault get its slots by turns, however many datasets each has.
    """

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()
        self._waiting: list[tuple[Limits, asyncio.Future[tuple[str, ...]]]] = []

    async def take(self, limits: Limits) -> tuple[str, ...]:
        """Wait for a slot of everything in ``limits``; what is returned has to be given back."""
        turn: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
        self._waiting.append((limits, turn))
        self._serve()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give(turn.result())
            raise

    def give(self, slots: tuple[str, ...]) -> None:
        """Give back what was taken."""
        self._taken.subtract(slots)
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
            if all(self._taken[key] < slots for key, slots in wanted.items()):
                self._taken.update(wanted.keys())
                turn.set_result(tuple(wanted))
            else:
                still.append((limits, turn))
        self._waiting = still
