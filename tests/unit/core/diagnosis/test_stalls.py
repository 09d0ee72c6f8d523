"""Whose a sign of a stall is, and how often it is told."""

from __future__ import annotations

import pytest

from zvault.core.diagnosis.stalls import (
    STALL_END_AFTER,
    TOLD_EVERY,
    SlowGroups,
    StallLog,
    StallSign,
    VaultDevices,
    find_stalled_vault,
)

COLD = VaultDevices("cold", "coldpool", {"nbd0", "bcache0"})
CLOUD = VaultDevices("cloud", "cloud", {"rbd3"})
PLACES = [COLD, CLOUD]
HUNG = StallSign("hung_task", "txg_sync hangs", pid=7, zfs=True)


@pytest.mark.parametrize(
    ("sign", "vault"),
    [
        (StallSign("deadman", "", pool="coldpool"), "cold"),
        (StallSign("deadman", "", pool="cold"), None),
        (StallSign("stuck_request", "", devices=("nbd0",)), "cold"),
        (StallSign("hung_task", "", devices=("sda", "rbd3")), "cloud"),
        (StallSign("stuck_request", "", devices=("nbd00",)), None),
        (HUNG, None),
    ],
)
def test_a_pool_or_a_device_says_whose_it_is(sign: StallSign, vault: str | None):
    assert find_stalled_vault(sign, PLACES) == vault


@pytest.mark.parametrize(
    ("words", "vault"),
    [
        (["receive", "-s", "-u", "coldpool/lab/tank"], "cold"),
        (["export", "cloud"], "cloud"),
        (["destroy", "cloud@a"], "cloud"),
        (["bookmark", "x", "cloud/a#b"], "cloud"),
        (["set", "cloud:x=y", "tank"], None),
        (["list", "cloudy/a"], None),
    ],
)
def test_a_command_line_names_the_pool(words: list[str], vault: str | None):
    assert find_stalled_vault(HUNG, PLACES, words) == vault


def test_what_names_nothing_waits_for_whoever_has_waited_longest():
    assert find_stalled_vault(HUNG, PLACES, (), {"cold": 90.0, "cloud": 130.0}) == "cloud"
    assert find_stalled_vault(StallSign("hung_task", "", pid=7), PLACES, (), {"cold": 90.0}) is None, (
        "not OpenZFS"
    )
    # Another pool's event stays another pool's, however long a vault waits.
    assert find_stalled_vault(StallSign("io", "", pool="tank"), PLACES, (), {"cold": 90.0}) is None


def test_many_signs_are_counted_and_told_seldom():
    stalls = StallLog()
    sign = StallSign("deadman", "nbd0 is late", pool="coldpool")
    assert stalls.note("cold", sign, 100.0) == "vault cold: nbd0 is late"
    assert [stalls.note("cold", sign, 100.0 + i) for i in range(1, 10)] == [None] * 9
    assert (
        stalls.note("cold", sign, 100.0 + TOLD_EVERY) == "vault cold: nbd0 is late (and 9 such signs before)"
    )
    assert stalls.counts["cold", "deadman"] == 11


def test_kinds_and_vaults_do_not_silence_each_other():
    stalls = StallLog()
    assert stalls.note("cold", StallSign("deadman", "a"), 1.0)
    assert stalls.note("cold", StallSign("delay", "b"), 1.0)
    assert stalls.note("cloud", StallSign("deadman", "c"), 1.0)
    assert stalls.note(None, HUNG, 1.0) == "unknown vault: txg_sync hangs"
    assert stalls.counts["", "hung_task"] == 1


def test_a_warning_lasts_for_a_spell():
    stalls = StallLog()
    stalls.note("cold", StallSign("delay", "late"), 100.0)
    assert list(stalls.warnings(160.0)) == [("cold", "vault cold: late (delay, 1m ago)")]
    stalls.note("cold", StallSign("delay", "later"), 160.0)
    assert list(stalls.warnings(160.0)) == [("cold", "vault cold: later (delay, 2 times, the last 0s ago)")]
    assert list(stalls.warnings(161.0 + STALL_END_AFTER)) == []
    # The next one is news again.
    assert stalls.note("cold", StallSign("delay", "late"), 161.0 + STALL_END_AFTER) == "vault cold: late"
    assert stalls.counts["cold", "delay"] == 3


def test_errors_are_counted_and_shown_elsewhere():
    stalls = StallLog()
    assert stalls.note("cold", StallSign("io", "errors"), 100.0)
    assert list(stalls.warnings(100.0)) == []


def test_a_group_that_goes_on_is_told_again_and_again():
    groups = SlowGroups()
    told = [groups.note("cold", 8, seconds, 120.0) for seconds in (15.0, 119.0, 120.0, 135.0, 239.0, 240.0)]
    assert [sign is not None for sign in told] == [False, False, True, False, False, True]
    # The next one begins anew, and another pool's is not this one's.
    assert groups.note("cold", 9, 15.0, 120.0) is None
    assert groups.note("cloud", 8, 130.0, 120.0) == StallSign(
        "txg_sync", "transaction group 8 has been syncing for 2m 10s", pool="cloud"
    )
    assert groups.note("cold", 9, 125.0, 120.0) is not None
