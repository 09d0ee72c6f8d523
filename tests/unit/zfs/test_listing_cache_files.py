"""Snapshots that are taken from a file of an earlier process are always those that a listing would show."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.examples import cases
from tests.unit.zfs.event_looks import tree
from tests.unit.zfs.event_pool import FakePool
from tests.unit.zfs.event_world import FakeFeed, FakeTools
from zvault.core.model import Snapshot
from zvault.core.names import DatasetName
from zvault.core.snapshot_list import SnapshotList
from zvault.system.process.runner import HostRunner, ProcessResult
from zvault.zfs import listing_cache_files
from zvault.zfs.client import Zfs
from zvault.zfs.listing_cache import DatasetPoints, ListingCache
from zvault.zfs.listing_cache_files import (
    KeptSnapshots,
    ListingCacheFiles,
    LoadedPool,
    read_listing,
    write_listing,
)

GUID = 12345678901234567890
CHANGES = st.lists(
    st.tuples(st.sampled_from(FakePool.CHANGES), st.integers(0, 9), st.integers(0, 9)), max_size=8
)
ROOT = st.sampled_from(["tank", "tank/a", "tank/a/b"])


LOADED = LoadedPool(GUID, 17)


@dataclass
class Place:
    """A folder of listings, and what ``zpool get`` says of ``tank``."""

    top: Path
    pool: LoadedPool = LOADED

    def start(self) -> ListingCacheFiles:
        """What a process has that has just been started."""
        return ListingCacheFiles(self.top / "listings")

    def tools(self, pool: FakePool | None = None) -> NamedTools:
        return NamedTools(pool or FakePool(), self)

    @property
    def file(self) -> Path:
        return self.top / "listings" / str(GUID)


class NamedTools(FakeTools):
    """The tools of a pool that has been imported."""

    def __init__(self, pool: FakePool, place: Place) -> None:
        super().__init__(pool)
        self.place = place

    async def run(
        self,
        argv: Sequence[str],
        *,
        deadline: float = 60.0,
        stdin: bytes | None = None,
        check: bool = True,
    ) -> ProcessResult:
        if argv[0] == "zpool":
            assert argv[1:] == ["get", "-Hp", "-o", "value", "guid,load_guid", "tank"]
            return ProcessResult(tuple(argv), 0, f"{self.place.pool.guid}\n{self.place.pool.load}\n", "", 0.0)
        return await super().run(argv, deadline=deadline, stdin=stdin, check=check)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@contextmanager
def somewhere() -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as folder:
        yield Place(Path(folder))


RENAMED = [(FakePool.snapshot, 1, 0)], [(FakePool.rename_snapshot, 1, 0)]
PROMOTED = [(FakePool.snapshot, 1, 0), (FakePool.clone, 1, 0)], [(FakePool.promote, 4, 0)]
MARKED = [(FakePool.snapshot, 1, 0)], [(FakePool.bookmark_of, 1, 0), (FakePool.hold, 1, 0)]


@example(list(RENAMED), "tank", False)
@example(list(PROMOTED), "tank", True)
@example(list(MARKED), "tank/a", False)
@given(st.lists(CHANGES, min_size=2, max_size=5), ROOT, st.booleans())
@settings(max_examples=cases(100), deadline=None)
def test_any_change_between_two_processes_is_seen(
    lives: Sequence[Sequence[tuple[object, int, int]]], root: str, feeds: bool
) -> None:
    """Each life of the process begins with changes that it did not see, and ends with its listing being written."""

    async def live() -> None:
        pool = FakePool()
        with somewhere() as place:
            for changes in lives:
                for change, one, other in changes:
                    change(pool, one, other)  # type: ignore[operator]
                kept = place.start()
                feed = FakeFeed(pool) if feeds else None
                client = Zfs(place.tools(pool), feed=feed, key_root="tank", kept=kept)
                for each in (root, "tank"):
                    now = await tree(Zfs(FakeTools(pool), key_root="tank"), each, True)
                    assert await tree(client, each, True) == now
                await kept.save_changed()

    asyncio.run(live())


async def test_no_snapshot_is_listed_that_is_in_the_file(place: Place) -> None:
    pool = FakePool()
    for number in range(3):
        pool.snapshot(1, number)
    pool.bookmark_of(1, 0)
    kept = place.start()
    before = await Zfs(place.tools(pool), kept=kept).tree("tank")
    await kept.save_changed()
    tools = place.tools(pool)
    assert await Zfs(tools, kept=place.start()).tree("tank") == before
    # A dataset without a snapshot has no stamp, which proves nothing.
    listed = [argv for argv in tools.started if argv[1] == "list" and "snapshot,bookmark" in argv]
    assert [argv[argv.index("-o") + 2 :] for argv in listed] == [["tank", "tank/a/b", "tank/c"]]
    assert any("bookmark" in argv and "tank/a" in argv for argv in tools.started)


@pytest.mark.parametrize(
    "other", [LoadedPool(7, 17), LoadedPool(GUID, 18)], ids=["another", "imported again"]
)
async def test_nothing_is_believed_of_another_pool_nor_of_one_that_was_away(
    place: Place, other: LoadedPool
) -> None:
    """It may have been on a host whose OpenZFS sets no stamps."""
    pool, kept = FakePool(), place.start()
    pool.snapshot(1, 0)
    await Zfs(place.tools(pool), kept=kept).tree("tank")
    await kept.save_changed()
    stamps = {"tank/a": ("2 -", str(pool.datasets["tank/a"].changed))}
    for process in (kept, place.start()):
        for loaded, believed in ((LOADED, True), (other, False)):
            place.pool = loaded
            await process.load_pool("tank", place.tools())
            assert bool(process.believe_snapshots(stamps, 1e10)) is believed


async def test_where_the_pool_cannot_be_told_nothing_is_kept(place: Place) -> None:
    kept = place.start()
    await kept.load_pool("tank", HostRunner())
    kept.note_snapshots("tank/a", ("2 -", "17"), (), 20.0)
    await kept.save_changed()
    assert not place.file.parent.exists()


# Stamps have a resolution of a second


@dataclass
class StampedDataset:
    """A dataset whose snapshots come and go by a clock, which may be set back."""

    clock: float = 1_000_000.0
    txg: int = 0
    changed: int = 0
    snapshots: dict[str, int] = field(default_factory=dict)

    def now(self) -> float:
        return self.clock

    def change(self, number: int) -> None:
        self.txg += 1
        if self.snapshots.pop(f"s{number}", None) is None:
            self.snapshots[f"s{number}"] = self.txg
        self.changed = int(self.clock)

    @property
    def stamps(self) -> Mapping[str, tuple[str, str]]:
        return {"tank/a": ("2 -", str(self.changed) if self.changed else "-")}

    def list(self) -> dict[str, DatasetPoints]:
        name = DatasetName("tank/a")
        some = [Snapshot(name, short, txg, txg, 1) for short, txg in self.snapshots.items()]
        return {"tank/a": DatasetPoints(tuple(sorted(some, key=lambda one: one.createtxg)))}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("change"), st.integers(0, 2)),
        st.tuples(st.just("wait"), st.sampled_from([0.25, 0.75, 1.0, 2.5, 5.0])),
        st.tuples(st.just("set back"), st.sampled_from([1.0, 3.0, 100.0])),
        st.tuples(st.just("list"), st.just(0)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=30,
)


@given(STEPS)
@settings(max_examples=cases(200), deadline=None)
def test_what_is_believed_is_what_is_there_at_any_time_of_a_second(
    steps: Sequence[tuple[str, float]],
) -> None:
    async def live() -> None:
        dataset = StampedDataset()
        with somewhere() as place:
            kept = place.start()
            cache = ListingCache(dataset.now, kept)
            for what, number in steps:
                if what == "change":
                    dataset.change(int(number))
                elif what == "wait":
                    dataset.clock += number
                elif what == "set back":
                    dataset.clock -= number
                elif what == "list":
                    began = cache.now()
                    cache.keep(["tank/a"], dataset.stamps, dataset.list(), began)
                else:
                    await kept.save_changed()
                    kept = place.start()
                    cache = ListingCache(dataset.now, kept)
                await kept.load_pool("tank", place.tools())
                for found in kept.believe_snapshots(dataset.stamps, cache.now()).values():
                    assert found == dataset.list()["tank/a"].snapshots

    asyncio.run(live())


async def test_it_is_believed_when_the_stamp_is_older_than_its_resolution(place: Place) -> None:
    dataset, kept = StampedDataset(), place.start()
    cache = ListingCache(dataset.now, kept)
    await kept.load_pool("tank", place.tools())
    dataset.change(0)
    for waited, believed in ((1.0, False), (2.5, True)):
        dataset.clock += waited
        cache.keep(["tank/a"], dataset.stamps, dataset.list(), cache.now())
        assert bool(kept.believe_snapshots(dataset.stamps, cache.now())) is believed


# The file


def some_listing(count: int = 3) -> dict[str, KeptSnapshots]:
    found = dict[str, KeptSnapshots]()
    for number in range(count):
        name = DatasetName(f"tank/\u00e4{number}")
        rows = [(f"s{one}", 2**64 - 1 - one, one, 1000 + one) for one in range(number % 2, 4)]
        found[name] = KeptSnapshots(f"{number} -", "17", 20.5, SnapshotList.of(name, rows))
    return {
        **found,
        "tank/none": KeptSnapshots("9 tank@a", "18", 21.0, SnapshotList.of(DatasetName("tank/none"), [])),
    }


def test_a_file_reads_as_it_was_written(place: Place) -> None:
    write_listing(place.file, LOADED, some_listing())
    assert read_listing(place.file, LOADED) == some_listing()
    assert place.file.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in place.file.parent.iterdir()] == [str(GUID)]
    assert place.file.read_text().count('"s3"') == 2, "snapnames that datasets share are in it once"


@given(st.data())
@settings(max_examples=cases(200), deadline=None)
def test_a_damaged_file_is_as_none(data: st.DataObject) -> None:
    with somewhere() as place:
        write_listing(place.file, LOADED, some_listing())
        whole = place.file.read_bytes()
        at = data.draw(st.integers(0, len(whole) - 1))
        if data.draw(st.booleans()):
            place.file.write_bytes(whole[:at])
        else:
            place.file.write_bytes(
                whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
            )
        assert read_listing(place.file, LOADED) == {}


def test_no_file_of_another_pool_or_version_and_none_that_is_too_large(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_listing(place.file, LOADED) == {}
    write_listing(place.file, LOADED, some_listing())
    assert (
        read_listing(place.file, LoadedPool(GUID + 1, 17))
        == read_listing(place.file, LoadedPool(GUID, 1))
        == {}
    )
    monkeypatch.setattr(listing_cache_files, "FORMAT", "zvault listing 2")
    assert read_listing(place.file, LOADED) == {}
    monkeypatch.undo()
    monkeypatch.setattr(listing_cache_files, "LARGEST_LISTING", place.file.stat().st_size - 1)
    assert read_listing(place.file, LOADED) == {}


def test_what_does_not_fit_is_left_out(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for largest in range(150, 1500, 50):
        monkeypatch.setattr(listing_cache_files, "LARGEST_LISTING", largest)
        write_listing(place.file, LOADED, some_listing(8))
        assert place.file.stat().st_size <= largest
        assert read_listing(place.file, LOADED).items() <= some_listing(8).items()
    assert read_listing(place.file, LOADED) != {}


def test_old_files_are_removed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_cache_files, "MOST_POOLS", 3)
    for guid in range(5):
        write_listing(place.file.with_name(str(guid)), LoadedPool(guid, 1), some_listing())
    assert len(list(place.file.parent.iterdir())) == 3
    assert place.file.with_name("4").exists()


async def test_what_cannot_be_written_stays_to_be_written(place: Place) -> None:
    kept = place.start()
    await kept.load_pool("tank", place.tools())
    kept.note_snapshots("tank/a", ("2 -", "17"), (), 20.0)
    place.file.parent.write_text("no folder")
    with pytest.raises(OSError, match="exists"):
        await kept.save_changed()
    place.file.parent.unlink()
    await kept.save_changed()
    assert read_listing(place.file, LOADED).keys() == {"tank/a"}


async def test_what_another_client_notes_while_the_file_is_read_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool that is a source and a vault is listed by two clients."""
    place = Place(tmp_path)
    kept, reading = place.start(), asyncio.Event()

    async def read_slowly(*_: object) -> dict[str, KeptSnapshots]:
        reading.set()
        await asyncio.sleep(0)
        return {}

    monkeypatch.setattr(asyncio, "to_thread", read_slowly)
    loading = asyncio.create_task(kept.load_pool("tank", place.tools()))
    await reading.wait()
    kept.note_snapshots("tank/a", ("1", "2"), (), 9.0)
    assert kept.believe_snapshots({"tank/a": ("1", "2")}, 10.0) == {}
    await loading
    kept.note_snapshots("tank/a", ("1", "2"), (), 9.0)
    assert list(kept.believe_snapshots({"tank/a": ("1", "2")}, 11.0)) == ["tank/a"]
