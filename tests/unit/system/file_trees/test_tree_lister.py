"""What the child does after a folder of a tree could not be read."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from zvault.core.integrity.verification import KEY_SPACE
from zvault.system.file_trees.child import TreeTasks
from zvault.system.open_beneath import open_descriptor

EVERYTHING = {"mix": [1, 0], "keys": [0, KEY_SPACE], "everything": True, "pattern": ""}


@pytest.fixture
def damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree in which folders called damaged cannot be opened."""
    for number in range(30):
        folder = tmp_path / f"folder{number}"
        folder.mkdir()
        for other in range(100):
            (folder / f"file{other}").touch()
    (tmp_path / "folder20" / "damaged").mkdir()
    opened = os.open

    def refuse(path: Any, *words: Any, **more: Any) -> int:
        if path == b"damaged":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return opened(path, *words, **more)

    monkeypatch.setattr(os, "open", refuse)
    return tmp_path


def test_a_tree_that_cannot_be_listed_is_left_closed(damaged: Path) -> None:
    """The child lists the next snapshot then, and the mount of this one is to go."""
    with open_descriptor(os.open(damaged, os.O_RDONLY)) as root:
        before = set(Path("/proc/self/fd").iterdir())
        for _ in range(3):
            with pytest.raises(OSError, match="Input/output error"):
                TreeTasks(root, root, 8).list_entries(EVERYTHING)
        assert set(Path("/proc/self/fd").iterdir()) == before


def test_a_copy_that_cannot_be_planned_leaves_nothing_open(damaged: Path) -> None:
    with open_descriptor(os.open(damaged, os.O_RDONLY)) as root:
        before = set(Path("/proc/self/fd").iterdir())
        for _ in range(3):
            with pytest.raises(OSError, match="Input/output error"):
                TreeTasks(root, root, 8).plan(None, keep_same=False)
        assert set(Path("/proc/self/fd").iterdir()) == before
