"""Folders opened part by part, and what is left open where that fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from zvault.system.open_beneath import open_descriptor, open_folder


@pytest.mark.parametrize("fails", [1, 2])
def test_one_that_cannot_be_opened_closes_what_it_opened_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    """After a link that begins at the root, the descriptor of before was closed twice: it may be another's by then."""
    (tmp_path / "link").symlink_to(tmp_path)
    closed, roots = list[int](), 0
    opened, close = os.open, os.close

    def refuse(path: Any, *words: Any, **more: Any) -> int:
        nonlocal roots
        roots += path == "/"
        if path == "/" and roots == fails:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opened(path, *words, **more)

    def note(fd: int) -> None:
        closed.append(fd)
        close(fd)

    before = set(Path("/proc/self/fd").iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        patch.setattr(os, "close", note)
        # A folder of root's alone is on the way, or no link would be followed.
        patch.setattr("zvault.system.open_beneath._is_roots_alone", lambda _: True)
        with pytest.raises(OSError, match="Too many open files"):
            open_folder(os.fsencode(tmp_path / "link"))
    assert set(Path("/proc/self/fd").iterdir()) == before
    assert len(closed) == (0 if fails == 1 else len(tmp_path.parts) + 1)
    with open_descriptor(os.open("/", os.O_RDONLY)) as other:
        assert os.fstat(other)
