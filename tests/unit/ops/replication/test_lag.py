"""A vault that is down still has a lag and a base: those that the source's bookmarks tell, if they are its own."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.ops.ops_world import HOUR, START, context, dataset, sides, snap
from zvault.core.model import Bookmark, Dataset
from zvault.core.names import DatasetName
from zvault.core.replication.base_names import make_mark_name, make_unsent_mark_name
from zvault.core.replication.lag import DatasetLag
from zvault.ops.context import Context
from zvault.ops.replication.lag import measure_lags
from zvault.ops.state.pool_book import PoolBook, SeenPool
from zvault.system.record_store import RecordStore

COLD, OLD, USB = 0xC01D, 0x01D, 0x05B


def mark(number: int, vault: int, *, sent: bool = True) -> Bookmark:
    name = (make_mark_name if sent else make_unsent_mark_name)(vault, 100 + number)
    return Bookmark(DatasetName("tank"), name, 100 + number, number, START + number * HOUR)


def noted(where: Context, guid: int, vault: str) -> None:
    """A pool was seen as a vault's, and ``b`` was sent there."""
    where.records.pools.note(guid, SeenPool(vault, vault))
    where.records.places.note(guid, "tank", "cold/host/tank")


def down(tmp_path: Path, seen: dict[int, str], *marks: Bookmark) -> DatasetLag:
    """The lag of ``b``, which goes into the vault cold, while that is down."""
    where = context(START + 10 * HOUR, folder=tmp_path)
    for guid, vault in seen.items():
        noted(where, guid, vault)
    source = dataset("tank", *(snap(number) for number in range(1, 6)), *marks)
    return measure_lags(where, where.env.backup("b"), replace(sides(source, None), vault_seen=False))["tank"]


@pytest.mark.parametrize(
    ("seen", "marks", "newest"),
    [
        # Nobody has seen whose pool that is; there is but one vault.
        ({}, [mark(2, COLD)], 2),
        ({}, [mark(2, COLD), mark(4, USB)], None),
        ({}, [mark(2, COLD), mark(4, USB, sent=False)], None),
        ({USB: "usb"}, [mark(2, COLD), mark(4, USB)], None),
        ({COLD: "cold"}, [mark(2, COLD), mark(4, USB)], 2),
        ({COLD: "cold", USB: "usb"}, [mark(4, USB)], None),
        # It is the pool that the vault had last that counts.
        ({OLD: "cold", COLD: "cold"}, [mark(2, COLD), mark(4, OLD)], 2),
        ({COLD: "cold", OLD: "cold"}, [mark(2, COLD)], None),
        # What is only about to be sent is not there yet.
        ({COLD: "cold"}, [mark(2, COLD), mark(4, COLD, sent=False)], 2),
        ({COLD: "cold"}, [mark(4, COLD, sent=False)], None),
    ],
)
def test_only_the_vaults_own_bookmarks_count(
    tmp_path: Path, seen: dict[int, str], marks: list[Bookmark], newest: int | None
) -> None:
    found = down(tmp_path, seen, *marks)
    if newest is None:
        assert (found.age(START + 10 * HOUR), found.base) == (None, None)
        # Of a pool that is known, what no bookmark tells of was not sent yet, as far as anybody knows.
        assert found.pending == (5 if "cold" in seen.values() else None)
    else:
        assert (found.age(START + 10 * HOUR), found.base) == ((10 - newest) * HOUR, START + newest * HOUR)


def test_a_vault_that_is_configured_to_lie_elsewhere_is_another(tmp_path: Path) -> None:
    where = context(START + 10 * HOUR, folder=tmp_path)
    noted(where, COLD, "cold")
    source = dataset("tank", snap(1), snap(2), mark(2, COLD))
    asked = replace(sides(source, None), vault_seen=False)

    def lag() -> float | None:
        return measure_lags(where, where.env.backup("b"), asked)["tank"].age(where.env.clock.time())

    assert lag() == 8 * HOUR
    for changed in (
        {"pool": "ice"},
        {"host": "ssh://root@attic"},
        {"device": [{"nbd": "nbdkit:file /x", "size": "1G"}]},
    ):
        where.env.config = context(vault={"pool": "cold", **changed}).env.config
        assert lag() is None
    where.env.config = context().env.config
    assert lag() == 8 * HOUR


def test_a_backup_that_goes_to_another_place_has_sent_nothing_there(tmp_path: Path) -> None:
    """Its bookmarks are of the place that it went to before; so they are again, where it goes back."""
    where = context(START + 10 * HOUR, folder=tmp_path)
    noted(where, COLD, "cold")
    asked = replace(sides(dataset("tank", snap(1), snap(2), mark(2, COLD)), None), vault_seen=False)
    for into, lag, pending in (
        ("{host}/{dataset}", 8 * HOUR, 0),
        ("second/{dataset}", None, None),
        ("{host}/{dataset}", 8 * HOUR, 0),
    ):
        where.env.config = context(into=into).env.config
        found = measure_lags(where, where.env.backup("b"), asked)["tank"]
        assert (found.age(START + 10 * HOUR), found.pending) == (lag, pending), into


