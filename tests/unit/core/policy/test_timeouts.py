"""Every request has failed before OpenZFS's deadman looks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zvault.core.policy.timeouts import compute_longest_request, find_deadman, fit_timeout


def test_the_deadman_that_looks_first_counts():
    assert find_deadman({}) == (300, "zfs_deadman_ziotime_ms")
    assert find_deadman({"zfs_deadman_ziotime_ms": "20000"}) == (20, "zfs_deadman_ziotime_ms")
    assert find_deadman({"zfs_deadman_synctime_ms": "60000"}) == (60, "zfs_deadman_synctime_ms")
    assert find_deadman({"zfs_deadman_ziotime_ms": "900000"}) == (600, "zfs_deadman_synctime_ms")
    assert find_deadman({"zfs_deadman_ziotime_ms": "what?"}) == (300, "zfs_deadman_ziotime_ms")


def test_what_is_short_enough_stays():
    assert fit_timeout(90, 1, 300) == 90
    assert fit_timeout(90, 3, 300) == 90


def test_what_is_too_long_is_cut():
    assert fit_timeout(600, 1, 300) == 270
    assert fit_timeout(90, 4, 300) == 67, "one connection after the other may time out"


@given(st.integers(1, 10_000), st.integers(1, 64), st.integers(1, 3000))
def test_the_order_holds_wherever_it_can(timeout: int, connections: int, deadman: int):
    found = fit_timeout(timeout, connections, deadman)
    assert found == int(found)
    assert 1 <= found <= timeout
    assert compute_longest_request(found, connections) < deadman or found == 1
