"""The snapshots of this host's pools as they were listed, in files that outlive zvaultd and may be deleted.

A dataset's snapshots are believed where its GUID, its origin and its ``snapshots_changed`` are those of the listing,
and where that stamp was older than the listing by more than its resolution of a second: whatever made or destroyed,
renamed or moved a snapshot since has set a later one (dsl_dir_snap_cmtime_update in OpenZFS; a promotion changes the
origin). Bookmarks and holds have no stamp, so they are not in here.

OpenZFS before 2.2 sets no stamp and leaves an older one as it is. So a file is believed only as long as the pool stays
imported: on another host it may have been changed by such a one, and nothing here would tell.

One file for each pool, by the pool's GUID. Its last line is a digest of all before it, so a file that is cut off or
damaged is as none.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zvault.core.errors import ZvaultError
from zvault.core.model import Snapshot
from zvault.core.names import DatasetName
from zvault.core.snapshot_list import NameColumn, SnapshotList
from zvault.core.units import is_number
from zvault.system.process.runner import ToolRunner

FORMAT = "zvault listing 1"
"""First line of a file. One of another version is as none."""

LARGEST_LISTING = 64 << 20
"""Bytes of a file. Datasets that do not fit are left out, and listed again."""

POOL_GUIDS_DEADLINE = 30.0
"""Seconds for ``zpool get`` of two properties."""

MOST_POOLS = 64
"""Files that are kept, those last written."""


@dataclass(frozen=True, slots=True)
class KeptSnapshots:
    """A dataset's snapshots, the GUID and origin (``who``) and stamp (``changed``) that they are good for, and when the
    listing ``began`` that saw them (seconds since the epoch).
    """

    who: str
    changed: str
    began: float
    snapshots: SnapshotList


@dataclass(frozen=True, slots=True)
class LoadedPool:
    """A pool's GUID, and the one that it got when it was imported last (zpoolprops(7), load_guid)."""

    guid: int
    load: int


class ListingCacheFiles:
    """The files of this host, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._guids: dict[str, int] = {}
        self._loads: dict[int, int] = {}
        self._pools: dict[int, dict[str, KeptSnapshots]] = {}
        self._unsaved: set[int] = set()
        self._latest = 0.0

    async def load_pool(self, pool: str, runner: ToolRunner) -> None:
        """Have what is kept of the pool that is imported under this name now. What cannot be read is as none."""
        loaded = await _find_loaded_pool(pool, runner)
        if loaded is None:
            self._guids.pop(pool, None)
            return
        if self._loads.get(loaded.guid) != loaded.load:
            found = await asyncio.to_thread(read_listing, self._path(loaded.guid), loaded)
            self._loads[loaded.guid], self._pools[loaded.guid] = loaded.load, found
        # Last: another client may note what it sees of the pool while its file is read.
        self._guids[pool] = loaded.guid

    def believe_snapshots(self, stamps: Mapping[str, tuple[str, str]], now: float) -> dict[str, SnapshotList]:
        """The snapshots of those of these datasets, given as of ListingCache.stale, whose stamps prove that they are as
        they were listed. ``now`` is the time.

        A clock that was set back may stamp two changes alike: then nothing is believed that was listed before. Where
        that happened and was undone while nobody looked, a change in the very same second would be missed.
        """
        if now < self._latest:
            self._forget_all()
        self._latest, found = now, {}
        for name, (who, changed) in stamps.items():
            kept = self._of(name).get(name)
            if kept is not None and (kept.who, kept.changed) == (who, changed) and kept.began <= now:
                found[name] = kept.snapshots
        return found

    def _forget_all(self) -> None:
        self._pools = {guid: {} for guid in self._pools}
        self._unsaved |= self._pools.keys()

    def note_snapshots(
        self, name: str, stamp: tuple[str, str], snapshots: Sequence[Snapshot], began: float
    ) -> None:
        """Keep what a listing saw of a dataset whose stamp proves it; nothing of a pool that has no file."""
        guid = self._guids.get(DatasetName(name).pool)
        if guid is None:
            return
        some = snapshots if isinstance(snapshots, SnapshotList) else _make_list(name, snapshots)
        before = self._pools[guid].get(name)
        if before is None or (before.who, before.changed) != stamp or before.snapshots != some:
            self._pools[guid][name] = KeptSnapshots(*stamp, began, some)
            self._unsaved.add(guid)

    def drop_absent(self, root: str, there: Mapping[str, object]) -> None:
        """Drop the datasets below a root that a listing of it did not see."""
        kept = self._of(root)
        for name in [one for one in kept if one not in there and DatasetName(one).is_within(root)]:
            del kept[name]

    async def save_changed(self) -> None:
        """Write the files of the pools of which something new was seen. Raises OSError; then the old ones stay."""
        for guid in list(self._unsaved):
            self._unsaved.discard(guid)
            kept, loaded = dict(self._pools.get(guid, {})), LoadedPool(guid, self._loads[guid])
            try:
                await asyncio.to_thread(write_listing, self._path(guid), loaded, kept)
            except OSError:
                self._unsaved.add(guid)
                raise

    def _of(self, name: str) -> dict[str, KeptSnapshots]:
        guid = self._guids.get(DatasetName(name).pool)
        return self._pools.get(guid, {}) if guid is not None else {}

    def _path(self, guid: int) -> Path:
        return self._folder / str(guid)


async def _find_loaded_pool(pool: str, runner: ToolRunner) -> LoadedPool | None:
    argv = ["zpool", "get", "-Hp", "-o", "value", "guid,load_guid", pool]
    try:
        result = await runner.run(argv, deadline=POOL_GUIDS_DEADLINE, check=False)
    except ZvaultError:
        return None
    words = result.stdout.split()
    return LoadedPool(*map(int, words)) if len(words) == 2 and all(map(is_number, words)) else None


def _make_list(name: str, snapshots: Iterable[Snapshot]) -> SnapshotList:
    rows = ((one.snapname, one.guid, one.createtxg, one.creation) for one in snapshots)
    return SnapshotList.of(DatasetName(name), rows)


# The file


def write_listing(path: Path, loaded: LoadedPool, kept: Mapping[str, KeptSnapshots]) -> None:
    """Write a pool's file, whole or not at all, and remove those of other pools beyond MOST_POOLS. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(
            os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb"
        ) as file:
            digest = hashlib.sha256()
            for line in _format_lines(loaded, kept):
                digest.update(line)
                file.write(line)
            file.write(f"{digest.hexdigest()}\n".encode())
        # Without fsync: after a crash of the host it may be cut off, which its digest shows.
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    _remove_old_listings(path.parent)


