"""Results that are kept from look to look are those that would be worked out anew, and only of what is another."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zvault.core import cached_results
from zvault.core.cached_results import CachedResults, list_new_ones, list_replaced


class Thing:
    """Known by being itself; its value may be another's too."""

    def __init__(self, value: int) -> None:
        self.value = value


@dataclass
class Work:
    """Visits things, and may fail after some."""

    epoch: int
    fails_after: int
    visited: list[Thing]

    def __call__(self, thing: Thing) -> tuple[Thing, int]:
        if len(self.visited) == self.fails_after:
            raise ValueError
        self.visited.append(thing)
        return thing, self.epoch


THINGS = [Thing(number % 7) for number in range(60)]
LOOK = st.lists(st.integers(0, 59), unique=True, max_size=60)


@pytest.mark.parametrize("few", [1, 16])
@given(
    looks=st.lists(st.tuples(LOOK, st.sets(st.integers(0, 59)), st.integers(-1, 20)), min_size=1, max_size=6)
)
@settings(deadline=None)
def test_results_are_of_the_things_of_now(few: int, looks: list[tuple[list[int], set[int], int]]) -> None:
    """Some expire at each look, and some looks break off."""
    known: CachedResults[Thing, tuple[Thing, int]] = CachedResults()
    for epoch, (numbers, outdated, fails_after) in enumerate(looks):
        things, visited = [THINGS[number] for number in numbers], list[Thing]()

        def work(
            thing: Thing, epoch: int = epoch, fails: int = fails_after, seen: list[Thing] = visited
        ) -> tuple[Thing, int]:
            if len(seen) == fails:
                raise ValueError
            seen.append(thing)
            return thing, epoch

        expired = {place for place, number in enumerate(numbers) if number in outdated}
        before = dict(zip(map(id, known.things), known.results, strict=True))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cached_results, "MOVED_SHARE", few)
            try:
                found = known.again(things, work, lambda _, places=expired: places)
            except ValueError:
                assert dict(zip(map(id, known.things), known.results, strict=True)) == before
                continue
        assert [thing for thing, _ in found] == things
        for place, (thing, made) in enumerate(found):
            if place in expired or id(thing) not in before:
                assert made == epoch
            elif few > 1:
                assert (thing, made) == before[id(thing)]
        if few > 1:
            anew = {
                id(thing) for place, thing in enumerate(things) if place in expired or id(thing) not in before
            }
            assert set(map(id, visited)) == anew


@given(LOOK, LOOK)
def test_new_ones_are_those_that_were_not_there(before: list[int], now: list[int]) -> None:
    found = list_new_ones([THINGS[number] for number in before], [THINGS[number] for number in now])
    assert {id(one) for one in found} >= {id(THINGS[number]) for number in set(now) - set(before)}


def test_others_are_told_by_what_they_are_not_by_what_they_equal() -> None:
    one, same = tuple(range(1, 3)), tuple(range(1, 3))
    assert list_replaced([one, one, one], [one, same, one]) == [1]
    assert list_replaced([one], [one, one]) is None
