"""A mount for somebody: in which order things are made and undone, what ends it, and what a crash leaves to undo."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.ops_world import HOUR, START, context, dataset, snap, snapname, tree
from tests.unit.patience import FOR_EVER, PATIENCE
from zvault.core.errors import NotFound, Refused, ToolFailed
from zvault.core.model import Dataset
from zvault.ops.restore import mount_snapshot as module
from zvault.ops.restore import snapshot_reader
from zvault.ops.restore.mount_snapshot import MountRequest, mount_snapshot
from zvault.system.procfs import PoolMount
from zvault.system.record_store import RecordStore

TARGET = "cold/host/tank"
FOLDER = "/mnt/look"


class Host:
    """Mounts, and holds; ``log`` is what was done."""

    address = None

    def __init__(self) -> None:
        self.log: list[str] = []
        self.mounts: list[PoolMount] = []
        self.unfit = ""
        self.busy = False

    async def run(self, argv: Sequence[str], **_: Any) -> Any:
        done = SimpleNamespace(returncode=0, stdout="", stderr="", complaint=lambda: "target is busy")
        match list(argv):
            case ["mount", "-t", "zfs", "-o", "ro,nosuid,nodev,noexec", source, folder]:
                self.log.append(f"mount {source}")
                self.mounts.append(PoolMount(source, folder))
            case ["umount", folder]:
                if self.busy:
                    return SimpleNamespace(**{**vars(done), "returncode": 32, "stderr": "target is busy"})
                self.log.append("umount")
                self.mounts = [one for one in self.mounts if one.point != folder]
            case [_, "-I", "-S", script, folder] if script.endswith("mount_folder.py"):
                done.stdout = self.unfit
            case other:
                raise AssertionError(other)
        return done

    async def hold(self, names: Sequence[str], tag: str) -> None:
        self.log.append(f"hold {names[0]}")
        assert tag.startswith("zvault:mount-")

    async def release(self, names: Sequence[str], _: str) -> None:
        self.log.append(f"release {names[0]}")


class World:
    """A vault that is up while somebody uses it."""

    def __init__(self, folder: Path, there: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
        self.host = Host()
        self.there = there
        self.context = context(START + 9 * HOUR, folder=folder)
        self.users: list[str] = []
        self.said: list[str] = []
        self.readonly = False
        self.looks = 0
        self.zfs: Any = SimpleNamespace(
            host=self.host, lzc=self.host, tree_or_none=self._tree, get=self._get, log=self.host.log
        )
        self.context.clients._sources[None] = self.zfs
        monkeypatch.setattr(snapshot_reader, "list_pool_mounts", lambda _: self.host.mounts)
        monkeypatch.setattr(module, "is_mount_point", lambda _: bool(self.host.mounts))
        monkeypatch.setattr(snapshot_reader, "UNMOUNT_TRIES", 1)

    async def _tree(self, _: str, *, sizes: bool = True) -> Any:
        return tree(self.there)

    async def _get(self, _: str, prop: str) -> dict[str, str]:
        return {prop: "unavailable"}

    def __getitem__(self, _: str) -> Any:
        return self

    @asynccontextmanager
    async def use(self, user: str, _: Any, *, writes: bool, reads: bool, create: bool) -> AsyncIterator[Any]:
        assert not writes
        assert not create
        self.users.append(user)
        try:
            yield SimpleNamespace(name="cold", zfs=self.zfs, readonly=self.readonly)
        finally:
            self.users.remove(user)

    async def mount(self, pause: Any = asyncio.sleep, **wanted: Any) -> Any:
        request = MountRequest("b", wanted.pop("dataset", None), FOLDER, **wanted)
        vaults: Any = self
        return await mount_snapshot(self.context, vaults, request, self.said.append, pause=pause)

    @property
    def leases(self) -> list[str]:
        records = self.context.records
        return [
            *records.undo.names(snapshot_reader.LOOK_LEASE_PREFIX),
            *records.mount_holds.names(snapshot_reader.LOOK_LEASE_PREFIX),
        ]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, dataset(TARGET, snap(1, TARGET), snap(2, TARGET)), monkeypatch)


NEWEST = f"{TARGET}@{snapname(2)}"


async def test_it_is_held_before_and_released_after(world: World):
    async def pause(_: float) -> None:
        assert world.users == [f"mount at {FOLDER}"]
        assert len(world.leases) == 2

    found = await world.mount(pause, seconds=3)
    assert found == {"folder": FOLDER, "dataset": TARGET, "snapshot": NEWEST, "ended": "its time is over"}
    assert world.host.log == [f"hold {NEWEST}", f"mount {NEWEST}", "umount", f"release {NEWEST}"]
    assert (world.leases, world.users) == ([], [])
    assert (
        f"{NEWEST} is mounted at {FOLDER}, read-only; it is held and vault cold is kept up" in world.said[0]
    )


async def test_who_unmounts_it_ends_it_and_what_was_mounted_there_since_stays(world: World):
    async def pause(_: float) -> None:
        world.host.mounts = [PoolMount("pond/mine", FOLDER)]

    found = await world.mount(pause)
    assert found["ended"] == "it was unmounted"
    assert world.host.log == [f"hold {NEWEST}", f"mount {NEWEST}", f"release {NEWEST}"]
    assert world.host.mounts == [PoolMount("pond/mine", FOLDER)]


async def test_who_waits_no_longer_has_it_unmounted(world: World):
    task = asyncio.ensure_future(world.mount())
    while not world.host.mounts:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.host.log[-2:] == ["umount", f"release {NEWEST}"]
    assert world.leases == []


async def test_an_older_snapshot_by_its_time_and_a_dataset_by_its_name(world: World):
    found = await world.mount(dataset="tank", at=START + 1.5 * HOUR, seconds=0.001)
    assert found["snapshot"] == f"{TARGET}@{snapname(1)}"
    with pytest.raises(NotFound, match="has no snapshot of then"):
        await world.mount(at=START - HOUR)
    with pytest.raises(NotFound, match="has no 'tank/no'"):
        await world.mount(dataset="tank/no")


async def test_an_unfit_folder_has_nothing_made(world: World):
    world.host.unfit = "it is not empty"
    with pytest.raises(Refused, match=f"nothing is mounted at '{FOLDER}': it is not empty"):
        await world.mount()
    assert (world.host.log, world.leases) == ([], [])


async def test_what_has_no_files_or_no_key(world: World):
    world.there = dataset(TARGET, snap(1, TARGET), type="volume")
    with pytest.raises(Refused, match="has no files"):
        await world.mount()
    world.there = dataset(TARGET, snap(1, TARGET), encrypted=True)
    with pytest.raises(Refused, match="its key is not loaded"):
        await world.mount()
    assert world.host.log == []


async def test_somebody_who_reads_there_keeps_it_written_down_and_the_next_start_takes_it_away(world: World):
    world.host.busy = True
    with pytest.raises(ToolFailed, match="cannot unmount"):
        await world.mount(seconds=0.001)
    assert len(world.leases) == 1, "the hold is released all the same: a mounted snapshot is not destroyed"
    assert len(await snapshot_reader.close_left_open(world.context)) == 1
    world.host.busy = False
    assert await snapshot_reader.close_left_open(world.context) == []
    assert (world.leases, world.host.mounts) == ([], [])


async def test_a_crash_leaves_what_the_next_start_undoes_once_the_pool_is_there(world: World):
    records = world.context.records
    records.undo.put(
        f"{snapshot_reader.LOOK_LEASE_PREFIX}a",
        {"kind": "mount at", "host": None, "path": f"{NEWEST}\t{FOLDER}"},
    )
    records.mount_holds.put(
        f"{snapshot_reader.LOOK_LEASE_PREFIX}b",
        {"kind": "hold", "host": None, "path": f"{NEWEST}\tzvault:mount-1"},
    )
    world.host.mounts = [PoolMount(NEWEST, FOLDER)]
    pools: list[Any] = [None, SimpleNamespace(guid=1)]

    async def state(pool: str) -> Any:
        assert pool == "cold"
        return pools.pop(0)

    world.context.clients.zpool = SimpleNamespace(state=state)  # type: ignore[assignment]
    assert [str(one) for one in await snapshot_reader.close_left_open(world.context)] == [
        f"the hold zvault:mount-1 of {NEWEST} stays for now: pool cold is not imported"
    ]
    assert await snapshot_reader.close_left_open(world.context) == []
    assert world.host.log == ["umount", f"release {NEWEST}"]
    assert world.leases == []


async def test_a_lease_that_cannot_be_dropped_is_told_and_the_others_are_looked_at(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a state directory that is read-only zvaultd did not start."""
    for name in "ab":
        lease = {"kind": "mount at", "host": None, "path": f"{NEWEST}\t{FOLDER}"}
        world.context.records.mount_holds.put(f"{snapshot_reader.LOOK_LEASE_PREFIX}{name}", lease)
    monkeypatch.setattr(RecordStore, "drop", _refuse)
    left = await snapshot_reader.close_left_open(world.context)
    assert len(left) == 2
    assert "Read-only file system" in left[0]


