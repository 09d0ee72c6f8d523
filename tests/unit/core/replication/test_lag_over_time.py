"""The lag over a past time, against one that looks at every moment."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zvault.core.replication.lag_over_time import measure_lag_over_time

RUNS = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 30)).map(lambda one: (one[0], sum(one))), max_size=8
)


def at(runs: list[tuple[int, int]], moment: float) -> float | None:
    """The lag at a moment: since the beginning of what had ended by then."""
    covered = [began for began, ended in runs if ended <= moment]
    return moment - max(covered) if covered else None


@given(RUNS, st.integers(0, 60), st.integers(1, 8), st.integers(1, 12))
def test_the_highest_of_each_part(runs: list[tuple[int, int]], begin: int, width: int, count: int) -> None:
    found = measure_lag_over_time(runs, begin, begin + width * count, count)
    for part, highest in enumerate(found):
        first, last = begin + part * width, begin + (part + 1) * width
        # A quarter before each moment and at it: the highest is right before a run ends.
        looked = [at(runs, moment / 4) for moment in range(4 * first + 1, 4 * last + 1)]
        known = [lag for lag in looked if lag is not None]
        if highest is None:
            assert known == []
        else:
            assert max(known, default=0) <= highest <= max(known, default=0) + 1


def test_of_runs_that_end_at_one_moment_the_newest_state_counts() -> None:
    assert measure_lag_over_time([(21, 51), (26, 51)], 48, 54, 1) == [28]


def test_it_grows_until_a_run_ends_and_then_counts_from_its_beginning() -> None:
    assert measure_lag_over_time([(0, 10), (50, 60)], 0, 100, 10) == [10, 20, 30, 40, 50, 60, 20, 30, 40, 50]
    assert measure_lag_over_time([(50, 60)], 0, 100, 4) == [None, None, 25, 50]
    assert measure_lag_over_time([], 0, 100, 2) == [None, None]
