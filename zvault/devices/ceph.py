"""What a Ceph pool does with the bytes it is given. argv of ``ceph`` for that is built here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from zvault.core.errors import ToolFailed
from zvault.devices.rbd import MONITOR_TIMEOUT, Cluster
from zvault.system.process import ToolRunner

DEADLINE = 30.0

ZVOL = "zd"
"""What Linux calls a volume of ZFS (zvol_os.c): an OSD on one lies on ZFS."""


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """``stripe`` is the width of an erasure-coded pool's stripe in bytes, None where it keeps replicas."""

    name: str
    stripe: int | None
    compression: bool
    on_zfs: bool


async def pool_facts(cluster: Cluster, pool: str, runner: ToolRunner) -> PoolFacts:
    """Ask the monitors. Raises ToolFailed, ToolMissing, DeadlineExceeded."""
    dump = await _ask(cluster, runner, "osd", "dump")
    found = next((one for one in dump["pools"] if one["pool_name"] == pool), None)
    if found is None:
        raise ToolFailed(
            f"there is no Ceph pool '{pool}'", "the cluster has no such pool", "see 'ceph osd lspools'"
        )
    disks = await _ask(cluster, runner, "osd", "metadata")
    return PoolFacts(
        pool,
        found["stripe_width"] or None,
        found.get("options", {}).get("compression_mode", "none") != "none",
        any(name.startswith(ZVOL) for disk in disks for name in disk.get("devices", "").split(",")),
    )


async def _ask(cluster: Cluster, runner: ToolRunner, *words: str) -> Any:
    argv = ["ceph", *cluster.words(), "--connect-timeout", str(MONITOR_TIMEOUT), *words, "--format", "json"]
    result = await runner.run(argv, deadline=DEADLINE, check=False)
    if result.returncode != 0:
        raise ToolFailed("the Ceph cluster cannot be asked", result.complaint(), "see 'ceph -s'")
    return json.loads(result.stdout)