async def test_what_cannot_be_written_down_is_not_open(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every stop of zvaultd waited half a minute for it to be closed."""
    monkeypatch.setattr(RecordStore, "put", _refuse)
    with pytest.raises(OSError, match="Read-only"):
        await world.mount()
    assert world.host.log == []
    assert world.context.activity.readings == set()


def _refuse(*_: object) -> None:
    raise OSError(errno.EROFS, "Read-only file system")


async def test_what_hangs_keeps_nothing_else_from_being_taken_away_and_is_tried_again(world: World) -> None:
    holds = world.context.records.mount_holds
    for name, pool in (("a", "hung"), ("b", "cold")):
        path = f"{pool}/x@s\tzvault:mount-{name}"
        holds.put(f"{snapshot_reader.LOOK_LEASE_PREFIX}{name}", {"kind": "hold", "host": None, "path": path})
    hung = True

    async def state(pool: str) -> Any:
        if hung and pool == "hung":
            await asyncio.sleep(FOR_EVER)
        return SimpleNamespace(guid=1)

    world.context.clients.zpool = SimpleNamespace(state=state)  # type: ignore[assignment]
    (left,) = await asyncio.wait_for(snapshot_reader.close_left_open(world.context, 0.2), PATIENCE)
    assert "within 0.2 s: it is in use, or hangs" in left
    assert world.host.log == ["release cold/x@s"]
    hung = False
    assert await snapshot_reader.close_left_open(world.context) == []
    assert world.leases == []


async def test_in_a_vault_as_it_was_nothing_is_held(world: World) -> None:
    world.readonly = True
    ended = await world.mount(seconds=1.0, pause=lambda _: asyncio.sleep(0))
    assert ended["snapshot"] == NEWEST
    assert world.host.log == [f"mount {NEWEST}", "umount"]
    assert "stays open as it was" in world.said[0]
    assert "held" not in world.said[0]
    assert world.leases == []
