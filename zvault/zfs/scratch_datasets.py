"""Datasets of zvault's own that stand beside the user's for a while: clones by which a volume is read, and drills.

Each bears its own name in a user property. Only what does is ever destroyed here, and no listing of a source or vault
shows it (zfs/parse_listing.py), so that none is snapshotted, sent or pruned.
"""

from __future__ import annotations

import asyncio
import time

from zvault.core.errors import NotFound, Refused, ToolFailed
from zvault.core.names import DatasetName
from zvault.system.process.runner import ToolRunner
from zvault.zfs.trial_dataset import TRIAL_MARK

SCRATCH_DEADLINE = 300.0
SCRATCH_PATIENCE = 60.0
"""Seconds for its readers to close it: udev looks at each new volume."""


async def clone_volume(host: ToolRunner, snapshot: str, name: str) -> str:
    """Clone a volume's snapshot, so that it has a device; returns that one's path. Raises ToolFailed."""
    own = ["-o", f"{TRIAL_MARK}={name}", "-o", "readonly=on", "-o", "volmode=dev"]
    await host.run(["zfs", "clone", *own, snapshot, name], deadline=SCRATCH_DEADLINE)
    return f"/dev/zvol/{name}"


async def make_scratch_parent(host: ToolRunner, name: str) -> None:
    """Make a filesystem for others to be received below, never mounted. Raises ToolFailed."""
    own = ["-o", f"{TRIAL_MARK}={name}", "-o", "canmount=off", "-o", "mountpoint=none"]
    await host.run(["zfs", "create", "-u", *own, name], deadline=SCRATCH_DEADLINE)


async def load_scratch_key(host: ToolRunner, name: str, location: str) -> None:
    """Load an encrypted dataset's key from a ``file://`` location. Raises ToolFailed."""
    await host.run(["zfs", "load-key", "-L", location, name], deadline=SCRATCH_DEADLINE)


async def destroy_scratch(host: ToolRunner, name: str) -> None:
    """Destroy one with all below it; that it is gone is no error. Raises Refused if zvault did not make it.

    Raises NotFound while its pool is not imported: then it may be there all the same.
    """
    give_up = time.monotonic() + SCRATCH_PATIENCE
    while True:
        found = await host.run(
            ["zfs", "get", "-H", "-o", "value,source", TRIAL_MARK, name],
            deadline=SCRATCH_DEADLINE,
            check=False,
        )
        if "does not exist" in found.stderr:
            await _refuse_unless_imported(host, DatasetName(name).pool)
            return
        if found.returncode != 0:
            raise ToolFailed(f"cannot tell whether '{name}' is zvault's own", found.complaint())
        if found.stdout.strip() != f"{name}\tlocal":
            raise Refused(
                f"'{name}' is not destroyed", "it does not bear zvault's mark", "look at it by hand"
            )
        done = await host.run(["zfs", "destroy", "-r", name], deadline=SCRATCH_DEADLINE, check=False)
        if done.returncode == 0:
            return
        if time.monotonic() >= give_up:
            raise ToolFailed(
                f"cannot destroy '{name}', which zvault made for a while",
                done.complaint(),
                f"'zfs destroy -r {name}' by hand",
            )
        await asyncio.sleep(0.5)


async def _refuse_unless_imported(host: ToolRunner, pool: str) -> None:
    found = await host.run(
        ["zpool", "list", "-H", "-o", "name", pool], deadline=SCRATCH_DEADLINE, check=False
    )
    if found.returncode != 0:
        raise NotFound(f"the pool '{pool}' is not imported", "what zvault made in it may still be there")