def _remove_old_listings(folder: Path) -> None:
    found = []
    for file in folder.iterdir():
        with contextlib.suppress(OSError):
            found.append((file.stat().st_mtime, file))
    for _, file in sorted(found, reverse=True)[MOST_POOLS:]:
        file.unlink(missing_ok=True)


def _format_lines(loaded: LoadedPool, kept: Mapping[str, KeptSnapshots]) -> Iterator[bytes]:
    """A line for each dataset; one that other datasets share snapnames with has the number of those, which have a line
    of their own before the first such dataset.
    """
    head = _format_head(loaded)
    yield head
    room, columns = LARGEST_LISTING - len(head) - hashlib.sha256().digest_size * 2 - 1, dict[int, int]()
    for name, one in kept.items():
        column, some = one.snapshots.column, one.snapshots
        lines = b""
        if id(column) not in columns:
            lines += _dump([list(column.snapnames), column.creations.tolist()])
        number = columns.get(id(column), len(columns))
        lines += _dump(
            [name, one.who, one.changed, one.began, number, list(some.guids), some.createtxgs.tolist()]
        )
        if len(lines) > room:
            continue
        columns[id(column)] = number
        room -= len(lines)
        yield lines


def _format_head(loaded: LoadedPool) -> bytes:
    return f"{FORMAT} {loaded.guid} {loaded.load}\n".encode()


def _dump(row: list[object]) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def read_listing(path: Path, loaded: LoadedPool) -> dict[str, KeptSnapshots]:
    """What the file of a pool keeps, by dataset; nothing of a file that is missing, damaged, too large, of another
    version, of another pool, or from before it was imported.
    """
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > LARGEST_LISTING:
                return {}
            return _parse_lines(file, loaded)
    except (OSError, ValueError, TypeError, LookupError, OverflowError, RecursionError):
        return {}


def _parse_lines(lines: Iterable[bytes], loaded: LoadedPool) -> dict[str, KeptSnapshots]:
    """Raises ValueError, and whatever else a damaged file may raise."""
    digest, before, found = hashlib.sha256(), b"", dict[str, KeptSnapshots]()
    columns = list[NameColumn]()
    for number, line in enumerate(lines):
        if number == 1 and before != _format_head(loaded):
            raise ValueError("not the listing of this pool")
        if number > 1:
            _parse_line(json.loads(before), columns, found)
        digest.update(before)
        before = line
    if before != f"{digest.hexdigest()}\n".encode():
        raise ValueError("not as it was written")
    return found


def _parse_line(row: list[Any], columns: list[NameColumn], found: dict[str, KeptSnapshots]) -> None:
    if len(row) == 2:
        columns.append(NameColumn.of(*row))
        return
    name, who, changed, began, number, guids, createtxgs = row
    listed = SnapshotList(DatasetName(name), columns[number], array("Q", guids), array("Q", createtxgs))
    found[name] = KeptSnapshots(who, changed, began, listed)
