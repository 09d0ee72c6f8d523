"""A vault's devices, brought up layer by layer from the source to the block device, and taken down the other way.

Every effect is in a lease before it is made. After a crash at any point ``up`` finds what is there, uses what
works and clears what does not; ``down`` needs only the leases, not the configuration that they came from.
What a layer is and does is in layer.py; here they are put in order.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from zvault.config.paths import Paths
from zvault.config.profile import QueueSettings
from zvault.config.schema import Device
from zvault.core.errors import Busy, DeadlineExceeded, DeviceGone, Refused, ZvaultError
from zvault.core.policy.automatic_repairs import CLOSED, UNMAP_DEVICE
from zvault.devices import request_queue
from zvault.devices.bcache.layer import Bcache
from zvault.devices.blank_check import is_blank
from zvault.devices.device_record import DeviceRecord, FoundDevice, LayerRecord, mark_throw_away
from zvault.devices.device_state import READ_ONLY, BlockDevice, DeviceState
from zvault.devices.inventory import DeviceInventory
from zvault.devices.layer import (
    CreationCommand,
    Data,
    DeviceLayer,
    DeviceSlot,
    LayerJob,
    MissingPart,
    SayProgress,
)
from zvault.devices.nbd.connection import is_held
from zvault.devices.nbd.source import NbdSource
from zvault.devices.rbd.source import RbdSource
from zvault.system.block_devices import is_read_only_device
from zvault.system.mount import is_mount_point
from zvault.system.process.runner import HostRunner, ProcessRunner
from zvault.system.record_store import RecordStore
from zvault.system.system_bus import read_unit_states
from zvault.system.systemd_units import SystemdUnits, make_inactive_error
from zvault.system.tasks import finish_work

__all__ = ["DeviceStack", "SayProgress"]

REGISTERING_TIME = 0.3
"""Seconds in which a layer is there that is being registered."""
LOCK_DEADLINE = 120.0
"""Seconds to wait for another zvault that has this vault's devices in hand."""


