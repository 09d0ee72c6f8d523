"""Leases: whole or not there, stale after another boot, one holder to a lock."""

import asyncio
import errno
import json
import multiprocessing
import os
import stat
import time
from pathlib import Path

import pytest

from tests.unit.patience import PATIENCE
from zvault.core.errors import Busy, ZvaultError
from zvault.system.record_store import RecordStore, read_boot_id


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore(tmp_path / "run" / "lease", boot_id="this", clock=lambda: 1234.5)


def come_and_go(directory: Path, name: str) -> None:
    leases = RecordStore(directory, boot_id="this")
    for _ in range(300):
        leases.put(name, {})
        assert name in leases.names()
        leases.drop(name)


def test_one_process_may_drop_the_last_of_a_folder_while_another_puts_the_next(tmp_path: Path):
    others = [
        multiprocessing.Process(target=come_and_go, args=(tmp_path, f"look/deep/{n}")) for n in range(3)
    ]
    for one in others:
        one.start()
    for one in others:
        one.join()
    assert [one.exitcode for one in others] == [0, 0, 0]
    assert RecordStore(tmp_path).names() == []


def test_what_was_put_is_got_until_it_is_dropped(store: RecordStore):
    assert store.get("vault/cold") is None
    store.put("vault/cold", {"nbd": 3, "queue": {"scheduler": "none"}, "path": "/ü x"})
    assert store.get("vault/cold") == {
        "nbd": 3,
        "queue": {"scheduler": "none"},
        "path": "/ü x",
        "boot_id": "this",
        "time": 1234.5,
        "stale": False,
    }
    store.put("vault/cold", {"nbd": 4})
    assert (store.get("vault/cold") or {})["nbd"] == 4
    store.drop("vault/cold")
    store.drop("vault/cold")
    assert store.get("vault/cold") is None
    assert store.names() == []


def test_names_are_listed_by_prefix_and_folders_go_when_empty(store: RecordStore):
    assert store.names() == []
    for name in ("device/cold/1", "device/cold/0", "device/colder/0", "inhibitor"):
        store.put(name, {})
    assert store.names() == ["device/cold/0", "device/cold/1", "device/colder/0", "inhibitor"]
    assert store.names("device/cold/") == ["device/cold/0", "device/cold/1"]
    assert store.names("device/cold") == ["device/cold/0", "device/cold/1", "device/colder/0"]
    assert store.names("in") == ["inhibitor"]
    assert store.names("device/warm/") == []
    for name in store.names("device/"):
        store.drop(name)
    assert [path.name for path in store.directory.iterdir()] == ["inhibitor"]


def test_another_boots_lease_is_stale(store: RecordStore):
    RecordStore(store.directory, boot_id="another").put("x", {"a": 1})
    lease = store.get("x")
    assert lease
    assert lease["stale"] is True
    assert lease["a"] == 1


def test_this_boot_has_an_identity():
    assert read_boot_id() == read_boot_id()
    assert len(read_boot_id()) == 36


def test_leases_are_for_root_alone(store: RecordStore):
    store.put("device/cold/0", {"spec": "tells where things are"})
    for path in (store.directory, store.directory / "device" / "cold"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE((store.directory / "device/cold/0").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["", "/x", "x/", "../x", "a/../b", ".x", "a//b", "a b", "x\n"])
def test_names_that_would_lead_elsewhere_are_refused(store: RecordStore, name: str):
    for call in (store.get, store.drop, lambda name: store.put(name, {})):
        with pytest.raises(ValueError, match="is no name"):
            call(name)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"boot_id": "this", "time": "x", "data": {}}'])
def test_a_file_that_is_no_lease_is_told_of(store: RecordStore, text: str):
    store.put("x", {})
    (store.directory / "x").write_text(text)
    with pytest.raises(ZvaultError) as caught:
        store.get("x")
    assert str(store.directory / "x") in caught.value.what


def test_what_cannot_be_kept_leaves_the_old_one(store: RecordStore):
    store.put("x", {"a": 1})
    with pytest.raises(TypeError):
        store.put("x", {"a": object()})
    (store.directory / "x").chmod(0o400)
    assert (store.get("x") or {})["a"] == 1
    assert [path.name for path in store.directory.iterdir()] == ["x"]


def _write_for_ever(directory: str) -> None:
    store = RecordStore(Path(directory), boot_id="this")
    while True:
        for length in (1, 100_000):
            store.put("x", {"value": "x" * length, "length": length})


def test_a_lease_is_whole_whenever_its_writer_is_killed(store: RecordStore):
    for after in (0.01, 0.02, 0.05, 0.08, 0.13):
        writer = multiprocessing.get_context("spawn").Process(
            target=_write_for_ever, args=(str(store.directory),)
        )
        writer.start()
        while store.get("x") is None:
            time.sleep(0.01)
        time.sleep(after)
        writer.kill()
        writer.join()
        raw = json.loads((store.directory / "x").read_text())["data"]
        assert len(raw["value"]) == raw["length"]
        assert store.names() == ["x"]


async def test_a_lock_has_one_holder_at_a_time(store: RecordStore):
    inside = 0

    async def enter() -> None:
        nonlocal inside
        async with store.lock("device/cold"):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0.01)
            inside -= 1

    await asyncio.gather(*(enter() for _ in range(5)))
    async with store.lock("device/cold"), store.lock("device/other"):
        with pytest.raises(Busy, match="somebody else"):
            async with store.lock("device/cold", deadline=0.1):
                pass
    assert store.names() == []


def test_a_lock_ends_with_its_process(store: RecordStore):
    child = os.fork()
    if child == 0:

        async def die() -> None:
            async with store.lock("device/cold"):
                os.kill(os.getpid(), 9)

        asyncio.run(die())
    os.waitpid(child, 0)

    async def enter() -> None:
        async with store.lock("device/cold", deadline=PATIENCE):
            pass

    asyncio.run(enter())


def test_a_folder_that_is_not_on_disk_for_sure_is_not_taken_for_one_that_is(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
):
    """Of an error of fsync the kernel tells once: a second one that succeeds proves nothing."""
    synced: list[Path] = []
    really = os.fsync

    def fsync(fd: int) -> None:
        where = Path(f"/proc/self/fd/{fd}").readlink()
        synced.append(where)
        if synced.count(where) == 1 and where == store.directory:
            raise OSError(errno.EIO, "Input/output error")
        really(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output"):
        store.put("device/cold", {})
    assert store.names() == []
    assert not (store.directory / "device").exists()
    store.put("device/cold", {})
    assert synced.count(store.directory) == 2, "it is made anew, and that is put on disk"
    assert store.names() == ["device/cold"]


def test_a_lease_goes_under_another_name_in_place_of_one_of_that_name(store: RecordStore):
    store.rename("a", "b")
    assert store.names() == []
    store.put("a", {"is": 1})
    store.put("b@c", {"is": 2})
    store.rename("a", "b@c")
    found = store.get("b@c")
    assert found is not None
    assert (found["is"], store.names()) == (1, ["b@c"])
