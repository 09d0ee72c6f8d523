"""What differs between two snapshots of a dataset: by 'zfs diff' where that holds, else by walking both trees.

Of one file it is the lines that differ. 'zfs diff' wants both snapshots on one side, and the dataset mounted there: a
vault's is not, so on a vault, and from one side to the other, the snapshots are mounted and their inodes compared.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass

from zvault.api.browse import ChangeDocument, ComparedPointDocument, ContentDocument, DiffDocument
from zvault.core.errors import NotFound, Refused, ZvaultError
from zvault.core.integrity.points import SIDE_NAMES, SideName, SnapshotPoint
from zvault.core.integrity.verification import TreeEntry, escape_path
from zvault.core.model import Snapshot
from zvault.core.names import DatasetName, split_snapshot
from zvault.ops.context import Context
from zvault.ops.restore.list_path import list_path, read_start
from zvault.ops.restore.open_both_sides import BothSides, Say, format_error
from zvault.ops.restore.snapshot_reader import OpenSnapshot
from zvault.ops.restore.source_path import find_source_name
from zvault.system import text_diff
from zvault.system.file_trees.tree_worker import TreeChange, start_tree_worker
from zvault.system.process.unprivileged import unprivileged_argv
from zvault.zfs import diff

CONTENT = 1 << 20
"""Bytes of a file that are compared: a larger one is no text that anybody reads."""

MOST_DIFF_LINES = 10_000
"""Lines of a difference that are answered."""

MOST_CHANGES = 10_000
"""Changes that are answered."""

DIFF_SAY_INTERVAL = 2.0
"""Seconds between two words on how far it is."""


@dataclass(frozen=True, slots=True)
class FoundDifferences:
    """The differences; ``why`` says why 'zfs diff' did not find them."""

    by: str
    changes: Sequence[diff.PathChange | TreeChange]
    more: int = 0
    why: str = ""


def find_common_dataset(context: Context, backup: str, old: str, new: str) -> DatasetName:
    """The source's name of the dataset of which both are snapshots. Raises Refused, NotFound."""
    found = []
    for name in (old, new):
        dataset, snapname = split_snapshot(name)
        if not snapname:
            raise Refused(
                f"'{name}' names no snapshot", "two snapshots are compared", "write DATASET@SNAPSHOT"
            )
        found.append(find_source_name(context, context.env.backup(backup), dataset))
    if found[0] != found[1]:
        raise Refused(
            f"{old} and {new} are not compared",
            "they are of different datasets",
            "name two snapshots of one dataset, by its name on the source or on the vault",
        )
    return found[0]


async def make_diff_document(sides: BothSides, names: tuple[str, str], path: bytes, say: Say) -> DiffDocument:
    """Report what differs from the first snapshot to the second. Raises NotFound, Refused and why they cannot be
    read.
    """
    old, new = (_point(sides, name) for name in names)
    content = await _content(sides, (old, new), path, say) if path else None
    found = (
        FoundDifferences("content", ()) if content is not None else await _tree(sides, old, new, path, say)
    )
    shown_side = _common(sides, old[1], new[1])
    return {
        "backup": sides.backup.name,
        "dataset": sides.dataset,
        "path": escape_path(path),
        "old": _told_point(old, shown_side),
        "new": _told_point(new, shown_side),
        "by": found.by,  # type: ignore[typeddict-item]
        "why": found.why,
        "changes": [_row(one) for one in found.changes[:MOST_CHANGES]],
        "more": found.more + max(0, len(found.changes) - MOST_CHANGES),
        "content": content,
    }


def _row(one: diff.PathChange | TreeChange) -> ChangeDocument:
    return {
        "change": one.change,  # type: ignore[typeddict-item]
        "kind": one.kind,
        "path": escape_path(one.path),
        "to": None if one.to is None else escape_path(one.to),
        "what": list(one.what),
    }


Named = tuple[SideName, SnapshotPoint]
"""A snapshot, and the side that its name is of."""


