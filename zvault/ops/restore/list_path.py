"""What lies at a path of an open snapshot: itself, and the names in it where it is a folder; and a file's first bytes.

No symbolic link is followed on the way: in a snapshot that somebody else wrote it could lead anywhere on this host.
"""

from __future__ import annotations

import os
from base64 import b64decode
from dataclasses import dataclass

from zvault.core.errors import NotFound, Refused, ToolFailed
from zvault.core.integrity.verification import TreeEntry, escape_path
from zvault.ops.restore.snapshot_reader import OpenSnapshot
from zvault.system import hash_files

MOST_FOLDER_NAMES = 5000
"""Names of one folder that are listed: more than anybody walks through."""


@dataclass(frozen=True, slots=True)
class PathListing:
    """The listing of a path: ``own`` is None where nothing is. ``entries`` are by name; ``more`` says that some
    lack.
    """

    own: TreeEntry | None
    entries: dict[bytes, TreeEntry]
    more: bool = False


def parse_path(text: str) -> bytes:
    """A path below a dataset's root, empty for the root itself. Raises Refused for what leads out of it."""
    path = os.fsencode(text)
    parts = [part for part in path.split(b"/") if part not in {b"", b"."}]
    if b".." in parts or b"\0" in path:
        raise Refused(
            f"'{escape_path(path)}' is no path below the dataset",
            "it leads out of it" if b"\0" not in path else "a path has no NUL in it",
            "as in docs/thesis.pdf",
        )
    if parts[:1] == [b".zfs"]:
        raise Refused(
            f"'{escape_path(path)}' is no path in a snapshot",
            "ZFS shows the snapshots there",
            "leave .zfs/snapshot/NAME out: every snapshot is looked into",
        )
    return b"/".join(parts)


async def list_path(opened: OpenSnapshot, path: bytes, *, names: bool = True) -> PathListing:
    """List what is at a path; with ``names``, what is in it too. Raises NotFound for a link on the way, ToolFailed."""
    argv = hash_files.path_argv(opened.root, path, MOST_FOLDER_NAMES + 1 if names else None)
    found = [*hash_files.parse_list(await _run(opened, argv, path))]
    own = next((one for one in found if not one.path), None)
    entries = {one.path: one for one in found if one.path}
    more = len(entries) > MOST_FOLDER_NAMES
    return PathListing(own, dict(sorted(entries.items())[:MOST_FOLDER_NAMES]), more)


async def read_start(opened: OpenSnapshot, path: bytes, most: int) -> bytes:
    """The first ``most`` bytes of a file. Raises as ``list_path``."""
    return b64decode(await _run(opened, hash_files.content_argv(opened.root, path, most), path))


async def _run(opened: OpenSnapshot, argv: list[str], path: bytes) -> str:
    result = await opened.host.run(argv, deadline=hash_files.FOLDER_DEADLINE, check=False)
    if result.returncode == hash_files.LINK_ON_THE_WAY:
        raise NotFound(f"'{escape_path(path)}' is not looked up", "a symbolic link is on the way to it")
    said = hash_files.list_read_complaints(result.stderr)
    if result.returncode != 0 or said:
        raise ToolFailed(f"cannot read below {opened.root}", "; ".join(said[:3]) or result.complaint())
    return result.stdout
