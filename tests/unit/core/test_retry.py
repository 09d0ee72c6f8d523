"""How long to wait before another try."""

from hypothesis import given
from hypothesis import strategies as st

from zvault.core.retry import LONGEST, SPREAD, spread, waits


def test_each_wait_is_twice_as_long_up_to_an_hour() -> None:
    assert list(waits(0, 30)) == []
    assert list(waits(4, 30)) == [30, 60, 120, 240]
    assert list(waits(9, 30))[-2:] == [LONGEST, LONGEST]
    assert list(waits(100, 7200)) == [LONGEST] * 100


@given(st.floats(0, LONGEST), st.floats(0, 1))
def test_chance_moves_a_wait_only_so_far(wait: float, chance: float) -> None:
    assert abs(spread(wait, chance) - wait) <= SPREAD * wait + 1e-9
