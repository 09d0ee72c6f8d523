"""A vault's devices, brought up from the server to the block device, and taken down the other way round.

Every effect is in a lease before it is made. After a crash at any point ``up`` finds what is there, uses what
works and clears what does not; ``down`` needs only the leases, not the configuration that they came from.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from zvault.config.nbd import NbdkitServer
from zvault.config.paths import Paths
from zvault.config.profile import QueueSettings
from zvault.config.schema import Device
from zvault.core.errors import Busy, DeadlineExceeded, DeviceGone, Refused, ZvaultError
from zvault.core.units import format_size
from zvault.devices import nbd, nbdkit
from zvault.devices import queue as request_queue
from zvault.devices.blank import blank
from zvault.devices.record import Record, Seen, Slot, State, examine
from zvault.devices.target import UnixTarget, reach
from zvault.system.lease import LeaseStore
from zvault.system.process import Runner
from zvault.system.units import Units

Say = Callable[[str], None]

LOCK_DEADLINE = 120.0
"""Seconds to wait for another zvault that has this vault's devices in hand."""


@dataclass(frozen=True, slots=True)
class BlockDevice:
    """A device that is up: where it is, its size in bytes, and what it is as the configuration says."""

    path: str
    size: int
    spec: str


@dataclass(frozen=True, slots=True)
class DeviceState:
    """A device as ``probe`` finds it. ``partial`` is neither up nor down: half of it is there."""

    name: str
    spec: str
    path: str | None
    state: State
    detail: str
    size: int | None


