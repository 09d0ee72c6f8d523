"""A listing is not made again where its stamp proves that nothing came or went."""

from zvault.zfs.listing import Cache

NOW = 1_000_000.0
STAMPS = {"tank": ("1", "900000"), "tank/a": ("2", "900001")}
LINES = ["tank@s\t10", "tank/a@s\t11", "tank/a#m\t11"]


def seen() -> Cache:
    cache = Cache(lambda: NOW)
    cache.keep(list(STAMPS), STAMPS, LINES, cache.now())
    return cache


def test_what_did_not_change_is_not_stale_and_keeps_its_lines():
    cache = seen()
    assert cache.stale(STAMPS) == []
    assert cache.lines(["tank/a", "tank"]) == ["tank/a@s\t11", "tank/a#m\t11", "tank@s\t10"]


def test_another_stamp_another_guid_or_an_unknown_dataset_is_stale():
    cache = seen()
    assert cache.stale({**STAMPS, "tank": ("1", "900002")}) == ["tank"]
    assert cache.stale({**STAMPS, "tank/a": ("3", "900001")}) == ["tank/a"]
    assert cache.stale({**STAMPS, "tank/b": ("4", "5")}) == ["tank/b"]


def test_a_change_in_the_very_second_of_the_listing_is_not_trusted():
    cache = Cache(lambda: NOW)
    stamps = {"tank": ("1", str(int(NOW) - 1))}
    cache.keep(["tank"], stamps, ["tank@s\t10"], NOW)
    assert cache.stale(stamps) == ["tank"]


def test_without_the_property_nothing_is_kept():
    cache = Cache(lambda: NOW)
    for none in ("-", ""):
        cache.keep(["tank"], {"tank": ("1", none)}, ["tank@s\t10"], NOW)
        assert cache.stale({"tank": ("1", none)}) == ["tank"]


def test_changed_holds_or_bookmarks_must_be_said():
    cache = seen()
    cache.forget("tank/a")
    assert cache.stale(STAMPS) == ["tank/a"]
    cache.forget("never/seen")
