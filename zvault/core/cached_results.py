"""What was worked out of each of many things at the last look, for the next one.

A thing that did not change is the same object as then, and its result is the same: it is not visited. Which things are
others is found by comparing pointers, place by place, in loops of the interpreter's own: 100,000 take a few ms, where
a line of Python for each takes tens of them. A result may depend on nothing but its thing and on what is the same for
all; where it depends on more, ``again`` is told which results have ``expired``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress, repeat
from operator import is_, is_not
from typing import Any, Generic, TypeVar

Thing = TypeVar("Thing")
Result = TypeVar("Result")

MOVED_SHARE = 16
"""Where one thing in so many is another, or more, things may have moved to other places."""

_MISSING: Any = object()


def list_replaced(before: Sequence[object], now: Sequence[object]) -> list[int] | None:
    """The places at which there is another object than before; None where there are more or fewer of them."""
    if len(before) != len(now):
        return None
    return list(compress(range(len(now)), map(is_not, before, now)))


def list_new_ones(before: Sequence[Thing], now: Sequence[Thing]) -> list[Thing]:
    """Those that were not there before, wherever they were."""
    places = list_replaced(before, now)
    if places is not None and not _moved(places, now):
        return [now[place] for place in places]
    known = set(map(id, before))
    return [one for one in now if id(one) not in known]


class CachedResults(Generic[Thing, Result]):
    """Things, and the result of each, in their order. A look that raises leaves what was known before."""

    __slots__ = ("results", "things")

    def __init__(self) -> None:
        self.things: Sequence[Thing] = ()
        self.results: Sequence[Result] = ()

    def again(
        self,
        things: Sequence[Thing],
        work: Callable[[Thing], Result],
        expired: Callable[[Sequence[Result]], Iterable[int]] | None = None,
    ) -> Sequence[Result]:
        """The results of these things, in their order: ``work`` is called for those that are others than before, and
        where ``expired``, asked once all have one, names their places. The result is not to be changed.
        """
        results: list[Result]
        places = list_replaced(self.things, things)
        if places is None or _moved(places, things):
            known = dict(zip(map(id, self.things), self.results, strict=True))
            results = list(map(known.get, map(id, things), repeat(_MISSING)))
            places = list(compress(range(len(things)), map(is_, results, repeat(_MISSING))))
        else:
            results = list(self.results)
        for place in places:
            results[place] = work(things[place])
        for place in expired(results) if expired is not None else ():
            results[place] = work(things[place])
        self.things, self.results = things, results
        return results


def _moved(places: Sequence[int], things: Sequence[object]) -> bool:
    return len(places) * MOVED_SHARE > len(things)
