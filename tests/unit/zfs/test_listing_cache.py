"""A listing is not made again where its stamp proves that nothing came or went."""

from zvault.core.model import Bookmark, Snapshot
from zvault.core.names import DatasetName
from zvault.zfs.listing_cache import DatasetPoints, ListingCache

NOW = 1_000_000.0
STAMPS = {"tank": ("1", "900000"), "tank/a": ("2", "900001")}
A = DatasetName("tank/a")
POINTS = {
    "tank": DatasetPoints((Snapshot(DatasetName("tank"), "s", 10, 1, 1),)),
    "tank/a": DatasetPoints((Snapshot(A, "s", 11, 1, 1),), (Bookmark(A, "m", 11, 1, 1),)),
}


def seen() -> ListingCache:
    cache = ListingCache(lambda: NOW)
    cache.keep(list(STAMPS), STAMPS, POINTS, cache.now())
    return cache


def test_what_did_not_change_is_not_stale_and_is_kept():
    cache = seen()
    assert cache.stale(STAMPS) == []
    assert cache.points(["tank/a", "tank"]) == POINTS


def test_another_stamp_another_guid_or_an_unknown_dataset_is_stale():
    cache = seen()
    assert cache.stale({**STAMPS, "tank": ("1", "900002")}) == ["tank"]
    assert cache.stale({**STAMPS, "tank/a": ("3", "900001")}) == ["tank/a"]
    assert cache.stale({**STAMPS, "tank/b": ("4", "5")}) == ["tank/b"]


def test_a_change_in_the_very_second_of_the_listing_is_not_trusted():
    cache = ListingCache(lambda: NOW)
    stamps = {"tank": ("1", str(int(NOW) - 1))}
    cache.keep(["tank"], stamps, POINTS, NOW)
    assert cache.stale(stamps) == ["tank"]


def test_without_the_property_nothing_is_kept():
    cache = ListingCache(lambda: NOW)
    for none in ("-", ""):
        cache.keep(["tank"], {"tank": ("1", none)}, POINTS, NOW)
        assert cache.stale({"tank": ("1", none)}) == ["tank"]


def test_changed_holds_or_bookmarks_must_be_said():
    cache = seen()
    cache.forget("tank/a")
    assert cache.stale(STAMPS) == ["tank/a"]
    cache.forget("never/seen")


def test_a_clock_that_was_set_back_may_stamp_two_changes_alike():
    times = iter([NOW, NOW - 3600, NOW - 3500])
    cache = ListingCache(lambda: next(times))
    cache.keep(list(STAMPS), STAMPS, POINTS, cache.now())
    began = cache.now()
    assert cache.stale(STAMPS) == list(STAMPS)
    cache.keep(list(STAMPS), STAMPS, POINTS, began)
    cache.now()
    assert cache.stale(STAMPS) == []


def test_what_was_changed_while_it_was_listed_is_not_kept():
    cache = ListingCache(lambda: NOW)
    began = cache.now()
    cache.forget("tank/a")
    cache.keep(list(STAMPS), STAMPS, POINTS, began)
    assert cache.stale(STAMPS) == ["tank/a"]


def test_holds_are_kept_with_the_snapshots_they_were_asked_of_and_no_longer():
    cache = seen()
    of_a = POINTS["tank/a"].snapshots
    assert cache.holds("tank/a", of_a) == {}
    cache.keep_holds("tank/a", of_a, {"tank/a@s": {"zvault:1f"}})
    cache.keep_holds("tank/a", of_a, {"tank/a@t": set()})
    assert cache.holds("tank/a", of_a) == {"tank/a@s": {"zvault:1f"}, "tank/a@t": set()}
    others = (Snapshot(A, "s", 11, 1, 1),)
    assert cache.holds("tank/a", others) == {}
    cache.forget("tank/a")
    assert cache.holds("tank/a", of_a) == {}
    cache.keep_holds("tank/a", of_a, {"tank/a@s": set()})
    assert cache.holds("tank/a", of_a) == {}
