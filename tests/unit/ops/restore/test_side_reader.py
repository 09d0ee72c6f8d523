"""The threads of this host and the scripts for others read the same of a tree, and neither is led out of it."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from zvault.core.errors import ToolFailed
from zvault.core.integrity.verification import (
    HASHED_PIECE,
    ContentRange,
    KeyRange,
    KeySpread,
    TreeEntry,
    cut_content_ranges,
    select_content_ranges,
)
from zvault.ops.restore.side_reader import (
    ScriptReader,
    SideReader,
    ThreadedReader,
    open_shared_reader,
    open_side_reader,
)
from zvault.ops.restore.snapshot_reader import OpenSnapshot
from zvault.system.file_trees import child
from zvault.system.process.json_child import JsonChild
from zvault.system.process.runner import HostRunner
from zvault.zfs.host import LocalHost

MIX = KeySpread.of(4711)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with names of any bytes, of all kinds that a user can make, and one as ZFS has in its root."""
    top = tmp_path / "root"
    (top / "deep" / ".zfs").mkdir(parents=True)
    (top / ".zfs" / "snapshot").mkdir(parents=True)
    for folder in (b"", b"deep/", b"deep/.zfs/"):
        for name in (b"plain", b"new\nline", b"back\\slash\\n", b"bytes\xff\xfe", b"-rf", b".hidden"):
            Path(os.fsdecode(bytes(top) + b"/" + folder + name)).write_bytes(name * 50)
    (top / "empty").touch()
    (top / "link").symlink_to("/etc/passwd")
    (top / "deep" / "odd link").symlink_to(os.fsdecode(b"to\n\xff\\"))
    os.mkfifo(top / "deep" / "pipe")
    (top / "sticky").mkdir(mode=0o700)
    (top / "sticky").chmod(0o3775)
    (top / "sticky" / "suid").touch()
    (top / "sticky" / "suid").chmod(0o4711)
    os.utime(top / "plain", ns=(5, 1_234_567_890_000_000_001))
    with (top / "sticky" / "large").open("wb") as file:
        file.truncate(HASHED_PIECE + 5)
    return top


def opened(root: Path, size: int | None = None) -> OpenSnapshot:
    return OpenSnapshot(LocalHost(HostRunner()), str(root), size)


@asynccontextmanager
async def both(side: OpenSnapshot) -> AsyncIterator[tuple[SideReader, SideReader]]:
    async with open_side_reader(side) as threaded:
        assert isinstance(threaded, ThreadedReader)
        yield threaded, ScriptReader(side)


def by_path(some: list[TreeEntry]) -> list[TreeEntry]:
    return sorted(some, key=lambda one: one.path)


@pytest.mark.parametrize("everything", [True, False])
@pytest.mark.parametrize("keys", [KeyRange(), KeyRange(60_000, 30_000), KeyRange(17, 1)])
async def test_both_list_the_same(root: Path, keys: KeyRange, everything: bool) -> None:
    async with both(opened(root)) as (threaded, script):
        mine = await threaded.list_entries(MIX, keys, everything=everything)
        assert mine == by_path(await script.list_entries(MIX, keys, everything=everything))
    paths = {one.path for one in mine}
    assert b"sticky/large" in paths, "a large one is listed whatever its key"
    assert not [one for one in paths if one.startswith(b".zfs")]
    if keys == KeyRange() and everything:
        assert {b"deep/.zfs/new\nline", b"link", b"deep/pipe", b"deep"} <= paths


@pytest.mark.parametrize("pattern", ["plain", "*line*", "deep/*", "**/b*", "[f]oo", "?hidden"])
async def test_what_a_pattern_means_is_in_either_list(root: Path, pattern: str) -> None:
    from zvault.core.integrity.file_versions import matches_path

    async with both(opened(root)) as readers:
        lists = [
            await reader.list_entries(MIX, KeyRange(), everything=True, pattern=pattern) for reader in readers
        ]
    chosen = [[one for one in by_path(some) if matches_path(pattern, one.path)] for some in lists]
    assert chosen[0] == chosen[1] == by_path(lists[0])


