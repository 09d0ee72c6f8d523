"""A restored dataset takes the place of a live one, which is set aside: two renames, and nothing is destroyed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from zvault.core.errors import Busy, ToolFailed
from zvault.core.names import DatasetName
from zvault.ops.restore.plan_restore import BEFORE_INFIX, STAGING, RestorePlan
from zvault.system.procfs import list_volume_users
from zvault.zfs import properties, rename_clone_rollback
from zvault.zfs.client import Zfs

KEPT_PROPERTIES = ("mountpoint", "sharenfs", "sharesmb")
"""Properties that the restored dataset takes over from the one it replaces: the vault does not give them back."""

OPEN_TRIES, OPEN_PAUSE = 10, 0.5
"""How often, and with how many seconds between, a volume is found open before that counts: udev opens each device that
comes or was written to for a moment, to see what is on it.
"""


async def swap_datasets(
    zfs: Zfs, plan: RestorePlan, staged: Sequence[DatasetName], stamp: str, say: Callable[[str], None]
) -> list[DatasetName]:
    """Set the live dataset aside, if it is still there, and give its name to what was restored. Returns the new names.

    Goes on where an earlier call was cut off. Raises Busy while somebody uses the live one: nothing is lost then.
    """
    live = plan.target.dataset
    if plan.replaced is not None:
        await _release(zfs, live)
        await rename_clone_rollback.rename_dataset(zfs.host, live, live.add_suffix(BEFORE_INFIX + stamp))
    aside = await _newest_aside(zfs, live)
    if aside is not None:
        say(
            f"what was {live} is {aside} now; once nothing of it is needed, 'zfs holds' shows what holds its snapshots,"
            f" and 'zfs destroy -r {aside}' destroys it"
        )
        await _keep_from_mounting(zfs, aside)
    staging = live.add_suffix(STAGING)
    await rename_clone_rollback.rename_dataset(zfs.host, staging, live)
    names = [name.moved(staging, live) for name in staged]
    if aside is not None:
        for name in names:
            await _take_over(zfs, name.moved(live, aside), name)
    return names


async def _release(zfs: Zfs, live: str) -> None:
    """Unmount a dataset with all below it. Raises Busy while it is used, before anything was unmounted if it can."""
    datasets = list(await zfs.tree(live))
    await _refuse_open_volumes(zfs, [one.name for one in datasets if one.type == "volume"])
    for one in reversed(datasets):
        try:
            if one.type == "filesystem":
                await rename_clone_rollback.unmount_dataset(zfs.host, one.name)
        except ToolFailed as error:
            raise Busy(
                f"'{one.name}' cannot be set aside",
                error.why,
                "end what uses it ('fuser -vm' shows who), then restore again the same way: only this is left to do",
            ) from None


async def _refuse_open_volumes(zfs: Zfs, volumes: Sequence[DatasetName]) -> None:
    """ZFS renames a volume that is open: what has it open, a virtual machine, would go on writing to what was set aside
    while everybody thinks that it runs on what was restored. Raises Busy where it is mounted or below another device.

    What processes have open zvaultd sees only of those with no more rights than its own (CAP_SYS_PTRACE is not among
    them), and on another host nothing: the plan says of each volume what to do first.
    """
    if zfs.host.address is not None:
        return
    for volume in volumes:
        if users := await _lasting_users(volume):
            raise Busy(
                f"'{volume}' cannot be set aside",
                ", ".join(users),
                "unmount what is on it or shut down its virtual machine, then restore again the same way: only this is"
                " left to do",
            )


async def _lasting_users(volume: DatasetName) -> list[str]:
    """What has a volume open for longer than udev takes to look what is on it."""
    for _ in range(OPEN_TRIES):
        if not (users := await asyncio.to_thread(list_volume_users, volume)):
            return []
        await asyncio.sleep(OPEN_PAUSE)
    return users


async def _newest_aside(zfs: Zfs, live: DatasetName) -> DatasetName | None:
    return max(await rename_clone_rollback.list_datasets_beside(zfs.host, live, BEFORE_INFIX), default=None)


async def _keep_from_mounting(zfs: Zfs, aside: str) -> None:
    """Two datasets with one mountpoint would race for it at the next boot."""
    for one in await zfs.tree(aside):
        own = await properties.read_local_properties(zfs.host, one.name, "mountpoint", "canmount")
        if one.type == "filesystem" and one.name.is_within(aside) and "mountpoint" in own:
            await properties.set_properties(zfs.host, one.name, {"canmount": "noauto"})


async def _take_over(zfs: Zfs, old: str, new: str) -> None:
    if not await zfs.exists(old):
        return
    own = await properties.read_local_properties(zfs.host, old, *KEPT_PROPERTIES)
    if own:
        await properties.set_properties(zfs.host, new, own)
