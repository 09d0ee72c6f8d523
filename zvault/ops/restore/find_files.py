"""Find files in a vault: which versions of them there are, and in which snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zvault.api.restore import FoundDocument, VersionDocument
from zvault.core.errors import Refused, ZvaultError
from zvault.core.integrity.file_versions import FileVersion, fold_versions, matches_path
from zvault.core.integrity.verification import KeyRange, KeySpread, TreeEntry, escape_path
from zvault.core.model import Dataset, Snapshot
from zvault.ops.context import Context
from zvault.ops.restore.side_reader import SideReader, open_shared_reader
from zvault.ops.restore.snapshot_reader import open_snapshot
from zvault.ops.state.partial_tree import list_around_damage
from zvault.ops.vaults.vault import OpenVault, Vaults
from zvault.zfs import properties

Seen = Mapping[bytes, TreeEntry]


@dataclass(frozen=True, slots=True)
class FileQuery:
    """A query: files that match ``pattern`` (core/integrity/file_versions.py), in ``dataset`` or all of the
    backup's.

    ``at`` looks only into the newest snapshot made up to then, in seconds since the epoch.
    """

    backup: str
    pattern: str
    dataset: str | None = None
    at: float | None = None


async def make_find_document(context: Context, vaults: Vaults, wanted: FileQuery) -> FoundDocument:
    """Every version of what matches. ``unread`` tells of datasets that could not be looked into, and why."""
    backup = context.env.backup(wanted.backup)
    if not wanted.pattern.strip("/"):
        raise Refused("nothing to find", "the pattern is empty", "as in 'zvaultctl find tank \"*.pdf\"'")
    document: FoundDocument = {"versions": [], "unread": {}}
    async with vaults[backup.its_vault].use(
        f"find in {wanted.backup}", lambda _: None, create=False
    ) as vault:
        top = context.env.target_of(backup, backup.source.dataset)
        only = top if wanted.dataset is None else context.env.counterpart_of(backup, wanted.dataset)
        tree = await list_around_damage(vault.zfs, top)
        for name, said in tree.unlisted.items():
            if only is not None and (name.is_within(only) or only.is_within(name)):
                document["unread"][name.moved(top, backup.source.dataset)] = f"it cannot be listed: {said}"
        for dataset in tree:
            if dataset.type == "volume" or only is None or not dataset.name.is_within(only):
                continue
            name = dataset.name.moved(top, backup.source.dataset)
            try:
                found = await _versions(context, vault, dataset, wanted)
            except ZvaultError as error:
                document["unread"][name] = str(error)
            else:
                document["versions"] += [make_version_document(wanted.backup, name, one) for one in found]
    return document


def make_version_document(backup: str, dataset: str, one: FileVersion) -> VersionDocument:
    """A version as the API sends it."""
    entry = one.entry
    return {
        "backup": backup,
        "dataset": dataset,
        "path": escape_path(one.path),
        "kind": entry.kind if entry else "",
        "size": entry.size if entry else None,
        "mtime": float(entry.mtime) if entry else None,
        "snapshots": one.count,
        "first": one.first.snapname,
        "last": one.last.snapname,
        "from": one.first.creation,
        "until": one.last.creation,
    }


async def _versions(
    context: Context, vault: OpenVault, dataset: Dataset, wanted: FileQuery
) -> list[FileVersion]:
    snapshots = list(dataset.snapshots)
    if wanted.at is not None:
        snapshots = [snap for snap in snapshots if snap.creation <= wanted.at][-1:]
    if not snapshots:
        return []
    written = await properties.read_written(vault.zfs.host, dataset.name)
    seen: list[tuple[Snapshot, Seen]] = []
    async with open_shared_reader(vault.zfs.host) as make_reader:
        for snap in snapshots:
            # What was not written to since the one before holds the same.
            if seen and written.get(snap.snapname) == 0:
                seen.append((snap, seen[-1][1]))
                continue
            async with open_snapshot(context, vault.zfs, dataset, snap) as opened:
                seen.append((snap, await _look(make_reader(opened), wanted.pattern)))
    return fold_versions(seen)


async def _look(reader: SideReader, pattern: str) -> Seen:
    listed = await reader.list_entries(KeySpread.of(0), KeyRange(), everything=True, pattern=pattern)
    return {one.path: one for one in listed if matches_path(pattern, one.path)}
