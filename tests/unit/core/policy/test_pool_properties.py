"""What is told of a pool's properties, and of devices that were grown."""

from __future__ import annotations

import pytest

from zvault.core.policy.pool_properties import describe_growth, describe_properties

PROFILE = {"failmode": "continue", "autotrim": "off", "ashift": "12"}
SEEN = {"failmode": "continue", "autotrim": "off", "cachefile": "none"}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, None),
        ({"failmode": "wait"}, "'zpool set failmode=continue cold'"),
        ({"failmode": "panic"}, "the kernel panics"),
        ({"autotrim": "on"}, "'zpool set autotrim=off cold'"),
        ({"cachefile": "-"}, "'zpool set cachefile=none cold'"),
        ({"cachefile": "/etc/zfs/zpool.cache"}, "at boot beside zvault"),
    ],
)
def test_what_differs_from_the_profile_is_told_with_its_cost(
    changed: dict[str, str], told: str | None
) -> None:
    found = list(describe_properties("cold", SEEN | changed, PROFILE))
    assert len(found) == (told is not None)
    assert told is None or told in found[0]


def test_what_the_profile_wants_or_says_nothing_of_is_not() -> None:
    assert not list(describe_properties("cold", SEEN | {"autotrim": "on"}, {"autotrim": "on"}))
    assert not list(describe_properties("cold", SEEN | {"autotrim": "on"}, {}))
    assert not list(describe_properties("cold", {}, PROFILE))


def test_a_device_that_was_grown_is_told_with_the_command() -> None:
    assert not list(describe_growth("attic", "cold", 0))
    (told,) = describe_growth("attic", "cold", 160 << 20)
    assert "pool cold has grown: 'zvaultctl vault grow attic' gives the pool 160M more" in told
