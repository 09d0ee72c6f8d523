"""The process that copies files runs for real: what it copies is as it was, and nothing leads it out of its folders."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from zvault.core.errors import NotFound, ToolFailed
from zvault.system.file_trees import file_contents, tree_copier
from zvault.system.file_trees.reporter import TreeReporter
from zvault.system.file_trees.task_pool import TaskPool
from zvault.system.file_trees.tree_copier import FolderPair, TreeCopier
from zvault.system.file_trees.tree_worker import CopyPlan, CopyReport, start_tree_worker
from zvault.system.open_beneath import FOLDER_FLAGS, open_beneath, open_descriptor, open_folder


async def check_folder(folder: str) -> None:
    async with start_tree_worker("/", folder, threads=1) as worker:
        await worker.check_folder()


async def plan_copy(root: Path, folder: Path, names: list[bytes] | None = None) -> CopyPlan:
    async with start_tree_worker(str(root), str(folder)) as worker:
        return await worker.plan(names, keep_same=False)


async def copy_trees(root: Path, folder: Path, names: list[bytes], *, overwrite: bool = False) -> CopyReport:
    async with start_tree_worker(str(root), str(folder)) as worker:
        return await worker.copy(names, overwrite=overwrite)


def copy_here(root: Path, folder: Path, name: bytes) -> None:
    """Copy one entry in this process."""
    with (
        open_descriptor(os.open(root, FOLDER_FLAGS)) as one,
        open_descriptor(os.open(folder, FOLDER_FLAGS)) as other,
    ):
        pool = TaskPool(2)
        TreeCopier(pool, TreeReporter(), other).add(FolderPair(one, other, b"", left=2), name, name)
        pool.run()


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
    plan = await plan_copy(root, folder)
    assert sorted(plan.tops) == sorted(os.fsencode(one.name) for one in root.iterdir() if one.name != ".zfs")
    assert (plan.files, plan.there) == (6, [b"./plain"])
    assert (await copy_trees(root, folder, plan.tops, overwrite=False)).failures == 0
    assert (folder / "plain").read_text() == "mine"
    assert (folder / "link").readlink() == Path("to\nwhere")
    assert (folder / "holes").stat().st_blocks < 4096
    assert (folder / "holes").read_bytes() == (root / "holes").read_bytes()
    assert (folder / "d/e/f").read_bytes() == (root / "d/e/f").read_bytes()
    assert (await copy_trees(root, folder, plan.tops, overwrite=True)).failures == 0
    assert (folder / "plain").read_text() == "this is plain"
    assert (folder / "plain").samefile(folder / "d/again")


async def test_a_folder_that_is_not_there_is_made_by_the_copy_alone_and_only_where_its_parent_is(
    root: Path, folder: Path
):
    rescue = folder / "rescue"
    await check_folder(f"{rescue}/")
    plan = await plan_copy(root, rescue)
    assert (plan.files, plan.there) == (6, [])
    assert list(folder.iterdir()) == [], "a look makes nothing"
    assert (await copy_trees(root, rescue, plan.tops)).failed == []
    assert (rescue / "plain").read_text() == "this is plain"
    assert stat.S_IMODE(rescue.stat().st_mode) == 0o700
    with pytest.raises(NotFound, match=r"there is no folder .*/a/b"):
        await check_folder(str(folder / "a" / "b"))
    # A link that leads nowhere is nothing to go by: who put it there would say where files go.
    (folder / "nowhere").symlink_to(folder / "elsewhere")
    with pytest.raises(NotFound):
        await check_folder(str(folder / "nowhere"))
    with pytest.raises(ToolFailed):
        await copy_trees(root, folder / "nowhere", plan.tops)
    assert not (folder / "elsewhere").exists()


async def test_traits(root: Path, folder: Path):
    for path in (root / "plain", root / "d"):
        os.setxattr(path, "user.note", b"mine")
        os.chown(path, 1234, 1235)
        path.chmod(0o6751)
        os.utime(path, ns=(10**18 + 1, 10**18 + 2))
    os.mknod(root / "null", 0o020640, os.makedev(1, 3))
    plan = await plan_copy(root, folder)
    assert (await copy_trees(root, folder, plan.tops, overwrite=False)).failed == []
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
        await plan_copy(root, folder, [name])
    with pytest.raises(Exception, match="cannot copy"):
        await copy_trees(root, folder, [name], overwrite=True)
    assert list(folder.iterdir()) == []


async def test_a_link_that_is_there_is_not_followed(root: Path, folder: Path, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (folder / "d").symlink_to(outside)
    (folder / "plain").symlink_to(outside / "plain")
    assert sorted((await plan_copy(root, folder)).there) == [b"./d", b"./plain"]
    assert (await copy_trees(root, folder, [b"d", b"plain"], overwrite=True)).failures == 1
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
            await copy_trees(root, folder, [b"d"], overwrite=True)
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
    await check_folder(str(roots_own / "rooted"))
    (roots_own / "users").symlink_to(folder)
    os.chown(roots_own / "users", 1234, 1234, follow_symlinks=False)
    with pytest.raises(NotFound, match="link that user 1234 made"):
        await check_folder(str(roots_own / "users"))
    with pytest.raises(NotFound):
        await check_folder(str(root / "nothing" / "below"))


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
    await check_folder(str(way / "real"))
    if (mode, owner) == (0o755, 0):
        await check_folder(str(way / below / "rescue"))
    else:
        with pytest.raises(
            NotFound, match="rescue is a link, and others than root may write to a folder before it"
        ):
            await check_folder(str(way / below / "rescue"))


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
    set_traits, seen = TreeCopier._traits, []

    def look(self: TreeCopier, wanted: int, found: int, path: bytes) -> None:
        (only,) = folder.iterdir()
        there = only.stat()
        seen.append((stat.S_ISDIR(there.st_mode), there.st_uid, stat.S_IMODE(there.st_mode)))
        set_traits(self, wanted, found, path)

    monkeypatch.setattr(TreeCopier, "_traits", look)
    copy_here(root, folder, b"node")
    assert seen == [(True, 0, 0o700)]
    copied, wanted = (folder / "node").lstat(), (root / "node").lstat()
    assert [path.name for path in folder.iterdir()] == ["node"]
    assert (copied.st_mode, copied.st_rdev, copied.st_nlink) == (wanted.st_mode, wanted.st_rdev, 1)


def test_a_node_replaces_nothing_that_came_meanwhile(
    root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    os.mkfifo(root / "node")
    set_traits = TreeCopier._traits

    def come_between(self: TreeCopier, wanted: int, found: int, path: bytes) -> None:
        (folder / "node").write_text("the user's")
        set_traits(self, wanted, found, path)

    monkeypatch.setattr(TreeCopier, "_traits", come_between)
    copy_here(root, folder, b"node")
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


def make_random_tree(top: Path, chance: random.Random) -> None:
    """Folders, files of all sizes with holes, hard links across folders, links, fifos, attributes."""
    folders, files = [top], list[Path]()
    for number in range(chance.randrange(60)):
        within = chance.choice(folders)
        match chance.randrange(7):
            case 0 | 1:
                folders.append(within / f"d{number}")
                folders[-1].mkdir()
            case 2 if files:
                os.link(chance.choice(files), within / f"again{number}")
            case 3:
                (within / f"link{number}").symlink_to(chance.choice(["/etc/passwd", "..", "nowhere"]))
            case 4:
                os.mkfifo(within / f"fifo{number}")
            case _:
                files.append(within / f"f{number}")
                with files[-1].open("wb") as file:
                    for _ in range(chance.randrange(3)):
                        file.seek(chance.randrange(3 << 20), 1)
                        file.write(chance.randbytes(chance.randrange(1, 300_000)))
                if chance.random() < 0.3:
                    os.setxattr(files[-1], "user.note", b"mine")
                files[-1].chmod(chance.choice([0o600, 0o4755, 0o444]))
    for path in reversed([*top.rglob("*")]):
        os.utime(path, ns=(1, chance.randrange(10**18)), follow_symlinks=False)


@pytest.mark.parametrize("seed", range(6))
async def test_any_tree_is_copied_as_it_was_and_each_change_of_the_copy_is_found(
    tmp_path: Path, folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch
):
    chance, root = random.Random(seed), tmp_path / "any"
    root.mkdir()
    make_random_tree(root, chance)
    async with start_tree_worker(str(root), str(folder), threads=chance.choice([1, 3, 32])) as worker:
        plan = await worker.plan(None, keep_same=True)
        assert (await worker.copy(plan.tops, overwrite=False)).failed == []
        assert [one.unlike for one in [one async for one in worker.compare(plan.tops)] if one.unlike] == []
        files = [
            one
            for one in sorted(folder.rglob("*"))
            if not one.is_symlink() and one.is_file() and one.stat().st_size
        ]
        again = await worker.plan(None, keep_same=True)
        assert (again.files, again.bytes) == (plan.files, plan.bytes)
        assert (again.there, again.same) == ([], plan.files), "links and fifos are known again, too"
        assert len((await worker.plan(None, keep_same=False)).there) == plan.files
        if files:
            harmed, seen = (one := chance.choice(files)), one.stat()
            at = chance.randrange(seen.st_size)
            with harmed.open("r+b") as file:
                file.seek(at)
                byte = file.read(1)
                file.seek(at)
                file.write(bytes([byte[0] ^ 1]))
            os.utime(harmed, ns=(seen.st_atime_ns, seen.st_mtime_ns))
            found = [one.unlike async for one in worker.compare(plan.tops) if one.unlike]
            assert [(what, why) for _, what, _, why in found] == [
                ("content", f"it differs from byte {at} on")
            ]


async def test_what_was_stopped_leaves_whole_files_and_goes_on(tmp_path: Path, folder: Path):
    root = tmp_path / "many"
    for number in range(40):
        (root / f"d{number % 4}").mkdir(parents=True, exist_ok=True)
        (root / f"d{number % 4}" / f"f{number}").write_bytes(os.urandom(2 << 20))
        os.link(root / f"d{number % 4}" / f"f{number}", root / f"d{number % 4}" / f"also{number}")
    copied = 0
    async with start_tree_worker(str(root), str(folder), threads=2) as worker:
        copying = asyncio.create_task(worker.copy([b"d0", b"d1", b"d2", b"d3"], overwrite=False))
        while not copied:
            await asyncio.sleep(0.005)
            copied = sum(1 for one in folder.rglob("*") if one.is_file())
        copying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await copying
    there = [one for one in folder.rglob("*") if one.is_file()]
    assert 0 < len(there) < 80, "it was stopped in the middle"
    for one in there:
        assert one.read_bytes() == (root / one.relative_to(folder)).read_bytes()
    async with start_tree_worker(str(root), str(folder)) as worker:
        plan = await worker.plan(None, keep_same=True)
        assert (plan.there, plan.same) == ([], len(there))
        assert (await worker.copy(plan.tops, overwrite=False)).failed == []
        assert [one.unlike async for one in worker.compare(plan.tops) if one.unlike] == []


async def test_what_only_looks_the_same_is_found(root: Path, folder: Path):
    """Whoever owns the folder can make another file of the same size, mode and time, or another link."""
    async with start_tree_worker(str(root), str(folder)) as worker:
        plan = await worker.plan(None, keep_same=True)
        assert (await worker.copy(plan.tops, overwrite=False)).failed == []
    for name, other in (("plain", "that is plain"), ("link", "to\nthere")):
        seen = (folder / name).lstat()
        (folder / name).unlink()
        if name == "link":
            (folder / name).symlink_to(other)
        else:
            (folder / name).write_text(other)
            (folder / name).chmod(stat.S_IMODE(seen.st_mode))
        os.utime(folder / name, ns=(seen.st_atime_ns, seen.st_mtime_ns), follow_symlinks=False)
    async with start_tree_worker(str(root), str(folder)) as worker:
        plan = await worker.plan(None, keep_same=True)
        assert (plan.there, plan.same) == ([], plan.files)
        assert (await worker.copy(plan.tops, overwrite=False)).failed == []
        found = {one.unlike[:2] async for one in worker.compare(plan.tops) if one.unlike}
        assert {("plain", "content"), ("link", "link target")} <= found
        assert sorted((await worker.plan([b"plain"], keep_same=False)).there) == [b"./plain"]


async def test_a_file_longer_than_a_range_and_a_deep_tree(tmp_path: Path, folder: Path):
    root = tmp_path / "large"
    root.mkdir()
    with (root / "large").open("wb") as file:
        file.write(os.urandom(file_contents.RANGE_SIZE + 5))
        file.seek(5 * file_contents.RANGE_SIZE)
        file.write(os.urandom(3 << 20))
        file.truncate(7 * file_contents.RANGE_SIZE + 1)
    deep = root
    for _ in range(300):
        deep = deep / "d"
        deep.mkdir()
    (deep / "end").write_text("here")
    async with start_tree_worker(str(root), str(folder), threads=8) as worker:
        assert (await worker.copy([b"large", b"d"], overwrite=False)).failed == []
        assert [one.unlike async for one in worker.compare([b"large", b"d"]) if one.unlike] == []
        with (folder / "large").open("r+b") as file:
            file.seek(6 * file_contents.RANGE_SIZE)
            file.write(b"no hole")
        found = [one.unlike async for one in worker.compare([b"large"]) if one.unlike]
    assert (folder / "large").read_bytes()[: 5 * file_contents.RANGE_SIZE] == (root / "large").read_bytes()[
        : 5 * file_contents.RANGE_SIZE
    ]
    assert (folder / "large").stat().st_blocks * 512 < 25 << 20, "its holes are holes"
    assert ("content", f"it differs from byte {6 * file_contents.RANGE_SIZE} on") in [
        (one[1], one[3]) for one in found if one
    ]


async def test_many_names_of_one_file_stay_one_file(tmp_path: Path, folder: Path):
    root = tmp_path / "links"
    root.mkdir()
    (root / "f0").write_bytes(os.urandom(4 << 20))
    for number in range(1, 200):
        os.link(root / "f0", root / f"f{number}")
    async with start_tree_worker(str(root), str(folder)) as worker:
        assert (
            await worker.copy([os.fsencode(one.name) for one in root.iterdir()], overwrite=False)
        ).failed == []
    assert {one.stat().st_ino for one in folder.iterdir()} == {(folder / "f0").stat().st_ino}
    assert (folder / "f7").stat().st_nlink == 200


async def test_where_a_file_system_has_no_unnamed_files(
    root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    really = os.open

    def no_unnamed(path: bytes, flags: int, *more: int, **where: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return really(path, flags, *more, **where)

    monkeypatch.setattr(tree_copier.os, "open", no_unnamed)
    copy_here(root, folder, b"d")
    assert (folder / "d/e/f").read_bytes() == (root / "d/e/f").read_bytes()


@pytest.mark.parametrize("swapped", [False, True])
def test_what_was_copied_in_part_leaves_no_name_behind(
    root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, *, swapped: bool
) -> None:
    """On NFS or FAT a file has its name from the start: the next copy took a part of one for what is there."""
    opened = os.open

    def no_unnamed(path: bytes, flags: int, *more: int, **where: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return opened(path, flags, *more, **where)

    def fail(*_: int) -> tuple[int, bytes]:
        if swapped:
            (folder / "plain").unlink()
            (folder / "plain").write_text("the user's")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "open", no_unnamed)
    monkeypatch.setattr(tree_copier, "copy_range", fail)
    copy_here(root, folder, b"plain")
    assert sorted(path.name for path in folder.iterdir()) == (["plain"] if swapped else [])
    if swapped:
        assert (folder / "plain").read_text() == "the user's"


def test_no_name_that_came_meanwhile_is_replaced(
    root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    set_traits = TreeCopier._traits

    def come_between(self: TreeCopier, wanted: int, found: int, path: bytes) -> None:
        (folder / "plain").write_text("the user's")
        set_traits(self, wanted, found, path)

    monkeypatch.setattr(TreeCopier, "_traits", come_between)
    copy_here(root, folder, b"plain")
    assert "plain: File exists" in capsys.readouterr().out
    assert (folder / "plain").read_text() == "the user's"
    assert [path.name for path in folder.iterdir()] == ["plain"]
