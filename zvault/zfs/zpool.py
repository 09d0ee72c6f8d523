"""Pools: make, import, look at, export. argv of ``zpool`` is built here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from zvault.core.errors import Busy, DeviceGone, NotFound, PoolSuspended, Refused, ToolFailed, ZvaultError
from zvault.system.process import Result, ToolRunner

LOOK_DEADLINE = 30.0
"""Seconds: what a pool's health is asked with; a suspended pool answers at once, a hung one never."""

CHANGE_DEADLINE = 600.0
"""Seconds for create, import and export: each waits for several txg syncs on a slow device."""


BUSY_PATIENCE = 30.0
"""Seconds to try an export again for while the pool is busy."""


@dataclass(frozen=True, slots=True)
class PoolState:
    """One imported pool; sizes in bytes. ``health`` is zpoolconcepts(7)'s: ONLINE, DEGRADED, SUSPENDED…"""

    name: str
    guid: int
    size: int
    allocated: int
    free: int
    health: str


@dataclass(frozen=True, slots=True)
class Vdev:
    """A top-level vdev to be; several devices mirror each other."""

    kind: Literal["data", "special"]
    devices: tuple[str, ...]

    def words(self) -> list[str]:
        """As zpool-create(8) wants it, after the word for its kind."""
        return ["mirror", *self.devices] if len(self.devices) > 1 else list(self.devices)


@dataclass(frozen=True, slots=True)
class NewPool:
    """A pool to be made: its vdevs, its own properties and its root dataset's."""

    name: str
    vdevs: Sequence[Vdev]
    properties: Mapping[str, str]
    dataset: Mapping[str, str]

    def argv(self) -> list[str]:
        """The command that makes it."""
        argv = ["zpool", "create", "-o", "cachefile=none"]
        for key, value in self.properties.items():
            argv += ["-o", f"{key}={value}"]
        for key, value in self.dataset.items():
            argv += ["-O", f"{key}={value}"]
        data = [word for vdev in self.vdevs if vdev.kind == "data" for word in vdev.words()]
        special = [word for vdev in self.vdevs if vdev.kind == "special" for word in vdev.words()]
        return [*argv, self.name, *data, *(["special", *special] if special else [])]


class Zpool:
    """The pools of one host, on which ``runner`` runs programs."""

    def __init__(self, runner: ToolRunner) -> None:
        self.runner = runner

    async def state(self, pool: str) -> PoolState | None:
        """A pool's state, None when it is not imported."""
        result = await self.runner.run(
            ["zpool", "list", "-Hp", "-o", "name,guid,size,alloc,free,health", pool],
            deadline=LOOK_DEADLINE,
            check=False,
        )
        if result.returncode != 0:
            if "no such pool" in result.complaint() or "cannot open" in result.complaint():
                return None
            raise ToolFailed(f"cannot look at the pool '{pool}'", result.complaint())
        name, guid, size, allocated, free, health = result.stdout.rstrip("\n").split("\t")
        return PoolState(name, int(guid), _int(size), _int(allocated), _int(free), health)

    async def devices(self, pool: str) -> list[str]:
        """The device paths of an imported pool's leaf vdevs, as ``zpool list -vHPL`` prints them."""
        result = await self.runner.run(
            ["zpool", "list", "-vHPL", "-o", "name", pool], deadline=LOOK_DEADLINE, check=False
        )
        words = [line.strip().split("\t")[0] for line in result.stdout.splitlines()]
        return [word for word in words if word.startswith("/")]

    async def import_(self, pool: str, devices: Sequence[str]) -> bool:
        """Import a pool from these devices, unmounted and unremembered; False when it is not on them.

        Never forced: a pool that another host used last is refused with that host's name.
        """
        search = [word for device in devices for word in ("-d", device)]
        result = await self.runner.run(
            ["zpool", "import", "-N", "-o", "cachefile=none", *search, pool],
            deadline=CHANGE_DEADLINE,
            check=False,
        )
        if result.returncode == 0:
            return True
        if "no such pool" in result.stderr:
            return False
        raise _import_failure(pool, result)

    async def create(self, new: NewPool) -> None:
        """Make a pool. Never forced: zpool itself refuses a device that holds a filesystem or pool."""
        result = await self.runner.run(new.argv(), deadline=CHANGE_DEADLINE, check=False)
        if result.returncode != 0:
            raise Refused(
                f"cannot create the pool '{new.name}' on {', '.join(d for v in new.vdevs for d in v.devices)}",
                _last_words(result),
                "check the vault's profile and that the device is big enough and holds nothing",
            )

    async def export(self, pool: str, deadline: float = CHANGE_DEADLINE) -> None:
        """Export a pool; nothing when it is not imported. Raises Busy or PoolSuspended; never forced.

        A pool that is busy is tried again for a while: a receive that was stopped still saves what it has, and
        udev still looks at a volume that just appeared.
        """
        give_up = time.monotonic() + BUSY_PATIENCE
        while True:
            result = await self.runner.run(["zpool", "export", pool], deadline=deadline, check=False)
            if result.returncode == 0 or "no such pool" in result.stderr:
                return
            if "busy" not in result.stderr or time.monotonic() > give_up:
                break
            await asyncio.sleep(1.0)
        if "suspended" in result.stderr:
            raise suspended(pool)
        raise Busy(
            f"cannot export the pool '{pool}'",
            _last_words(result),
            f"'zfs mount' and 'lsof' show what uses it; then 'zpool export {pool}'",
        )

    async def clear(self, pool: str, deadline: float = CHANGE_DEADLINE) -> None:
        """Open a pool's devices again and let it go on. Raises ToolFailed, with the lost ones closed, if it cannot."""
        await self.runner.run(["zpool", "clear", pool], deadline=deadline)


def suspended(pool: str) -> PoolSuspended:
    """The error for a pool whose I/O is suspended."""
    return PoolSuspended(
        f"the pool '{pool}' has suspended its I/O",
        "its device failed or went away",
        f"bring the device back, then 'zpool clear {pool}'",
    )


def _int(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _last_words(result: Result) -> str:
    return " ".join(line.strip() for line in result.stderr.strip().splitlines()[:3]) or result.complaint()


def _import_failure(pool: str, result: Result) -> ZvaultError:
    said = _last_words(result)
    if "last accessed by another system" in said or "was previously in use from another system" in said:
        return Refused(
            f"the pool '{pool}' may be in use by another host",
            said,
            f"export it there; if that host is gone for good, 'zpool import -f {pool}' by hand once",
        )
    if "already exists" in said:
        return NotFound(f"another pool named '{pool}' is imported", said, "rename one of the two")
    if "one or more devices is currently unavailable" in said or "I/O error" in said:
        return DeviceGone(
            f"the pool '{pool}' cannot be imported", said, "look at the device and the kernel log"
        )
    return ToolFailed(f"cannot import the pool '{pool}'", said, "'zpool import' shows the pool's own words")
