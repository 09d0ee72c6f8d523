"""Clients that have an RBD image open or locked, on any host, and how to fence one.

Seen with Ceph 18.2.7 and Linux 7.2.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from zvault.config.device_specs.rbd import RbdImage
from zvault.core.errors import Busy, ToolFailed
from zvault.devices.rbd import holder_note
from zvault.devices.rbd.cluster import CephCluster, blocklist_argv
from zvault.devices.rbd.image import call_cluster, make_rbd_error, rbd_argv
from zvault.system.process.runner import ToolRunner

WATCH_TIMEOUT = 35.0
"""Seconds after which a client without a sign of life counts as dead: Ceph's 30 (osd_client_watch_timeout) and some."""

NOTE_TIMEOUT = 5.0
"""Seconds within which a host that has just locked an image stores its name with the image."""


@dataclass(frozen=True, slots=True)
class ImageOwner:
    """A client that has an image open: its address (host:port/nonce), its name, and its lock, if any.

    A client without a watch is dead or was away for more than 30 s; mapping the image breaks its lock and fences it.
    ``host``: the host's name and since when it has the image, from zvault's note.
    """

    address: str
    client: str
    lock: str | None
    watches: bool
    host: str | None = None

    def words(self) -> str:
        """The client in words."""
        client = f"{self.client} at {self.address}"
        return client if self.host is None else f"{self.host} ({client})"


async def list_owners(image: RbdImage, cluster: CephCluster, runner: ToolRunner) -> list[ImageOwner]:
    """The clients on any host that have an image open or locked. Raises NotFound, DeviceGone, ToolFailed."""
    texts = []
    for words in (("status",), ("lock", "ls")):
        argv = rbd_argv(cluster, *words, "--format", "json", str(image))
        result = await call_cluster(argv, image, cluster, runner)
        if result.returncode != 0:
            raise make_rbd_error(
                f"the clients of the RBD image {image} cannot be listed", result, image, cluster
            )
        texts.append(result.stdout)
    found = parse_owners(*texts)
    note = await holder_note.read_holder_note(image, cluster, runner) if found else None
    if note is None:
        return found
    return [replace(one, host=note.words()) if one.address == note.client else one for one in found]


def parse_owners(status: str, locks: str) -> list[ImageOwner]:
    """Parse ``rbd status`` and ``rbd lock ls``, both as JSON; watcher and lock have the same client number."""
    found = {
        str(watcher["address"]): ImageOwner(
            str(watcher["address"]), f"client.{watcher['client']}", None, True
        )
        for watcher in json.loads(status)["watchers"]
    }
    for lock in json.loads(locks):
        address, client, name = str(lock["address"]), str(lock["locker"]), str(lock["id"])
        known = found.get(address, ImageOwner(address, client, None, False))
        found[address] = replace(known, lock=name)
    return list(found.values())


async def refuse_if_owned(
    image: RbdImage, ours: str | None, cluster: CephCluster, runner: ToolRunner
) -> None:
    """Raise Busy if a live client has an image open; dead ones do not count.

    Waits for this host's own last client, with the address ``ours``, to time out, and for a client without a lock to
    leave. If a lock is so new that the note with its host's name is still missing, asks again, so that the error
    names the host.
    """
    began = time.monotonic()
    while found := [owner for owner in await list_owners(image, cluster, runner) if owner.watches]:
        waited = time.monotonic() - began
        locked = [owner for owner in found if owner.lock and owner.address != ours]
        named = any(owner.host is not None for owner in locked)
        if waited >= WATCH_TIMEOUT or (locked and (named or waited >= NOTE_TIMEOUT)):
            raise make_in_use_error(image, found)
        await asyncio.sleep(1)


def make_in_use_error(image: RbdImage, found: Sequence[ImageOwner]) -> Busy:
    """The error for an image that another client has."""
    names = ", ".join(owner.words() for owner in found)
    held = "holds its exclusive lock" if any(owner.lock for owner in found) else "has it open"
    return Busy(
        f"the RBD image {image} is in use elsewhere",
        f"{names} {held}",
        "take the vault down there. If that host died, Ceph drops it after 30 s. If it cannot be reached,"
        " 'zvaultctl vault take' fences it",
    )


# Taking over


async def fence_dead_owners(image: RbdImage, cluster: CephCluster, runner: ToolRunner) -> list[ImageOwner]:
    """Fence clients that have the lock and are dead, and take it; those that were.

    Mapping the image would do that too, but for an hour only: a host that slept longer could still write then.
    Raises ToolFailed if that cannot be done.
    """
    dead = [owner for owner in await list_owners(image, cluster, runner) if owner.lock and not owner.watches]
    for owner in dead:
        for argv in fence_argvs(image, owner, cluster):
            result = await runner.run(argv, deadline=WATCH_TIMEOUT, check=False)
            if result.returncode != 0 and "(2) No such file" not in result.stderr:
                raise ToolFailed(
                    f"{owner.words()} is not shut out of {image}",
                    result.complaint(),
                    "see that the user may do that ('profile rbd')",
                )
    return dead


def fence_argvs(image: RbdImage, owner: ImageOwner, cluster: CephCluster) -> list[list[str]]:
    """Argvs that fence a client and then take its lock. In the other order both hosts could write."""
    fence = blocklist_argv(cluster, owner.address)
    if owner.lock is None:
        return [fence]
    return [fence, ["rbd", "lock", "rm", str(image), owner.lock, owner.client, *cluster.words()]]