async def test_both_hash_the_same(root: Path) -> None:
    async with both(opened(root)) as readers:
        files = await readers[0].list_entries(MIX, KeyRange(), everything=False)
        wanted = [*select_content_ranges(files, MIX, KeyRange())]
        whole = [one for one in wanted if one.length is None]
        pieces = [one for one in wanted if one.length is not None]
        assert len(pieces) == 2
        for batch in (whole, pieces):
            mine, its = [await reader.hash_batch(batch) for reader in readers]
            assert mine.hashes == its.hashes
            assert (len(mine.hashes), mine.unread, its.unread) == (len(batch), [], [])


async def test_a_volume_by_pieces(tmp_path: Path) -> None:
    image = tmp_path / "zd 0"
    image.write_bytes(random.Random(1).randbytes(5 << 20))
    with image.open("r+b") as file:
        file.truncate(2 * HASHED_PIECE + 4096)
    size = image.stat().st_size
    batch = [*cut_content_ranges(b"", size, MIX, KeyRange())]
    async with both(opened(image, size)) as (threaded, script):
        mine, its = await threaded.hash_batch(batch), await script.hash_batch(batch)
    assert mine.hashes == its.hashes
    assert len(mine.hashes) == 3


async def test_nothing_leads_out_of_the_tree_and_nothing_waits_for_ever(root: Path, tmp_path: Path) -> None:
    """As if somebody had changed it since it was listed: a source's dataset that is no snapshot."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "plain").write_text("secret")
    (root / "sub").symlink_to(outside)
    paths = [b"link", b"sub/plain", b"../outside/plain", b"deep/pipe", b"gone", b"deep"]
    async with open_side_reader(opened(root)) as reader:
        async with asyncio.timeout(60):
            found = await reader.hash_batch([ContentRange(path, 10) for path in paths])
    assert found.hashes == {}
    assert len(found.unread) == len(paths)
    assert any("gone: No such file" in text for text in found.unread)


async def test_a_path_may_be_longer_than_the_kernel_takes(tmp_path: Path) -> None:
    name, at = b"x" * 200, os.open(tmp_path, os.O_RDONLY)
    for _ in range(30):
        os.mkdir(name, dir_fd=at)
        below = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)
    async with both(opened(tmp_path)) as (threaded, script):
        mine = await threaded.list_entries(MIX, KeyRange(), everything=True)
        assert mine == by_path(await script.list_entries(MIX, KeyRange(), everything=True))
    assert max(len(one.path) for one in mine) > 4096


async def test_a_folder_that_cannot_be_read_is_no_shorter_list(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read any folder, so the call fails by itself; in this process, for it to be made to."""
    from zvault.system.file_trees import tree_lister

    names = tree_lister.list_names

    def fail(folder: int) -> list[bytes]:
        found = names(folder)
        if b"suid" in found:
            raise OSError(5, "Input/output error")
        return found

    monkeypatch.setattr(tree_lister, "list_names", fail)
    fd = os.open(root, os.O_RDONLY)
    task = {"mix": [1, 1], "keys": [0, 65521], "everything": True, "pattern": ""}
    with pytest.raises(OSError, match="Input/output error") as raised:
        child.TreeTasks(fd, fd, 4).list_entries(task)
    os.close(fd)
    assert raised.value.filename == b"sticky"
    missing = root.parent / "nowhere"
    with pytest.raises(ToolFailed):
        async with open_side_reader(opened(missing)) as reader:
            await reader.list_entries(MIX, KeyRange(), everything=True)


async def test_one_child_reads_many_roots_and_one_that_fails_keeps_no_other_back(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, gone = root.with_name("other"), root.with_name("gone")
    other.mkdir()
    (other / "file").touch()
    started: list[object] = []
    start = JsonChild.start

    async def counted(argv: Sequence[str]) -> JsonChild:
        started.append(argv)
        return await start(argv)

    monkeypatch.setattr(JsonChild, "start", counted)
    async with open_side_reader(opened(root)) as reader:
        alone = await reader.list_entries(MIX, KeyRange(), everything=True)
    started.clear()
    async with open_shared_reader(opened(root).host) as make_reader:
        for _ in range(2):
            assert await make_reader(opened(root)).list_entries(MIX, KeyRange(), everything=True) == alone
            (found,) = await make_reader(opened(other)).list_entries(MIX, KeyRange(), everything=True)
            assert found.path == b"file"
            with pytest.raises(ToolFailed, match="gone: No such file"):
                await make_reader(opened(gone)).list_entries(MIX, KeyRange(), everything=True)
    assert len(started) == 1
