"""Find files in a vault: which versions of them there are, and in which snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zvault.core.errors import Refused, ZvaultError
from zvault.core.find import document, matches, versions
from zvault.core.lineage import below
from zvault.core.model import Dataset, Snapshot
from zvault.core.verify import Arc, Entry, Mix
from zvault.ops.compare import run
from zvault.ops.context import Context
from zvault.ops.reading import reading
from zvault.ops.vault import OpenVault, Vaults
from zvault.system import files
from zvault.zfs import properties

Document = dict[str, Any]
Seen = Mapping[bytes, Entry]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to find: files that match ``pattern`` (core/find.py), in ``dataset`` or all of the backup's.

    ``at`` looks only into the newest snapshot made up to then, in seconds since the epoch.
    """

    backup: str
    pattern: str
    dataset: str | None = None
    at: float | None = None


async def find_document(context: Context, vaults: Vaults, wanted: Wanted) -> Document:
    """Every version of what matches. ``unread`` tells of datasets that could not be looked into, and why."""
    backup = context.backup(wanted.backup)
    if not wanted.pattern.strip("/"):
        raise Refused("nothing to find", "the pattern is empty", "as in 'zvaultctl find tank \"*.pdf\"'")
    document_: Document = {"versions": [], "unread": {}}
    async with vaults[backup.vault].use(f"find in {wanted.backup}", lambda _: None) as vault:
        top = context.target_of(backup, backup.source.dataset)
        only = None if wanted.dataset is None else context.target_of(backup, wanted.dataset)
        for dataset in await vault.zfs.tree_or_none(top):
            if dataset.type == "volume" or (only is not None and not below(dataset.name, only)):
                continue
            name = _source_name(backup.source.dataset, top, dataset.name)
            try:
                found = await _versions(context, vault, dataset, wanted)
            except ZvaultError as error:
                document_["unread"][name] = str(error)
            else:
                document_["versions"] += [document(wanted.backup, name, one) for one in found]
    return document_


def _source_name(source: str, top: str, name: str) -> str:
    """What a vault's dataset is called on the source."""
    return source + name[len(top) :]


async def _versions(context: Context, vault: OpenVault, dataset: Dataset, wanted: Wanted) -> list[Any]:
    snapshots = list(dataset.snapshots)
    if wanted.at is not None:
        snapshots = [snap for snap in snapshots if snap.creation <= wanted.at][-1:]
    written = await properties.written(vault.zfs.host, dataset.name)
    seen: list[tuple[Snapshot, Seen]] = []
    for snap in snapshots:
        # What was not written to since the one before holds the same.
        if seen and written.get(snap.tag) == 0:
            seen.append((snap, seen[-1][1]))
        else:
            seen.append((snap, await _look(context, vault, dataset, snap, wanted.pattern)))
    return versions(seen)


async def _look(context: Context, vault: OpenVault, dataset: Dataset, snap: Snapshot, pattern: str) -> Seen:
    async with reading(context, vault.zfs, dataset, snap) as opened:
        argv = files.list_argv(opened.root, Mix.of(0), Arc(), everything=True, name=pattern)
        listed = files.parse_list(await run(opened, argv, files.LIST_DEADLINE))
    return {one.path: one for one in listed if matches(pattern, one.path)}
