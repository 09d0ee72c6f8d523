"""How many streams go at once into each vault and from each source host, over all runs."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Limits = Callable[[], Mapping[str, int]]
"""What one stream takes a slot of, and how many slots each has at this moment: the configuration may change."""


@dataclass(frozen=True, slots=True)
class TakenSlots:
    """Slots that ``owner``, a backup, has taken, and has to give back."""

    owner: str
    keys: tuple[str, ...]


@dataclass
class _Waiter:
    """One who waits. ``lacks`` is what it waited for when slots were given last, and how many of it there are."""

    owner: str
    limits: Limits
    turn: asyncio.Future[TakenSlots]
    lacks: Mapping[str, int] = field(default_factory=dict)


class StreamSlots:
    """The slots that bound how many streams go at once into each vault and from each host, counted over all runs.

    Of those who wait, the backup that holds the fewest slots of what it waits for comes first, and among equals who
    has waited longest. Nobody waits behind one who waits for something else. A run waits for one slot at a time, so
    backups that share a vault share its slots, however many datasets each has.
    """

    def __init__(self) -> None:
        self._taken: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """By what is taken: how many each owner has of it."""
        self._waiting: list[_Waiter] = []

    async def take(self, limits: Limits, owner: str) -> TakenSlots:
        """Wait for a slot of everything in ``limits``; what is returned has to be given back."""
        waiter = _Waiter(owner, limits, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        self._serve()
        try:
            return await waiter.turn
        except asyncio.CancelledError:
            turn = waiter.turn
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give(turn.result())
            raise
        finally:
            self._waiting = [one for one in self._waiting if one is not waiter]

    def give(self, slots: TakenSlots) -> None:
        """Give back what was taken."""
        for key in slots.keys:
            self._taken[key][slots.owner] -= 1
        self._serve()

    def describe_wait(self, owner: str) -> str | None:
        """For what an owner waits of which it has nothing itself, and who has it, in words; None where it does not."""
        for waiter in self._waiting:
            for key, most in waiter.lacks.items():
                holders = +self._taken[key]
                if waiter.owner == owner and owner not in holders:
                    whose = ", ".join(f"{name} {count}" for name, count in holders.most_common())
                    return (
                        f"one of the {most} streams that may go at once ({key}); they are taken by: {whose}"
                    )
        return None

    def is_wanted_by_others(self, owner: str) -> bool:
        """True if somebody else waits for what an owner has a slot of."""
        return any(
            waiter.owner != owner and self._taken[key][owner] > 0
            for waiter in self._waiting
            for key in waiter.lacks
        )

    def _serve(self) -> None:
        """Give what is free, one waiter after another: each that gets a slot changes who comes next."""
        wanted: list[tuple[_Waiter, Mapping[str, int]]] = []
        for waiter in self._waiting:
            if waiter.turn.done():
                continue
            try:
                wanted.append((waiter, waiter.limits()))
            except Exception as error:  # the waiter's own trouble, not that of whoever serves it
                waiter.turn.set_exception(error)
        while wanted:
            waiter, limits = min(wanted, key=self._held)
            wanted.remove((waiter, limits))
            waiter.lacks = {key: most for key, most in limits.items() if self._taken[key].total() >= most}
            if not waiter.lacks:
                for key in limits:
                    self._taken[key][waiter.owner] += 1
                waiter.turn.set_result(TakenSlots(waiter.owner, tuple(limits)))

    def _held(self, wanted: tuple[_Waiter, Mapping[str, int]]) -> int:
        """How many slots a waiter's owner has of what it waits for."""
        waiter, limits = wanted
        return sum(self._taken[key][waiter.owner] for key in limits)
