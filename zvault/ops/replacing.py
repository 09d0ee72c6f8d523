"""A restored dataset takes the place of a live one, which is set aside: two renames, and nothing is destroyed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zvault.core.errors import Busy, ToolFailed
from zvault.core.lineage import below
from zvault.ops.restore_plan import BEFORE, STAGING, RestorePlan
from zvault.zfs import properties, rearrange
from zvault.zfs.client import Zfs

KEPT = ("mountpoint", "sharenfs", "sharesmb")
"""Properties that the restored dataset takes over from the one it replaces: the vault does not give them back."""


async def swap(
    zfs: Zfs, plan: RestorePlan, staged: Sequence[str], stamp: str, say: Callable[[str], None]
) -> list[str]:
    """Set the live dataset aside, if it is still there, and give its name to what was restored. Returns the new names.

    Goes on where an earlier call was cut off. Raises Busy while somebody uses the live one: nothing is lost then.
    """
    live = plan.target.dataset
    if plan.replaced is not None:
        await _release(zfs, live)
        await rearrange.rename(zfs.host, live, f"{live}{BEFORE}{stamp}")
    aside = await _newest_aside(zfs, live)
    if aside is not None:
        say(
            f"what was {live} is {aside} now; once nothing of it is needed, 'zfs holds' shows what holds its snapshots,"
            f" and 'zfs destroy -r {aside}' destroys it"
        )
        await _keep_from_mounting(zfs, aside)
    await rearrange.rename(zfs.host, live + STAGING, live)
    names = [live + name[len(live + STAGING) :] for name in staged]
    if aside is not None:
        for name in names:
            await _take_over(zfs, aside + name[len(live) :], name)
    return names


async def _release(zfs: Zfs, live: str) -> None:
    """Unmount a dataset with all below it. Raises Busy while it is used."""
    for one in reversed(list(await zfs.tree(live))):
        try:
            if one.type == "filesystem":
                await rearrange.unmount(zfs.host, one.name)
        except ToolFailed as error:
            raise Busy(
                f"'{one.name}' cannot be set aside",
                error.why,
                "end what uses it ('fuser -vm' shows who), then restore again the same way: only this is left to do",
            ) from None


async def _newest_aside(zfs: Zfs, live: str) -> str | None:
    there = await rearrange.children(zfs.host, live.rpartition("/")[0])
    return max((name for name in there if name.startswith(live + BEFORE)), default=None)


async def _keep_from_mounting(zfs: Zfs, aside: str) -> None:
    """Two datasets with one mountpoint would race for it at the next boot."""
    for one in await zfs.tree(aside):
        own = await properties.local(zfs.host, one.name, "mountpoint", "canmount")
        if one.type == "filesystem" and below(one.name, aside) and "mountpoint" in own:
            await properties.put(zfs.host, one.name, {"canmount": "noauto"})


async def _take_over(zfs: Zfs, old: str, new: str) -> None:
    if not await zfs.exists(old):
        return
    own = await properties.local(zfs.host, old, *KEPT)
    if own:
        await properties.put(zfs.host, new, own)
