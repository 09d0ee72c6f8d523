"""Finding out how large requests should be and how many at once, on models of devices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.tuning.device_model import HDD, MODELS, S3, SMR, SSD, Model, search
from zvault.core.tuning.measurement import (
    DEEPEST_QUEUE,
    FIRST_SIZE,
    LARGEST_MERGED,
    UNMERGED_WRITE,
    MeasuredPoint,
    choose_next_point,
    find_knee,
    index_points,
    is_doubtful,
)

MIB = 1 << 20


LIMITS = st.sampled_from(
    [UNMERGED_WRITE, FIRST_SIZE // 2, FIRST_SIZE, 4 * MIB, LARGEST_MERGED, 2 * LARGEST_MERGED]
)


@pytest.mark.parametrize(
    ("model", "size", "depth"),
    [(HDD, 8 * MIB, 4), (SSD, MIB, 16), (S3, MIB, 32), (SMR, 8 * MIB, 2)],
    ids=["hdd", "ssd", "s3", "smr"],
)
def test_the_devices_of_the_benchmark(model: Model, size: int, depth: int):
    points, found = search(model)
    assert (found.size, found.depth) == (size, depth)
    assert found.slots == pytest.approx(model.slots)
    assert found.bandwidth == model.point(size, depth).bandwidth
    assert len(points) <= 13


def test_a_device_with_five_at_once_is_not_given_eight():
    _, found = search(Model(5, 0.035, 60e6))
    assert found.depth == 5


def test_a_disk_in_the_host_needs_nothing_merged():
    _, found = search(Model(1, 0.00001, 500e6))
    assert (found.size, found.depth) == (UNMERGED_WRITE, 1)


def test_what_is_not_finished_says_nothing():
    with pytest.raises(ValueError, match="not finished"):
        find_knee({})


@given(MODELS, LIMITS)
def test_the_depth_is_searched_from_below(model: Model, largest: int):
    points, found = search(model, largest)
    depths = [one.depth for one in points if one.size == min(FIRST_SIZE, largest)]
    for one in points:
        assert one.size <= min(largest, LARGEST_MERGED)
        assert one.depth <= max(2, min(DEEPEST_QUEUE, 4 * model.slots))
    assert depths[: depths.index(max(depths)) + 1] == sorted(depths[: depths.index(max(depths)) + 1])
    assert found.depth <= model.slots, "what is beyond that only waits"


@given(MODELS, LIMITS)
def test_what_is_found_is_near_the_best(model: Model, largest: int):
    _, found = search(model, largest)
    alone = model.point(found.size, model.slots).bandwidth
    # A step that gains less than 15 % is not taken; a depth between two that were measured is rounded.
    assert found.bandwidth >= 0.6 * alone
    assert found.bandwidth >= model.point(UNMERGED_WRITE, found.depth).bandwidth


@given(MODELS, LIMITS, st.randoms(use_true_random=False))
def test_a_measurement_that_is_off_does_not_lead_it_astray(model: Model, largest: int, chance):
    points: list[MeasuredPoint] = []
    while (place := choose_next_point(index_points(points), largest)) is not None:
        one = model.point(*place)
        off = chance.uniform(0.95, 1.05)
        points.append(MeasuredPoint(one.size, one.depth, one.bandwidth * off, one.latency / off))
        assert len(points) < 30, "it does not end"
    assert 1 <= find_knee(index_points(points), largest).depth <= 2 * model.slots


@given(MODELS, LIMITS, st.integers(0, 12))
def test_a_disturbance_is_noticed(model: Model, largest: int, which: int):
    """Half the bandwidth for two seconds, where there is a smaller or shallower point to tell by."""
    points: dict[tuple[int, int], MeasuredPoint] = {}
    while (place := choose_next_point(points, largest)) is not None:
        one = model.point(*place)
        size, depth = place
        known = [points[other] for other in ((size // 2, depth), (size, depth // 2)) if other in points]
        if len(points) == which and any(other.bandwidth >= 0.6 * one.bandwidth for other in known):
            off = MeasuredPoint(size, depth, one.bandwidth / 2, one.latency * 2)
            assert is_doubtful({**points, place: off}, place)
        assert not is_doubtful({**points, place: one}, place), "more never has less on a model"
        points[place] = one


def test_a_size_that_seems_to_gain_nothing_is_not_the_end():
    """As it was seen in the lab: 2 MiB at once had no more than 1 MiB, while somebody else used the processor."""
    points: dict[tuple[int, int], MeasuredPoint] = {}
    while (place := choose_next_point(points, LARGEST_MERGED)) is not None:
        one = HDD.point(*place)
        points[place] = (
            MeasuredPoint(*place, one.bandwidth / 2, one.latency * 2) if place == (2 * MIB, 4) else one
        )
    assert find_knee(points, LARGEST_MERGED).size == 8 * MIB
