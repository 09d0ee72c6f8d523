import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.model import Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.lag import DatasetLag, dataset_lag


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
    assert dataset_lag(SOURCE, {1001, 1002}) == DatasetLag("tank/a", SOURCE[1], 1)
    assert DatasetLag("tank/a", SOURCE[1], 1).age(1000.5) == 800.5


def test_a_vault_that_has_everything_still_lags_by_the_age_of_the_newest() -> None:
    assert dataset_lag(SOURCE, [1003, 1001, 1002]) == DatasetLag("tank/a", SOURCE[2], 0)
    assert DatasetLag("tank/a", SOURCE[2], 0).age(350.0) == 50.0


@pytest.mark.parametrize("guids", [set(), {7, 8}])
def test_a_vault_that_shares_nothing_has_no_lag_rather_than_a_small_one(guids: set[int]) -> None:
    assert dataset_lag(SOURCE, guids) == DatasetLag("tank/a", None, 3)
    assert DatasetLag("tank/a", None, 3).age(1000.0) is None


def test_no_snapshot_at_all_is_unknown_too() -> None:
    assert dataset_lag([], {1}, dataset="tank/b") == DatasetLag("tank/b", None, 0)


def test_an_older_snapshot_that_never_arrived_is_not_pending() -> None:
    # What lies before the base can no longer be sent after it.
    assert dataset_lag(SOURCE, {1002}).pending == 1


def test_a_clock_set_back_shows_as_a_negative_lag() -> None:
    assert dataset_lag(SOURCE, {1003}).age(250.0) == -50.0


def test_the_newest_is_by_transaction_group_not_by_clock() -> None:
    astray = snap(1, creation=10**9)
    lag = dataset_lag([astray, SOURCE[1]], {1001, 1002})
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
    lag = dataset_lag([snap(number) for number in numbers], [1000 + number for number in there])
    assert (lag.newest_on_vault, lag.pending) == (walked, pending)
    assert lag.age(9999.0) == (None if walked is None else 9999.0 - walked.creation)


def test_lists_of_guids_cost_no_quadratic_time() -> None:
    many = [snap(number) for number in range(100_000)]
    started = time.process_time()
    assert dataset_lag(many, [one.guid for one in many[:50_000]]).pending == 50_000
    assert time.process_time() - started < 5