class Stack:
    """The devices below one vault's pool."""

    def __init__(
        self,
        vault_name: str,
        devices: Sequence[Device],
        queue: QueueSettings,
        runner: Runner,
        paths: Paths,
        leases: LeaseStore,
    ) -> None:
        self.vault = vault_name
        self.devices = list(devices)
        self.queue = queue
        self.runner = runner
        self.leases = leases
        self.units = Units(runner)
        self.directory = paths.run / "device"

    async def up(self, say: Say) -> list[BlockDevice]:
        """Bring every device up, or join what is up already; in the order of the configuration.

        A device whose server died comes back under its number, so that a pool suspended on it can resume
        ('zpool clear' once before, to let go of the dead device, and once after).
        On a failure what this call brought up is taken down again. Raises ToolMissing before anything is
        started; DeviceGone when a server is not there; Busy when something in the way is in use; Refused when a
        device is up that the configuration no longer means.
        """
        async with self.leases.lock(f"device/{self.vault}", deadline=LOCK_DEADLINE):
            await self._check_tools()
            seen, numbers = await self._settle(say)
            made: list[Slot] = []
            try:
                for device, found in zip(self.devices, seen, strict=True):
                    if not found.usable:
                        made.append(found.slot)
                        await self._bring_up(device, found.slot, numbers.get(found.slot), say)
                    elif found.path:
                        say(f"{found.path} is up already")
                    await self._tune(found.slot, say)
            except BaseException:
                await _to_its_end(self._undo(made, say))
                raise
            return self._result()

    async def down(self, say: Say) -> None:
        """Take down whatever of this vault is up, last first. Nothing need be.

        Raises Busy, with nothing changed, while a device is in use; DeviceGone for what could not be let go of,
        after all the rest is down.
        """
        async with self.leases.lock(f"device/{self.vault}", deadline=LOCK_DEADLINE):
            seen = [found for found in await self._look_settled() if found.record or found.unit]
            await self._refuse_if_used(seen)
            await self._take_all_down(seen, say)
            self._forget_stale()

    async def cut_off(self, say: Say) -> None:
        """Disconnect every lost device, also one in use: what waits for it fails at once, not at its timeout.

        Who has it open keeps it; once that is closed, ``up`` brings it back under its number.
        """
        async with self.leases.lock(f"device/{self.vault}", deadline=LOCK_DEADLINE):
            for found in await self._look(self._slots()):
                state, detail = found.verdict()
                if state == "gone" and found.path and found.record and found.record.number is not None:
                    say(f"cutting off {found.path}: {detail}")
                    await nbd.cut_off(found.record.number, self.runner)

    async def probe(self) -> list[DeviceState]:
        """Every device's state, leftovers' too. Asks the kernel and systemd, never a device."""
        return [self._state(found) for found in await self._look(self._slots())]

    async def blank(self, path: str) -> tuple[bool, str]:
        """Whether a device holds nothing, and in words what it holds. See blank.blank."""
        return await blank(path, self.runner)

    # What is there

    def _slot(self, index: int) -> Slot:
        return Slot(self.vault, index, self.directory)

    def _slots(self) -> list[Slot]:
        prefix = f"device/{self.vault}/"
        leased = {int(name.removeprefix(prefix)) for name in self.leases.names(prefix)}
        return [self._slot(index) for index in sorted(leased.union(range(len(self.devices))))]

    def _forget_stale(self) -> None:
        """Drop what is left of another boot; what it tells of ended with that."""
        for slot in self._slots():
            if self._record(slot) is None:
                self.leases.drop(slot.lease)

    def _record(self, slot: Slot) -> Record | None:
        lease = self.leases.get(slot.lease)
        return None if lease is None or lease["stale"] else Record.from_lease(lease)

    async def _look(self, slots: Sequence[Slot]) -> list[Seen]:
        records = {slot: self._record(slot) for slot in slots}
        serving = [slot for slot in slots if self._serves(slot, records[slot])]
        states = await self.units.states([slot.server.unit for slot in serving])
        seen = []
        for slot in slots:
            unit = states.get(slot.server.unit)
            # A unit that is not there says nothing, unless a record says that it should be.
            known = unit if records[slot] or (unit and unit.active != "inactive") else None
            seen.append(examine(Seen(slot, records[slot], known)))
        return seen

    async def _look_settled(self) -> list[Seen]:
        """Look once nothing moves any more: a crash may have left a client on its way to a device."""
        seen = await self._look(self._slots())
        if not any([await self._stop_stray_client(found) for found in seen]):
            return seen
        return await self._look(self._slots())

    async def _stop_stray_client(self, found: Seen) -> bool:
        if found.record is None or found.record.number is None or found.ours:
            return False
        await nbd.stop_client(found.slot.client_file, found.record.number)
        return True

    def _serves(self, slot: Slot, record: Record | None) -> bool:
        if record is not None:
            return record.serves
        return slot.index < len(self.devices) and isinstance(self.devices[slot.index].nbd, NbdkitServer)

    def _state(self, found: Seen) -> DeviceState:
        state, detail = found.verdict()
        configured = self.devices[found.slot.index] if found.slot.index < len(self.devices) else None
        spec = found.record.spec if found.record else str(configured.nbd if configured else "")
        size = found.status.size if found.status and found.ours else None
        return DeviceState(found.slot.name, spec, found.path, state, detail, size)

    def _result(self) -> list[BlockDevice]:
        result = []
        for index, device in enumerate(self.devices):
            record = self._record(self._slot(index))
            if record is None or record.number is None:
                raise DeviceGone(f"device {index} of vault {self.vault} vanished while it was brought up")
            path = nbd.device_path(record.number)
            result.append(BlockDevice(path, nbd.status(record.number).size, str(device.nbd)))
        return result

    # Up

    async def _check_tools(self) -> None:
        if self.devices:
            await nbd.check(self.runner)
        for device in self.devices:
            if isinstance(device.nbd, NbdkitServer):
                await nbdkit.check(device.nbd, self.runner)

    async def _settle(self, say: Say) -> tuple[list[Seen], dict[Slot, int]]:
        """Clear away what does not work; the result is the configuration's devices, and numbers lost ones had."""
        seen = await self._look_settled()
        wanted = {index: str(device.nbd) for index, device in enumerate(self.devices)}
        for found in seen:
            spec = found.record.spec if found.record else None
            if found.usable and spec is not None and spec != wanted.get(found.slot.index):
                raise Refused(
                    f"device {found.slot.name} is up as {spec}",
                    "the configuration has changed since",
                    f"take it down first: zvaultctl vault down {self.vault}",
                )
        broken = [found for found in seen if not found.usable and (found.record or found.unit)]
        await self._refuse_if_used(broken)
        for found in broken:
            say(f"clearing away what is left of {found.slot.name}: {found.verdict()[1]}")
            await self._take_down(found)
        self._forget_stale()
        slots = [self._slot(index) for index in range(len(self.devices))]
        numbers = {
            found.slot: found.record.number
            for found in broken
            if found.record is not None and found.record.number is not None
        }
        if not broken:
            return [found for found in seen if found.slot in slots], numbers
        return await self._look(slots), numbers

    async def _bring_up(self, device: Device, slot: Slot, prefer: int | None, say: Say) -> None:
        spec = device.nbd
        target = await reach(spec, slot.server.socket)
        record = Record.of(device, slot, target)
        slot.make_directory()
        self.leases.put(slot.lease, record.as_lease())
        if isinstance(spec, NbdkitServer):
            if device.size is not None and spec.backing_file is not None:
                await nbdkit.make_backing_file(spec.backing_file, device.size, self.runner)
            say(f"starting the server of {spec}")
            await nbdkit.start(slot.server, spec, self.units)

        before = target.links()

        def tried(index: int) -> None:
            self.leases.put(slot.lease, replace(record, number=index).as_lease())

        index = await nbd.connect(
            target,
            slot.client_file,
            tried,
            self.runner,
            timeout=device.timeout,
            connections=device.connections,
            prefer=prefer,
        )
        links = tuple(sorted(target.links() - before)) or None
        status = nbd.status(index)
        self.leases.put(slot.lease, replace(record, number=index, pid=status.pid, links=links).as_lease())
        say(f"{nbd.device_path(index)} is {format_size(status.size)} from {spec}")

    async def _tune(self, slot: Slot, say: Say) -> None:
        record = self._record(slot)
        if record is None or record.number is None:
            return
        name = f"nbd{record.number}"
        changes = request_queue.plan(name, self.queue)
        # What stood there first is what goes back, also when this is the second time.
        before = {change.name: change.before for change in changes} | record.queue
        self.leases.put(slot.lease, replace(record, queue=before).as_lease())
        for setting in await request_queue.write(name, changes, self.runner):
            if not setting.as_wanted:
                say(f"{name}: {setting.name} is {setting.got}, which is what it takes of {setting.wanted}")

    async def _undo(self, slots: Sequence[Slot], say: Say) -> None:
        with contextlib.suppress(ZvaultError):
            seen = [found for found in await self._look(slots) if found.record or found.unit]
            await self._take_all_down(seen, say)

    # Down

    async def _refuse_if_used(self, seen: Sequence[Seen]) -> None:
        for found in seen:
            if found.path is not None:
                await self._refuse_if_held(found.path, found)
            elif found.record is None and found.unit is not None and found.unit.running:
                self._refuse_if_connected(found)

    async def _refuse_if_held(self, path: str, found: Seen) -> None:
        try:
            if not await nbd.held(path, self.runner):
                return
            why = "a pool, a file system or another layer on it is in use"
        except DeadlineExceeded:
            why = "it does not answer, so it may be in use"
        detail = found.verdict()[1]
        raise Busy(
            f"{path} of vault {self.vault} cannot be taken down",
            f"{why}; {detail}" if detail else why,
            "export the pool first; if its device is gone, 'zpool clear' lets go of it",
        )

    def _refuse_if_connected(self, found: Seen) -> None:
        path = str(found.slot.server.socket)
        if UnixTarget(path).links():
            raise Busy(
                f"{found.slot.server.unit} serves somebody",
                "there is no record of which device it is",
                "find it in /sys/block/nbd*/pid, disconnect it with 'nbd-client -d', and stop the unit",
            )

    async def _take_all_down(self, seen: Sequence[Seen], say: Say) -> None:
        first: ZvaultError | None = None
        for found in reversed(seen):
            try:
                await self._take_down(found)
                say(f"{found.path or found.slot.name} is down")
            except ZvaultError as error:
                say(f"{found.slot.name} is left: {error}")
                first = first or error
        if first is not None:
            raise first

    async def _take_down(self, found: Seen) -> None:
        """Undo one device, the last step first; the lease goes last of all."""
        record, slot = found.record, found.slot
        if record is not None and record.number is not None:
            if found.ours:
                await nbd.disconnect(record.number, self.runner)
            if nbd.status(record.number).pid is None:
                await request_queue.restore(f"nbd{record.number}", record.queue, self.runner)
        if found.unit is not None or (record is not None and record.serves):
            await nbdkit.stop(slot.server, self.units)
        slot.client_file.unlink(missing_ok=True)
        self.leases.drop(slot.lease)


async def _to_its_end(work: Awaitable[None]) -> None:
    """Do what must be done even while this task is being cancelled. Everything in it has a deadline."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
