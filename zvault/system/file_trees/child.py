"""The child process that works on trees of files: ``ROOT FOLDER THREADS``, answers in JSON lines.

Each line of its standard input is a task, carried out to its end: ``{"act": "check" | "plan" | "copy" | "compare" |
"changes" | "list" | "hash", "names": [...], …}``. Names are paths below ROOT in base64, null for all of it. Each is
copied, or compared, with all below it, and is in FOLDER under its own last name. With null for names all of ROOT and
FOLDER must be the same. "changes" takes one name, which is found below both; it is empty for all. "list" and "hash" go
by ROOT alone; a ``root`` in a task is one for both folders in place of those. Reading can block in the kernel for long,
so it must not happen in the daemon (invariant 7).
"""

from __future__ import annotations

import errno
import json
import os
import resource
import sys
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zvault.core.integrity.restore_comparison import KEPT_MISMATCHES
from zvault.core.integrity.verification import KeyRange, KeySpread, escape_path
from zvault.system.file_trees.changed_trees import ChangedTrees
from zvault.system.file_trees.file_contents import DigestNotes
from zvault.system.file_trees.piece_hasher import PieceHasher
from zvault.system.file_trees.reporter import TreeReporter
from zvault.system.file_trees.target_disks import keep_target_disks
from zvault.system.file_trees.task_pool import TaskPool
from zvault.system.file_trees.tree_comparer import EntryPaths, TreeComparer
from zvault.system.file_trees.tree_copier import HIDDEN_FOLDER, FolderPair, TreeCopier
from zvault.system.file_trees.tree_lister import TreeLister
from zvault.system.file_trees.tree_planner import OpenFolders, TreePlanner
from zvault.system.open_beneath import (
    FOLDER_FLAGS,
    descriptor_path,
    list_names,
    open_beneath,
    open_descriptor,
    open_folder,
)

_LEADS_NOWHERE = {errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EXDEV}


@dataclass
class MissingTree(Exception):
    """One of the names leads to nothing below the root, or a symbolic link is on the way."""

    name: bytes
    why: str


@dataclass
class TreeTasks:
    """The tasks on one pair of folders; ``notes`` is what copying read, for the comparison after it."""

    root: int
    folder: int
    threads: int
    notes: DigestNotes = field(default_factory=DigestNotes)

    def plan(self, names: list[bytes] | None, *, keep_same: bool) -> None:
        """Say what there is to copy."""
        reporter = TreeReporter()
        with ExitStack() as stack:
            pool = stack.enter_context(TaskPool(self.threads))
            planner, tops = TreePlanner(pool, reporter, keep_same), self._tops(names)
            for above, last in self._each(tops, stack):
                folders = OpenFolders(pool, os.dup(above), os.dup(self.folder))
                planner.add(folders, last, b"./" + last)
            pool.run()
        planner.flush()
        reporter.say({"tops": [b64encode(top).decode() for top in tops]})
        done = {
            "files": reporter.files,
            "bytes": reporter.bytes,
            "same": planner.same,
            "same_bytes": planner.size,
        }
        reporter.say({"done": True, **done})

    def copy(self, names: list[bytes] | None, *, overwrite: bool) -> None:
        """Copy until all is on disk, and say what could not be, or that the disk lost some of it."""
        reporter, pool = TreeReporter(), TaskPool(self.threads)
        with ExitStack() as stack:
            disks = stack.enter_context(keep_target_disks())
            disks.note(self.folder)
            copier = TreeCopier(pool, reporter, self.folder, overwrite, self.notes, disks)
            for above, last in self._each(self._tops(names), stack):
                copier.add(FolderPair(above, self.folder, b"", left=2), last, last)
            pool.run()
            try:
                disks.write_out()
            except OSError as error:
                reporter.say({"error": error.strerror, "lost": True})
                return
        reporter.say({"done": True, "files": reporter.files, "bytes": reporter.bytes})

    def compare(self, names: list[bytes] | None) -> None:
        """Say what differs."""
        reporter = TreeReporter()
        with TaskPool(self.threads) as pool:
            comparer = TreeComparer(pool, reporter, self.root, self.folder, names is None, self.notes)
            if names is None:
                comparer.add(EntryPaths(b".", b".", b""))
            for top in names or []:
                last = top.rpartition(b"/")[2]
                comparer.add(EntryPaths(top, last, last))
            pool.run()
        comparer.tell_links()
        done = {
            "files": reporter.files,
            "bytes": reporter.bytes,
            "more": max(0, comparer.told - KEPT_MISMATCHES),
        }
        reporter.say({"done": True, **done})

    def find_changes(self, path: bytes) -> None:
        """Say what changed at a path from ROOT to FOLDER."""
        reporter = TreeReporter()
        trees = ChangedTrees(TaskPool(self.threads), reporter, self.root, self.folder)
        try:
            trees.compare(path)
        except OSError as error:
            if error.errno not in _LEADS_NOWHERE:
                raise
            raise MissingTree(path, _why(error)) from None
        rows = [
            [change, kind, b64encode(at).decode(), None if to is None else b64encode(to).decode(), what]
            for change, kind, at, to, what in trees.changes()
        ]
        reporter.say({"done": True, "files": reporter.files, "changes": rows, "more": trees.more})

    def list_entries(self, task: dict[str, Any]) -> None:
        """Say what lies below ROOT."""
        reporter, mix, keys = TreeReporter(), KeySpread(*task["mix"]), KeyRange(*task["keys"])
        with TaskPool(self.threads) as pool:
            more = task["everything"], task["pattern"]
            TreeLister(pool, reporter, self.root, mix, keys, *more).list_tree()
        reporter.say({"done": True, "files": reporter.files, "bytes": 0})

    def hash_pieces(self, pieces: list[tuple[str, int, int | None]]) -> None:
        """Say the hashes of pieces of what lies below ROOT."""
        reporter = TreeReporter()
        wanted = [(b64decode(path), offset, length) for path, offset, length in pieces]
        PieceHasher(TaskPool(self.threads), reporter, self.root).hash_pieces(wanted)
        reporter.say({"done": True, "files": reporter.files, "bytes": 0})

    def _tops(self, names: list[bytes] | None) -> list[bytes]:
        """What to copy: ``names``, or what stands right below the root."""
        return [name for name in list_names(self.root) if name != HIDDEN_FOLDER] if names is None else names

    def _each(self, tops: list[bytes], stack: ExitStack) -> Iterator[tuple[int, bytes]]:
        """The open folder and the last name of each of the trees. Raises MissingTree."""
        above: dict[bytes, int] = {}
        for top in tops:
            folder, _, last = top.rpartition(b"/")
            try:
                if folder not in above:
                    above[folder] = stack.enter_context(
                        open_descriptor(open_beneath(self.root, folder or b".", FOLDER_FLAGS))
                    )
                os.stat(last, dir_fd=above[folder], follow_symlinks=False)
            except OSError as error:
                if error.errno in _LEADS_NOWHERE:
                    raise MissingTree(top, _why(error)) from None
                raise
            yield above[folder], last


