"""The labels that ZFS keeps on each device of a pool, as zdb(8) prints them. argv of ``zdb -l`` is built here."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from zvault.core.errors import DeviceGone, Refused
from zvault.core.units import format_size
from zvault.system.block_devices import find_size
from zvault.system.process.runner import ToolRunner

LABEL_DEADLINE = 30.0
"""Seconds to read all four labels of one device."""

ALIKE = ("disk", "file", "mirror")
"""Types of top-level vdevs in which each device has all bytes at the same offsets."""

_NUMBER = r"([0-9]{1,20})"
"""One of 64 bits. Whoever had the device may have written any label, and Python refuses numbers of 4,300 digits."""


ACTIVE = 0
"""State in the label of a pool that is imported, or was not exported (POOL_STATE_ACTIVE)."""

DESTROYED = 2
"""State in the label of a pool that was destroyed (POOL_STATE_DESTROYED)."""


LABELS = (4 << 20) + (512 << 10)
"""Bytes of a device that are not a vdev's: labels and boot block before its data, two labels behind (vdev_impl.h)."""


class Shrunk(DeviceGone):
    """A device is smaller than what its pool uses of it."""

    retryable = False


class DevicesWentBack(Refused):
    """The devices of a pool that is imported lack what they had confirmed to it."""


class PartMissing(DeviceGone):
    """A pool lacks a top-level device, so it cannot be imported from what is there."""

    retryable = False


def label_argv(device: str) -> list[str]:
    """Argv that prints a device's labels; zdb(8) reads them from the device and not from a cache."""
    return ["zdb", "-l", device]


def parse_label_host(text: str) -> tuple[str, int] | None:
    """The host in the output of ``zdb -l``: its name and hostid; None if there is none."""
    number = re.search(rf"^ *hostid: {_NUMBER}$", text, re.M)
    name = re.search(r"^ *hostname: '(.*)'$", text, re.M)
    return None if number is None else (name[1] if name else "", int(number[1]))


def is_label_active(text: str) -> bool:
    """True if the labels say that a pool is imported, or was not exported where it was last."""
    state = re.search(rf"^ *state: {_NUMBER}$", text, re.M)
    return state is not None and int(state[1]) == ACTIVE


def parse_label_vdev(text: str) -> tuple[int, int, str] | None:
    """The pool's GUID, and number and type of the device's top-level vdev; None if there is no label."""
    pool = re.search(rf"^ *pool_guid: {_NUMBER}$", text, re.M)
    tree = re.search(rf"^ *vdev_tree:\n *type: '(\w+)'\n *id: {_NUMBER}$", text, re.M)
    return None if pool is None or tree is None else (int(pool[1]), int(tree[2]), tree[1])


def label_part(text: str, pool: str) -> tuple[int, int, int] | None:
    """The pool's GUID, the number of this top-level vdev, and how many the pool has.

    None if there is no label, or that of a pool of another name or of one that was destroyed.
    """
    name = re.search(r"^ *name: '(.*)'$", text, re.M)
    state = re.search(rf"^ *state: {_NUMBER}$", text, re.M)
    children = re.search(rf"^ *vdev_children: {_NUMBER}$", text, re.M)
    vdev = parse_label_vdev(text)
    if name is None or name[1] != pool or vdev is None or children is None:
        return None
    return None if state is not None and int(state[1]) == DESTROYED else (vdev[0], vdev[1], int(children[1]))


async def refuse_partial_pool(pool: str, devices: Sequence[str], runner: ToolRunner) -> None:
    """Raise PartMissing where these devices have top-level vdevs of a pool, and the pool has more of them.

    ``zpool import`` says "no such pool" of it, as of devices that have no pool at all.
    """
    found: dict[int, set[int]] = defaultdict(set)
    total = 0
    for device in devices:
        result = await runner.run(label_argv(device), deadline=LABEL_DEADLINE, check=False)
        if (part := label_part(result.stdout, pool)) is not None:
            found[part[0]].add(part[1])
            total = max(total, part[2])
    here = max(map(len, found.values()), default=0)
    if here and here < total:
        raise PartMissing(
            f"the pool '{pool}' cannot be imported: devices of it are missing",
            f"it consists of {total} top-level devices, and {', '.join(devices)} has {here} of them",
            "bring the missing device back where this host finds it: without it ZFS reads nothing of the pool",
        )


