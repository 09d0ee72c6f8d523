"""The zfs commands that give a vault's datasets other names, another history, or back an older state of theirs."""

from __future__ import annotations

from zvault.core.errors import Conflict, ToolFailed
from zvault.core.names import DatasetName, SnapshotName
from zvault.core.refusals import make_refusal
from zvault.core.replication.lineage import format_set_aside
from zvault.zfs.host import ZfsHost
from zvault.zfs.whole_listing import CUT_SHORT, PartialListing, list_whole

RENAME_DEADLINE = 600.0
"""Seconds: each waits for a txg sync, and a rollback frees what it gives up."""


async def rename_dataset(host: ZfsHost, old: str, new: str) -> None:
    """Rename a filesystem with all below it, a volume, or a snapshot; nothing is mounted or unmounted for it.

    Raises Busy, ToolFailed, or what else ZFS has against it (core/refusals.py).
    """
    # With ``-u`` zfs opens filesystems only (zfs_do_rename, 2.1 to 2.4) and refuses every volume. Neither a volume nor
    # a snapshot has a mount, or anything below it, so they need no ``-u``.
    leave_mounts = () if "@" in old or await _is_volume(host, old) else ("-u",)
    await _zfs(host, f"rename '{old}'", "rename", *leave_mounts, old, new)


async def _is_volume(host: ZfsHost, dataset: str) -> bool:
    """True if it is a volume; of what cannot be asked it is not, and what is done with it next tells why."""
    argv = ["zfs", "get", "-Hpo", "value", "type", dataset]
    return (await host.run(argv, deadline=RENAME_DEADLINE, check=False)).stdout.strip() == "volume"


async def unmount_dataset(host: ZfsHost, dataset: str) -> None:
    """Unmount one filesystem; that it is not mounted is no error. Raises ToolFailed."""
    result = await host.run(["zfs", "unmount", dataset], deadline=RENAME_DEADLINE, check=False)
    if result.returncode != 0 and "not currently mounted" not in result.stderr:
        raise ToolFailed(f"cannot unmount '{dataset}'", result.complaint())


async def roll_dataset_back(host: ZfsHost, snapshot: str) -> None:
    """Roll a dataset back, giving up its newer snapshots. Raises Conflict where clones need those, or as ``_whole``."""
    await _whole(host, snapshot)
    await _zfs(host, f"roll back to '{snapshot}'", "rollback", "-r", snapshot)


async def clone_snapshot(host: ZfsHost, snapshot: str, new: str, kind: str) -> None:
    """Clone a snapshot on a vault: never mounted, never written to. Raises Conflict as ``_whole``, or ToolFailed."""
    await _whole(host, snapshot)
    own = ("volmode=none",) if kind == "volume" else ("canmount=noauto",)
    options = [word for value in ("readonly=on", *own) for word in ("-o", value)]
    await _zfs(host, f"clone '{snapshot}'", "clone", *options, snapshot, new)


async def promote_clone(host: ZfsHost, dataset: str) -> None:
    """Let a clone own the snapshots up to its origin. Raises as ``rename_dataset``."""
    await _zfs(host, f"promote '{dataset}'", "promote", dataset)


async def list_datasets_beside(host: ZfsHost, dataset: DatasetName, ending: str) -> list[DatasetName]:
    """The datasets beside one whose names are its own, going on with ``ending``; they need not exist, nor it.

    Raises ToolFailed; PartialListing where one beside it is damaged, and ZFS leaves out what comes behind that.
    """
    if dataset.parent is None:
        return []
    result = await list_whole(
        host,
        ["zfs", "list", "-H", "-d1", "-t", "filesystem,volume", "-o", "name", dataset.parent],
        RENAME_DEADLINE,
    )
    if result.returncode != 0 and "does not exist" not in result.stderr:
        kind = PartialListing if CUT_SHORT in result.stderr else ToolFailed
        raise kind(f"what is beside '{dataset}' cannot be listed", result.complaint())
    start = dataset.add_suffix(ending)
    return [DatasetName(name) for name in result.stdout.splitlines() if name.startswith(start)]


async def _whole(host: ZfsHost, snapshot: str) -> None:
    """Raises Conflict where a filesystem made of a snapshot would be marked as inconsistent, as that is.

    OpenZFS destroys such filesystems when a pool is imported (dsl_destroy_inconsistent). A corrective receive leaves
    snapshots so, by which zvault heals nothing, but others may have (docs/explanation/damage-and-healing.md).
    """
    argv = ["zfs", "get", "-Hpo", "value", "inconsistent", snapshot]
    found = await host.run(argv, deadline=RENAME_DEADLINE)
    if found.stdout.strip() == "1":
        raise Conflict(
            f"'{snapshot}' cannot be made a filesystem of",
            "it is marked as inconsistent, as 'zfs receive -c' leaves it, and OpenZFS would destroy that with the next"
            " import",
            f"'{format_set_aside(SnapshotName(snapshot).dataset)}', and the next run sends it in full",
        )


async def _zfs(host: ZfsHost, what: str, *argv: str) -> None:
    result = await host.run(["zfs", *argv], deadline=RENAME_DEADLINE, check=False)
    if result.returncode == 0:
        return
    # A rollback goes on with a list of clones, and how to destroy them.
    why = (result.stderr.strip().splitlines() or [result.complaint()])[0]
    if "clones" in why:
        raise Conflict(f"cannot {what}", why, "'zfs promote' makes a clone independent of it")
    raise make_refusal(f"cannot {what}", why, ToolFailed)
