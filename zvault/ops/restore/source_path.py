"""Which dataset of a backup a path is in: by where the source mounts its file systems, or as somebody names it."""

from __future__ import annotations

import os

from zvault.config.schema import Backup
from zvault.core.errors import NotFound, Refused
from zvault.core.integrity.verification import escape_path
from zvault.core.names import DatasetName
from zvault.ops.context import Context
from zvault.ops.state.partial_tree import list_around_damage
from zvault.system.procfs import list_pool_mounts
from zvault.zfs import properties


async def find_dataset(
    context: Context, backup: Backup, dataset: str | None, path: str
) -> tuple[DatasetName, str]:
    """The source's name of the dataset, and the path below its root. Raises NotFound, Refused."""
    if dataset is not None:
        return find_source_name(context, backup, dataset), path
    if not path.startswith("/"):
        raise Refused(
            f"'{escape_path(os.fsencode(path))}' is no absolute path",
            "without a dataset it is sought where the source mounts its file systems",
            "begin it with a slash, or name the dataset with -d",
        )
    if ".." in path.split("/"):
        raise Refused(
            f"'{escape_path(os.fsencode(path))}' is no plain path", "it has '..' in it", "write it without"
        )
    parts = [part for part in path.split("/") if part not in {"", "."}]
    mounts = await _mounts(context, backup)
    for length in range(len(parts), -1, -1):
        if (found := mounts.get("/" + "/".join(parts[:length]))) is not None:
            return found, "/".join(parts[length:])
    raise NotFound(
        f"'{escape_path(os.fsencode(path))}' is in no dataset of backup '{backup.name}'",
        "the source mounts none of its file systems there, as far as ZFS tells; symbolic links are not followed",
        f"'zvaultctl list {backup.name}' shows its datasets: name one with -d, and a path below its root",
    )


def find_source_name(context: Context, backup: Backup, dataset: str) -> DatasetName:
    """The source's name of a dataset that is named as on either side. Raises NotFound."""
    name, root = DatasetName(dataset), backup.source.dataset
    if name.is_within(root):
        return name
    if backup.vault is not None and name.is_within(top := context.env.target_of(backup, root)):
        return name.moved(top, root)
    raise NotFound(
        f"'{dataset}' is no dataset of backup '{backup.name}'",
        f"that backs up {backup.source}",
        f"'zvaultctl list {backup.name}' shows its datasets",
    )


async def _mounts(context: Context, backup: Backup) -> dict[str, DatasetName]:
    """By mount point, the datasets of a source: as ZFS has it in the property, and on this host as it is now."""
    zfs, root = context.clients.source_of(backup), backup.source.dataset
    tree = await list_around_damage(zfs, root)
    names = [one.name for one in tree if one.type == "filesystem"]
    told = await properties.read_exact_properties(zfs.host, names, ["mountpoint"])
    found: dict[str, DatasetName] = {}
    for name in names:
        point = told.get(name, {}).get("mountpoint", "")
        if point.startswith("/"):
            found.setdefault(point, name)
    if zfs.host.address is None:
        known = set(names)
        found |= {
            one.point: DatasetName(one.source) for one in list_pool_mounts(root.pool) if one.source in known
        }
    for name in tree.unlisted:
        # By default it would be mounted there: what is sought below is not in the dataset above it.
        parent = next((point for point, one in found.items() if one == name.parent), None)
        if parent is not None:
            found.setdefault(f"{parent.rstrip('/')}/{name.name}", name)
    return found
