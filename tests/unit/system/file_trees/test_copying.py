"""The process that copies files runs for real: what it copies is as it was, and nothing leads it out of its folders."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from zvault.core.errors import NotFound
from zvault.system import copy_files
from zvault.system.beneath import FOLDER, open_beneath, open_folder, opened
from zvault.system.copy_files_child import Copier


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


@pytest.fixture
def roots_own() -> Iterator[Path]:
    """A folder to which nobody but root may write, nor to any above it: pytest's own lie in /tmp."""
    made = Path(tempfile.mkdtemp(dir=Path.home()))
    yield made
    shutil.rmtree(made)


async def test_the_folder_itself_may_not_be_a_users_link(root: Path, folder: Path, roots_own: Path):
    (roots_own / "rooted").symlink_to(folder)
    await copy_files.check_folder(str(roots_own / "rooted"))
    (roots_own / "users").symlink_to(folder)
    os.chown(roots_own / "users", 1234, 1234, follow_symlinks=False)
    with pytest.raises(NotFound, match="link that user 1234 made"):
        await copy_files.check_folder(str(roots_own / "users"))
    with pytest.raises(NotFound):
        await copy_files.check_folder(str(root / "nothing"))


@pytest.mark.parametrize("mode", [0o755, 0o775, 0o757, 0o1777])
@pytest.mark.parametrize("owner", [0, 1234])
@pytest.mark.parametrize("below", ["", "of root/"])
async def test_a_link_of_roots_counts_only_where_nobody_else_can_have_put_it(
    folder: Path, roots_own: Path, mode: int, owner: int, below: str
):
    """Whoever may write to a folder can give one of root's links, or a folder with one, the name that root asks for."""
    way = roots_own / "way"
    (way / "of root").mkdir(parents=True)
    (way / below / "rescue").symlink_to(folder)
    (way / "real").mkdir()
    os.chown(way, owner, owner)
    way.chmod(mode)
    await copy_files.check_folder(str(way / "real"))
    if (mode, owner) == (0o755, 0):
        await copy_files.check_folder(str(way / below / "rescue"))
    else:
        with pytest.raises(
            NotFound, match="rescue is a link, and others than root may write to a folder before it"
        ):
            await copy_files.check_folder(str(way / below / "rescue"))


@pytest.mark.parametrize(
    "kind",
    [stat.S_IFIFO | 0o666, stat.S_IFSOCK | 0o666, stat.S_IFBLK | 0o660, stat.S_IFCHR | 0o666, stat.S_IFLNK],
)
def test_nobody_can_exchange_a_node_before_it_is_finished(
    root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, kind: int
):
    """Given a mode under its name in a user's folder, it could be another of root's nodes by then: a disk's."""
    if stat.S_ISLNK(kind):
        (root / "node").symlink_to("away")
    else:
        os.mknod(root / "node", kind, os.makedev(259, 77))
        (root / "node").chmod(stat.S_IMODE(kind))
    os.chown(folder, 1234, 1234)
    set_traits, seen = Copier._traits, []

    def look(self: Copier, wanted: int, found: int, path: bytes) -> None:
        (only,) = folder.iterdir()
        there = only.stat()
        seen.append((stat.S_ISDIR(there.st_mode), there.st_uid, stat.S_IMODE(there.st_mode)))
        set_traits(self, wanted, found, path)

    monkeypatch.setattr(Copier, "_traits", look)
    one, other = os.open(root, FOLDER), os.open(folder, FOLDER)
    with opened(one), opened(other):
        Copier(target=other).entry(one, b"node", other, b"node")
    assert seen == [(True, 0, 0o700)]
    copied, wanted = (folder / "node").lstat(), (root / "node").lstat()
    assert [path.name for path in folder.iterdir()] == ["node"]
    assert (copied.st_mode, copied.st_rdev, copied.st_nlink) == (wanted.st_mode, wanted.st_rdev, 1)


def test_a_node_replaces_nothing_that_came_meanwhile(
    root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    os.mkfifo(root / "node")
    set_traits = Copier._traits

    def come_between(self: Copier, wanted: int, found: int, path: bytes) -> None:
        (folder / "node").write_text("the user's")
        set_traits(self, wanted, found, path)

    monkeypatch.setattr(Copier, "_traits", come_between)
    one, other = os.open(root, FOLDER), os.open(folder, FOLDER)
    with opened(one), opened(other):
        Copier(target=other).entry(one, b"node", other, b"node")
    assert "node: File exists" in capsys.readouterr().out
    assert (folder / "node").read_text() == "the user's"
    assert [path.name for path in folder.iterdir()] == ["node"]


def test_what_is_opened_beneath(root: Path):
    fd = open_folder(os.fsencode(root))
    try:
        os.close(open_beneath(fd, b"d/e/f", os.O_RDONLY))
        for name in (b"..", b"/etc/passwd", b"d/../../root", b"a\0b"):
            with pytest.raises(OSError, match=r"."):
                open_beneath(fd, name, os.O_RDONLY)
    finally:
        os.close(fd)
