"""bcache as a layer: a fast local device in front of a slow one (kernel, Documentation/admin-guide/bcache.rst).

The kernel's control files are below ``/sys/block/BACKING/bcache`` and ``/sys/fs/bcache/SET``. Both devices have a
superblock. udev registers a device with a superblock as soon as it appears, so a step may already be done. A backing
device that belongs to a cache does not run without it, and zvault never forces it to: dirty data is in the cache only.
On the way down zvault writes the cache back first. The cache stays attached and warm for the next time.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from zvault.config.tables.device import Device
from zvault.config.tables.device_parts import Cache
from zvault.core.errors import Busy, DeadlineExceeded, DeviceGone, ToolFailed, ToolMissing, ZvaultError
from zvault.devices.bcache import superblock
from zvault.devices.bcache import sysfs as files
from zvault.devices.layer import Data, FoundLayer, LayerJob, Say, Slot, Step
from zvault.devices.nbd.connection import held
from zvault.system.kernel_module import load_module
from zvault.system.process.runner import Runner
from zvault.system.system_bus import UnitState

SECTOR = 512

STOP_DEADLINE = 60.0
UDEV_DEADLINE = 10.0
"""Seconds for what udev has queued. It is done in moments; a host that does not get there has other troubles, and what
udev registers later is stopped all the same."""
POLL = 0.1
FLUSH = 3600.0
"""Default seconds that a write-back may take, if the lease has no value."""
FLUSH_POLL = 0.5
FLUSH_TELL = 10.0
FLUSH_STALL = 150.0
"""Seconds without progress after which zvault gives up a write-back; longer than a request takes to fail."""

WRITEBACK = {"writeback_percent": "10", "writeback_delay": "1", "writeback_running": "1"}
"""writeback_percent has the kernel's default. The kernel's default writeback_delay is 30 s, and nothing interrupts a
delay that has begun, so every teardown would take up to 30 s more (bch_writeback_thread in
drivers/md/bcache/writeback.c, and seen in the lab). A pool gains little from the delay: ZFS rarely overwrites."""
AT_ONCE = {"writeback_percent": "0", "writeback_delay": "0", "writeback_running": "1"}


class Bcache:
    """See layer.Layer. The lease has both devices, the set, the bcache device, and the write-back's time limit."""

    def __init__(self, runner: Runner, hurried: Callable[[], bool] = lambda: False) -> None:
        self.runner = runner
        self.hurried = hurried

    def unit(self, slot: Slot, data: Data | None, device: Device | None) -> str | None:
        """None: bcache runs in the kernel, without a unit."""
        return None

    def look(self, slot: Slot, data: Data | None, unit: UnitState | None) -> FoundLayer:
        """Read the state from the kernel's control files."""
        if not data:
            return FoundLayer()
        backing, cache = _backing(data), data.get("cache", "")
        if not files.registered(backing):
            return files.stopped(backing, data.get("device"))
        name = files.device(backing)
        if name is None:
            return FoundLayer("partial", f"{backing} waits for its cache {cache}", present=True)
        size = int(files.read(files.SYS_BLOCK / name / "size") or 0) * SECTOR
        found = FoundLayer("up", "", f"/dev/{name}", size, present=True)
        if files.read(files.folder(backing) / "io_disable") == "1":
            return replace(found, state="gone", detail=f"{name} stopped after too many errors")
        if files.read(files.folder(backing) / "state") in files.ATTACHED:
            return found
        # After its cache broke, it still runs. Before it first had its cache, it is unfinished and nobody uses it.
        path = found.path if data.get("device") else None
        return replace(found, state="partial", detail=f"{name} runs without its cache {cache}", path=path)

    def making(self, slot: Slot, device: Device, below: str) -> list[Step]:
        """Steps that write both superblocks."""
        backing, cache = superblock.commands(below, _cache(device).bcache)
        return [
            Step("make it a backing device, if it is blank", backing),
            Step("make it a cache, if it is blank and not a cache yet", cache),
        ]

    async def check(self, device: Device) -> None:
        """Check for make-bcache, bcache in the kernel, and the cache device."""
        await self.runner.run(["make-bcache", "--help"], deadline=10, check=False)
        if not files.in_kernel():
            why = await load_module(self.runner, "bcache")
            if not files.in_kernel():
                raise ToolMissing(
                    "the kernel has no bcache",
                    why,
                    "install a kernel that has the bcache module",
                )
        cache = _cache(device)
        if not _is_device(cache.bcache):
            raise DeviceGone(
                f"the cache device {cache.bcache} is not there",
                "it may hold data that was never written back to the slow device, so zvault stops here",
                "bring it back, or correct 'cache' in zvault.toml",
            )

    async def settle(self, slot: Slot, data: Data) -> bool:
        """Nothing to do: a kernel operation that a crash left running ends by itself within moments."""
        return False

    async def up(self, job: LayerJob) -> str:
        """Format new devices, register both, attach the backing device to the cache, set the mode."""
        cache, backing = _cache(job.device), Path(job.below).name
        data: Data = {"below": job.below, "cache": cache.bcache, "flush": cache.flush}
        job.write(data)
        if files.read(files.folder(backing) / "state") not in files.ATTACHED:
            await superblock.format_new(job, cache, self.runner)
        data["cset"] = await self._register_cache(cache.bcache)
        job.write(data)
        if not files.registered(backing):
            await self._register(job.below)
        await files.until(
            lambda: files.device(backing) is not None,
            f"{job.below} does not come up behind its cache {cache.bcache}",
            "see the kernel's log",
        )
        await self._attach(backing, data["cset"])
        job.write({**data, "device": files.device(backing)})
        await self._set(backing, cache)
        job.say(f"/dev/{files.device(backing)} is {job.below} behind the cache {cache.bcache} ({cache.mode})")
        return f"/dev/{files.device(backing)}"

    async def adjust(self, job: LayerJob) -> None:
        """Attach the cache again if it was lost, and set the mode."""
        cache, backing = _cache(job.device), _backing(job.had)
        data = {**job.had, "flush": cache.flush, "device": files.device(backing)}
        try:
            data["cset"] = await self._register_cache(cache.bcache)
            await self._attach(backing, data["cset"])
        except (ToolFailed, DeviceGone, DeadlineExceeded) as error:
            job.say(f"/dev/{files.device(backing)} continues without its cache: {error}")
        job.write(data)
        await self._set(backing, cache)

    async def cut_off(self, data: Data) -> None:
        """Stop the device as soon as its user closes it; dirty data stays in the cache."""
        if data and files.registered(_backing(data)):
            with suppress(ToolFailed, DeadlineExceeded):
                await files.write(self.runner, files.folder(_backing(data)) / "stop", "1")

    async def find_cause(self, data: Data) -> ZvaultError | None:
        """Nothing: what it lies on has the cause."""

    async def rest(self, data: Data, *, resting: bool) -> None:
        """Pause or resume write-back. A request below that hangs when the host falls asleep could keep it awake.

        The kernel still writes the extents it has already collected (up to 500): read_dirty in
        drivers/md/bcache/writeback.c does not check for the pause.
        """
        if data and (file := files.folder(_backing(data)) / "writeback_running").exists():
            with suppress(ToolFailed):  # the device may vanish while it goes down
                await files.write(self.runner, file, "0" if resting else "1")

    async def down(self, slot: Slot, data: Data, found: FoundLayer, *, lost: bool, say: Say) -> None:
        """Write the cache back, stop the device, and wait until the kernel has released what is below."""
        backing, cache = _backing(data), data.get("cache", "")
        if not (lost or self.hurried()):
            # udev registered a device after zvault had looked: zvault waited a minute for a release that it had not
            # asked for, and left device, server and lease.
            await files.udev_settled(self.runner, UDEV_DEADLINE)
        cset = data.get("cset") or files.set_of(backing) or await self._set_on(cache)
        if files.registered(backing):
            if not (lost or self.hurried()) and files.device(backing) is not None:
                await self._write_back(backing, data, say)
            if files.read(files.folder(backing) / "state") == "dirty":
                dirty = files.read(files.folder(backing) / "dirty_data")
                say(f"{dirty} stay in the cache {cache}: {backing} does not have them yet")
        await self._release(backing, data.get("device"), lost)
        await self._stop_set(cset, say)

    async def _set_on(self, cache: str) -> str | None:
        """The set of a cache whose registration a crash interrupted."""
        found = await superblock.read(cache, self.runner) if cache else None
        return found.cset if found is not None else None

    def leftover(self, data: Data) -> str | None:
        """None: it leaves no device behind."""
        return None

    # The kernel

    async def _register(self, path: str) -> None:
        """Register a device with the kernel; it may be registered already."""
        file = files.SETS / "register_quiet"
        await files.write(self.runner, file, path, deadline=files.REGISTER_DEADLINE)

    async def _register_cache(self, path: str) -> str:
        """Register the cache with the kernel; returns its set."""
        found = await superblock.read(path, self.runner)
        if found is None:
            raise DeviceGone(
                f"{path} is no longer a cache", "it has no superblock", "find out what overwrote it"
            )
        if not (files.SETS / found.cset).exists():
            await self._register(path)
        await files.until(
            (files.SETS / found.cset).exists, f"the cache {path} does not come up", "see the kernel's log"
        )
        return found.cset

    async def _attach(self, backing: str, cset: str) -> None:
        if files.read(files.folder(backing) / "state") == "no cache":
            attach = files.folder(backing) / "attach"
            await files.write(self.runner, attach, cset, deadline=files.REGISTER_DEADLINE)
        await files.until(
            lambda: files.read(files.folder(backing) / "state") in files.ATTACHED,
            f"{backing} is not attached to its cache",
            "see the kernel's log",
        )

    async def _set(self, backing: str, cache: Cache) -> None:
        wanted = {"cache_mode": cache.mode, **WRITEBACK}
        if cache.sequential_cutoff is not None:
            wanted["sequential_cutoff"] = str(cache.sequential_cutoff)
        for name, value in wanted.items():
            now = files.read(files.folder(backing) / name) or ""
            if value not in (now, *re.findall(r"\[(.+?)\]", now)):
                await files.write(self.runner, files.folder(backing) / name, value)

    async def _write_back(self, backing: str, data: Data, say: Say) -> None:
        """Write back until ``state`` is clean; the kernel has stored it in the superblock then.

        If the host shuts down meanwhile, the rest stays in the cache.
        """
        folder, name = files.folder(backing), files.device(backing)
        began = moved = told = time.monotonic()
        least: str | None = None
        for setting, value in AT_ONCE.items():
            await files.write(self.runner, folder / setting, value)
        while files.read(folder / "state") == "dirty" and not self.hurried():
            now, dirty = time.monotonic(), files.read(folder / "dirty_data")
            if dirty != least:
                least, moved = dirty, now
            if now - began >= data.get("flush", FLUSH) or now - moved >= FLUSH_STALL:
                for setting, value in WRITEBACK.items():
                    await files.write(self.runner, folder / setting, value)
                raise Busy(
                    f"/dev/{name} cannot be taken down: {dirty} are in its cache only",
                    f"they were not written back to {backing} within {now - began:.0f} s; the device stays up",
                    "check that the device below answers, then take the vault down again; 'flush' in its 'cache'"
                    " sets how long that may take",
                )
            if now - told >= FLUSH_TELL:
                told = now
                say(f"/dev/{name}: {dirty} are still to be written back to {backing}")
            await asyncio.sleep(FLUSH_POLL)

    async def _release(self, backing: str, name: str | None, lost: bool) -> None:
        """Stop the device and wait until bcache has closed the one below.

        bcache's control files vanish earlier, while it may still write. It closes the device last, after it has logged
        "bcache_device_free() bcacheN stopped" (cached_dev_free in drivers/md/bcache/super.c). Whenever control files
        appear, udev has registered the device just now, and it is stopped again.
        """
        give_up = time.monotonic() + STOP_DEADLINE
        used = files.SYS_BLOCK / name / "slaves" / backing if name else None
        stopped = False
        while True:
            if files.registered(backing) and not stopped:
                await self._stop(backing)
            stopped = files.registered(backing)
            if not (stopped or (used is not None and used.exists())) and (
                lost or not await held(f"/dev/{backing}", self.runner)
            ):
                return
            if time.monotonic() >= give_up:
                raise DeviceGone(
                    f"bcache does not release /dev/{backing}",
                    f"zvault stopped it {STOP_DEADLINE:g} s ago",
                    "see the kernel's log, and find out which program has the device open",
                )
            await asyncio.sleep(POLL)

    async def _stop(self, backing: str) -> None:
        try:
            await files.write(self.runner, files.folder(backing) / "stop", "1")
        except ToolFailed:
            if files.registered(backing):
                raise

    async def _stop_set(self, cset: str | None, say: Say) -> None:
        """Release the cache device too, unless it has other backing devices."""
        if cset is None or not (files.SETS / cset).exists():
            return
        if any(re.fullmatch(r"(bdev|volume)\d+", path.name) for path in (files.SETS / cset).iterdir()):
            return
        await files.write(self.runner, files.SETS / cset / "stop", "1")
        try:
            await files.until(lambda: not (files.SETS / cset).exists(), "the cache is not released", "")
        except DeviceGone:
            say(f"the cache set {cset} has not stopped yet")


def _cache(device: Device) -> Cache:
    if device.cache is None:
        raise ValueError("only a device with a cache has this layer")
    return device.cache


def _is_device(path: str) -> bool:
    """Decide by the name only, without access to the device."""
    return Path(path).is_block_device()


def _backing(data: Data) -> str:
    """The name of the device below."""
    return Path(data["below"]).name
