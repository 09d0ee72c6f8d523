"""A source that names snapshots as it likes: none of the history that the vault had before is pruned for them."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.policy.retention_rules import kept, ours, run, snap
from tests.unit.core.policy.test_prune_limit import pruned
from zvault.core.dates import CLOCK_TOLERANCE
from zvault.core.model import Snapshot
from zvault.core.policy.prune_limit import find_prune_excess
from zvault.core.policy.retention import KeepRules
from zvault.core.policy.snapshot_dates import AHEAD_OF_TIME, LARGEST_RANK, RankedSnapshot, rank_snapshots

HOUR = 3600
DAY = 24 * HOUR
START = datetime(2026, 3, 1, 2, tzinfo=UTC).timestamp()


def ranks(*dates: float, now: float = 1e9) -> list[RankedSnapshot]:
    found = rank_snapshots(list(enumerate(snap(number, date) for number, date in enumerate(dates))), now)
    return [found[place] for place in range(len(dates))]


def test_where_no_clock_was_set_every_date_is_believed() -> None:
    assert ranks(1, 2, 2, 5) == [RankedSnapshot(0)] * 4


def test_a_snapshot_dated_before_an_older_one_has_a_witness() -> None:
    assert ranks(1, 9, 2, 3, 9, 1) == [
        RankedSnapshot(0),
        RankedSnapshot(0),
        RankedSnapshot(1, 1),
        RankedSnapshot(1, 1),
        RankedSnapshot(0),
        RankedSnapshot(2, 3),
    ]


def test_the_rank_has_an_end() -> None:
    assert [one.rank for one in ranks(*range(9, 0, -1))] == [0, 1, 2, *[LARGEST_RANK] * 6]


def test_what_is_dated_later_than_now_is_no_witness() -> None:
    now = 1000.0
    assert ranks(1, now + CLOCK_TOLERANCE + 1, 5, now + CLOCK_TOLERANCE, now=now) == [
        RankedSnapshot(0),
        RankedSnapshot(AHEAD_OF_TIME),
        RankedSnapshot(0),
        RankedSnapshot(0),
    ]


def genuine(days: int) -> list[Snapshot]:
    return [snap(number, START + number * DAY) for number in range(days)]


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_made_up_names_leave_the_genuine_ones(share: float) -> None:
    """24 names in one run, each a bit later than a genuine one on its day, left none of those: the attack as found."""
    vault, rules = genuine(24), KeepRules(last=1, daily=30, monthly=12)
    now = START + 24 * DAY
    made_up = [snap(100 + number, START + number * DAY + 23 * HOUR - 1) for number in range(24)]
    own = snap(200, now)
    arrived = frozenset(one.guid for one in (*made_up, own))
    for _ in range(5):
        left = pruned(run([*vault, *made_up, own], rules, now=now), share, arrived)
        assert [one for one in vault if one not in left] == []
        arrived = frozenset()


def test_enough_made_up_names_do_not_raise_what_may_be_pruned() -> None:
    """Names of today displace the old ones of ``last``, but only so many in one run."""
    vault, now = genuine(24), START + 24 * DAY
    made_up = [snap(100 + number, now + number) for number in range(1000)]
    verdicts = run([*vault, *made_up], KeepRules(last=24), now=now + 1000)
    over = find_prune_excess(verdicts, 0.5, ours, frozenset(one.guid for one in made_up))
    assert over is not None
    assert (over.count, over.allowed) == (24, 12)


RULES = KeepRules(daily=7, weekly=3, monthly=6, yearly=2)
DAYS = 60

FAKES = st.lists(
    st.tuples(
        st.integers(5, 40),  # the day on which it is sent
        st.one_of(st.integers(-40 * 24, 24 * 90), st.integers(-24 * 7, 24 * 7)),  # hours from then
        st.integers(0, HOUR - 1),
    ),
    max_size=40,
)


def live(fakes: Sequence[tuple[int, int, int]], step: int) -> list[set[Snapshot]]:
    """A vault that is backed up to every ``step`` hours for two months: what it has after each run."""
    due = sorted(fakes)
    vault: list[Snapshot] = []
    told, number = [], 0
    for hours in range(0, DAYS * 24, step):
        now = START + hours * HOUR
        while due and due[0][0] * 24 < hours:
            _, away, seconds = due.pop(0)
            number += 1
            # An order by number is that of the pool; 1000 apart leaves room for those that are made up.
            vault.append(snap(hours * 1000 + number - 900, now - 1 + away * HOUR - seconds))
        vault.append(snap(hours * 1000, now))
        vault = kept(run(vault, RULES, now=now))
        told.append(set(vault))
    return told


HONEST = {step: live([], step) for step in (12, 24)}


@given(FAKES, st.sampled_from([12, 24]))
def test_no_made_up_name_ever_costs_a_snapshot_that_was_there_before_it(
    fakes: list[tuple[int, int, int]], step: int
) -> None:
    """Whatever is sent from some day on, and for weeks after: also names that come true only later.

    All but the newest by then: it lies in the present, of which a source may make what it likes.
    """
    newest = START + min((day for day, _, _ in fakes), default=0) * DAY
    for honest, attacked in zip(HONEST[step], live(fakes, step), strict=True):
        assert {one for one in honest if one.creation < newest} <= attacked


def test_a_flood_of_made_up_names_takes_no_quadratic_time_and_leaves_the_genuine() -> None:
    chance = random.Random(1)
    vault = genuine(30)
    now = START + 30 * DAY
    flood = [snap(100 + number, now - chance.randrange(0, 30 * DAY)) for number in range(20_000)]
    left = kept(run([*vault, *flood, snap(50_000, now)], KeepRules(daily=30, monthly=12), now=now))
    assert set(vault[1:]) <= set(left)
    assert len(left) < 300


def test_a_clock_that_was_behind_for_a_week_costs_nothing_and_ends() -> None:
    """Its snapshots are kept by the rules, beside those of the week whose dates they bear, until both are old."""
    behind = [snap(100 + number, START + (20 + number) * DAY - 14 * DAY) for number in range(7)]
    after = [snap(200 + number, START + (27 + number) * DAY) for number in range(60)]
    rules = KeepRules(daily=30)
    left = genuine(20)
    for one in (*behind, *after[:3]):
        left = kept(run([*left, one], rules, now=after[2].creation))
    assert set(genuine(20)) | set(behind) <= set(left)
    for one in after[3:]:
        left = kept(run([*left, one], rules, now=one.creation))
    assert left == after[-30:]


def test_what_was_dated_ahead_of_time_goes_once_that_time_is_past() -> None:
    left = [*genuine(10), snap(100, START + 40 * DAY)]
    for day in range(10, 90):
        left = kept(
            run([*left, snap(200 + day, START + day * DAY)], KeepRules(daily=7), now=START + day * DAY)
        )
    assert [one.creation for one in left] == [START + day * DAY for day in range(83, 90)]
