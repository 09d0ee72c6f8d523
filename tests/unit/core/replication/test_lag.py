import time
from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.dates import CLOCK_TOLERANCE
from zvault.core.model import Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.lag import DatasetLag, describe_lag_basis, measure_dataset_lag


def snap(number: int, creation: int | None = None) -> Snapshot:
    return Snapshot(
        DatasetName("tank/a"),
        f"z{number}",
        1000 + number,
        number,
        100 * number if creation is None else creation,
    )


SOURCE = [snap(1), snap(2), snap(3)]


def test_lag_is_the_age_of_the_newest_snapshot_on_the_vault() -> None:
    assert measure_dataset_lag(SOURCE, {1001, 1002}) == DatasetLag("tank/a", SOURCE[1], 1)
    assert DatasetLag("tank/a", SOURCE[1], 1).age(1000.5) == 800.5


def test_a_vault_that_has_everything_still_lags_by_the_age_of_the_newest() -> None:
    assert measure_dataset_lag(SOURCE, [1003, 1001, 1002]) == DatasetLag("tank/a", SOURCE[2], 0)
    assert DatasetLag("tank/a", SOURCE[2], 0).age(350.0) == 50.0


@pytest.mark.parametrize("guids", [set(), {7, 8}])
def test_a_vault_that_shares_nothing_has_no_lag_rather_than_a_small_one(guids: set[int]) -> None:
    assert measure_dataset_lag(SOURCE, guids) == DatasetLag("tank/a", None, 3)
    assert DatasetLag("tank/a", None, 3).age(1000.0) is None


def test_no_snapshot_at_all_is_unknown_too() -> None:
    assert measure_dataset_lag([], {1}, dataset="tank/b") == DatasetLag("tank/b", None, 0)


def test_an_older_snapshot_that_never_arrived_is_not_pending() -> None:
    # What lies before the base can no longer be sent after it.
    assert measure_dataset_lag(SOURCE, {1002}).pending == 1


def test_a_snapshot_dated_later_than_now_has_no_lag_rather_than_a_small_one() -> None:
    lag = measure_dataset_lag(SOURCE, {1003})
    assert lag.age(250.0) == 0.0, "clocks differ by little"
    assert lag.age(300.0 - CLOCK_TOLERANCE) == 0.0
    assert lag.age(299.0 - CLOCK_TOLERANCE) is None
    ahead = DatasetLag("tank/a", snap(4, creation=10**9), 0)
    assert ahead.age(1000.0) is None
    assert "which is later than now: a clock was wrong" in describe_lag_basis(ahead, UTC, 1000.0)
    assert "later than now" not in describe_lag_basis(ahead, UTC, 1e9)


def test_what_a_run_saw_unchanged_since_counts_whatever_the_snapshot_is_dated() -> None:
    assert DatasetLag("tank/a", snap(4, creation=10**9), 0, unchanged=900.0).age(1000.0) == 100.0
    assert DatasetLag("tank/a", snap(4, creation=800), 0, unchanged=1e9).age(1000.0) == 200.0
    assert DatasetLag("tank/a", snap(4, creation=10**9), 0, unchanged=1e9).age(1000.0) is None


def test_words_and_age_count_from_the_same_moment() -> None:
    seen = DatasetLag("tank/a", snap(4, creation=10**9), 0, unchanged=900.0)
    assert (seen.covered(1000.0), seen.age(1000.0)) == (900.0, 100.0)
    assert "later than now" in describe_lag_basis(seen, UTC, 1000.0)
    assert "nothing was written to the source until 1970-01-01 00:15" in describe_lag_basis(seen, UTC, 1000.0)
    ahead = DatasetLag("tank/a", snap(4, creation=800), 0, unchanged=1e9)
    assert (ahead.covered(1000.0), ahead.age(1000.0)) == (800.0, 200.0)
    assert "until" not in describe_lag_basis(ahead, UTC, 1000.0)
    neither = DatasetLag("tank/a", snap(4, creation=10**9), 0, unchanged=1e9)
    assert neither.covered(1000.0) is None
    assert "until" not in describe_lag_basis(neither, UTC, 1000.0)
    assert DatasetLag("tank/a", None, 0, unchanged=900.0).covered(1000.0) is None


@given(st.integers(0, 10**10), st.none() | st.integers(0, 10**10), st.integers(0, 10**10))
def test_no_lag_is_below_zero_nor_less_than_a_believable_date_says(
    made: int, unchanged: int | None, now: int
) -> None:
    age = DatasetLag("tank/a", snap(4, creation=made), 0, unchanged=unchanged).age(now)
    past = [date for date in (made, unchanged) if date is not None and date <= now + CLOCK_TOLERANCE]
    assert age == (max(0, now - max(past)) if past else None)


def test_the_newest_is_by_transaction_group_not_by_clock() -> None:
    astray = snap(1, creation=10**9)
    lag = measure_dataset_lag([astray, SOURCE[1]], {1001, 1002})
    assert lag.newest_on_vault == SOURCE[1]
    assert lag.pending == 0


@given(st.lists(st.integers(1, 50), unique=True), st.sets(st.integers(1, 50)), st.randoms())
def test_lag_agrees_with_a_walk_back_from_the_newest(
    numbers: list[int], there: set[int], random: object
) -> None:
    walked: Snapshot | None = None
    pending = 0
    for number in sorted(numbers, reverse=True):
        if number in there:
            walked = snap(number)
            break
        pending += 1
    lag = measure_dataset_lag([snap(number) for number in numbers], [1000 + number for number in there])
    assert (lag.newest_on_vault, lag.pending) == (walked, pending)
    assert lag.age(9999.0) == (None if walked is None else 9999.0 - walked.creation)


def test_lists_of_guids_cost_no_quadratic_time() -> None:
    many = [snap(number) for number in range(100_000)]

    def seconds(count: int) -> float:
        started = time.process_time()
        assert (
            measure_dataset_lag(many[:count], [one.guid for one in many[: count // 2]]).pending == count // 2
        )
        return time.process_time() - started

    assert seconds(100_000) < 40 * seconds(10_000), (
        "ten times as many take some ten times as long, not a hundred"
    )
