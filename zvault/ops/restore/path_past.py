"""The past of a path: which versions of it, and of what is in it, the snapshots of both sides have."""

from __future__ import annotations

from collections.abc import Sequence

from zvault.api.browse import NameDocument, PathPastDocument, StretchDocument
from zvault.core.errors import NotFound, ZvaultError
from zvault.core.integrity.file_versions import VersionTimeline
from zvault.core.integrity.path_text import format_restore_command
from zvault.core.integrity.points import SnapshotPoint, VersionStretch, place_versions
from zvault.core.integrity.verification import TreeEntry, escape_path
from zvault.ops.restore.list_path import PathListing, list_path
from zvault.ops.restore.open_both_sides import BothSides, Say, format_error
from zvault.ops.restore.snapshot_reader import OpenSnapshot
from zvault.system.side_threads import compute_aside
from zvault.zfs import properties

TO = "FOLDER"
"""Stands in a command for the folder that somebody restores into."""


async def make_past_document(sides: BothSides, path: bytes, say: Say) -> PathPastDocument:
    """The versions of a path. Raises NotFound where it is in no snapshot, and why none can be read."""
    unread = dict(sides.unread)
    line, read, more = VersionTimeline(), list[SnapshotPoint](), False
    last: PathListing | None = None
    same = await _unchanged(sides)
    failure: ZvaultError | None = None
    row = sides.points
    for number, point in enumerate(row, 1):
        if last is None or point.snapshot.guid not in same:
            say(f"looking into {point.snapshot.name} ({number} of {len(row)})")
            try:
                last = await sides.read(point, lambda opened: _list(opened, path))
            except ZvaultError as error:
                failure = failure or error
                unread[point.snapshot.name] = format_error(error)
                last = None
                continue
        more = more or last.more
        line.add(point.snapshot, _by_path(last))
        read.append(point)
    unread |= sides.unread
    if not read and failure is not None:
        raise failure
    if not line.of(b""):
        raise NotFound(
            f"'{escape_path(path)}' is in no snapshot of {sides.dataset}",
            f"{len(read)} were looked into",
            f"'zvaultctl find {sides.backup.name} NAME' seeks a name in all datasets of the vault",
        )
    own = place_versions(line.of(b""), read)
    paths = list(line.paths)
    # A folder of thousands of names in thousands of snapshots: each name is looked at over all of them.
    names = await compute_aside(
        len(paths) * len(read),
        None,
        lambda: [_name(sides, path, name, place_versions(line.of(name), read)) for name in paths if name],
    )
    return {
        "backup": sides.backup.name,
        "dataset": sides.dataset,
        "vault_dataset": sides.vault_dataset,
        "path": escape_path(path),
        "snapshots": len(read),
        "versions": [_stretch(sides, path, one) for one in reversed(own)],
        "names": names,
        "more": more,
        "unread": _short(unread, sides),
    }


async def _list(opened: OpenSnapshot, path: bytes) -> PathListing:
    return await list_path(opened, path)


def _by_path(found: PathListing) -> dict[bytes, TreeEntry]:
    return {b"": found.own, **found.entries} if found.own is not None else {}


async def _unchanged(sides: BothSides) -> set[int]:
    """The GUIDs of snapshots to which nothing was written since the one before, which is the one before of all."""
    row = [point.snapshot.guid for point in sides.points]
    before = dict(zip(row[1:], row, strict=False))
    found: set[int] = set()
    for side in sides.sides.values():
        if side.name in sides.errors or not side.snapshots:
            continue
        written = await properties.read_written(side.zfs.host, side.dataset.name)
        for earlier, snap in zip(side.snapshots, side.snapshots[1:], strict=False):
            if written.get(snap.snapname) == 0 and before.get(snap.guid) == earlier.guid:
                found.add(snap.guid)
    return found


def _short(unread: dict[str, str], sides: BothSides) -> dict[str, str]:
    """Without the snapshots of which a side's reason tells already."""
    reasons = set(sides.unread.values())
    return {what: why for what, why in unread.items() if what in sides.unread or why not in reasons}


def _name(sides: BothSides, folder: bytes, name: bytes, found: Sequence[VersionStretch]) -> NameDocument:
    there = [one for one in found if one.version.entry is not None]
    path = folder + b"/" + name if folder else name
    return {
        "name": escape_path(name),
        "there": found[-1].version.entry is not None,
        "versions": len(there),
        "newest": _stretch(sides, path, there[-1]),
    }


def _stretch(sides: BothSides, path: bytes, one: VersionStretch) -> StretchDocument:
    entry, version = one.version.entry, one.version
    source, vault = one.newest_on("source"), one.newest_on("vault")
    command = format_restore_command(sides.backup.name, vault.name, path, TO) if vault is not None else None
    return {
        "state": one.state,
        "kind": entry.kind if entry else None,
        "size": entry.size if entry and entry.kind in {"f", "l"} else None,
        "mtime": float(entry.mtime) if entry else None,
        "link": escape_path(entry.link) if entry and entry.kind == "l" else None,
        "from": version.first.creation,
        "until": version.last.creation,
        "first": version.first.snapname,
        "last": version.last.snapname,
        "source": one.count("source"),
        "vault": one.count("vault"),
        "source_snapshot": source.name if source else None,
        "vault_snapshot": vault.name if vault else None,
        "restore": command if entry is not None else None,
    }
