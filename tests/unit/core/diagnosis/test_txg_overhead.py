"""What a pool asks for itself: counted in the lab, and worked out the same; advice where it would be less."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.cost.prices import StorePrices
from zvault.core.diagnosis.txg_overhead import (
    MERGING_DEPTH,
    advise_on_groups,
    estimate_group_requests,
    estimate_metadata_writes,
)
from zvault.core.tuning.alignment import PoolLayout, StorageGeometry

KIB, MIB = 1 << 10, 1 << 20
PRICES = StorePrices(put=0.005, get=0.0004)
DATA = StorageGeometry("data", 32 * MIB, MIB, prices=PRICES)
META = StorageGeometry("meta", 32 * MIB, 128 * KIB, prices=PRICES)
PLAIN = PoolLayout(4 * KIB, 128 * KIB, DATA)


def told(layout: PoolLayout) -> list[str]:
    return [one.what.partition(" ")[0] + " " + one.what.partition(" ")[2] for one in advise_on_groups(layout)]


depths = st.integers(1, 200)
powers = st.integers(12, 24).map(lambda power: 1 << power)


@given(depth=depths, more=depths, unit=powers)
def test_the_more_go_at_once_the_fewer_are_merged(depth: int, more: int, unit: int):
    assert estimate_metadata_writes(depth) <= estimate_metadata_writes(depth + more)
    layout = replace(PLAIN, data=replace(DATA, unit=unit), depth=depth)
    now, then = estimate_group_requests(layout), estimate_group_requests(replace(layout, depth=depth + more))
    assert now.puts >= now.gets >= 0
    if unit >= MIB:
        assert now.puts <= then.puts + 1e-9


@given(unit=powers, depth=depths)
def test_every_cost_is_of_its_requests(unit: int, depth: int):
    found = estimate_group_requests(replace(PLAIN, data=replace(DATA, unit=unit), depth=depth))
    assert found.cost == pytest.approx((found.puts * PRICES.put + found.gets * PRICES.get) / 1000)
    assert found.moved == pytest.approx((found.puts + found.gets) * unit)
    twice = found.times(2)
    assert (twice.puts, twice.gets, twice.moved) == (2 * found.puts, 2 * found.gets, 2 * found.moved)


def test_where_any_sector_is_written_by_itself_nothing_is_read():
    found = estimate_group_requests(replace(PLAIN, data=StorageGeometry("data", MIB)))
    assert found.gets == 0
    assert found.cost is None
    assert list(advise_on_groups(replace(PLAIN, data=StorageGeometry("data", MIB), depth=32))) == []


@pytest.mark.parametrize(
    ("layout", "what"),
    [
        (replace(PLAIN, depth=32), "set zfs_vdev_async_write_min_active"),
        (PLAIN, 'give metadata a device of its own (vdev = "special") in objects of 128K'),
        (replace(PLAIN, special=replace(META, unit=16 * KIB)), "make its objects 128K"),
    ],
)
def test_each_misfit_is_told(layout: PoolLayout, what: str):
    found = list(advise_on_groups(layout))
    assert any(one.what.startswith(what) for one in found), found


def test_what_is_advised_asks_less_and_nothing_is_left_to_advise():
    before = replace(PLAIN, depth=32)
    after = replace(PLAIN, special=META, depth=MERGING_DEPTH)
    assert estimate_group_requests(after).puts < estimate_group_requests(before).puts
    assert estimate_group_requests(after).moved < estimate_group_requests(before).moved / 4
    assert told(after) == []