class DeviceStack:
    """The devices below one vault's pool. ``create``: the pool is to be made, so blank devices may be formatted, and
    images and files made; without, ``absence`` is told of what is not there.

    ``hurried`` tells whether they have to go down now: then what a cache holds is not written back before.
    ``find_uploads`` tells how many uploads the server of a device begins with, where its settings do not: see LayerJob.
    """

    def __init__(  # noqa: PLR0913 - all that a stack is made of
        self,
        vault_name: str,
        devices: Sequence[Device],
        queue: QueueSettings,
        runner: ProcessRunner,
        paths: Paths,
        leases: RecordStore,
        *,
        create: bool = False,
        absence: MissingPart | None = None,
        hurried: Callable[[], bool] = lambda: False,
        find_uploads: Callable[[Device], int | None] = lambda _: None,
    ) -> None:
        self.vault = vault_name
        self.devices = list(devices)
        self.queue = queue
        self.runner = runner
        self.leases = leases
        self.create = create
        self.absence = absence or MissingPart()
        self.find_uploads = find_uploads
        self.resume = False
        """Whether a pool waits for the devices: see layer.Job."""
        self.throw_away = False
        """Whether what is written to the devices shall be thrown away: a pool that another host has now is exported so.

        They are on record as another device than the vault's, so that a crash leaves none that a vault is opened on."""
        self.pool_paths: Sequence[str] = ()
        """Where the pool looks for the devices, in their order, with ``throw_away``."""
        self.keeps_lost = any(device.rbd is not None for device in self.devices)
        """Whether a device that is lost stays for as long as a pool has it open, as krbd's mappings do."""
        self._had: dict[DeviceSlot, DeviceRecord] = {}
        """What lost devices had when this stack first cleared them away: the pool knows them by their numbers."""
        units = SystemdUnits(runner, read_unit_states if isinstance(runner, HostRunner) else None)
        self._units = units
        self.kinds: dict[str, DeviceLayer] = {
            "nbd": NbdSource(runner, units),
            "rbd": RbdSource(runner, units),
            "bcache": Bcache(runner, hurried),
        }
        self.inventory = DeviceInventory(
            vault_name, self.devices, self.kinds, units, leases, paths.run / "device"
        )

    async def up(self, say: SayProgress) -> list[BlockDevice]:
        """Bring every device up, or join what is up already; in the order of the configuration.

        A device whose server died comes back under its number, so that a pool suspended on it can resume
        ('zpool clear' once before, to release the dead device, and once after).
        On a failure what this call brought up is taken down again. Raises ToolMissing before anything is
        started; DeviceGone when a server is not there; Busy when something in the way is in use; Refused when a
        device is up that the configuration no longer means.
        """
        async with self.leases.lock(f"device/{self.vault}", deadline=LOCK_DEADLINE):
            seen = await self.inventory.look_settled()
            await self._check(seen)
            seen, lost = await self._settle(seen, say)
            self._refuse_unmounted(seen)
            await self._refuse_without_units(seen)
            made: list[DeviceSlot] = []
            try:
                for device, found in zip(self.devices, seen, strict=True):
                    if found.usable:
                        say(f"{found.path} is up already")
                        await self._adjust(device, found, say)
                    else:
                        made.append(found.slot)
                        await self._bring_up(device, found.slot, lost.get(found.slot), say)
                        (found,) = await self.inventory.look([found.slot])  # noqa: PLW2901
                    await self._tune(found, self.queue, say)
                return await self._verified()
            except BaseException:
                await finish_work(self._undo(made, say))
                raise

    async def down(self, say: SayProgress) -> None:
        """Take down whatever of this vault is up, last first. Nothing need be.

        Raises Busy, with nothing changed, while a device is in use; DeviceGone for what could not be released,
        after all the rest is down.
        """
        async with self.leases.lock(f"device/{self.vault}", deadline=LOCK_DEADLINE):
            found = [found for found in await self.inventory.look_settled() if found.present]
            await self._take_all_down(await self._not_used(found), say)
            self.inventory.forget_stale()

    async def cut_off(self, say: SayProgress) -> None:
        """Disconnect every lost device, also one in use: what waits for it fails at once, not at its timeout.

        Who has it open keeps it; once that is closed, ``up`` brings it back under its number.
        """
        async with self.leases.lock(f"device/{self.vault}", deadline=LOCK_DEADLINE):
            for found in await self.inventory.look(self.inventory.slots()):
                state, detail = found.verdict()
                top = found.topmost
                if state == "gone" and found.record is not None and top is not None and top.path is not None:
                    say(f"cutting off {top.path}: {detail}")
                    for level in found.levels:
                        await self.kinds[level.kind].cut_off(level.data or {})

    async def end_discards(self, say: SayProgress) -> None:
        """Have the kernel refuse discards on each device until it goes down: those that ZFS sends fail at once."""
        async with self.leases.lock(f"device/{self.vault}", deadline=LOCK_DEADLINE):
            for found in await self.inventory.look(self.inventory.list_configured()):
                if found.usable:
                    await self._tune(found, QueueSettings(discard_max_bytes=0), say)

    async def find_cause(self) -> ZvaultError | None:
        """Why a device that is there does not answer, where its storage says so; None otherwise.

        It asks the storage, so it may take as long as the storage's own tools give it.
        """
        for found in await self.inventory.look(self.inventory.list_configured()):
            for level in found.levels:
                if level.data and (cause := await self.kinds[level.kind].find_cause(level.data)) is not None:
                    return cause
        return None

    async def rest(self, *, resting: bool) -> None:
        """Before the host sleeps, have no layer begin anything of its own accord; and go on after.

        Also while the devices are being taken down, so without their lock: that may take longer than anybody waits.
        """
        for found in await self.inventory.look(self.inventory.slots()):
            for level in found.levels:
                await self.kinds[level.kind].rest(level.data or {}, resting=resting)

    async def probe(self) -> list[DeviceState]:
        """Every device's state, leftovers' too. Asks the kernel and systemd, never a device."""
        return [self._state(found) for found in await self.inventory.look(self.inventory.slots())]

    def making(self) -> dict[str, list[CreationCommand]]:
        """List what ``up`` would run to make each device of a new vault, by the device's name. Asks nothing."""
        steps: dict[str, list[CreationCommand]] = {}
        for device, slot in zip(self.devices, self.inventory.list_configured(), strict=True):
            layers = [self.kinds[kind] for kind in device.layers]
            steps[slot.name] = [step for layer in layers for step in layer.making(slot, device, slot.name)]
        return steps

    async def blank(self, path: str) -> tuple[bool, str]:
        """Return whether a device holds nothing, and in words what it holds. See blank_check.is_blank."""
        return await is_blank(path, self.runner)

    # What is there

    def _state(self, found: FoundDevice) -> DeviceState:
        state, detail = found.verdict()
        if state == "up" and not detail and found.path is not None and is_read_only_device(found.path):
            detail = READ_ONLY
        device = self.inventory.device(found.slot)
        spec = found.record.spec if found.record else device.spec if device else ""
        told = found.layers[0].told if found.layers else None
        return DeviceState(found.slot.name, spec, found.path, state, detail, found.size, told)

    async def _verified(self) -> list[BlockDevice]:
        """Look again at all that should be up now."""
        result = []
        seen = await self.inventory.look(self.inventory.list_configured())
        for device, found in zip(self.devices, seen, strict=True):
            if not found.usable or found.path is None or found.size is None:
                raise DeviceGone(
                    f"{device.spec} of vault {self.vault} vanished while it was brought up",
                    found.verdict()[1],
                    "see the kernel's log, and its server",
                )
            result.append(BlockDevice(found.path, found.size, device.spec))
        return result

    # Up

    def _refuse_unmounted(self, seen: Sequence[FoundDevice]) -> None:
        """Raises DeviceGone where a folder that has to be a mount point is none, before anything is touched."""
        for device, found in zip(self.devices, seen, strict=True):
            for folder in () if found.usable else device.requires_mount:
                if not is_mount_point(folder):
                    raise DeviceGone(
                        f"nothing is mounted on {folder}, where {device.spec} of vault {self.vault} is",
                        "requires_mount says that it has to be; nothing was made there",
                        f"mount it ('mount {folder}', or connect its disk); the next try goes on with it",
                    )

    async def _refuse_without_units(self, seen: Sequence[FoundDevice]) -> None:
        """Raises DeviceGone where a unit by which a device is reached is not active, before anything is touched."""
        missing = [device for device, found in zip(self.devices, seen, strict=True) if not found.usable]
        states = await self._units.states(
            sorted({unit for device in missing for unit in device.requires_unit})
        )
        for device in missing:
            for unit in device.requires_unit:
                if states[unit].active != "active":
                    raise make_inactive_error(f"{device.spec} of vault {self.vault}", states[unit])

    async def _check(self, seen: Sequence[FoundDevice]) -> None:
        """See that the tools are there for whatever is not up. Raises ToolMissing."""
        usable = {found.slot for found in seen if found.usable}
        for device, slot in zip(self.devices, self.inventory.list_configured(), strict=True):
            if slot not in usable:
                for kind in device.layers:
                    await self.kinds[kind].check(device)

    async def _settle(
        self, seen: Sequence[FoundDevice], say: SayProgress
    ) -> tuple[list[FoundDevice], dict[DeviceSlot, DeviceRecord]]:
        """Clear away what does not work; the result is the configuration's devices, and what lost ones had."""
        wanted = {index: self._spec(device) for index, device in enumerate(self.devices)}
        for found in seen:
            spec = found.record.spec if found.record else None
            if found.usable and spec is not None and spec != wanted.get(found.slot.index):
                raise Refused(
                    f"device {found.slot.name} is up as {spec}",
                    "what is written to it reaches the store"
                    if self.throw_away
                    else "the configuration has changed since",
                    f"take it down first: zvaultctl vault down {self.vault}",
                )
        broken = await self._not_used([found for found in seen if not found.usable and found.present])
        for found in broken:
            say(f"clearing away what is left of {found.slot.name}: {found.verdict()[1]}")
            try:
                await self._take_down(found, say)
            except DeviceGone:
                # A pool that is given up has what is left open until it is exported over a new copy.
                if not self.throw_away:
                    raise
        self.inventory.forget_stale()
        slots = self.inventory.list_configured()
        self._had |= {found.slot: found.record for found in broken if found.record is not None}
        lost = {slot: self._had[slot] for slot in self.inventory.list_configured() if slot in self._had}
        if not broken:
            return [found for found in seen if found.slot in slots], lost
        return await self.inventory.look(slots), lost

    def _spec(self, device: Device) -> str:
        return mark_throw_away(device.spec) if self.throw_away else device.spec

    async def _bring_up(
        self, device: Device, slot: DeviceSlot, lost: DeviceRecord | None, say: SayProgress
    ) -> None:
        slot.make_directory()
        layers = tuple(LayerRecord(kind) for kind in device.layers)
        # A device that was lost comes back under its name, with the settings that it was given.
        record = DeviceRecord(self._spec(device), layers, lost.queue if lost is not None else {})
        self.leases.put(slot.lease, record.as_lease())
        had = {part.kind: part.data for part in lost.layers} if lost is not None else {}
        below = ""
        for depth, kind in enumerate(device.layers):
            write = self._writer(slot, depth)
            had_now = had.get(kind, {})
            job = LayerJob(
                *(slot, device, below, had_now, self.create, write, say, self.resume, self.absence),
                throw_away=self.throw_away,
                uploads=self.find_uploads(device),
                pool_path=self.pool_paths[slot.index] if slot.index < len(self.pool_paths) else None,
            )
            below = await self.kinds[kind].up(job)

    async def _adjust(self, device: Device, found: FoundDevice, say: SayProgress) -> None:
        below = ""
        for depth, level in enumerate(found.levels):
            write = self._writer(found.slot, depth)
            job = LayerJob(found.slot, device, below, level.data or {}, self.create, write, say)
            await self.kinds[level.kind].adjust(job)
            below = level.found.path or ""

    def _writer(self, slot: DeviceSlot, depth: int) -> Callable[[Data], None]:
        """Puts one layer's data into a device's lease."""

        def write(data: Data) -> None:
            record = self.inventory.record(slot)
            if record is None:
                raise Refused(f"the lease of {slot.name} vanished", "somebody deleted it", "begin again")
            self.leases.put(slot.lease, record.with_data(depth, data).as_lease())

        return write

    async def _tune(self, found: FoundDevice, settings: QueueSettings, say: SayProgress) -> None:
        """Set the request queues of the lowest and the topmost block device."""
        slot = found.slot
        paths = [layer.path for layer in found.layers if layer.path is not None]
        if found.record is None or not paths:
            return
        for name in dict.fromkeys((Path(paths[0]).name, Path(paths[-1]).name)):
            record = self.inventory.record(slot) or found.record
            changes = request_queue.plan_queue_changes(name, settings)
            # What stood there first is what goes back, also when this is the second time.
            before = {change.name: change.before for change in changes} | record.queue.get(name, {})
            self.leases.put(slot.lease, replace(record, queue=record.queue | {name: before}).as_lease())
            for done in await request_queue.write_queue_changes(name, changes, self.runner):
                if not done.as_wanted:
                    say(f"{name}: {done.name} is {done.got}, which is what it takes of {done.wanted}")

    async def _undo(self, slots: Sequence[DeviceSlot], say: SayProgress) -> None:
        with contextlib.suppress(ZvaultError):
            seen = [found for found in await self.inventory.look(slots) if found.present]
            await self._take_all_down(seen, say)

    # Down

    async def _not_used(self, seen: Sequence[FoundDevice]) -> list[FoundDevice]:
        """The same devices, as they are by now. Raises Busy while one is in use: by others, not by a layer of its own
        that udev brought up after it was looked at.
        """
        while True:
            try:
                await UNMAP_DEVICE.require_known({CLOSED: partial(self._refuse_if_used, seen)})
            except Busy:
                await asyncio.sleep(REGISTERING_TIME)
                again = await self.inventory.look([found.slot for found in seen])
                now = [found for found in again if found.present]
                if _topmost(now) == _topmost(seen):
                    raise
                seen = now
            else:
                return list(seen)

    async def _refuse_if_used(self, seen: Sequence[FoundDevice]) -> None:
        for found in seen:
            top = found.topmost
            if top is not None and top.busy is not None:
                raise top.busy
            if top is not None and top.path is not None:
                await self._refuse_if_held(top.path, found)

    async def _refuse_if_held(self, path: str, found: FoundDevice) -> None:
        try:
            if not await is_held(path, self.runner):
                return
            why = "a pool, a file system or another layer on it is in use"
        except DeadlineExceeded:
            why = "it does not answer, so it may be in use"
        detail = found.verdict()[1]
        raise Busy(
            f"{path} of vault {self.vault} cannot be taken down",
            f"{why}; {detail}" if detail else why,
            "export the pool first; if its device is gone, 'zpool clear' releases it",
        )

    async def _take_all_down(self, seen: Sequence[FoundDevice], say: SayProgress) -> None:
        first: ZvaultError | None = None
        for found in reversed(seen):
            try:
                await self._take_down(found, say)
                say(f"{found.path or found.slot.name} is down")
            except ZvaultError as error:
                say(f"{found.slot.name} is left: {error}")
                first = first or error
        if first is not None:
            raise first

    async def _take_down(self, found: FoundDevice, say: SayProgress) -> None:
        """Undo one device, the topmost layer first; the lease goes last of all."""
        slot, record = found.slot, found.record
        for depth, level in reversed(list(enumerate(found.levels))):
            if not (level.data or level.found.present):
                continue
            kind, data = self.kinds[level.kind], level.data or {}
            lost = not all(below.usable for below in found.layers[:depth])
            await kind.down(slot, data, level.found, lost=lost, say=say)
            if record is not None and (name := kind.leftover(data)) is not None:
                await request_queue.restore_queue(name, record.queue.get(name, {}), self.runner)
        self.leases.drop(slot.lease)


def _topmost(seen: Sequence[FoundDevice]) -> list[tuple[int, str | None]]:
    """The device that each offers to the one above."""
    return [(found.slot.index, found.topmost.path if found.topmost is not None else None) for found in seen]
