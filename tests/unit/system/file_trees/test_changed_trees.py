"""What changed between two trees: the words for it, renames by identity, and no way out of the trees."""

from __future__ import annotations

import os
import random
import shutil
import zlib
from pathlib import Path

import pytest

from zvault.core.errors import NotFound
from zvault.system.file_trees import changed_trees
from zvault.system.file_trees.changed_trees import ChangedTrees
from zvault.system.file_trees.reporter import TreeReporter
from zvault.system.file_trees.task_pool import TaskPool
from zvault.system.file_trees.tree_worker import TreeChange, start_tree_worker
from zvault.system.open_beneath import ANY_FLAGS, open_descriptor, read_birth_time

THREADS = 8


async def changed(old: Path, new: Path, path: bytes = b"") -> list[TreeChange]:
    async with start_tree_worker(str(old), str(new)) as worker:
        *_, last = [one async for one in worker.find_changes(path)]
    assert last.done
    return list(last.changes)


@pytest.fixture
def both(tmp_path: Path) -> tuple[Path, Path]:
    old, new = tmp_path / "old", tmp_path / "new"
    for name, text in (("a", "1"), ("docs/b", "2"), ("docs/deep/c", "3")):
        (old / name).parent.mkdir(parents=True, exist_ok=True)
        (old / name).write_text(text)
    shutil.copytree(old, new)
    return old, new


async def test_what_came_and_went_by_path(both: tuple[Path, Path]) -> None:
    """The trees are on one file system, so each file is another: nothing is taken for the same."""
    old, new = both
    (new / "docs/b").unlink()
    (new / "docs/\x1b[2J\n").symlink_to("/etc/passwd")
    (old / ".zfs").mkdir()
    found = await changed(old, new)
    rows = [(one.change, one.kind, one.path) for one in found if "replaced" not in one.what]
    assert rows == [("created", "l", b"docs/\x1b[2J\n"), ("removed", "f", b"docs/b")]
    below = await changed(old, new, b"docs/deep")
    assert {one.path for one in below} == {b"docs/deep", b"docs/deep/c"}


async def test_a_path_in_neither_and_a_link_on_the_way(both: tuple[Path, Path]) -> None:
    old, new = both
    (new / "out").symlink_to("/etc")
    with pytest.raises(NotFound, match="neither"):
        await changed(old, new, b"none/x")
    with pytest.raises(NotFound, match="symbolic link"):
        await changed(old, new, b"out/passwd")
    assert [one.change for one in await changed(old, new, b"out")] == ["created"]


def changes(old: Path, new: Path) -> list[tuple[str, bytes, bytes | None, list[str]]]:
    """In this process, so that a tree can be compared with what was made of it."""
    with (
        open_descriptor(os.open(old, os.O_RDONLY)) as one,
        open_descriptor(os.open(new, os.O_RDONLY)) as other,
    ):
        trees = ChangedTrees(TaskPool(THREADS), TreeReporter(), one, other)
        trees.compare(b"")
        return [(change, path, to, what) for change, _, path, to, what in trees.changes()]


@pytest.mark.parametrize("seed", range(5))
def test_many_threads_find_what_one_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Whatever order they go in: renamed folders too, of which each file must not be told again."""
    dice = random.Random(seed)
    old, new = tmp_path / "old", tmp_path / "new"
    for number in range(60):
        folder = old / "/".join(dice.choices("abc", k=dice.randrange(4)))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{number}").write_text("x")
    shutil.copytree(old, new)
    for folder in [one for one in sorted(new.rglob("*")) if one.is_dir()][:: dice.randrange(1, 4)]:
        if folder.exists():
            folder.rename(folder.with_name(folder.name + "-moved"))
    for one in [one for one in sorted(new.rglob("f*")) if one.is_file()][::5]:
        one.unlink()
    (new / "extra").mkdir()
    seen = changed_trees.read_path_state

    def look(root: int, path: bytes) -> object:
        """As of two snapshots of one dataset: a file's number and birth go by what it was called at first."""
        found = seen(root, path)
        if found is None:
            return None
        stats = list(found.found)
        stats[1], stats[8] = zlib.crc32(path.replace(b"-moved", b"")), 0
        return changed_trees.PathState(path, os.stat_result(stats), 5, found.link)

    monkeypatch.setattr(changed_trees, "read_path_state", look)
    many = changes(old, new)
    monkeypatch.setattr(f"{__name__}.THREADS", 1)
    assert many == changes(old, new)
    whole = {one.relative_to(old) for one in old.rglob("*")}
    told = [Path(os.fsdecode(path)) for change, path, _, _ in many if change in {"removed", "renamed"}]
    gone = whole - {one.relative_to(new) for one in new.rglob("*")}
    for path in gone:
        assert path in told or any(above in told for above in path.parents), path


def test_a_renamed_folder_is_one_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if two snapshots had the same files: their numbers and times of birth are made so."""
    old, new = tmp_path / "old", tmp_path / "new"
    for top, folder in ((old, "docs"), (new, "papers")):
        (top / folder / "deep").mkdir(parents=True)
        (top / folder / "deep" / "x").write_text(top.name)
        (top / folder / "y").write_text("same")
    (new / "papers" / "y").chmod(0o600)
    seen = changed_trees.read_path_state

    def look(root: int, path: bytes) -> object:
        found = seen(root, path)
        if found is None:
            return None
        last = path.rpartition(b"/")[2]
        number = sum(b"top" if last in {b"docs", b"papers"} else last)
        stats = list(found.found)
        stats[1], stats[8] = number, 0
        return changed_trees.PathState(path, os.stat_result(stats), 5, found.link)

    monkeypatch.setattr(changed_trees, "read_path_state", look)
    assert changes(old, new) == [
        ("renamed", b"docs", b"papers", []),
        ("renamed", b"docs/y", b"papers/y", ["mode"]),
    ]


def test_the_time_of_birth(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with open_descriptor(os.open(tmp_path / "x", ANY_FLAGS)) as fd:
        born = read_birth_time(fd)
        assert born is None or abs(born - os.fstat(fd).st_mtime_ns) < 10**9


def test_no_more_is_kept_than_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changed_trees, "KEPT_CHANGES", 3)
    old, new = tmp_path / "old", tmp_path / "new"
    for top in (old, new):
        top.mkdir()
    for number in range(5):
        (new / str(number)).touch()
    with (
        open_descriptor(os.open(old, os.O_RDONLY)) as one,
        open_descriptor(os.open(new, os.O_RDONLY)) as other,
    ):
        trees = ChangedTrees(TaskPool(THREADS), TreeReporter(), one, other)
        trees.compare(b"")
    assert (len(trees.changes()), trees.more) == (3, 2)
