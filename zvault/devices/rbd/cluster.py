"""A Ceph cluster: what it is called, what its pools do with bytes, who is shut out of it.

argv of ``ceph`` is built here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from zvault.core.errors import ToolFailed
from zvault.system.process.runner import ToolRunner

MONITOR_TIMEOUT = 10
"""Seconds that a tool looks for a monitor; 300 by default (rados's client_mount_timeout)."""
DEADLINE = 30.0
FENCE_SECONDS = 365 * 86400
"""How long a fenced client stays on the cluster's blocklist.

Ceph's own hour would let in what a client that was only frozen still has to write. It is one client that is named,
with its nonce: the same host gets in again as another.
"""

ZVOL = "zd"
"""What Linux calls a volume of ZFS (zvol_os.c): an OSD on one lies on ZFS."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Which Ceph cluster, and as whom: the paths of its configuration and keyring, and the user without "client."."""

    conf: str | None = None
    user: str | None = None
    keyring: str | None = None

    def words(self) -> list[str]:
        """The options that say so."""
        pairs = (("--conf", self.conf), ("--id", self.user), ("--keyring", self.keyring))
        return [word for option, value in pairs if value is not None for word in (option, value)]


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


def command(cluster: Cluster, *words: str) -> list[str]:
    """Argv of ``ceph``."""
    return ["ceph", *cluster.words(), "--connect-timeout", str(MONITOR_TIMEOUT), *words]


def blocklist_command(cluster: Cluster, address: str) -> list[str]:
    """Argv that shuts a client out of the whole cluster: whatever it sends from now on is refused."""
    return command(cluster, "osd", "blocklist", "add", address, str(FENCE_SECONDS))


async def _ask(cluster: Cluster, runner: ToolRunner, *words: str) -> Any:
    argv = command(cluster, *words, "--format", "json")
    result = await runner.run(argv, deadline=DEADLINE, check=False)
    if result.returncode != 0:
        raise ToolFailed("the Ceph cluster cannot be asked", result.complaint(), "see 'ceph -s'")
    return json.loads(result.stdout)