def _why(error: OSError) -> str:
    if error.errno in {errno.ELOOP, errno.EXDEV}:
        return "a symbolic link is on the way to it"
    return error.strerror or str(error)


def _name_of(error: OSError) -> str:
    return escape_path(os.fsencode(error.filename)) if isinstance(error.filename, str | bytes) else ""


def _check(folder: int) -> None:
    if not os.access(descriptor_path(folder), os.W_OK):
        raise OSError(errno.EACCES, "it cannot be written to")
    TreeReporter().say({"done": True, "files": 0, "bytes": 0})


def _do(task: dict[str, Any], tasks: TreeTasks) -> None:
    names = None if task["names"] is None else [b64decode(name) for name in task["names"]]
    match task["act"]:
        case "check":
            _check(tasks.folder)
        case "plan":
            tasks.plan(names, keep_same=task.get("keep_same", False))
        case "copy":
            tasks.copy(names, overwrite=task.get("overwrite", False))
        case "compare":
            tasks.compare(names)
        case "changes":
            tasks.find_changes((names or [b""])[0])
        case "list":
            tasks.list_entries(task)
        case "hash":
            tasks.hash_pieces(task["pieces"])


def _open_target(path: str, act: str, *, ours: bool) -> int:
    """The folder to copy into. A copy makes it where its parent is there; what only looks then sees an empty one."""
    if ours:
        return os.open(path, FOLDER_FLAGS)
    name = os.fsencode(path).rstrip(b"/")
    try:
        return open_folder(name)
    except FileNotFoundError:
        above, _, last = name.rpartition(b"/")
        with open_descriptor(open_folder(above or b"/")) as parent:
            if act == "copy":
                os.mkdir(last, 0o700, dir_fd=parent)
            elif not _is_made_by_copy(last, parent):
                raise
            else:
                return _open_empty_folder()
        return open_folder(name)


def _is_made_by_copy(last: bytes, parent: int) -> bool:
    """Whether a copy could make the folder: nothing has its name, not even a link that leads nowhere."""
    if not os.access(descriptor_path(parent), os.W_OK):
        raise OSError(errno.EACCES, "its parent cannot be written to")
    try:
        os.stat(last, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return True
    return False


def _open_empty_folder() -> int:
    """A folder that has no name any more, and in which nothing can be made."""
    made = tempfile.mkdtemp()
    try:
        return os.open(made, FOLDER_FLAGS)
    finally:
        Path(made).rmdir()


def main() -> None:
    """Do what each line on standard input asks for."""
    root, folder, threads = sys.argv[1:]
    os.umask(0o077)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    # A folder is open on both sides until all in it is copied, and a path may have 2048 parts.
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 1 << 16), most))
    notes = DigestNotes()
    for line in sys.stdin:
        task = json.loads(line)
        source_path, target_path = task.get("root", root), task.get("root", folder)
        try:
            with (
                open_descriptor(
                    _open_target(target_path, task["act"], ours=task.get("ours", False))
                ) as target,
                open_descriptor(os.open(source_path, FOLDER_FLAGS)) as source,
            ):
                _do(task, TreeTasks(source, target, int(threads), notes))
        except MissingTree as error:
            TreeReporter().say({"missing": escape_path(error.name), "why": error.why})
        except OSError as error:
            TreeReporter().say({"error": error.strerror or str(error), "at": _name_of(error) or target_path})


if __name__ == "__main__":
    main()
