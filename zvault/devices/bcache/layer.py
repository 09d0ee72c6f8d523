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
from zvault.config.tables.device_parts import CacheTable
from zvault.core.errors import Busy, DeadlineExceeded, DeviceGone, ToolFailed, ToolMissing, ZvaultError
from zvault.devices.bcache import superblock
from zvault.devices.bcache import sysfs as files
from zvault.devices.layer import CreationCommand, Data, DeviceSlot, FoundLayer, LayerJob, SayProgress
from zvault.devices.nbd.connection import is_held
from zvault.system.kernel_module import load_module
from zvault.system.process.runner import ProcessRunner
from zvault.system.system_bus import UnitState

BCACHE_SECTOR = 512

BCACHE_STOP_DEADLINE = 60.0
UDEV_DEADLINE = 10.0
"""Seconds for what udev has queued. It is done in moments; a host that does not get there has other troubles, and what
udev registers later is stopped all the same."""
BCACHE_STOP_POLL = 0.1
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
WRITE_BACK_AT_ONCE = {"writeback_percent": "0", "writeback_delay": "0", "writeback_running": "1"}


class Bcache:
    """See layer.DeviceLayer. The lease has both devices, the set, the bcache device, and the write-back's time
    limit.
    """

    def __init__(self, runner: ProcessRunner, hurried: Callable[[], bool] = lambda: False) -> None:
        self.runner = runner
        self.hurried = hurried

    def unit(self, slot: DeviceSlot, data: Data | None, device: Device | None) -> str | None:
        """None: bcache runs in the kernel, without a unit."""
        return None

    def look(self, slot: DeviceSlot, data: Data | None, unit: UnitState | None) -> FoundLayer:
        """Read the state from the kernel's control files."""
        if not data:
            return FoundLayer()
        backing, cache = _backing(data), data.get("cache", "")
        if not files.is_registered(backing):
            return files.find_stopped_layer(backing, data.get("device"))
        name = files.find_bcache_device(backing)
        if name is None:
            return FoundLayer("partial", f"{backing} waits for its cache {cache}", present=True)
        size = int(files.read_bcache_file(files.BCACHE_SYS_BLOCK / name / "size") or 0) * BCACHE_SECTOR
        found = FoundLayer("up", "", f"/dev/{name}", size, present=True)
        if files.read_bcache_file(files.find_control_folder(backing) / "io_disable") == "1":
            return replace(found, state="gone", detail=f"{name} stopped after too many errors")
        if files.read_bcache_file(files.find_control_folder(backing) / "state") in files.ATTACHED:
            return found
        # After its cache broke, it still runs. Before it first had its cache, it is unfinished and nobody uses it.
        path = found.path if data.get("device") else None
        return replace(found, state="partial", detail=f"{name} runs without its cache {cache}", path=path)

    def making(self, slot: DeviceSlot, device: Device, below: str) -> list[CreationCommand]:
        """Steps that write both superblocks."""
        backing, cache = superblock.make_bcache_argvs(below, _cache(device).bcache)
        return [
            CreationCommand("make it a backing device, if it is blank", backing),
            CreationCommand("make it a cache, if it is blank and not a cache yet", cache),
        ]

    async def check(self, device: Device) -> None:
        """Check for make-bcache, bcache in the kernel, and the cache device."""
        await self.runner.run(["make-bcache", "--help"], deadline=10, check=False)
        if not files.is_loaded():
            why = await load_module(self.runner, "bcache")
            if not files.is_loaded():
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

    async def settle(self, slot: DeviceSlot, data: Data) -> bool:
        """Nothing to do: a kernel operation that a crash left running ends by itself within moments."""
        return False

    async def up(self, job: LayerJob) -> str:
        """Format new devices, register both, attach the backing device to the cache, set the mode."""
        cache, backing = _cache(job.device), Path(job.below).name
        data: Data = {"below": job.below, "cache": cache.bcache, "flush": cache.flush}
        job.write(data)
        if files.read_bcache_file(files.find_control_folder(backing) / "state") not in files.ATTACHED:
            await superblock.format_bcache(job, cache, self.runner)
        data["cset"] = await self._register_cache(cache.bcache)
        job.write(data)
        if not files.is_registered(backing):
            await self._register(job.below)
        await files.wait_for_kernel(
            lambda: files.find_bcache_device(backing) is not None,
            f"{job.below} does not come up behind its cache {cache.bcache}",
            "see the kernel's log",
        )
        await self._attach(backing, data["cset"])
        job.write({**data, "device": files.find_bcache_device(backing)})
        await self._set(backing, cache)
        job.say(
            f"/dev/{files.find_bcache_device(backing)} is {job.below} behind the cache {cache.bcache} ({cache.mode})"
        )
        return f"/dev/{files.find_bcache_device(backing)}"

    async def adjust(self, job: LayerJob) -> None:
        """Attach the cache again if it was lost, and set the mode."""
        cache, backing = _cache(job.device), _backing(job.had)
        data = {**job.had, "flush": cache.flush, "device": files.find_bcache_device(backing)}
        try:
            data["cset"] = await self._register_cache(cache.bcache)
            await self._attach(backing, data["cset"])
        except (ToolFailed, DeviceGone, DeadlineExceeded) as error:
            job.say(f"/dev/{files.find_bcache_device(backing)} continues without its cache: {error}")
        job.write(data)
        await self._set(backing, cache)

    async def cut_off(self, data: Data) -> None:
        """Stop the device as soon as its user closes it; dirty data stays in the cache."""
        if data and files.is_registered(_backing(data)):
            with suppress(ToolFailed, DeadlineExceeded):
                await files.write_bcache_file(
                    self.runner, files.find_control_folder(_backing(data)) / "stop", "1"
                )

    async def find_cause(self, data: Data) -> ZvaultError | None:
        """Nothing: what it lies on has the cause."""

    async def rest(self, data: Data, *, resting: bool) -> None:
        """Pause or resume write-back. A request below that hangs when the host falls asleep could keep it awake.

        The kernel still writes the extents it has already collected (up to 500): read_dirty in
        drivers/md/bcache/writeback.c does not check for the pause.
        """
        if data and (file := files.find_control_folder(_backing(data)) / "writeback_running").exists():
            with suppress(ToolFailed):  # the device may vanish while it goes down
                await files.write_bcache_file(self.runner, file, "0" if resting else "1")

    async def down(
        self, slot: DeviceSlot, data: Data, found: FoundLayer, *, lost: bool, say: SayProgress
    ) -> None:
        """Write the cache back, stop the device, and wait until the kernel has released what is below."""
        backing, cache = _backing(data), data.get("cache", "")
        if not (lost or self.hurried()):
            # udev registered a device after zvault had looked: zvault waited a minute for a release that it had not
            # asked for, and left device, server and lease.
            await files.settle_udev(self.runner, UDEV_DEADLINE)
        cset = data.get("cset") or files.find_cache_set(backing) or await self._set_on(cache)
        if files.is_registered(backing):
            if not (lost or self.hurried()) and files.find_bcache_device(backing) is not None:
                await self._write_back(backing, data, say)
            if files.read_bcache_file(files.find_control_folder(backing) / "state") == "dirty":
                dirty = files.read_bcache_file(files.find_control_folder(backing) / "dirty_data")
                say(f"{dirty} stay in the cache {cache}: {backing} does not have them yet")
        await self._release(backing, data.get("device"), lost)
        await self._stop_set(cset, say)

    async def _set_on(self, cache: str) -> str | None:
        """The set of a cache whose registration a crash interrupted."""
        found = await superblock.read_superblock(cache, self.runner) if cache else None
        return found.cset if found is not None else None

    def leftover(self, data: Data) -> str | None:
        """None: it leaves no device behind."""
        return None

    # The kernel

    async def _register(self, path: str) -> None:
        """Register a device with the kernel; it may be registered already."""
        file = files.SETS / "register_quiet"
        await files.write_bcache_file(self.runner, file, path, deadline=files.REGISTER_DEADLINE)

    async def _register_cache(self, path: str) -> str:
        """Register the cache with the kernel; returns its set."""
        found = await superblock.read_superblock(path, self.runner)
        if found is None:
            raise DeviceGone(
                f"{path} is no longer a cache", "it has no superblock", "find out what overwrote it"
            )
        if not (files.SETS / found.cset).exists():
            await self._register(path)
        await files.wait_for_kernel(
            (files.SETS / found.cset).exists, f"the cache {path} does not come up", "see the kernel's log"
        )
        return found.cset

    async def _attach(self, backing: str, cset: str) -> None:
        if files.read_bcache_file(files.find_control_folder(backing) / "state") == "no cache":
            attach = files.find_control_folder(backing) / "attach"
            await files.write_bcache_file(self.runner, attach, cset, deadline=files.REGISTER_DEADLINE)
        await files.wait_for_kernel(
            lambda: files.read_bcache_file(files.find_control_folder(backing) / "state") in files.ATTACHED,
            f"{backing} is not attached to its cache",
            "see the kernel's log",
        )

    async def _set(self, backing: str, cache: CacheTable) -> None:
        wanted = {"cache_mode": cache.mode, **WRITEBACK}
        if cache.sequential_cutoff is not None:
            wanted["sequential_cutoff"] = str(cache.sequential_cutoff)
        for name, value in wanted.items():
            now = files.read_bcache_file(files.find_control_folder(backing) / name) or ""
            if value not in (now, *re.findall(r"\[(.+?)\]", now)):
                await files.write_bcache_file(self.runner, files.find_control_folder(backing) / name, value)

    async def _write_back(self, backing: str, data: Data, say: SayProgress) -> None:
        """Write back until ``state`` is clean; the kernel has stored it in the superblock then.

        If the host shuts down meanwhile, the rest stays in the cache.
        """
        folder, name = files.find_control_folder(backing), files.find_bcache_device(backing)
        began = moved = told = time.monotonic()
        least: str | None = None
        for setting, value in WRITE_BACK_AT_ONCE.items():
            await files.write_bcache_file(self.runner, folder / setting, value)
        while files.read_bcache_file(folder / "state") == "dirty" and not self.hurried():
            now, dirty = time.monotonic(), files.read_bcache_file(folder / "dirty_data")
            if dirty != least:
                least, moved = dirty, now
            if now - began >= data.get("flush", FLUSH) or now - moved >= FLUSH_STALL:
                for setting, value in WRITEBACK.items():
                    await files.write_bcache_file(self.runner, folder / setting, value)
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
        give_up = time.monotonic() + BCACHE_STOP_DEADLINE
        used = files.BCACHE_SYS_BLOCK / name / "slaves" / backing if name else None
        stopped = False
        while True:
            if files.is_registered(backing) and not stopped:
                await self._stop(backing)
            stopped = files.is_registered(backing)
            if not (stopped or (used is not None and used.exists())) and (
                lost or not await is_held(f"/dev/{backing}", self.runner)
            ):
                return
            if time.monotonic() >= give_up:
                raise DeviceGone(
                    f"bcache does not release /dev/{backing}",
                    f"zvault stopped it {BCACHE_STOP_DEADLINE:g} s ago",
                    "see the kernel's log, and find out which program has the device open",
                )
            await asyncio.sleep(BCACHE_STOP_POLL)

    async def _stop(self, backing: str) -> None:
        try:
            await files.write_bcache_file(self.runner, files.find_control_folder(backing) / "stop", "1")
        except ToolFailed:
            if files.is_registered(backing):
                raise

    async def _stop_set(self, cset: str | None, say: SayProgress) -> None:
        """Release the cache device too, unless it has other backing devices."""
        if cset is None or not (files.SETS / cset).exists():
            return
        if any(re.fullmatch(r"(bdev|volume)\d+", path.name) for path in (files.SETS / cset).iterdir()):
            return
        await files.write_bcache_file(self.runner, files.SETS / cset / "stop", "1")
        try:
            await files.wait_for_kernel(
                lambda: not (files.SETS / cset).exists(), "the cache is not released", ""
            )
        except DeviceGone:
            say(f"the cache set {cset} has not stopped yet")


def _cache(device: Device) -> CacheTable:
    if device.cache is None:
        raise ValueError("only a device with a cache has this layer")
    return device.cache


def _is_device(path: str) -> bool:
    """Decide by the name only, without access to the device."""
    return Path(path).is_block_device()


def _backing(data: Data) -> str:
    """The name of the device below."""
    return Path(data["below"]).name
