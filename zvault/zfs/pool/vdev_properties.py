"""Properties of a pool's devices, vdevprops(7). argv of ``zpool get`` and ``zpool set`` for them is built here."""

from __future__ import annotations

import re

from zvault.core.errors import ToolFailed
from zvault.core.units import is_number
from zvault.system.process.runner import ToolRunner

VDEV_DEADLINE = 30.0
SET_DEADLINE = 60.0
"""Seconds: a set waits for one sync of the pool."""

_GROUP = re.compile(r"(?:root|mirror|raidz|draid|spare|replacing|indirect|log|missing)\d*(?::\S+)?-\d+")
"""Names of vdevs that are not devices (zpool_vdev_name in libzfs_pool.c)."""


async def read_property(runner: ToolRunner, pool: str, name: str) -> dict[str, str] | None:
    """A property of each device of a pool, by device; None if this OpenZFS has no such property."""
    result = await runner.run(
        ["zpool", "get", "-Hp", "-o", "name,value", name, pool, "all-vdevs"],
        deadline=VDEV_DEADLINE,
        check=False,
    )
    if result.returncode != 0:
        if "invalid property" in result.stderr:
            return None
        raise ToolFailed(f"the vdev property {name} of pool '{pool}' cannot be read", result.complaint())
    rows = (line.split("\t", 1) for line in result.stdout.splitlines() if "\t" in line)
    return {vdev: value for vdev, value in rows if not _GROUP.fullmatch(vdev)}


async def count_device_reads(runner: ToolRunner, pool: str) -> int | None:
    """The bytes read from all devices of a pool since it was imported; None if this OpenZFS does not count them.

    Raises ToolFailed.
    """
    found = await read_property(runner, pool, "read_bytes")
    if not found or not all(map(is_number, found.values())):
        return None
    return sum(map(int, found.values()))


async def set_property(runner: ToolRunner, pool: str, vdev: str, name: str, value: str) -> None:
    """Set a property of one device; it is stored in the pool. Raises ToolFailed."""
    await runner.run(["zpool", "set", f"{name}={value}", pool, vdev], deadline=SET_DEADLINE)