def label_asize(text: str) -> int | None:
    """The bytes that ZFS uses of a device that is a top-level vdev by itself, or half of a mirror; None if not told."""
    asize = re.search(rf"^ *asize: {_NUMBER}$", text, re.M)
    vdev = parse_label_vdev(text)
    return None if asize is None or vdev is None or vdev[2] not in ALIKE else int(asize[1])


async def refuse_shrunk_device(pool: str, devices: Sequence[str], runner: ToolRunner) -> None:
    """Raise Shrunk for a device that is smaller than what the pool uses of it.

    ``zpool import`` says "invalid vdev configuration" then, also with ``readonly=on``.
    """
    for device in devices:
        size = find_size(device)
        result = await runner.run(label_argv(device), deadline=LABEL_DEADLINE, check=False)
        asize = label_asize(result.stdout)
        if size is None or asize is None or size >= asize + LABELS:
            continue
        needed = asize + LABELS
        raise Shrunk(
            f"the pool '{pool}' cannot be imported: {device} is too small for it",
            f"it has {format_size(size)} ({size} bytes), and ZFS uses {format_size(needed)} ({needed} bytes) of it:"
            " its store was cut, or put back to an older size",
            f"give the store its {needed} bytes back; what was beyond its end is lost if its store did not keep it",
        )


def uberblock_argv(device: str) -> list[str]:
    """Argv that prints a device's labels with their uberblocks."""
    return ["zdb", "-lu", device]


def parse_newest_uberblock(text: str) -> int | None:
    """The newest transaction group whose uberblock is in the output of ``zdb -lu``; None if there is none."""
    return max(map(int, re.findall(rf"^[ \t]*txg = {_NUMBER}$", text, re.M)), default=None)


async def refuse_if_devices_went_back(
    pool: str, devices: Sequence[str], committed: int | None, runner: ToolRunner
) -> None:
    """Raise DevicesWentBack where the devices of an imported pool are older than what they had confirmed to it.

    ``committed``: the newest transaction group that the pool has on its devices, as it knows; None: it knows of none.
    ``zpool clear`` does not look: it would go on from what it has in memory over blocks that are not there any more. An
    uberblock may be on any of the devices, so where one cannot be read nothing is known.
    """
    found = []
    for device in devices:
        result = await runner.run(uberblock_argv(device), deadline=LABEL_DEADLINE, check=False)
        found.append(parse_newest_uberblock(result.stdout))
    known = [txg for txg in found if txg is not None]
    if committed is None or not known or len(known) < len(found) or max(known) >= committed:
        return
    raise DevicesWentBack(
        f"the store of the pool '{pool}' has lost what it had confirmed",
        f"its newest transaction group is {max(known)}, and it had confirmed {committed}: it was put back to an older"
        " state, or its disk lost power and what it called flushed was not; the pool, which is in use here, would go on"
        " over blocks that are missing",
        "bring back the store as it was, and zvault goes on by itself; if that cannot be, reboot this host and bring"
        " the vault up: it is then what the store has",
    )


async def read_vdevs(guid: int, devices: Sequence[str], runner: ToolRunner) -> dict[int, list[str]]:
    """The devices of each top-level vdev of a pool, by its number.

    Raises Refused for a device that is not in this pool or has only a part of its vdev's bytes.
    """
    found: dict[int, list[str]] = defaultdict(list)
    for device in devices:
        label = parse_label_vdev(
            (await runner.run(label_argv(device), deadline=LABEL_DEADLINE, check=False)).stdout
        )
        if label is None or label[0] != guid or label[2] not in ALIKE:
            why = (
                "it has no label of that pool"
                if label is None or label[0] != guid
                else f"it is part of a {label[2]}"
            )
            raise Refused(
                f"nothing can be written below the pool on {device}",
                why,
                "heal it by hand: 'zfs rename' the damaged dataset, and the next run sends it in full",
            )
        found[label[1]].append(device)
    return dict(found)
