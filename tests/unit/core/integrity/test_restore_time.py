"""Which reads of a vault tell how long a restore takes, and what is told where none does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.dates import CLOCK_TOLERANCE
from zvault.core.integrity.restore_time import (
    DATASET_KINDS,
    FILE_KINDS,
    LEAST_BELIEVED_BYTES,
    LEAST_BELIEVED_SECONDS,
    READING_KINDS,
    ReadingKind,
    RestoreEstimate,
    TimedRead,
    choose_reading,
    count_bytes_read,
)

DAY = 86400.0
NOW = 1_800_000_000.0
DRILL = TimedRead("drill", "tank", "cold", NOW - 3 * DAY, 41 << 30, 1024.0)

readings = st.builds(
    TimedRead,
    kind=st.sampled_from(READING_KINDS),
    backup=st.sampled_from(["tank", "home"]),
    vault=st.just("cold"),
    at=st.floats(NOW - 400 * DAY, NOW + 2 * CLOCK_TOLERANCE),
    bytes=st.integers(0, 1 << 40),
    seconds=st.floats(0, 1e6),
)


@pytest.mark.parametrize(
    ("moved", "before", "after", "read"),
    [
        (100, 1000, 1100, 100),
        # Half of it came out of ZFS's memory: that is no speed of the storage.
        (100, 1000, 1050, 50),
        # A scrub, or another restore, reads the vault meanwhile.
        (100, 1000, 9000, 100),
        # Its pool was exported and imported between the looks, and counts from 0.
        (100, 1000, 10, 0),
        (100, None, 1100, 0),
        (100, 1000, None, 0),
    ],
)
def test_only_what_the_devices_gave_is_read(
    moved: int, before: int | None, after: int | None, read: int
) -> None:
    assert count_bytes_read(moved, before, after) == read


@given(st.integers(0, 1 << 50), st.none() | st.integers(0, 1 << 50), st.none() | st.integers(0, 1 << 50))
def test_never_more_is_read_than_was_moved_or_came_from_the_devices(
    moved: int, before: int | None, after: int | None
) -> None:
    read = count_bytes_read(moved, before, after)
    assert 0 <= read <= moved
    assert read == 0 or (before is not None and after is not None and read <= after - before)


@pytest.mark.parametrize(
    ("size", "seconds", "believed"),
    [
        (LEAST_BELIEVED_BYTES, LEAST_BELIEVED_SECONDS, True),
        (LEAST_BELIEVED_BYTES - 1, 60.0, False),
        (1 << 40, LEAST_BELIEVED_SECONDS / 2, False),
        (0, 0.0, False),
    ],
)
def test_a_piece_of_a_second_is_no_rate(size: int, seconds: float, believed: bool) -> None:
    one = replace(DRILL, bytes=size, seconds=seconds)
    assert one.believed is believed
    assert (choose_reading([one], "tank", NOW) is not None) is believed


@pytest.mark.parametrize(("kinds", "order"), [(DATASET_KINDS, "rdvfs"), (FILE_KINDS, "fvrds")])
def test_what_is_most_like_the_restore_counts(kinds: tuple[ReadingKind, ...], order: str) -> None:
    some = [replace(DRILL, kind=kind) for kind in READING_KINDS]
    chosen = ""
    while (one := choose_reading(some, "tank", NOW, kinds)) is not None:
        chosen += one.kind[0]
        some.remove(one)
    assert chosen == order


def test_its_own_counts_before_anothers_and_the_newest_of_each() -> None:
    old, new = DRILL, replace(DRILL, at=NOW - DAY)
    others = replace(DRILL, backup="home", at=NOW - 60)
    assert choose_reading([others, old, new], "tank", NOW) == new
    assert choose_reading([others], "tank", NOW) == others
    ahead = replace(DRILL, at=NOW + DAY)
    assert choose_reading([ahead, old], "tank", NOW) == old, "its clock was wrong"


@given(st.lists(readings))
def test_what_is_chosen_is_believed_and_past_and_none_is_better(some: list[TimedRead]) -> None:
    one = choose_reading(some, "tank", NOW)
    usable = [it for it in some if it.believed and it.at <= NOW + CLOCK_TOLERANCE]
    if one is None:
        assert not usable
        return
    assert one in usable
    rank = DATASET_KINDS.index
    assert all(rank(one.kind) <= rank(it.kind) for it in usable)
    alike = [it for it in usable if it.kind == one.kind]
    assert one.backup == "tank" or not any(it.backup == "tank" for it in alike)
    assert all(it.at <= one.at for it in alike if it.backup == one.backup)


def test_how_long_it_takes_is_told_with_what_it_rests_on() -> None:
    whole = RestoreEstimate("tank", NOW, 912 << 30, DRILL)
    assert whole.seconds == pytest.approx(22777, abs=1)
    assert whole.describe() == "6h 19m at 41M/s, by the drill of 3d ago"
    scrub = replace(DRILL, kind="scrub", backup="cold")
    assert replace(whole, reading=scrub).describe() == "6h 19m at 41M/s, by the scrub of 3d ago"
    others = replace(DRILL, backup="home")
    assert replace(whole, reading=others).describe() == (
        "6h 19m at 41M/s, by the drill of backup home 3d ago"
    )
    assert replace(whole, bytes=0).seconds == 0.0


def test_what_is_not_known_is_told_as_unknown() -> None:
    for one in (
        RestoreEstimate("tank", NOW, None, None),
        RestoreEstimate("tank", NOW, 1 << 40, None),
        RestoreEstimate("tank", NOW, None, DRILL),
    ):
        assert one.seconds is None
        assert one.describe().startswith("unknown: ")
    measures = "'zvaultctl verify tank --level drill' measures it"
    assert RestoreEstimate("tank", NOW, 1 << 40, None).describe().endswith(measures)
    assert "41M/s, by the drill of 3d ago" in RestoreEstimate("tank", NOW, None, DRILL).describe()
