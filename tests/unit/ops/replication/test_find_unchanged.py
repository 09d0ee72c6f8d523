"""A run leaves out what is unchanged; what is written to meanwhile is in its snapshot all the same, or in a second."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.events import split_event
from tests.unit.ops.no_keys import NoKeys
from tests.unit.ops.ops_world import (
    HOUR,
    START,
    context,
    dataset,
    snap,
    snapname,
    tree,
    with_source,
    with_vault,
)
from zvault.core.errors import ToolFailed
from zvault.core.model import Snapshot, Tree
from zvault.core.replication.unchanged_datasets import UnchangedDatasets
from zvault.ops.context import Context
from zvault.ops.hooks import RunHooks
from zvault.ops.replication.lag import measure_lags
from zvault.ops.replication.listing import BothListings
from zvault.ops.run import BackupRun
from zvault.ops.run_outcome import RunOutcome
from zvault.ops.state.unchanged_book import UnchangedBook
from zvault.ops.vaults.vault import Vaults
from zvault.system.record_store import RecordStore

SKIP = {"snapshot": {"skip_unchanged": True}}


class Pool(NoKeys):
    """A side whose datasets may change with each look, and whose properties are given. It makes snapshots."""

    def __init__(self, there: Tree, properties: str = "") -> None:
        self.there, self.properties = there, properties
        self.host = self.lzc = self
        self.made: list[list[str]] = []
        self.then: Callable[[], None] = lambda: None
        self.number = 900

    async def tree(self, _: str, *, sizes: bool = True) -> Tree:
        return self.there

    tree_or_none = tree

    async def run(self, argv: Sequence[str], **_: Any) -> Any:
        out = self.properties if argv[:2] == ["zfs", "get"] else ""
        return SimpleNamespace(returncode=0, stdout=out)

    async def snapshot(self, names: Sequence[str], _: object) -> None:
        self.made.append(list(names))
        for name in names:
            of, _, snapname = name.partition("@")
            before = self.there.datasets[of]
            self.number += 1
            new = Snapshot(before.name, snapname, self.number, self.number, START + 9 * HOUR)
            self.there.datasets[of] = replace(before, snapshots=(*before.snapshots, new), written=0)
        self.then()


class World:
    """``tank/a`` is written to; ``tank`` and ``tank/b`` are as on the vault."""

    def __init__(self, tmp_path: Path, **backup: Any) -> None:
        self.source = Pool(
            tree(
                dataset("tank", snap(1)),
                dataset("tank/a", snap(2, "tank/a"), written=512),
                dataset("tank/b", snap(3, "tank/b")),
            )
        )
        self.vault = Pool(
            tree(
                dataset("cold/host/tank", snap(1, "cold/host/tank")),
                dataset("cold/host/tank/a", snap(2, "cold/host/tank/a")),
                dataset("cold/host/tank/b", snap(3, "cold/host/tank/b")),
            )
        )
        self.where: Context = context(START + 9 * HOUR, folder=tmp_path, **{**SKIP, **backup})
        with_vault(with_source(self.where, self.source), self.vault)
        self.synced: list[str] = []
        self.where.clients.zpool = SimpleNamespace(sync=self.sync)  # type: ignore[assignment]
        self.said: list[tuple[str, Any]] = []
        self.trouble: ToolFailed | None = None

    async def sync(self, pool: str) -> None:
        self.synced.append(pool)
        if self.trouble is not None:
            raise self.trouble

    async def snapshot(self) -> list[list[str]]:
        """The datasets of each snapshot that a run makes."""
        run = BackupRun(
            self.where,
            Vaults(self.where),
            "b",
            lambda event: self.said.append((event.name, split_event(event)[1].get("text"))),
            RunOutcome(),
        )
        opened: Any = SimpleNamespace(zfs=self.vault)
        await run.snapshots.make(opened)
        return [[name.partition("@")[0] for name in names] for names in self.source.made]


@pytest.fixture(autouse=True)
def no_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunHooks, "around", lambda *_: contextlib.nullcontext())


async def test_what_is_unchanged_gets_no_snapshot(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert await world.snapshot() == [["tank/a"]]
    assert world.synced == ["tank"], "what is not on disk yet is not counted by ZFS"
    until = START + 9 * HOUR
    assert world.where.records.unchanged.until("b") == {101: until, 103: until}
    assert ("message", "unchanged, so neither snapshotted nor sent: 2 datasets") in world.said


async def test_it_is_not_done_unasked(tmp_path: Path) -> None:
    world = World(tmp_path, snapshot={})
    assert await world.snapshot() == [["tank", "tank/a", "tank/b"]]
    assert world.synced == []


async def test_where_all_is_unchanged_there_is_no_snapshot(tmp_path: Path) -> None:
    world = World(tmp_path, exclude=["tank/a"])
    assert await world.snapshot() == []


async def test_where_the_pool_cannot_be_synced_nothing_is_left_out(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.trouble = ToolFailed("zpool sync failed", "permission denied")
    assert await world.snapshot() == [["tank", "tank/a", "tank/b"]]
    assert [text for event, text in world.said if event == "warning"] == [
        "all datasets are snapshotted, as it is not known which are unchanged: zpool sync failed: permission denied"
    ]
    assert world.where.records.unchanged.until("b") == {}


async def test_what_is_written_to_before_the_snapshot_is_made_is_in_a_second_one(tmp_path: Path) -> None:
    world = World(tmp_path)

    def write() -> None:
        world.source.then = lambda: None
        world.source.there.datasets["tank/b"] = replace(world.source.there.datasets["tank/b"], written=1)

    world.source.then = write
    assert await world.snapshot() == [["tank/a"], ["tank", "tank/a", "tank/b"]]
    assert world.where.records.unchanged.until("b") == {}


@pytest.mark.parametrize(
    ("mine", "its", "left_out"),
    [
        ("compression\tlz4\t-\tlocal", "compression\tlz4\tlz4\treceived", True),
        ("compression\tlz4\t-\tlocal", "", False),
        ("", "compression\tlz4\tlz4\treceived", False),
        ("compression\tlz4\t-\tlocal", "compression\tzstd\tzstd\treceived", False),
        # What came with a stream, and is not in force on the vault.
        ("exec\toff\t-\tlocal", "exec\ton\toff\tdefault", True),
        ("", "compression\tzstd\t-\tlocal", True),
        ("quota\t1024\t-\tlocal", "", True),
        # A value with a line break in it: nobody can tell what belongs to what.
        ("a:b\tx\ny\t-\tlocal", "a:b\tx\ny\tx\ny\treceived", False),
    ],
)
async def test_what_has_another_property_by_now_is_sent(
    tmp_path: Path, mine: str, its: str, left_out: bool
) -> None:
    world = World(tmp_path)
    world.source.properties = f"tank/b\t{mine}\n" if mine else ""
    world.vault.properties = f"cold/host/tank/b\t{its}\n" if its else ""
    ((*names,),) = await world.snapshot()
    assert ("tank/b" not in names) is left_out


async def test_properties_that_are_not_sent_do_not_matter(tmp_path: Path) -> None:
    world = World(tmp_path, send={"properties": False})
    world.source.properties = "tank/b\tcompression\tlz4\t-\tlocal\n"
    assert await world.snapshot() == [["tank/a"]]


# On record


def test_a_record_goes_with_its_snapshot(tmp_path: Path) -> None:
    book = UnchangedBook(RecordStore(tmp_path / "unchanged"))
    book.note("b", UnchangedDatasets(100.0, {"tank": snap(1), "tank/a": snap(2)}), {101, 102})
    assert UnchangedBook(RecordStore(tmp_path / "unchanged")).until("b") == {101: 100.0, 102: 100.0}
    assert book.until("c") == {}
    book.note("b", UnchangedDatasets(200.0, {"tank": snap(1)}), {101})
    assert book.until("b") == {101: 200.0}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"boot_id": "x", "time": 1, "data": {"until": {"x": 1}}}'])
def test_a_record_that_is_none_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "b.json").write_text(text)
    (tmp_path / "b").write_text(text)
    assert UnchangedBook(RecordStore(tmp_path)).until("b") == {}


@pytest.mark.parametrize(("seen", "hours"), [(True, 2), (False, 2)])
def test_lag_counts_from_the_run_that_saw_it_unchanged(tmp_path: Path, seen: bool, hours: int) -> None:
    where = context(START + 9 * HOUR, folder=tmp_path, **SKIP)
    where.records.unchanged.note("b", UnchangedDatasets(START + 7 * HOUR, {"tank": snap(3)}), {103})
    source = dataset("tank", snap(1), snap(3), written=512)
    both = BothListings(
        tree(source),
        tree(dataset("cold/host/tank", snap(3, "cold/host/tank"))),
        ((source, "cold/host/tank"),),
    )  # type: ignore[arg-type]
    found = measure_lags(where, where.env.backup("b"), both)
    if not seen:
        both = replace(both, vault=Tree(), vault_seen=False)
        found = measure_lags(where, where.env.backup("b"), both, before=found)
    assert found["tank"].age(where.env.clock.time()) == hours * HOUR
    assert found["tank"].age(START + 10 * HOUR) == (hours + 1) * HOUR


def test_lag_of_an_older_snapshot_does_not_count_from_then(tmp_path: Path) -> None:
    """What was unchanged was rolled back: the vault's newest that the source still has is an older one."""
    where = context(START + 9 * HOUR, folder=tmp_path, **SKIP)
    where.records.unchanged.note("b", UnchangedDatasets(START + 7 * HOUR, {"tank": snap(3)}), {103})
    source = dataset("tank", snap(1))
    there = dataset("cold/host/tank", snap(1, "cold/host/tank"), snap(3, "cold/host/tank"))
    both = BothListings(tree(source), tree(there), ((source, there.name),))
    assert measure_lags(where, where.env.backup("b"), both)["tank"].age(where.env.clock.time()) == 8 * HOUR
    assert snapname(1) == source.snapshots[-1].snapname
