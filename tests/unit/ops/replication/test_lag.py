"""A vault that is down still has a lag and a base: those that the source's bookmarks tell, if they are its own."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.ops.ops_world import HOUR, START, context, dataset, sides, snap
from zvault.core.model import Bookmark, Dataset
from zvault.core.names import DatasetName
from zvault.core.replication.lag import DatasetLag
from zvault.ops.replication.base_guard import mark_name
from zvault.ops.replication.lag import lags
from zvault.ops.state.pools import PoolBook, Seen
from zvault.system.state_files import LeaseStore

COLD, OLD, USB = 0xC01D, 0x01D, 0x05B


def mark(number: int, vault: int) -> Bookmark:
    return Bookmark(
        DatasetName("tank"), mark_name(vault, 100 + number), 100 + number, number, START + number * HOUR
    )


def down(tmp_path: Path, seen: dict[int, str], *marks: Bookmark) -> DatasetLag:
    """The lag of ``b``, which goes into the vault cold, while that is down."""
    where = context(START + 10 * HOUR, folder=tmp_path)
    for guid, vault in seen.items():
        where.records.pools.note(guid, Seen(vault, vault))
    source = dataset("tank", *(snap(number) for number in range(1, 6)), *marks)
    return lags(where, where.env.backup("b"), replace(sides(source, None), vault_seen=False))["tank"]


@pytest.mark.parametrize(
    ("seen", "marks", "newest"),
    [
        ({}, [mark(2, COLD)], 2),
        ({}, [mark(2, COLD), mark(4, USB)], None),
        ({COLD: "cold"}, [mark(2, COLD), mark(4, USB)], 2),
        ({USB: "usb"}, [mark(2, COLD), mark(4, USB)], 2),
        ({COLD: "cold", USB: "usb"}, [mark(4, USB)], None),
        ({USB: "usb"}, [mark(4, USB)], None),
        ({COLD: "cold", OLD: "cold"}, [mark(2, COLD), mark(4, OLD)], None),
        ({COLD: "cold", OLD: "cold"}, [mark(2, COLD)], 2),
    ],
)
def test_only_the_vaults_own_bookmarks_count(
    tmp_path: Path, seen: dict[int, str], marks: list[Bookmark], newest: int | None
) -> None:
    found = down(tmp_path, seen, *marks)
    if newest is None:
        assert (found.seconds, found.base) == (None, None)
    else:
        assert (found.seconds, found.base) == ((10 - newest) * HOUR, START + newest * HOUR)


def test_a_base_whose_snapshot_is_gone_has_an_age_though_the_lag_is_unknown() -> None:
    where = context(START + 10 * HOUR)
    there = "cold/host/tank"
    source: Dataset = dataset("tank", snap(3), mark(2, COLD))
    found = lags(where, where.env.backup("b"), sides(source, dataset(there, snap(1, there), snap(2, there))))[
        "tank"
    ]
    assert (found.seconds, found.pending, found.base) == (None, 1, START + 2 * HOUR)


def test_the_book_forgets_nothing_and_stands_what_is_no_entry(tmp_path: Path) -> None:
    book = PoolBook(LeaseStore(tmp_path / "pools", boot_id="b"))
    assert book.all() == {}
    book.note(COLD, Seen("cold", "cold"))
    book.note(USB, Seen("usb", "stick"))
    book.note(COLD, Seen("cellar", "cold"))
    (tmp_path / "pools" / "notes").write_text("by hand")
    (tmp_path / "pools" / "1f").write_text("{}")
    assert book.all() == {COLD: Seen("cellar", "cold"), USB: Seen("usb", "stick")}
