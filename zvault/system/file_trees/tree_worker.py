"""Starts the process that works on trees of files (child.py), asks it, and reads what it says."""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from zvault.core.errors import NotFound, ToolFailed
from zvault.core.integrity.verification import KeyRange, KeySpread, TreeEntry
from zvault.system.file_trees.piece_hasher import HashedPiece, make_piece_words
from zvault.system.process.json_child import JsonChild

TREE_ANSWER_DEADLINE = 3600.0
"""Seconds without a word: a block or a directory of a slow vault takes long."""

TREE_THREADS = 32
"""Entries that are worked on at once, as many as requests that a store in the cloud answers side by side. A thread that
waits for a disk costs nothing.
"""

KEPT_COMPLAINTS = 1000
"""Complaints kept of one copy; the others are counted."""

OnProgress = Callable[[int, int], None]
"""Called with the files and bytes that are done."""


@dataclass(slots=True)
class CopyPlan:
    """What there is to copy: so many ``files`` and ``bytes``, of which ``same`` and ``same_bytes`` are there already.

    ``there`` are the paths that are in the way: files of the folder that are not the snapshot's.
    """

    tops: list[bytes] = field(default_factory=list)
    there: list[bytes] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    same: int = 0
    same_bytes: int = 0


@dataclass(slots=True)
class CopyReport:
    """What could not be copied as it was: the first of it in words, and how much there was of it."""

    failed: list[str] = field(default_factory=list)
    failures: int = 0


@dataclass(frozen=True, slots=True)
class CompareReport:
    """One report. ``unlike`` is (path, what, wanted, found) of a difference; ``more`` counts those not reported."""

    files: int = 0
    bytes: int = 0
    unlike: tuple[str, str, str, str] | None = None
    done: bool = False
    more: int = 0


@dataclass(frozen=True, slots=True)
class TreeChange:
    """A change (zfs/diff.py has the words), by the path below the roots; ``to`` where it was renamed."""

    change: str
    kind: str
    path: bytes
    to: bytes | None
    what: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WalkProgress:
    """The progress of a walk, or its end: ``done``. ``more`` changes were not kept."""

    files: int
    changes: tuple[TreeChange, ...] = ()
    more: int = 0
    done: bool = False


