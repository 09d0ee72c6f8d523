"""What each object of a bucket is to a root: all that a later root, or the one before it, may need is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from zvault.blockstore.format import make_checkpoint_key, make_map_key, make_segment_key
from zvault.blockstore.kept_moments import KeptMoment
from zvault.blockstore.map.root import CheckpointRoot, EpochStart
from zvault.blockstore.map.usage import SegmentUsage
from zvault.blockstore.needed_objects import NeededObjects, ObjectVersions, group_versions
from zvault.object_store.interface import ListedVersion

MOMENT = KeptMoment(3, 5, 100.0, 4, 2)


def root() -> CheckpointRoot:
    """Number 10 of epoch 4, which began with segment 6; nine segments are in its map."""
    it = CheckpointRoot.blank(bytes(16), 8)
    it = replace(it, number=10, epoch=4, applied=9, map_number=7)
    it.reigns = [EpochStart(1, 3, 0), EpochStart(6, 4, 0)]
    it.maps = {(6, 4): 1, (7, 4): 1}
    it.past_maps = {(2, 3): (1, 8), (3, 3): (1, 8), (4, 3): (1, 10)}
    it.past = [MOMENT]
    return it


def usage() -> SegmentUsage:
    it = SegmentUsage()
    for sequence in range(1, 10):
        it.add(sequence, 100)
    it.live[[1, 7]] = 3
    it.died[[2, 3]] = 8, 5
    it.died[[5, 6, 8]] = 9, 10, 9
    it.gone([4])
    return it


def segment(sequence: int, epoch: int) -> str:
    return make_segment_key("v", sequence, epoch)


@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("v/store", "needed"),
        ("v/epoch", "needed"),
        ("v/drill/abc", "garbage"),
        ("v/something", "foreign"),
        ("v/segments/1-3", "foreign"),
        (segment(1, 3), "needed"),
        (segment(1, 2), "garbage"),  # of another writer, that never counted
        (segment(2, 3), "needed"),  # a moment was taken before it died
        (segment(3, 3), "garbage"),  # it died with that moment's root
        (segment(4, 3), "garbage"),  # gone, and there again
        (segment(5, 3), "garbage"),  # came after the moment
        (segment(6, 4), "fresh"),  # died with this root: the one before needs it
        (segment(7, 4), "needed"),
        (segment(8, 4), "garbage"),
        (segment(9, 4), "fresh"),  # dead, nobody knows since when
        (segment(10, 4), "fresh"),  # of the log
        (segment(10, 5), "fresh"),  # of who takes the store now
        (segment(10, 3), "garbage"),  # of one that was shut out
        (make_map_key("v", 7, 4), "needed"),
        (make_map_key("v", 2, 3), "needed"),
        (make_map_key("v", 3, 3), "garbage"),
        (make_map_key("v", 4, 3), "fresh"),  # this root dropped it
        (make_map_key("v", 5, 3), "garbage"),
        (make_map_key("v", 8, 4), "fresh"),  # put for the next root
        (make_checkpoint_key("v", 10, 4), "needed"),
        (make_checkpoint_key("v", 5, 3), "needed"),
        (make_checkpoint_key("v", 9, 4), "fresh"),  # taken where the newest is damaged
        (make_checkpoint_key("v", 8, 4), "garbage"),
        (make_checkpoint_key("v", 11, 4), "fresh"),
        (make_checkpoint_key("v", 1, 5), "fresh"),
    ],
)
def test_what_an_object_is(key: str, what: str) -> None:
    assert NeededObjects("v", root(), usage()).verdict(key) == what


def test_what_the_root_before_kept_is_left_too() -> None:
    before = [KeptMoment(3, 2, 50.0, 3, 1)]
    assert NeededObjects("v", root(), usage(), before).verdict(segment(3, 3)) == "needed"
    assert NeededObjects("v", root(), usage(), before).verdict(make_checkpoint_key("v", 2, 3)) == "needed"


def test_segments_that_are_there_as_far_as_the_counts_tell() -> None:
    found = dict(NeededObjects("v", root(), usage()).segments_between(1, 8))
    assert found == {2: "needed", 3: "garbage", 5: "garbage", 6: "fresh", 7: "needed"}


def test_the_oldest_version_counts_and_what_came_later_is_strange_unless_it_is_the_same() -> None:
    first, again = ListedVersion("k", "1", 4, "e", 1.0), ListedVersion("k", "2", 4, "e", 2.0)
    other, marker = ListedVersion("k", "3", 4, "x", 3.0), ListedVersion("k", "4", 0, "", 4.0, True)
    (found,) = group_versions([marker, other, again, first])
    assert found == ObjectVersions("k", (marker, other, again, first))
    assert found.genuine == first
    assert found.strange == (marker, other)
    assert ObjectVersions("k", (marker,)).genuine is None
    assert ObjectVersions("k", (again, first)).strange == ()