def test_where_the_place_is_not_on_record_the_lag_is_unknown(tmp_path: Path) -> None:
    where = context(START + 10 * HOUR, folder=tmp_path)
    where.records.pools.note(COLD, SeenPool("cold", "cold"))
    asked = replace(sides(dataset("tank", snap(1), snap(2), mark(2, COLD)), None), vault_seen=False)
    for written in (None, "{}", '{"boot_id": "b", "time": 1, "data": {"places": 7}}', "no json"):
        if written is not None:
            (tmp_path / "places").mkdir(exist_ok=True)
            (tmp_path / "places" / f"{COLD:x}").write_text(written)
        found = measure_lags(where, where.env.backup("b"), asked)["tank"]
        assert (found.age(START + 10 * HOUR), found.pending) == (None, None)
    where.records.places.note(COLD, "tank", "cold/host/tank")
    assert measure_lags(where, where.env.backup("b"), asked)["tank"].age(where.env.clock.time()) == 8 * HOUR


def test_without_a_record_two_vaults_cannot_be_told_apart_by_bookmarks(tmp_path: Path) -> None:
    where = context(START + 10 * HOUR, folder=tmp_path)
    asked = replace(sides(dataset("tank", snap(1), snap(2), mark(2, COLD)), None), vault_seen=False)
    assert measure_lags(where, where.env.backup("b"), asked)["tank"].age(where.env.clock.time()) == 8 * HOUR
    where.env.config.vault["usb"] = where.env.vault("cold")
    assert measure_lags(where, where.env.backup("b"), asked)["tank"].age(where.env.clock.time()) is None


def test_two_backups_of_one_dataset_into_one_vault_cannot_be_told_apart_by_bookmarks(tmp_path: Path) -> None:
    where = context(START + 10 * HOUR, folder=tmp_path)
    noted(where, COLD, "cold")
    other = context(into="second/{dataset}").env.backup("b").model_copy()
    other._name = "c"
    asked = replace(sides(dataset("tank", snap(1), snap(2), mark(2, COLD)), None), vault_seen=False)
    where.env.config.backup["c"] = other
    assert measure_lags(where, where.env.backup("b"), asked)["tank"].age(where.env.clock.time()) is None
    where.env.config.backup["c"] = other.model_copy(update={"exclude": ["tank"]})
    assert measure_lags(where, where.env.backup("b"), asked)["tank"].age(where.env.clock.time()) == 8 * HOUR


def test_what_was_seen_of_a_vault_counts_while_it_is_down(tmp_path: Path) -> None:
    """It has gone back, which the bookmarks do not tell; and something came since."""
    where = context(START + 10 * HOUR, folder=tmp_path)
    noted(where, COLD, "cold")
    there = "cold/host/tank"
    backup = where.env.backup("b")
    before = measure_lags(
        where, backup, sides(dataset("tank", snap(1), snap(2), mark(2, COLD)), dataset(there, snap(1)))
    )
    source = dataset("tank", *(snap(number) for number in range(1, 6)), mark(2, COLD))
    asked = replace(sides(source, None), vault_seen=False)
    found = measure_lags(where, backup, asked, before=before)["tank"]
    assert (found.age(START + 10 * HOUR), found.pending, found.base) == (9 * HOUR, 4, START + HOUR)
    nothing = measure_lags(where, backup, asked, before={})["tank"]
    assert (nothing.age(START + 10 * HOUR), nothing.pending) == (None, 5)


def test_a_base_whose_snapshot_is_gone_has_an_age_though_the_lag_is_unknown() -> None:
    where = context(START + 10 * HOUR)
    there = "cold/host/tank"
    source: Dataset = dataset("tank", snap(3), mark(2, COLD))
    found = measure_lags(
        where, where.env.backup("b"), sides(source, dataset(there, snap(1, there), snap(2, there)))
    )["tank"]
    assert (found.age(START + 10 * HOUR), found.pending, found.base) == (None, 1, START + 2 * HOUR)


def test_the_book_forgets_nothing_and_stands_what_is_no_entry(tmp_path: Path) -> None:
    book = PoolBook(RecordStore(tmp_path / "pools", boot_id="b"))
    assert book.all() == {}
    book.note(COLD, SeenPool("cold", "cold"))
    book.note(USB, SeenPool("usb", "stick"))
    book.note(COLD, SeenPool("cellar", "cold"))
    (tmp_path / "pools" / "notes").write_text("by hand")
    (tmp_path / "pools" / "1f").write_text("{}")
    assert book.all() == {COLD: SeenPool("cellar", "cold"), USB: SeenPool("usb", "stick")}