def _told_point(named: Named, side: SideName | None) -> ComparedPointDocument:
    """As it is told: on the side that both are on, else as it was named."""
    name = side or named[0]
    snap = named[1].on(name) or named[1].snapshot
    return {"snapshot": snap.name, "side": name, "creation": snap.creation}


def _point(sides: BothSides, name: str) -> Named:
    """A snapshot by its name: the source's where that has it, else the vault's. Raises NotFound."""
    dataset, snapname = split_snapshot(name)
    wanted: tuple[SideName, ...] = SIDE_NAMES if dataset == sides.dataset else ("vault",)
    for side in wanted:
        for point in sides.points:
            snap = point.on(side)
            if snap is not None and snap.snapname == snapname:
                return side, point
    if sides.errors:
        raise next(iter(sides.errors.values()))
    raise NotFound(
        f"there is no {name}",
        f"neither side of {sides.dataset} has a snapshot of that name",
        f"'zvaultctl list -t snapshot {sides.backup.name}' shows all there are",
    )


def _common(sides: BothSides, old: SnapshotPoint, new: SnapshotPoint) -> SideName | None:
    """The side that has both and can be read, the source first."""
    return next((one for one in SIDE_NAMES if one not in sides.errors and old.on(one) and new.on(one)), None)


async def _tree(sides: BothSides, old: Named, new: Named, path: bytes, say: Say) -> FoundDifferences:
    why = "they are on different sides"
    mine, its = old[1].source, new[1].source
    if mine is not None and its is not None and "source" not in sides.errors:
        try:
            changes = await _zfs_diff(sides, mine, its)
        except ZvaultError as error:
            why = format_error(error)
        else:
            return FoundDifferences("zfs diff", [one for one in changes if _within(one, path)])
    elif _common(sides, old[1], new[1]) == "vault":
        why = "a vault's dataset is not mounted, which 'zfs diff' wants"
    found = await _walk(sides, old[1], new[1], path, say)
    return FoundDifferences("walk", found[0], found[1], why)


async def _zfs_diff(sides: BothSides, old: Snapshot, new: Snapshot) -> list[diff.PathChange]:
    """By ZFS itself. Raises why that cannot be."""
    zfs = sides.sides["source"].zfs
    there = await zfs.get(sides.dataset, "mounted", "mountpoint")
    if there["mounted"] != "yes":
        raise NotFound("'zfs diff' wants the dataset mounted", f"{sides.dataset} is not")
    if not there["mountpoint"].startswith("/"):
        raise NotFound(
            "'zfs diff' tells paths where a dataset is mounted", f"that of {sides.dataset} is legacy"
        )
    # It takes the earlier one first.
    backwards = old.createtxg > new.createtxg
    first, second = (new, old) if backwards else (old, new)
    found = await diff.list_path_changes(zfs.host, first.name, second.name, there["mountpoint"])
    found = [one.invert() for one in found] if backwards else found
    return sorted((one for one in found if one.path or one.to), key=lambda one: one.path)


def _within(one: diff.PathChange, path: bytes) -> bool:
    places = (one.path, one.to or one.path)
    return not path or any(place == path or place.startswith(path + b"/") for place in places)


async def _walk(
    sides: BothSides, old: SnapshotPoint, new: SnapshotPoint, path: bytes, say: Say
) -> tuple[tuple[TreeChange, ...], int]:
    """By both trees, mounted on this host. Raises why they cannot be."""
    async with AsyncExitStack() as stack:
        one = await _mounted(sides, old, stack)
        other = await _mounted(sides, new, stack)
        said = time.monotonic()
        worker = await stack.enter_async_context(start_tree_worker(one.root, other.root))
        changes = await stack.enter_async_context(aclosing(worker.find_changes(path)))
        async for walked in changes:
            if walked.done:
                return walked.changes, walked.more
            if time.monotonic() - said >= DIFF_SAY_INTERVAL:
                said = time.monotonic()
                say(f"{walked.files} files and folders compared")
    raise ZvaultError("the comparison ended without a result", "")