class TreeWorker:
    """A child process that copies trees below ``root`` into ``folder``, and compares them.

    What it read to copy it need not read again to compare: it remembers the hashes.
    """

    def __init__(self, child: JsonChild, folder: str, root: str | None = None) -> None:
        self._child, self._folder, self._root = child, folder, root

    def read_other_root(self, root: str) -> TreeWorker:
        """One that reads below another root with the same child. One of them is to be asked at a time."""
        return TreeWorker(self._child, root, root)

    async def check_folder(self) -> None:
        """See that there is a folder to copy into, or one in which a copy can make it. Raises NotFound."""
        async for answer in self._ask("check", None):
            if "error" in answer:
                advice = f"'mkdir -p {self._folder}' first"
                raise NotFound(f"there is no folder '{self._folder}'", str(answer["error"]), advice)

    async def plan(self, names: Sequence[bytes] | None, *, keep_same: bool) -> CopyPlan:
        """Find out what copying ``names`` would do; None is all.

        With ``keep_same`` what is there as in the snapshot, by its inode, is not in the way: for who compares it later.
        Raises NotFound for the first name that is not there, ToolFailed.
        """
        found = CopyPlan()
        async for answer in self._ask("plan", names, keep_same=keep_same):
            if "missing" in answer:
                raise NotFound(f"there is no '{answer['missing']}'", str(answer["why"]))
            if "error" in answer:
                raise ToolFailed("the files cannot be listed", str(answer["error"]))
            found.tops += map(b64decode, answer.get("tops", ()))
            found.there += map(b64decode, answer.get("there", ()))
            if "done" in answer:
                found.files, found.bytes = int(answer["files"]), int(answer["bytes"])
                found.same, found.same_bytes = int(answer["same"]), int(answer["same_bytes"])
        return found

    async def copy(
        self,
        names: Sequence[bytes],
        *,
        overwrite: bool,
        on_progress: OnProgress = lambda _files, _bytes: None,
    ) -> CopyReport:
        """Copy the trees named. Without ``overwrite`` what is there stays as it is.

        Raises ToolFailed, DeadlineExceeded.
        """
        found = CopyReport()
        async for answer in self._ask("copy", names, overwrite=overwrite):
            if "missing" in answer or "error" in answer:
                why = answer.get("error") or f"{answer['missing']}: {answer['why']}"
                # What is in memory still looks right, and the kernel reports a loss only once: see target_disks.py.
                advice = "see the kernel's log, and restore to another folder" if "lost" in answer else ""
                raise ToolFailed(f"cannot copy to {self._folder}", str(why), advice)
            if "failed" in answer:
                found.failures += 1
                found.failed += [str(answer["failed"])] if len(found.failed) < KEPT_COMPLAINTS else []
            elif "files" in answer:
                on_progress(int(answer["files"]), int(answer["bytes"]))
        return found

    async def compare(self, names: Sequence[bytes] | None = None) -> AsyncGenerator[CompareReport, None]:
        """What the comparison finds, until it has ended. ``names`` are trees that were copied into the folder.

        Without, all of both must be the same. Raises ToolFailed, DeadlineExceeded.
        """
        async with aclosing(self._ask("compare", names, ours=names is None)) as answers:
            async for answer in answers:
                if "error" in answer:
                    raise ToolFailed("the files cannot be compared", f"{answer['at']}: {answer['error']}")
                yield _report_of(answer)

    async def find_changes(self, path: bytes) -> AsyncGenerator[WalkProgress, None]:
        """Find what changed below ``path`` from the root to the folder; the last has all of it.

        Raises NotFound where the path is in neither, or a symbolic link is on the way; ToolFailed, DeadlineExceeded.
        """
        async with aclosing(self._ask("changes", [path])) as answers:
            async for answer in answers:
                if "missing" in answer:
                    raise NotFound("there is nothing to compare", str(answer["why"]))
                if "error" in answer:
                    raise ToolFailed("the trees cannot be compared", f"{answer['at']}: {answer['error']}")
                yield _progress_of(answer)

    async def list_entries(
        self, mix: KeySpread, keys: KeyRange, *, everything: bool, pattern: str = ""
    ) -> list[TreeEntry]:
        """List what lies below the root, by path: see TreeLister. Raises ToolFailed for all that it could not read,
        DeadlineExceeded.
        """
        found: list[TreeEntry] = []
        more = {
            "mix": [mix.factor, mix.shift],
            "keys": [keys.start, keys.length],
            "everything": everything,
            "pattern": pattern,
        }
        async with aclosing(self._ask("list", None, **more)) as answers:
            async for answer in answers:
                if "error" in answer:
                    raise ToolFailed("the files cannot be listed", f"{answer['at']}: {answer['error']}")
                found += _entries_of(answer)
        return sorted(found, key=attrgetter("path"))

    async def hash_pieces(self, pieces: Sequence[HashedPiece]) -> tuple[dict[int, str], list[str]]:
        """Hash pieces of what lies below the root: by their number, and what could not be read, in words.

        Raises ToolFailed, DeadlineExceeded.
        """
        hashes: dict[int, str] = {}
        unread: list[str] = []
        wanted = [make_piece_words(*piece) for piece in pieces]
        async with aclosing(self._ask("hash", None, pieces=wanted)) as answers:
            async for answer in answers:
                if "error" in answer:
                    raise ToolFailed("the files cannot be hashed", f"{answer['at']}: {answer['error']}")
                hashes |= {int(number): str(digest) for number, digest in answer.get("hashes", ())}
                unread += map(str, answer.get("unread", ()))
        return hashes, unread

    async def _ask(
        self, act: str, names: Sequence[bytes] | None, **more: object
    ) -> AsyncGenerator[dict[str, Any], None]:
        """What the child says, to the end of this task."""
        task = {
            "act": act,
            "names": None if names is None else [b64encode(name).decode() for name in names],
            **({} if self._root is None else {"root": self._root}),
            **more,
        }
        answer = await self._child.ask(task, TREE_ANSWER_DEADLINE)
        while not answer.keys() & {"done", "error", "missing"}:
            yield answer
            answer = await self._child.read(TREE_ANSWER_DEADLINE)
        yield answer


def _report_of(answer: dict[str, Any]) -> CompareReport:
    """One report. Raises ToolFailed for what is none."""
    try:
        if "unlike" in answer:
            path, what, wanted, found = (str(word) for word in answer["unlike"])
            return CompareReport(unlike=(path, what, wanted, found))
        return CompareReport(
            int(answer["files"]), int(answer["bytes"]), done="done" in answer, more=int(answer.get("more", 0))
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ToolFailed("the comparison of files cannot be understood", str(error)) from None


def _entries_of(answer: dict[str, Any]) -> Iterator[TreeEntry]:
    """The entries in an answer. Raises ToolFailed for what is none."""
    try:
        for number, kind, mode, owner, size, mtime, path, link in answer.get("entries", ()):
            yield TreeEntry(number, kind, mode, owner, size, mtime, b64decode(path), b64decode(link))
    except (TypeError, ValueError) as error:
        raise ToolFailed("the list of files cannot be understood", str(error)) from None


def _progress_of(answer: dict[str, Any]) -> WalkProgress:
    """How far a walk is, or all that it found. Raises ToolFailed for what is neither."""
    try:
        changes = tuple(
            TreeChange(change, kind, b64decode(path), None if to is None else b64decode(to), tuple(what))
            for change, kind, path, to, what in answer.get("changes", ())
        )
        return WalkProgress(int(answer["files"]), changes, int(answer.get("more", 0)), "done" in answer)
    except (KeyError, TypeError, ValueError) as error:
        raise ToolFailed("the comparison of trees cannot be understood", str(error)) from None


@asynccontextmanager
async def start_tree_worker(root: str, folder: str, threads: int = TREE_THREADS) -> AsyncIterator[TreeWorker]:
    """Have a child for these two folders for a block. It is ended after it, whatever it does then."""
    argv = [sys.executable, "-m", "zvault.system.file_trees.child", root, folder, str(threads)]
    child = await JsonChild.start(argv)
    try:
        yield TreeWorker(child, folder)
    finally:
        await child.close()
