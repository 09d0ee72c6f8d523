"""What is open on both sides: which snapshots are held, why a side is left out, and that nothing stays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.ops_world import HOUR, START, context, dataset, snap, tree
from zvault.core.errors import HostUnreachable, NotFound, Refused
from zvault.core.model import Dataset
from zvault.ops.restore import snapshot_reader
from zvault.ops.restore.browse_session import BrowseSessions
from zvault.ops.restore.open_both_sides import LookRequest, open_both_sides
from zvault.zfs.changes import NamesGone

HERE, THERE = "tank/a", "cold/host/tank/a"


class Side:
    """A side's ZFS; ``log`` is what is held and released there."""

    def __init__(self, *datasets: Dataset) -> None:
        self.log: list[tuple[str, list[str]]] = []
        self.gone: set[str] = set()
        self.host = SimpleNamespace(address=None)
        self.lzc = self
        self.datasets = datasets

    async def tree_or_none(self, _: str, *, sizes: bool = True) -> Any:
        return tree(*self.datasets)

    async def hold(self, names: Sequence[str], tag: str) -> None:
        assert tag.startswith("zvault:mount-")
        self.log.append(("hold", list(names)))
        if self.gone:
            raise NamesGone("cannot hold", "", self.gone)

    async def release(self, names: Sequence[str], _: str) -> None:
        self.log.append(("release", list(names)))


class Vaults:
    """A vault that is up while it is used."""

    def __init__(self, zfs: Any) -> None:
        self.zfs = zfs
        self.users: list[str] = []
        self.trouble: Exception | None = None

    def __getitem__(self, _: str) -> Any:
        return self

    @asynccontextmanager
    async def use(self, user: str, _: Any, *, writes: bool, reads: bool, create: bool) -> AsyncIterator[Any]:
        assert not writes
        assert not create
        if self.trouble is not None:
            raise self.trouble
        self.users.append(user)
        try:
            yield SimpleNamespace(name="cold", zfs=self.zfs)
        finally:
            self.users.remove(user)


class World:
    def __init__(self, folder: Path) -> None:
        self.source = Side(dataset(HERE, snap(2, HERE), snap(3, HERE)))
        self.vault = Side(dataset(THERE, snap(1, THERE), snap(2, THERE)))
        self.context = context(START + 9 * HOUR, folder=folder)
        self.context.clients._sources[None] = self.source  # type: ignore[assignment]
        self.vaults: Any = Vaults(self.vault)

    def open(self, **wanted: Any) -> Any:
        request = LookRequest("b", wanted.pop("path", "docs"), wanted.pop("dataset", HERE), **wanted)
        return open_both_sides(self.context, self.vaults, request, lambda _: None)

    @property
    def left(self) -> list[str]:
        holds = self.context.records.mount_holds.names(snapshot_reader.LOOK_LEASE_PREFIX)
        return [*holds, *self.vaults.users, *self.context.activity.readings]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_all_snapshots_are_held_once_while_it_is_open(world: World) -> None:
    async with world.open() as sides:
        assert [one.snapshot.name.dataset for one in sides.points] == [THERE, HERE, HERE]
        assert world.source.log == [
            ("hold", [f"{HERE}@{one.snapname}" for one in sides.sides["source"].snapshots])
        ]
        assert world.vaults.users == ["look into tank/a"]
        assert len(world.left) == 2 + 1 + 2
    assert [what for what, _ in world.source.log + world.vault.log] == ["hold", "release"] * 2
    assert not world.left


async def test_what_is_pruned_before_it_is_held_is_left_out(world: World) -> None:
    oldest = world.vault.datasets[0].snapshots[0]
    world.vault.gone = {oldest.name}
    async with world.open() as sides:
        assert [one.guid for one in sides.sides["vault"].snapshots] == [
            one.guid for one in world.vault.datasets[0].snapshots[1:]
        ]
    assert not world.left


async def test_a_vault_that_cannot_be_had_leaves_the_source(world: World) -> None:
    world.vaults.trouble = HostUnreachable("vault cold cannot be brought up", "its device is gone")
    async with world.open() as sides:
        assert list(sides.sides) == ["source"]
        assert sides.unread == {"vault": "vault cold cannot be brought up: its device is gone"}
    with pytest.raises(HostUnreachable):
        async with world.open(side="vault"):
            pass
    assert not world.left


async def test_a_name_of_either_side_is_the_same_dataset(world: World) -> None:
    async with world.open(dataset=THERE) as sides:
        assert (sides.dataset, sides.vault_dataset, sides.path) == (HERE, THERE, b"docs")


@pytest.mark.parametrize(
    ("dataset_", "path", "error"),
    [
        ("other/a", "docs", NotFound),
        (HERE, "../x", Refused),
        (HERE, ".zfs/snapshot/x", Refused),
        (None, "relative", Refused),
        (None, "/a/../b", Refused),
    ],
)
async def test_what_is_no_path_of_it_opens_nothing(
    world: World, dataset_: Any, path: str, error: Any
) -> None:
    with pytest.raises(error):
        async with world.open(dataset=dataset_, path=path):
            pass
    assert not world.source.log
    assert not world.left


async def test_a_session_ends_with_its_client_and_the_looks_in_it_before(world: World) -> None:
    sessions, request = BrowseSessions(), LookRequest("b", "", HERE)

    async def keep() -> None:
        await sessions.keep(world.context, world.vaults, "a" * 16, request, lambda _: None)

    kept = asyncio.ensure_future(keep())
    await asyncio.sleep(0)
    ended: list[str] = []
    looked = asyncio.Event()

    async def look() -> None:
        async with sessions.look(
            world.context, world.vaults, LookRequest("b", "x", HERE), "a" * 16, print
        ) as one:
            assert one[1] == "x"
            looked.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(f"{len(world.vault.log)} changes")

    looking = asyncio.ensure_future(look())
    await looked.wait()
    kept.cancel()
    await asyncio.wait([kept, looking])
    assert ended == ["1 changes"]
    assert looking.cancelled()
    assert not world.left
    with pytest.raises(NotFound, match="no such session"):
        async with sessions.look(world.context, world.vaults, request, "a" * 16, print):
            pass


@pytest.mark.parametrize("name", ["", "short", "x" * 16, "a" * 65])
async def test_no_name_of_a_session(world: World, name: str) -> None:
    with pytest.raises(Refused):
        await BrowseSessions().keep(world.context, world.vaults, name, LookRequest("b", "", HERE), print)
    assert not world.left


async def test_a_session_that_cannot_be_opened_tells_the_looks_why(world: World) -> None:
    sessions, wanted = BrowseSessions(), LookRequest("b", "", "other/a")
    kept = asyncio.ensure_future(sessions.keep(world.context, world.vaults, "b" * 16, wanted, print))
    await asyncio.sleep(0)
    with pytest.raises(NotFound):
        async with sessions.look(world.context, world.vaults, wanted, "b" * 16, print):
            pass
    with pytest.raises(NotFound, match="no dataset of backup"):
        await kept
