"""How long to wait before another try."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.policy.backoff import A_FIFTH, FULL_JITTER, LONGEST_DELAY, NO_JITTER, Jitter, iterate_delays


def some(count: int, first: float, longest: float = LONGEST_DELAY) -> list[float]:
    return list(islice(iterate_delays(first, longest), count))


def test_each_delay_is_twice_as_long_up_to_the_longest() -> None:
    assert some(4, 30) == [30, 60, 120, 240]
    assert some(9, 30)[-2:] == [LONGEST_DELAY, LONGEST_DELAY]
    assert some(3, 7200) == [LONGEST_DELAY] * 3
    assert some(5, 0.01, 0.05) == [0.01, 0.02, 0.04, 0.05, 0.05]
    assert next(islice(iterate_delays(0.1, 30), 5000, None)) == 30


@pytest.mark.parametrize("jitter", [NO_JITTER, A_FIFTH, FULL_JITTER])
@given(first=st.floats(0.01, LONGEST_DELAY), chances=st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_chance_moves_a_delay_only_so_far(jitter: Jitter, first: float, chances: list[float]) -> None:
    count = len(chances)
    moved = list(islice(iterate_delays(first, jitter=jitter, chance=iter(chances).__next__), count))
    for delay, plain in zip(moved, some(count, first), strict=True):
        assert jitter[0] * plain - 1e-9 <= delay <= jitter[1] * plain + 1e-9


def test_the_bounds_of_chance_are_those_of_the_jitter() -> None:
    for chance, factor in ((0.0, 0.8), (0.5, 1.0), (1.0, 1.2)):
        found = next(iterate_delays(10, jitter=A_FIFTH, chance=lambda chance=chance: chance))  # type: ignore[misc]
        assert found == pytest.approx(10 * factor)
