"""What is young stays on a vault, and so does what came after it, whatever date it says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zvault.core.model import Snapshot
from zvault.core.names import DatasetName
from zvault.core.policy.min_age import list_too_young

DATASET = DatasetName("cold/lab/tank")
NOW, HOUR = 1_700_000_000, 3600


def snap(txg: int, ago: float) -> Snapshot:
    return Snapshot(DATASET, f"s{txg}", guid=txg, createtxg=txg, creation=int(NOW - ago))


def young(*snapshots: Snapshot, hours: float = 24) -> set[int]:
    return set(list_too_young(snapshots, hours * HOUR, NOW))


def test_what_is_older_may_go() -> None:
    assert young(snap(1, 30 * HOUR), snap(2, 24 * HOUR), snap(3, 23 * HOUR)) == {3}


def test_an_old_date_makes_none_older_than_what_it_followed() -> None:
    assert young(snap(1, 30 * HOUR), snap(2, 2 * HOUR), snap(3, 1000 * HOUR)) == {2, 3}


def test_what_was_made_long_ago_is_old_on_the_day_it_comes() -> None:
    assert young(snap(1, 1000 * HOUR), snap(2, 900 * HOUR)) == set()


def test_one_of_tomorrow_counts_as_of_now_and_so_has_what_followed_it() -> None:
    assert young(snap(1, 30 * HOUR), snap(2, -9 * HOUR), snap(3, 30 * HOUR)) == {2, 3}


def test_without_a_min_age_none_is_young() -> None:
    assert young(snap(1, 0), snap(2, -5), hours=0) == set()


@given(st.lists(st.integers(-5, 100), max_size=12), st.floats(0, 100))
def test_more_of_it_never_lets_more_go_and_time_lets_all_go(ages: list[int], hours: float) -> None:
    snapshots = [snap(txg, age * HOUR) for txg, age in enumerate(ages)]
    assert young(*snapshots, hours=hours) <= young(*snapshots, hours=hours + 1)
    assert not list_too_young(snapshots, hours * HOUR, NOW + (hours + 6) * HOUR)
    # Whoever comes last is never younger for what it says.
    if snapshots and young(*snapshots[:-1], hours=hours) >= {len(ages) - 2}:
        assert len(ages) - 1 in young(*snapshots, hours=hours)