async def _mounted(sides: BothSides, point: SnapshotPoint, stack: AsyncExitStack) -> OpenSnapshot:
    """A snapshot mounted on this host, from the side where that is possible."""
    failure: ZvaultError | None = None
    for name, snap in point.places:
        side = sides.sides[name]
        if name in sides.errors:
            failure = failure or sides.errors[name]
        elif side.zfs.host.address is not None:
            failure = failure or Refused(
                f"{snap.name} is not compared",
                f"it is on {side.zfs.host.address}: trees are compared on one host",
                "name two snapshots that the source has, or that a vault on this host has",
            )
        else:
            try:
                return await stack.enter_async_context(sides.opened(side, snap))
            except ZvaultError as error:
                failure = failure or error
    assert failure is not None  # noqa: S101 - a point is somewhere
    raise failure


async def _content(
    sides: BothSides, named: tuple[Named, Named], path: bytes, say: Say
) -> ContentDocument | None:
    """The lines that differ of a file; None where the path is a folder in one of both, or in neither."""
    entries: list[TreeEntry | None] = []
    for _, point in named:
        say(f"looking into {point.snapshot.name}")
        found = await sides.read(point, lambda opened: list_path(opened, path, names=False))
        entries.append(found.own)
    if all(entry is None for entry in entries):
        raise NotFound(
            f"'{escape_path(path)}' is in neither of the snapshots",
            "",
            f"'zvaultctl browse {sides.backup.name} -d {sides.dataset} PATH' shows where it is",
        )
    if any(entry is not None and entry.kind == "d" for entry in entries):
        return None
    if (why := _not_compared(entries)) is not None:
        return {"state": "unknown", "why": why, "lines": [], "more": 0}
    contents = []
    for (_, point), entry in zip(named, entries, strict=True):
        contents.append(await _read(sides, point, entry, path))
    if contents[0] == contents[1]:
        return {"state": "same", "why": "", "lines": [], "more": 0}
    if any(b"\0" in one for one in contents):
        return {"state": "binary", "why": "it is no text", "lines": [], "more": 0}
    labels = [
        f"{_told_point(one, None)['snapshot']}: {escape_path(path)}" if entry is not None else "/dev/null"
        for one, entry in zip(named, entries, strict=True)
    ]
    return await _lines(sides, labels, contents)


def _not_compared(entries: Sequence[TreeEntry | None]) -> str | None:
    """Why the content is not compared; None where it is."""
    for entry in entries:
        if entry is not None and entry.kind not in {"f", "l"}:
            return "it is no regular file"
        if entry is not None and entry.size > CONTENT:
            return f"it is larger than {CONTENT >> 20} MiB"
    return None


async def _read(sides: BothSides, point: SnapshotPoint, entry: TreeEntry | None, path: bytes) -> bytes:
    if entry is None:
        return b""
    if entry.kind == "l":
        return b"a symbolic link to " + entry.link + b"\n"
    return await sides.read(point, lambda opened: read_start(opened, path, CONTENT))


async def _lines(sides: BothSides, labels: Sequence[str], contents: Sequence[bytes]) -> ContentDocument:
    done = await sides.context.env.runner.run(
        unprivileged_argv(text_diff.text_diff_argv()),
        stdin=text_diff.encode_diff_input(labels, contents),
        deadline=text_diff.DIFF_DEADLINE,
        check=False,
    )
    if done.returncode != text_diff.DIFFERS:
        return {"state": "unknown", "why": f"diff failed: {done.complaint()}", "lines": [], "more": 0}
    lines = done.stdout.split("\n")[:-1]
    return {
        "state": "differs",
        "why": "",
        "lines": lines[:MOST_DIFF_LINES],
        "more": max(0, len(lines) - MOST_DIFF_LINES),
    }
