"""What people have mounted of a vault's pool: whether it is zvault's alone, and mounts kept over an export."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from zvault.core.errors import ZvaultError
from zvault.system.mount import MOUNT_DEADLINE, mount_again_argv
from zvault.system.procfs import PoolMount, list_open_volumes, list_pool_mounts
from zvault.zfs.client import Zfs

NAMED_USES = 3
"""Uses named in one message."""


def describe_other_use(pool: str, own: str) -> str:
    """Say in words how others use a pool on this host; empty where nobody does. Below ``own`` zvault itself mounts."""
    mounts = [one for one in list_pool_mounts(pool) if Path(own) not in Path(one.point).parents]
    uses = [f"{one.source} is mounted at {one.point}" for one in mounts]
    uses += [f"{device} is open" for device in list_open_volumes(pool)]
    more = f", and {len(uses) - NAMED_USES} more" if len(uses) > NAMED_USES else ""
    return ", ".join(uses[:NAMED_USES]) + more


async def mount_again(zfs: Zfs, pool: str, before: Sequence[PoolMount]) -> list[str]:
    """Mount again what was mounted of a pool and is not, each where it was, and share what was shared.

    Returns what could not be, in words.
    """
    there = {one.point for one in list_pool_mounts(pool)}
    failed = []
    for mount in sorted(before, key=lambda one: len(one.point)):
        if mount.point in there:
            continue
        try:
            await _mount(zfs, mount)
        except ZvaultError as error:
            failed.append(
                f"{mount.source} was mounted at {mount.point} and is not again: {error.why or error.what}"
            )
    return failed


async def _mount(zfs: Zfs, mount: PoolMount) -> None:
    if mount.is_snapshot:
        await zfs.host.run(
            mount_again_argv(mount.source, mount.point, mount.options), deadline=MOUNT_DEADLINE
        )
        return
    wanted = await zfs.get(mount.source, "mountpoint", "sharenfs", "sharesmb")
    if wanted["mountpoint"] == mount.point:
        await zfs.mount(mount.source)
        if {wanted["sharenfs"], wanted["sharesmb"]} != {"off"}:
            await zfs.host.run(["zfs", "share", mount.source], deadline=MOUNT_DEADLINE, check=False)
        return
    # By mount(8), as somebody did before: mount.zfs(8) takes zfsutil for all but legacy ones, and refuses it for those.
    more = () if wanted["mountpoint"] == "legacy" else ("zfsutil",)
    await zfs.host.run(
        mount_again_argv(mount.source, mount.point, (*mount.options, *more)), deadline=MOUNT_DEADLINE
    )
