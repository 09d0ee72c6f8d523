"""The process that copies files runs for real: what it copies is as it was, and nothing leads it out of its folders."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from pathlib import Path

import pytest

from zvault.core.errors import NotFound
from zvault.system import copy_files
from zvault.system.beneath import open_beneath, open_folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    top = tmp_path / "root"
    (top / "d" / "e").mkdir(parents=True)
    (top / "d" / "e" / "f").write_bytes(os.urandom(3 << 20))
    (top / "plain").write_text("this is plain")
    os.link(top / "plain", top / "d" / "again")
    (top / "link").symlink_to("to\nwhere")
    (top / b"\xff\n".decode(errors="surrogateescape")).write_text("odd")
    with (top / "holes").open("wb") as file:
        file.seek(50 << 20)
        file.write(b"end")
    (top / ".zfs").mkdir()
    return top


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir()
    return made


async def test_it_is_copied_as_it_was_and_nothing_is_overwritten_unasked(root: Path, folder: Path):
    (folder / "plain").write_text("mine")
    plan = await copy_files.plan(str(root), str(folder), None)
    assert sorted(plan.tops) == sorted(os.fsencode(one.name) for one in root.iterdir() if one.name != ".zfs")
    assert (plan.files, plan.there) == (6, [b"./plain"])
    assert (await copy_files.copy(str(root), str(folder), plan.tops, overwrite=False)).failures == 0
    assert (folder / "plain").read_text() == "mine"
    assert (folder / "link").readlink() == Path("to\nwhere")
    assert (folder / "holes").stat().st_blocks < 4096
    assert (folder / "holes").read_bytes() == (root / "holes").read_bytes()
    assert (folder / "d/e/f").read_bytes() == (root / "d/e/f").read_bytes()
    assert (await copy_files.copy(str(root), str(folder), plan.tops, overwrite=True)).failures == 0
    assert (folder / "plain").read_text() == "this is plain"
    assert (folder / "plain").samefile(folder / "d/again")


async def test_traits(root: Path, folder: Path):
    for path in (root / "plain", root / "d"):
        os.setxattr(path, "user.note", b"mine")
        os.chown(path, 1234, 1235)
        path.chmod(0o6751)
        os.utime(path, ns=(10**18 + 1, 10**18 + 2))
    os.mknod(root / "null", 0o020640, os.makedev(1, 3))
    plan = await copy_files.plan(str(root), str(folder), None)
    assert (await copy_files.copy(str(root), str(folder), plan.tops, overwrite=False)).failed == []
    for name in ("plain", "d"):
        seen = (folder / name).stat()
        assert (seen.st_uid, seen.st_gid, seen.st_mode & 0o7777) == (1234, 1235, 0o6751)
        assert seen.st_mtime_ns == 10**18 + 2
        assert os.getxattr(folder / name, "user.note") == b"mine"
    assert (folder / "null").stat().st_rdev == os.makedev(1, 3)


@pytest.mark.parametrize("name", [b"way/secret", b"d/../../outside/secret", b"nowhere", b"plain/x"])
async def test_no_name_leads_out_of_the_snapshot(root: Path, folder: Path, tmp_path: Path, name: bytes):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("of the host")
    (root / "way").symlink_to(outside)
    with pytest.raises(NotFound):
        await copy_files.plan(str(root), str(folder), [name])
    with pytest.raises(Exception, match="cannot copy"):
        await copy_files.copy(str(root), str(folder), [name], overwrite=True)
    assert list(folder.iterdir()) == []


async def test_a_link_that_is_there_is_not_followed(root: Path, folder: Path, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (folder / "d").symlink_to(outside)
    (folder / "plain").symlink_to(outside / "plain")
    assert sorted((await copy_files.plan(str(root), str(folder), None)).there) == [b"./d", b"./plain"]
    assert (await copy_files.copy(str(root), str(folder), [b"d", b"plain"], overwrite=True)).failures == 1
    assert list(outside.iterdir()) == []
    assert (folder / "plain").read_text() == "this is plain"


async def test_a_user_who_swaps_folders_leads_no_file_out(root: Path, folder: Path, tmp_path: Path):
    outside, stop = tmp_path / "outside", threading.Event()
    outside.mkdir()
    for number in range(300):
        (root / "d" / f"n{number}").write_text("x")

    def swap() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError):
                (folder / "d").rename(folder / f"away{time.monotonic_ns()}")
            with contextlib.suppress(OSError):
                (folder / "d").symlink_to(outside)
            time.sleep(0.0005)
            with contextlib.suppress(OSError):
                (folder / "d").unlink()

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(6):
            await copy_files.copy(str(root), str(folder), [b"d"], overwrite=True)
    finally:
        stop.set()
        await asyncio.to_thread(thread.join)
    assert list(outside.iterdir()) == []


async def test_the_folder_itself_may_not_be_a_users_link(root: Path, folder: Path, tmp_path: Path):
    (tmp_path / "rooted").symlink_to(folder)
    await copy_files.check_folder(str(tmp_path / "rooted"))
    (tmp_path / "users").symlink_to(folder)
    os.chown(tmp_path / "users", 1234, 1234, follow_symlinks=False)
    with pytest.raises(NotFound, match="link that user 1234 made"):
        await copy_files.check_folder(str(tmp_path / "users"))
    with pytest.raises(NotFound):
        await copy_files.check_folder(str(root / "nothing"))


def test_what_is_opened_beneath(root: Path):
    fd = open_folder(os.fsencode(root))
    try:
        os.close(open_beneath(fd, b"d/e/f", os.O_RDONLY))
        for name in (b"..", b"/etc/passwd", b"d/../../root", b"a\0b"):
            with pytest.raises(OSError, match=r"."):
                open_beneath(fd, name, os.O_RDONLY)
    finally:
        os.close(fd)
