"""NBD as a source: the server, where zvault runs it, and the kernel's connection to it."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any

from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.config.device_specs.nbd import NbdkitServer, NbdSpec, OwnServer
from zvault.config.device_specs.s3backer import S3backerServer
from zvault.config.tables.device import Device
from zvault.core.errors import Busy, JournalMissing, NotFound, ZvaultError
from zvault.core.policy.automatic_repairs import LEAVE_NUMBER, NO_CONNECTION, OWN, RECONNECT_DEVICE
from zvault.core.units import format_size
from zvault.devices.layer import CreationCommand, Data, DeviceSlot, FoundLayer, LayerJob, SayProgress
from zvault.devices.nbd import blockstore_server, guarded_server, nbdkit, past_store, s3backer, sockets
from zvault.devices.nbd import connection as nbd
from zvault.devices.nbd.target import Target, TcpTarget, UnixTarget, reach_target
from zvault.devices.server_unit import DeviceServer, UnitKind
from zvault.system.process.runner import ProcessRunner
from zvault.system.system_bus import UnitState
from zvault.system.systemd_units import SystemdUnits

COPY_REQUEST_TIMEOUT = 240.0
"""Seconds, at least, for a request to a copy that is thrown away: a pool that is exported on it must see none fail.

Whoever makes it (udev looks at the device's end): after one that takes longer the kernel drops the connection, and
fails all others (nbd_xmit_timeout in drivers/block/nbd.c). The copy's server answers in any case, but may make several
requests to the store for that (zvault/blockstore/latest_device.py)."""


@dataclass(frozen=True, slots=True)
class RecordedConnection:
    """The record of a connection in the lease, written before each step that it tells of.

    ``number`` is that of the NBD device tried last, ``pid`` the process that connected it. ``links`` are the
    connections that came with it: None before it was connected, and where the server's sockets cannot be seen.
    """

    spec: str
    connections: int
    serves: bool = False
    kind: UnitKind = "device"
    unix: str | None = None
    tcp: tuple[str, int] | None = None
    export: str = ""
    number: int | None = None
    pid: int | None = None
    links: tuple[str, ...] | None = None

    def as_data(self) -> Data:
        """As the lease holds it."""
        return asdict(self)

    @classmethod
    def of_data(cls, data: dict[str, Any]) -> RecordedConnection:
        """Read back. Keys that another version wrote are left out."""
        known = {item.name: data[item.name] for item in fields(cls) if item.name in data}
        for key in ("tcp", "links"):
            if known.get(key) is not None:
                known[key] = tuple(known[key])
        return cls(**known)

    @classmethod
    def to(cls, device: Device, target: Target) -> RecordedConnection:
        """The first record of a device that is about to be brought up."""
        return cls(
            spec=str(device.server),
            connections=device.connections,
            serves=isinstance(device.nbd, OwnServer),
            kind=_kind(device),
            unix=target.path if isinstance(target, UnixTarget) else None,
            tcp=(target.address, target.port) if isinstance(target, TcpTarget) else None,
            export=target.export,
        )

    def links_now(self) -> set[str]:
        """The connections to its server that live now, whoever has them."""
        if self.unix is not None:
            return sockets.list_unix_links(self.unix)
        return sockets.list_tcp_links(*self.tcp) if self.tcp is not None else set()


@dataclass(frozen=True, slots=True)
class KernelDevice:
    """The kernel's device under the recorded number, and whether that is ours and how many connections live."""

    status: nbd.NbdDeviceStatus
    ours: bool
    alive: int | None

    @classmethod
    def of(cls, connection: RecordedConnection, slot: DeviceSlot) -> KernelDevice | None:
        """Look; None before a number was tried."""
        if connection.number is None:
            return None
        status = nbd.read_nbd_status(connection.number)
        client = connection.pid or nbd.read_owner_pid(slot.client_file)
        now = connection.links_now()
        if connection.links is not None:
            alive: int | None = len(now.intersection(connection.links))
        else:
            # Zero may mean that the server is in another network namespace, whose sockets cannot be seen.
            alive = len(now) or None
        if alive is not None:
            alive = min(alive, connection.connections)
        return cls(status, status.pid is not None and status.pid == client, alive)


class NbdSource:
    """See layer.DeviceLayer."""

    def __init__(self, runner: ProcessRunner, units: SystemdUnits) -> None:
        self.runner = runner
        self.units = units

    def unit(self, slot: DeviceSlot, data: Data | None, device: Device | None) -> str | None:
        """The unit of a server that zvault runs."""
        if data:
            return _server(slot, data).unit if data["serves"] else None
        if device is None or not isinstance(device.nbd, OwnServer):
            return None
        return replace(slot.server, kind=_kind(device)).unit

    def look(self, slot: DeviceSlot, data: Data | None, unit: UnitState | None) -> FoundLayer:
        """Judge the connection by the kernel and the unit, with the last words of a server that has gone."""
        told = blockstore_server.read_server_status(slot.server)
        if not data:
            return replace(_without_record(slot, unit), told=told)
        connection = RecordedConnection.of_data(data)
        found = judge_connection(connection, unit, KernelDevice.of(connection, slot))
        lost = guarded_server.read_last_words(slot) if found.state == "gone" else None
        detail = found.detail if lost is None else f"{lost.what}: {lost.why}"
        return replace(found, detail=detail, told=told)

    def making(self, slot: DeviceSlot, device: Device, below: str) -> list[CreationCommand]:
        """The backing file and the server."""
        spec = device.server
        if isinstance(spec, S3backerServer):
            server = replace(slot.server, kind="s3backer")
            return [
                CreationCommand(
                    f"have its file in {s3backer.find_s3backer_mount(server)}, served in {server.unit}",
                    s3backer.s3backer_argv(spec),
                )
            ]
        if not isinstance(spec, guarded_server.Guarded):
            return []
        unit = guarded_server.make_server(slot, spec).unit
        if isinstance(spec, BlockstoreServer):
            what = f"make it in the bucket if it is not there, and serve it, in {unit}"
            return [
                CreationCommand(what, guarded_server.guarded_server_argv(slot, device, spec, create=True))
            ]
        steps = [
            CreationCommand(f"serve it, in {unit}", guarded_server.guarded_server_argv(slot, device, spec))
        ]
        if device.size is None or spec.backing_file is None:
            return steps
        argv = nbdkit.truncate_argv(spec.backing_file, device.size)
        return [CreationCommand("unless the file has any content, make it", argv), *steps]

    async def check(self, device: Device) -> None:
        """nbd-client, the kernel's nbd; nbdkit with its plugin and filters."""
        await nbd.check_nbd_client(self.runner)
        if isinstance(device.nbd, NbdkitServer):
            await nbdkit.check_nbdkit(device.nbd, self.runner)
        elif isinstance(device.nbd, past_store.PastStore):
            await past_store.check_past_tools(self.runner)
        elif isinstance(device.nbd, BlockstoreServer):
            await blockstore_server.check_store_tools(self.runner)
        elif isinstance(device.nbd, S3backerServer):
            await s3backer.check_s3backer(self.runner)

    async def settle(self, slot: DeviceSlot, data: Data) -> bool:
        """A crash may have left a client on its way to a device."""
        connection = RecordedConnection.of_data(data)
        kernel = KernelDevice.of(connection, slot)
        if connection.number is None or (kernel is not None and kernel.ours):
            return False
        await nbd.stop_client(slot.client_file, nbd.nbd_device_path(connection.number))
        return True

    async def up(self, job: LayerJob) -> str:
        """Start the server, connect to it; under the number it had when it was lost, if that can be had."""
        slot, device = job.slot, job.device
        spec = device.server
        if not job.create:
            await self._refuse_without_file(job, spec)
        target = await reach_target(spec, slot.server.socket, device.tls)
        record = RecordedConnection.to(device, target)
        job.write(record.as_data())
        if isinstance(spec, guarded_server.Guarded):
            if (file := _file_to_make(job, spec)) is not None:
                await nbdkit.make_backing_file(*file, self.runner)
            job.say(f"starting the server of {spec}")
            # Its guard takes the lease, and refuses to where another host has had the store since.
            await RECONNECT_DEVICE.require_known({OWN: partial(self._serve, job, spec)})
        elif isinstance(spec, S3backerServer):
            job.say(f"starting the server of {spec}")
            server = replace(slot.server, kind="s3backer")
            await s3backer.start_s3backer(server, spec, self.units, self.runner, ours=bool(job.had))

        before = target.links()

        def tried(index: int) -> None:
            job.write(replace(record, number=index).as_data())

        index = await nbd.connect_device(
            target,
            slot.client_file,
            tried,
            self.runner,
            timeout=compute_request_timeout(device, throw_away=job.throw_away),
            connections=device.connections,
            prefer=job.had.get("number"),
        )
        links = tuple(sorted(target.links() - before)) or None
        status = nbd.read_nbd_status(index)
        job.write(replace(record, number=index, pid=status.pid, links=links).as_data())
        job.say(f"{nbd.nbd_device_path(index)} is {format_size(status.size)} from {spec}")
        return nbd.nbd_device_path(index)

    async def _refuse_without_file(self, job: LayerJob, spec: NbdSpec) -> None:
        """Raises NotFound where the file that is to be served is not there."""
        file = spec.backing_file if isinstance(spec, NbdkitServer) else None
        if file is not None and not await nbdkit.has_backing_file(file, self.runner):
            error = job.absence.error(f"there is no file {file}, which vault {job.slot.vault} is on")
            if job.device.mirror is not None and job.device.size is not None:
                again = shlex.join(nbdkit.truncate_argv(file, job.device.size))
                error.next += (
                    f"; if only this side of its mirror is lost: {again} makes it anew, for 'zpool replace'"
                )
            raise error

    async def _serve(self, job: LayerJob, spec: guarded_server.Guarded) -> None:
        try:
            await guarded_server.start_guarded_server(job, spec, self.units)
        except JournalMissing as error:
            # The server does not know whose it is.
            place = f"{job.slot.vault}/{job.slot.index}"
            advice = error.next.replace("give-up-journal", f"give-up-journal {place}")
            raise JournalMissing(error.what, error.why, advice) from error
        except NotFound as error:
            if job.create or not isinstance(spec, BlockstoreServer):
                raise
            raise job.absence.error(error.what, error.why) from error

    async def adjust(self, job: LayerJob) -> None:
        """A connection's settings are fixed."""

    async def cut_off(self, data: Data) -> None:
        """Disconnect it: what waits for it fails at once, not at its timeout."""
        if (number := data.get("number")) is not None:
            await nbd.cut_device_off(number, self.runner)

    async def find_cause(self, data: Data) -> ZvaultError | None:
        """Nothing: an NBD server says nothing of itself."""

    async def rest(self, data: Data, *, resting: bool) -> None:
        """It does nothing of its own accord."""

    async def down(
        self, slot: DeviceSlot, data: Data, found: FoundLayer, *, lost: bool, say: SayProgress
    ) -> None:
        """Disconnect, then stop the server."""
        number = data.get("number")
        if number is not None and found.path is not None:
            await self._disconnect(slot, data, number, say)
        server = _server(slot, data)
        if server.kind == "s3backer":
            await s3backer.stop_s3backer(server, self.units, self.runner)
        elif server.kind == "blockstore":
            await blockstore_server.stop_store_server(server, self.units, say)
        elif not data or data["serves"]:
            await nbdkit.stop_nbdkit(server, self.units)
        for file in (slot.client_file, guarded_server.find_report_file(slot)):
            file.unlink(missing_ok=True)

    async def _disconnect(self, slot: DeviceSlot, data: Data, number: int, say: SayProgress) -> None:
        """Disconnect it, also from who only reads it: a monitor that has it open would keep the vault from going down.

        The stack has seen that no pool has it. Once none of its connections lives, or its server is stopped next,
        nothing of it reaches the store. So the number is left to who has it, and the next bring-up takes another.
        """
        try:
            await nbd.disconnect_device(number, self.runner)
        except nbd.StillOpen as error:
            kernel = KernelDevice.of(RecordedConnection.of_data(data), slot)
            cut = kernel is None or not kernel.ours or kernel.alive == 0 or data["serves"]
            if LEAVE_NUMBER.find_unmet({NO_CONNECTION: cut}) is not None:
                raise
            say(f"{error}. Until then the vault takes another number")

    def leftover(self, data: Data) -> str | None:
        """The kernel keeps an NBD device and its queue settings when it is disconnected."""
        number = data.get("number")
        return f"nbd{number}" if number is not None and nbd.read_nbd_status(number).pid is None else None


def _file_to_make(job: LayerJob, spec: NbdSpec) -> tuple[str, int] | None:
    """The backing file that is made for a new vault, and its size in bytes."""
    file = spec.backing_file if isinstance(spec, NbdkitServer) else None
    if file is None or job.device.size is None or not job.create:
        return None
    return file, job.device.size


def compute_request_timeout(device: Device, *, throw_away: bool) -> float:
    """Seconds until the kernel fails a request to a device, or to a copy of it that is thrown away."""
    return max(device.timeout, COPY_REQUEST_TIMEOUT) if throw_away else device.timeout


def _kind(device: Device) -> UnitKind:
    """Which template the unit of a device's server is made of."""
    if isinstance(device.nbd, BlockstoreServer):
        return "blockstore"
    return "s3backer" if isinstance(device.nbd, S3backerServer) else "device"


def _server(slot: DeviceSlot, data: Data) -> DeviceServer:
    """A device's server by its lease; those of older leases are nbdkit's."""
    return replace(slot.server, kind=data.get("kind", "device"))


def judge_connection(
    connection: RecordedConnection, unit: UnitState | None, kernel: KernelDevice | None
) -> FoundLayer:
    """Judge a recorded connection, from its server's unit (None: it has none) and from what the kernel says."""
    if kernel is not None and kernel.ours and connection.number is not None:
        path = nbd.nbd_device_path(connection.number)
        up = FoundLayer("up", "", path, kernel.status.size, present=True)
        if unit is not None and not unit.running:
            why = f"its server died: {unit.unit} is {unit.active} ({unit.result})"
            return replace(up, state="gone", detail=why)
        if kernel.alive == 0:
            return replace(up, state="gone", detail=f"the connection to {connection.spec} is lost")
        if kernel.alive is not None and kernel.alive < connection.connections:
            some = f"{kernel.alive} of {connection.connections} connections live"
            return replace(up, state="partial", detail=some)
        return up
    if connection.pid is not None:
        return FoundLayer("gone", _loss(connection, kernel), present=True)
    return FoundLayer("partial", "it was being brought up when zvault stopped", present=True)


def _loss(connection: RecordedConnection, kernel: KernelDevice | None) -> str:
    if connection.number is None or kernel is None:
        return "its server ended before it was connected"
    path = nbd.nbd_device_path(connection.number)
    if kernel.status.pid is not None:
        return f"{path} is now somebody else's (process {kernel.status.pid} connected it)"
    return f"{path} is not connected any more"


def _without_record(slot: DeviceSlot, unit: UnitState | None) -> FoundLayer:
    if unit is None or unit.active == "inactive":
        return FoundLayer()
    if not unit.running:
        return FoundLayer(present=True)
    busy = None
    if UnixTarget(str(slot.server.socket)).links():
        busy = Busy(
            f"{unit.unit} serves somebody",
            "there is no record of which device it is",
            "find it in /sys/block/nbd*/pid, disconnect it with 'nbd-client -d', and stop the unit",
        )
    why = f"{unit.unit} runs, but zvault has no record of having started it"
    return FoundLayer("partial", why, present=True, busy=busy)
