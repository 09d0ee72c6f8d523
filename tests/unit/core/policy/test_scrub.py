"""When a scrub is due, what stands in its way, and how far one is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from zvault.config.tables.scrub import Scrub
from zvault.core.policy.cron_schedule import parse_schedule
from zvault.core.policy.scrub import (
    PAUSE_BEFORE_BACKUP,
    PoolScan,
    ScrubPolicy,
    VaultTraffic,
    find_scrub_obstacle,
    find_scrub_reason,
)
from zvault.core.replication.bandwidth import RateWindow

DAY = 86400.0
ZONE = ZoneInfo("Europe/Vienna")
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=ZONE).timestamp()
NIGHT = RateWindow(None, 22 * 60, 6 * 60)


@given(st.integers(0, 8_640_000), st.integers(3600, 8_640_000))
def test_by_age_it_is_due_when_the_last_one_is_that_old(age: int, every: int):
    policy = ScrubPolicy(every=float(every))
    assert (find_scrub_reason(policy, PoolScan("finished"), NOW - age, NOW, ZONE) is not None) == (
        age >= every
    )


def test_by_the_clock_it_is_due_once_a_time_has_passed():
    policy = ScrubPolicy(schedule=parse_schedule("monthly"))
    before = datetime(2026, 10, 31, 23, 0, tzinfo=ZONE).timestamp()
    after = datetime(2026, 11, 1, 1, 0, tzinfo=ZONE).timestamp()
    assert find_scrub_reason(policy, None, before, NOW, ZONE) == "the last one ended 20d 13h ago"
    assert find_scrub_reason(policy, None, after, NOW, ZONE) is None


def test_whichever_comes_first_counts():
    assert ScrubPolicy(every=5 * DAY, schedule=parse_schedule("monthly")).due(NOW, ZONE) == NOW + 5 * DAY
    assert ScrubPolicy(every=90 * DAY, schedule=parse_schedule("monthly")).due(NOW, ZONE) < NOW + 31 * DAY


def test_one_that_has_begun_goes_on_whatever_the_policy():
    for state in ("scanning", "paused"):
        assert (
            find_scrub_reason(ScrubPolicy(), PoolScan(state), NOW, NOW, ZONE)
            == "one was started and has not ended"
        )


def test_none_is_wanted_by_hand_only_nor_while_a_device_is_rebuilt():
    assert find_scrub_reason(ScrubPolicy(), PoolScan("finished"), None, NOW, ZONE) is None
    assert (
        find_scrub_reason(ScrubPolicy(every=DAY), PoolScan("scanning", resilver=True), None, NOW, ZONE)
        is None
    )
    assert find_scrub_reason(ScrubPolicy(every=DAY), None, None, NOW, ZONE) == "it was never scrubbed"


def test_a_backup_that_runs_or_is_near_is_in_the_way():
    policy = ScrubPolicy(every=DAY)
    assert find_scrub_obstacle(policy, VaultTraffic(["backup tank"]), NOW, ZONE) == "backup tank runs"
    assert (
        find_scrub_obstacle(policy, VaultTraffic((), NOW + 60, "tank"), NOW, ZONE)
        == "backup tank is due in 1m"
    )
    assert (
        find_scrub_obstacle(policy, VaultTraffic((), NOW - 60, "tank"), NOW, ZONE)
        == "backup tank is due in 0s"
    )
    assert (
        find_scrub_obstacle(policy, VaultTraffic((), NOW + PAUSE_BEFORE_BACKUP + 1, "tank"), NOW, ZONE)
        is None
    )


def test_windows_bind_the_policy_and_not_who_asks():
    policy = ScrubPolicy(every=DAY, windows=(NIGHT,))
    assert find_scrub_obstacle(policy, VaultTraffic(), NOW, ZONE) == "it is outside its windows"
    assert find_scrub_obstacle(policy, VaultTraffic(), NOW, ZONE, by_hand=True) is None
    assert find_scrub_obstacle(policy, VaultTraffic(), NOW + 12 * 3600, ZONE) is None


@given(st.integers(0, 14 * 24 * 60))
def test_a_scrub_by_policy_never_runs_outside_its_windows(minutes: int):
    moment = datetime(2026, 11, 21, tzinfo=UTC) + timedelta(minutes=minutes)
    weekend = RateWindow(None, 0, 0, frozenset({5, 6}))
    policy = ScrubPolicy(every=DAY, windows=(NIGHT, weekend))
    local = moment.astimezone(ZONE)
    free = local.hour >= 22 or local.hour < 6 or local.weekday() >= 5
    assert (find_scrub_obstacle(policy, VaultTraffic(), moment.timestamp(), ZONE) is None) == free


def test_how_far_it_is():
    scan = PoolScan("scanning", total=1000, done=250, rate=50.0)
    assert (scan.share, scan.left) == (0.25, 15.0)
    assert PoolScan("paused", total=1000, done=250).left is None
    assert PoolScan("finished", total=1000, done=900).share == 1.0
    assert PoolScan("none").share is None


def test_what_is_configured_becomes_the_policy():
    assert Scrub().policy() == ScrubPolicy(every=35 * DAY)
    assert Scrub.model_validate({"every": "off"}).policy() == ScrubPolicy()
    assert Scrub.model_validate({"every": "10d"}).policy() == ScrubPolicy(every=10 * DAY)
    assert Scrub.model_validate({"schedule": "monthly"}).policy() == ScrubPolicy(
        schedule=parse_schedule("monthly")
    )
    assert Scrub.model_validate({"schedule": "monthly", "every": "10d"}).policy() == ScrubPolicy(
        every=10 * DAY, schedule=parse_schedule("monthly")
    )
    night = Scrub.model_validate({"windows": [{"start": "22:00", "end": "06:00"}]}).policy()
    assert night.windows == (NIGHT,)
