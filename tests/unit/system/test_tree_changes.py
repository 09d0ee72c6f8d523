"""What changed between two trees: the words for it, renames by identity, and no way out of the trees."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from zvault.core.errors import NotFound
from zvault.system import tree_changes_child
from zvault.system.open_beneath import ANY_FLAGS, open_descriptor, read_birth_time
from zvault.system.tree_changes import TreeChange, walk_tree_changes
from zvault.system.tree_changes_child import ChangedTrees


async def changed(old: Path, new: Path, path: bytes = b"") -> list[TreeChange]:
    *_, last = [one async for one in walk_tree_changes(str(old), str(new), path)]
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
        trees = ChangedTrees(one, other)
        trees.compare(b"")
        return [(change, path, to, what) for change, _, path, to, what in trees.changes()]


def test_a_renamed_folder_is_one_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if two snapshots had the same files: their numbers and times of birth are made so."""
    old, new = tmp_path / "old", tmp_path / "new"
    for top, folder in ((old, "docs"), (new, "papers")):
        (top / folder / "deep").mkdir(parents=True)
        (top / folder / "deep" / "x").write_text(top.name)
        (top / folder / "y").write_text("same")
    (new / "papers" / "y").chmod(0o600)
    seen = tree_changes_child.read_path_state

    def look(root: int, path: bytes) -> object:
        found = seen(root, path)
        if found is None:
            return None
        last = path.rpartition(b"/")[2]
        number = sum(b"top" if last in {b"docs", b"papers"} else last)
        stats = list(found.found)
        stats[1], stats[8] = number, 0
        return tree_changes_child.PathState(path, os.stat_result(stats), 5, found.link)

    monkeypatch.setattr(tree_changes_child, "read_path_state", look)
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
    monkeypatch.setattr(tree_changes_child, "KEPT_CHANGES", 3)
    old, new = tmp_path / "old", tmp_path / "new"
    for top in (old, new):
        top.mkdir()
    for number in range(5):
        (new / str(number)).touch()
    with (
        open_descriptor(os.open(old, os.O_RDONLY)) as one,
        open_descriptor(os.open(new, os.O_RDONLY)) as other,
    ):
        trees = ChangedTrees(one, other)
        trees.compare(b"")
    assert (len(trees.changes()), trees.more) == (3, 2)
