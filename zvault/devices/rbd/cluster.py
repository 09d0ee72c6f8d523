"""A Ceph cluster: its options for the tools, facts about its pools, and its blocklist.

argv of ``ceph`` is built here.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zvault.core.errors import DeviceGone, ToolFailed
from zvault.system.process.runner import ToolRunner

MONITOR_TIMEOUT = 10
"""Seconds that a tool waits for a monitor; 300 by default (rados's client_mount_timeout)."""
CEPH_DEADLINE = 30.0
FENCE_SECONDS = 365 * 86400
"""Seconds that a fenced client stays on the cluster's blocklist.

After Ceph's default of an hour a client that was only frozen could still write its pending data. An entry names one
client by its nonce, so the same host can connect again as a new client.
"""

NOBODY_ADDRESS = "192.0.2.1:0/1"
"""An address that no client has: RFC 5737 keeps it for documentation."""

ZVOL = "zd"
"""Prefix of a ZFS volume's device name in Linux (zvol_os.c): an OSD on such a device is on ZFS."""


@dataclass(frozen=True, slots=True)
class CephCluster:
    """A Ceph cluster and a user: paths of its configuration and keyring, and the user's name without "client."."""

    conf: str | None = None
    user: str | None = None
    keyring: str | None = None

    def words(self) -> list[str]:
        """The options of the tools that select this cluster and user."""
        pairs = (("--conf", self.conf), ("--id", self.user), ("--keyring", self.keyring))
        return [word for option, value in pairs if value is not None for word in (option, value)]


@dataclass(frozen=True, slots=True)
class CephPoolFacts:
    """Facts about a pool. ``stripe``: stripe width of an erasure-coded pool in bytes; None if it is replicated."""

    name: str
    stripe: int | None
    compression: bool
    on_zfs: bool


async def read_pool_facts(cluster: CephCluster, pool: str, runner: ToolRunner) -> CephPoolFacts:
    """Ask the monitors. Raises ToolFailed, ToolMissing, DeadlineExceeded."""
    dump = await _ask(cluster, runner, "osd", "dump")
    found = next((one for one in dump["pools"] if one["pool_name"] == pool), None)
    if found is None:
        raise ToolFailed(
            f"there is no Ceph pool '{pool}'", "the cluster has no such pool", "see 'ceph osd lspools'"
        )
    disks = await _ask(cluster, runner, "osd", "metadata")
    return CephPoolFacts(
        pool,
        found["stripe_width"] or None,
        found.get("options", {}).get("compression_mode", "none") != "none",
        any(name.startswith(ZVOL) for disk in disks for name in disk.get("devices", "").split(",")),
    )


def ceph_argv(cluster: CephCluster, *words: str) -> list[str]:
    """Return the argv of ``ceph``."""
    return ["ceph", *cluster.words(), "--connect-timeout", str(MONITOR_TIMEOUT), *words]


def blocklist_argv(cluster: CephCluster, address: str) -> list[str]:
    """Argv that puts a client on the blocklist: the whole cluster refuses its requests from then on."""
    return ceph_argv(cluster, "osd", "blocklist", "add", address, str(FENCE_SECONDS))


async def may_blocklist(cluster: CephCluster, runner: ToolRunner) -> bool:
    """True if the user may put a client on the blocklist: seen by an address for documentation, for a second.

    Raises DeviceGone if the cluster does not answer.
    """
    argv = ceph_argv(cluster, "osd", "blocklist", "add", NOBODY_ADDRESS, "1")
    result = await runner.run(argv, deadline=CEPH_DEADLINE, check=False)
    if result.returncode == 0:
        return True
    if "EACCES" in result.stderr or "EPERM" in result.stderr or "access denied" in result.stderr:
        return False
    raise DeviceGone("the Ceph cluster cannot be asked", result.complaint(), "see 'ceph -s'")


async def find_blocked_pools(
    pools: Sequence[str], cluster: CephCluster, runner: ToolRunner
) -> dict[str, tuple[str, str]]:
    """By pool that takes no writes: why, and what helps. Raises ToolFailed if the cluster does not say.

    The flags are those of ``ceph osd dump``: ``full`` as an OSD of the pool is over the full ratio, and with
    ``full_quota`` as the pool is over its quota.
    """
    dump = await _ask(cluster, runner, "osd", "dump")
    every = set(str(dump.get("flags", "")).split(","))
    found: dict[str, tuple[str, str]] = {}
    for pool in dump["pools"]:
        name, flags = pool["pool_name"], {*every, *str(pool.get("flags_names", "")).split(",")}
        if name not in pools:
            continue
        if "full_quota" in flags:
            found[name] = (
                "is over its quota",
                f"'ceph osd pool set-quota {name} max_bytes BYTES' raises it, 0 ends it",
            )
        elif "full" in flags:
            found[name] = "is full", "add OSDs, or remove data: 'ceph osd df' shows the fullest"
        elif "pausewr" in flags:
            found[name] = "takes no writes, as somebody ran 'ceph osd pause'", "'ceph osd unpause'"
    return found


def make_caps_command(cluster: CephCluster, pools: Sequence[str], namespace: str = "") -> str:
    """The command that lets a user do all that images in these pools need."""
    where = f" namespace={namespace}" if namespace else ""
    osd = ", ".join(f"profile rbd pool={pool}{where}" for pool in pools)
    return shlex.join(
        ["ceph", "auth", "caps", f"client.{cluster.user or 'admin'}", "mon", "profile rbd", "osd", osd]
    ).replace("'", '"')


async def is_shut_out(client: str, cluster: CephCluster, runner: ToolRunner) -> bool:
    """True if a client is on the blocklist. Raises ToolFailed if the cluster does not answer."""
    return any(one.get("addr") == client for one in await _ask(cluster, runner, "osd", "blocklist", "ls"))


async def _ask(cluster: CephCluster, runner: ToolRunner, *words: str) -> Any:
    argv = ceph_argv(cluster, *words, "--format", "json")
    result = await runner.run(argv, deadline=CEPH_DEADLINE, check=False)
    if result.returncode != 0:
        raise ToolFailed("the Ceph cluster cannot be queried", result.complaint(), "see 'ceph -s'")
    # Of two documents in a row, as for the blocklist and its ranges, the first.
    return json.JSONDecoder().raw_decode(result.stdout.lstrip())[0]
