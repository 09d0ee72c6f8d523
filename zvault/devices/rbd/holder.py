"""Who has an RBD image open or locked, on whatever host, and how a client is shut out of it.

Seen with Ceph 18.2.7 and Linux 7.2.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from zvault.config.device_specs.rbd import RbdImage
from zvault.core.errors import Busy
from zvault.devices.rbd import holder_note
from zvault.devices.rbd.cluster import Cluster, blocklist_command
from zvault.devices.rbd.image import call, command, failure
from zvault.system.process.runner import ToolRunner

WATCH_TIMEOUT = 35.0
"""Seconds after which a client that is gone counts as gone: Ceph's 30 (osd_client_watch_timeout), and a little."""

NOTE_TIMEOUT = 5.0
"""Seconds in which a host that has just locked an image writes its name beside the lock."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A client that has an image open: its address (host:port/nonce), its name, and the lock it holds if any.

    One without a watch is dead, or gone for more than 30 s: mapping the image breaks its lock and fences it. ``host``
    is the host's name and since when, where zvault left a note of it.
    """

    address: str
    client: str
    lock: str | None
    watches: bool
    host: str | None = None

    def words(self) -> str:
        """Who it is, for people."""
        client = f"{self.client} at {self.address}"
        return client if self.host is None else f"{self.host} ({client})"


async def owners(image: RbdImage, cluster: Cluster, runner: ToolRunner) -> list[Owner]:
    """Who has an image open or locked, on whatever host. Raises as find."""
    texts = []
    for words in (("status",), ("lock", "ls")):
        argv = command(cluster, *words, "--format", "json", str(image))
        result = await call(argv, image, cluster, runner)
        if result.returncode != 0:
            raise failure(f"who has the RBD image {image} cannot be told", result, image, cluster)
        texts.append(result.stdout)
    found = parse_owners(*texts)
    note = await holder_note.read(image, cluster, runner) if found else None
    if note is None:
        return found
    return [replace(one, host=note.words()) if one.address == note.client else one for one in found]


def parse_owners(status: str, locks: str) -> list[Owner]:
    """``rbd status`` and ``rbd lock ls``, both as JSON; a watcher's number is that of its lock's client."""
    found = {
        str(watcher["address"]): Owner(str(watcher["address"]), f"client.{watcher['client']}", None, True)
        for watcher in json.loads(status)["watchers"]
    }
    for lock in json.loads(locks):
        address, client, name = str(lock["address"]), str(lock["locker"]), str(lock["id"])
        known = found.get(address, Owner(address, client, None, False))
        found[address] = replace(known, lock=name)
    return list(found.values())


async def refuse_if_owned(image: RbdImage, ours: str | None, cluster: Cluster, runner: ToolRunner) -> None:
    """Raise Busy when a client that lives has an image open; one that is dead does not count.

    This host's own last client, which had the address ``ours`` and could not say good-bye, is waited for; so is
    one that has no lock. One whose lock is so new that its host's name is not beside it yet is asked about again, so
    that the error names the host.
    """
    began = time.monotonic()
    while found := [owner for owner in await owners(image, cluster, runner) if owner.watches]:
        waited = time.monotonic() - began
        locked = [owner for owner in found if owner.lock and owner.address != ours]
        named = any(owner.host is not None for owner in locked)
        if waited >= WATCH_TIMEOUT or (locked and (named or waited >= NOTE_TIMEOUT)):
            raise in_use(image, found)
        await asyncio.sleep(1)


def in_use(image: RbdImage, found: Sequence[Owner]) -> Busy:
    """Another client has an image."""
    names = ", ".join(owner.words() for owner in found)
    held = "holds its exclusive lock" if any(owner.lock for owner in found) else "has it open"
    return Busy(
        f"the RBD image {image} is in use elsewhere",
        f"{names} {held}",
        "take it down there; a host that died is given up by Ceph after 30 s. One that cannot be reached is shut out by"
        " 'zvaultctl vault take'",
    )


# Taking over


def fence_commands(image: RbdImage, owner: Owner, cluster: Cluster) -> list[list[str]]:
    """Argv that shut a client out of the whole cluster, then take its lock: in this order, or both would write."""
    fence = blocklist_command(cluster, owner.address)
    if owner.lock is None:
        return [fence]
    return [fence, ["rbd", "lock", "rm", str(image), owner.lock, owner.client, *cluster.words()]]
