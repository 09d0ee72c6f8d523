"""RBD as a source: an image, mapped by the kernel's own client or by rbd-nbd in a systemd unit of its own.

krbd's mappings are in sysfs with the image's id; zvault uses an existing one, whoever made it. A mapping by rbd-nbd is
ours if the unit's process has the NBD device.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import partial

from zvault.config.device_specs.rbd import RbdImage, parse_rbd
from zvault.config.tables.device import Device
from zvault.core.errors import Busy, DeviceGone, NotFound, Refused, TakenOver, ZvaultError
from zvault.core.policy.automatic_repairs import OWN, RECONNECT_DEVICE
from zvault.core.units import format_size
from zvault.devices.layer import CreationCommand, Data, DeviceSlot, FoundLayer, LayerJob, SayProgress
from zvault.devices.nbd import connection, nbdkit
from zvault.devices.nbd.source import NbdSource
from zvault.devices.rbd import holder_note, image_lease, image_owners, throw_away_copy
from zvault.devices.rbd import image as rbd
from zvault.devices.rbd import mapping as rbd_map
from zvault.devices.rbd.access import check_access, list_image_pools, make_blocked_error
from zvault.devices.rbd.cluster import CephCluster, find_blocked_pools, is_shut_out
from zvault.devices.rbd.image import ImageLayout
from zvault.devices.rbd.image_lease import make_cluster
from zvault.devices.server_unit import exec_shell_script
from zvault.system.process.runner import ProcessResult, ProcessRunner
from zvault.system.record_store import read_boot_id
from zvault.system.system_bus import UnitState
from zvault.system.systemd_units import SystemdUnits

SERVE_DEADLINE = 60.0
"""Seconds for rbd-nbd to open the image, take its lock, and connect."""
SETTLE_DEADLINE = 15.0
"""Seconds to let an rbd-nbd finish that was starting when zvault crashed; stopping it now would leave a dead device."""
RBD_POLL = 0.05


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """The lease of an image that is mapped or about to be mapped.

    ``mapped``: mapping has finished. ``number`` and ``pid``: rbd-nbd's NBD device and process. ``client``: the lock
    holder's address in the cluster. ``leased``: its lease is kept by image_lease.py. ``path``: the device that krbd
    made. ``copy``: what throw_away_copy.py keeps, where it is a copy that is thrown away.
    """

    image: str
    image_id: str
    map: str
    cluster: dict[str, str | None]
    mapped: bool = False
    number: int | None = None
    pid: int | None = None
    client: str | None = None
    leased: bool = False
    path: str | None = None
    copy: Data | None = None

    def as_data(self) -> Data:
        """The record as stored in the lease."""
        return asdict(self)

    @classmethod
    def of_data(cls, data: Data) -> ImageRecord:
        """Read a record from the lease. Ignores keys that another version wrote."""
        return cls(**{item.name: data[item.name] for item in fields(cls) if item.name in data})

    @property
    def spec(self) -> RbdImage:
        return parse_rbd(self.image)

    def mapping(self) -> rbd_map.ImageMapping | None:
        """krbd's mapping of it."""
        return rbd_map.find_mapping(self.spec, self.image_id) if self.map == "krbd" else None


class RbdSource:
    """See layer.DeviceLayer."""

    def __init__(self, runner: ProcessRunner, units: SystemdUnits) -> None:
        self.runner = runner
        self.units = units
        self.nbd = NbdSource(runner, units)

    def unit(self, slot: DeviceSlot, data: Data | None, device: Device | None) -> str | None:
        """The unit of rbd-nbd, or of what keeps the lease; None for krbd without a lease."""
        if data and data.get("copy"):
            return throw_away_copy.name_copy_unit(slot, data["copy"], self.nbd)
        leased = data.get("leased") if data else device is not None and device.lease_bound is not None
        if leased:
            return image_lease.name_keeper_unit(slot)
        how = data["map"] if data else device.map if device is not None else "krbd"
        return _unit(slot) if how == "rbd-nbd" else None

    def look(self, slot: DeviceSlot, data: Data | None, unit: UnitState | None) -> FoundLayer:
        """Read sysfs only. A krbd mapping looks the same whether its cluster answers or not."""
        if data:
            record = ImageRecord.of_data(data)
            if record.copy is not None:
                return throw_away_copy.examine_copy(slot, record.copy, unit, self.nbd)
            return _krbd(slot, record, unit) if record.map == "krbd" else _served(record, unit)
        if unit is None or unit.active == "inactive":
            return FoundLayer()
        number = rbd_map.find_served_device(unit.main_pid) if unit.running else None
        path = None if number is None else connection.nbd_device_path(number)
        why = f"{unit.unit} runs, but zvault has no record of having started it"
        return FoundLayer("down", why, path, present=True)

    def making(self, slot: DeviceSlot, device: Device, below: str) -> list[CreationCommand]:
        """The step that creates the image."""
        if device.size is None:
            return []
        return [
            CreationCommand(
                "create it, unless it exists",
                rbd.create_image_argv(device.image, make_image_layout(device), make_cluster(device)),
            )
        ]

    async def check(self, device: Device) -> None:
        """Check for rbd, and for krbd or for rbd-nbd and nbd in the kernel."""
        await rbd.check_rbd(self.runner)
        if device.map == "krbd":
            await rbd_map.check_krbd(self.runner)
        else:
            await self.runner.run(["rbd-nbd", "--version"], deadline=rbd.RBD_CALL_DEADLINE)
            await connection.check_nbd_client(self.runner)

    async def settle(self, slot: DeviceSlot, data: Data) -> bool:
        """Deal with an ``rbd device map`` that a crash left running, or an rbd-nbd that has not connected yet."""
        record = ImageRecord.of_data(data)
        if record.copy is not None:
            kept = record.copy.get("nbd")
            return kept is not None and await self.nbd.settle(slot, kept)
        if record.map == "rbd-nbd":
            return not record.mapped and await self._awaited(_unit(slot), SETTLE_DEADLINE) is not None
        if connection.read_owner_pid(slot.client_file) is None:
            return False
        await connection.stop_client(slot.client_file, record.image)
        connection.forget_owner(slot.client_file)
        return True

    async def up(self, job: LayerJob) -> str:
        """Create the image if the vault may be created, check that nobody else has it, and map it."""
        device, say = job.device, job.say
        image, cluster = device.image, make_cluster(device)
        found = await self._image(job, cluster)
        leased = device.lease_bound is not None
        record = ImageRecord(str(image), found.id, device.map, asdict(cluster), leased=leased)
        if job.throw_away:
            return await self._copy(job, record, cluster)
        if record.mapping() is None:
            await check_access(
                image, found, cluster, self.runner, locks=await self._has_dead_lock(image, cluster)
            )
        job.write(record.as_data())
        await RECONNECT_DEVICE.require_known({OWN: partial(self._refuse_others, job, record, cluster)})
        if device.map == "krbd":
            path = await self._map(job, record, image, cluster)
        else:
            path = await self._serve(job, record, image, cluster)
        say(f"{path} is {format_size(found.shape.size or 0)} from {device.spec}")
        return path

    async def _refuse_others(self, job: LayerJob, record: ImageRecord, cluster: CephCluster) -> None:
        """Take the image's lease, where it has one; else see that no host has had it since this one's pool lost it.

        Who has it at this moment is refused as it is mapped. Raises TakenOver, Busy, Refused.
        """
        image = job.device.image
        if record.leased:
            await self._refuse_if_shut_out(record, cluster, job.say)
            await self._lease(job, image, cluster)
        elif job.resume:
            await holder_note.refuse_if_image_had_since(image, cluster, self.runner)

    async def _refuse_if_shut_out(self, record: ImageRecord, cluster: CephCluster, say: SayProgress) -> None:
        """Whoever shuts a host out has taken its lease by then, or takes it next. What nobody has open is unmapped."""
        mapping = record.mapping()
        if mapping is None or not await is_shut_out(mapping.client, cluster, self.runner):
            return
        busy = await throw_away_copy.release_mapping(mapping, cluster, self.nbd, say)
        if busy is not None:
            raise TakenOver(
                f"the cluster refuses this host's mapping of {record.image}",
                f"{mapping.client} is on its blocklist: another host has shut it out; {busy.why}",
                "nothing: this host takes its turn again once its pool is exported, and nothing has it open",
            )

    async def _has_dead_lock(self, image: RbdImage, cluster: CephCluster) -> bool:
        """True if a client has the lock that is dead: whoever maps the image shuts it out."""
        owners = await image_owners.list_owners(image, cluster, self.runner)
        return any(owner.lock and not owner.watches for owner in owners)

    async def _lease(self, job: LayerJob, image: RbdImage, cluster: CephCluster) -> None:
        await image_lease.start_keeper(job, self.units, self.runner)
        for owner in await image_owners.fence_dead_owners(image, cluster, self.runner):
            job.say(f"{owner.words()} had the lock of {image} and was dead; it is shut out")

    async def _copy(self, job: LayerJob, record: ImageRecord, cluster: CephCluster) -> str:
        path = job.had.get("path") or job.pool_path
        if path is None or not path.startswith("/dev/rbd"):
            raise Refused(
                f"there is no copy of {job.device.spec} to throw away",
                "it is not known where krbd had mapped it",
            )

        def write(data: Data) -> None:
            job.write(replace(record, leased=False, path=path, copy=data).as_data())

        return await throw_away_copy.make_copy(job, path, record.image_id, cluster, self.nbd, write)

    async def _image(self, job: LayerJob, cluster: CephCluster) -> rbd.FoundImage:
        device, image = job.device, job.device.image
        if (
            job.create
            and device.size is not None
            and await rbd.create_image(image, make_image_layout(device), cluster, self.runner)
        ):
            job.say(f"created the RBD image {image}")
        found = await rbd.find_image(image, cluster, self.runner)
        if found is None:
            await rbd.refuse_if_in_trash(image, cluster, self.runner)
            where = f"pool '{image.pool}' has no image of that name"
            if job.create:
                raise NotFound(
                    f"there is no RBD image {image}", where, "set this device's size, and it is made"
                )
            raise job.absence.error(f"there is no RBD image {image}", where)
        if device.exclusive and "exclusive-lock" not in (found.shape.features or ()):
            raise Refused(
                f"the RBD image {image} cannot be locked",
                "it has no exclusive-lock feature, so nothing keeps two hosts from writing to it at once",
                f"rbd feature enable {image} exclusive-lock; or, if you are sure, set exclusive = false",
            )
        return found

    async def _map(self, job: LayerJob, record: ImageRecord, image: RbdImage, cluster: CephCluster) -> str:
        mapping = record.mapping()
        if mapping is not None:
            job.say(f"{mapping.path} is {image} already")
        else:
            await image_owners.refuse_if_owned(image, job.had.get("client"), cluster, self.runner)
            argv = rbd_map.map_argv(
                image,
                cluster,
                exclusive=job.device.exclusive,
                timeout=job.device.timeout,
                own_client=record.leased,
            )
            argv = connection.pid_file_argv(job.slot.client_file, argv)
            await rbd_map.map_krbd(image, argv, cluster, self.runner, exclusive=job.device.exclusive)
            connection.forget_owner(job.slot.client_file)
            mapping = record.mapping()
        if mapping is None:
            why = "rbd reported success, but the kernel does not have the mapping"
            raise DeviceGone(f"the RBD image {image} is not mapped", why, "see the kernel's log")
        job.write(replace(record, mapped=True, client=mapping.client, path=mapping.path).as_data())
        await holder_note.write_holder_note(image, record.image_id, mapping.client, cluster, self.runner)
        return mapping.path

    async def _serve(self, job: LayerJob, record: ImageRecord, image: RbdImage, cluster: CephCluster) -> str:
        slot = job.slot
        if (mapping := rbd_map.find_mapping(image, record.image_id)) is not None:
            advice = f'rbd device unmap {mapping.path}, or set map = "krbd"'
            raise Busy(f"the RBD image {image} is in use", f"krbd has it mapped as {mapping.path}", advice)
        await image_owners.refuse_if_owned(image, job.had.get("client"), cluster, self.runner)
        argv = rbd_map.rbd_nbd_argv(
            image,
            cluster,
            exclusive=job.device.exclusive,
            timeout=job.device.timeout,
            number=job.had.get("number"),
        )
        nbdkit.write_unit_script(slot.server.script, exec_shell_script(argv))
        number, pid = await self._started(_unit(slot), argv, image, cluster)
        record = replace(record, mapped=True, number=number, pid=pid)
        job.write(record.as_data())
        owners = await image_owners.list_owners(image, cluster, self.runner)
        client = next((owner.address for owner in owners if owner.lock), None)
        job.write(replace(record, client=client).as_data())
        if client is not None:
            await holder_note.write_holder_note(image, record.image_id, client, cluster, self.runner)
        return connection.nbd_device_path(number)

    async def _started(
        self, unit: str, argv: Sequence[str], image: RbdImage, cluster: CephCluster
    ) -> tuple[int, int]:
        """Start rbd-nbd; returns the number of its device and its process id."""
        began = time.time()
        await self.units.start(unit)
        if (served := await self._awaited(unit, SERVE_DEADLINE)) is not None:
            return served
        words = "\n".join(await self.units.journal_tail(unit, since=began))
        if rbd.LOCKED in words and (found := await image_owners.list_owners(image, cluster, self.runner)):
            raise image_owners.make_in_use_error(image, found)
        what = f"rbd-nbd does not come up for {image}"
        raise rbd.make_rbd_error(what, ProcessResult(tuple(argv), 1, "", words, 0.0), image, cluster)

    async def _awaited(self, unit: str, patience: float) -> tuple[int, int] | None:
        """Device number and process id of an rbd-nbd once it has connected; None if it ends or takes too long."""
        give_up = time.monotonic() + patience
        while (state := await self.units.state(unit)).running:
            number = rbd_map.find_served_device(state.main_pid)
            if number is not None and connection.read_nbd_status(number).size:
                return number, state.main_pid
            if time.monotonic() >= give_up:
                break
            await asyncio.sleep(RBD_POLL)
        return None

    async def adjust(self, job: LayerJob) -> None:
        """Nothing to do: a mapping's settings are fixed."""

    async def cut_off(self, data: Data) -> None:
        """Disconnect a dead rbd-nbd's device. krbd's requests time out by themselves: see map_command."""
        record = ImageRecord.of_data(data)
        if record.copy is not None and record.copy.get("nbd"):
            await self.nbd.cut_off(record.copy["nbd"])
        if (number := data.get("number")) is not None:
            await connection.cut_device_off(number, self.runner)

    async def find_cause(self, data: Data) -> ZvaultError | None:
        """Ask the cluster whether it refuses this host's mapping, or takes no writes: requests fail then, or wait.

        A cluster that does not answer says nothing of that.
        """
        record = ImageRecord.of_data(data)
        mapping = record.mapping()
        if record.copy is not None:
            return None
        cluster = CephCluster(**record.cluster)
        with suppress(ZvaultError):
            if mapping is not None and await is_shut_out(mapping.client, cluster, self.runner):
                return await self._why_shut_out(mapping, cluster)
        with suppress(ZvaultError):
            found = await rbd.find_image(record.spec, cluster, self.runner)
            pools = list_image_pools(record.spec, found) if found is not None else ()
            if blocked := await find_blocked_pools(pools, cluster, self.runner):
                return make_blocked_error(record.spec, blocked)
        return None

    async def _why_shut_out(self, mapping: rbd_map.ImageMapping, cluster: CephCluster) -> ZvaultError:
        """The error for a mapping whose client is on the blocklist: by whom it was put there decides what is next."""
        what = f"the cluster refuses this host's mapping of {mapping.image}"
        others = [
            one
            for one in await image_owners.list_owners(mapping.image, cluster, self.runner)
            if one.address != mapping.client
        ]
        note = await holder_note.read_holder_note(mapping.image, cluster, self.runner)
        if others or (note is not None and note.boot != read_boot_id()):
            who = ", ".join(one.words() for one in others) or (note.words() if note is not None else "")
            return TakenOver(
                what,
                f"{mapping.client} is on its blocklist, and {who} has or had the image since",
                "reboot this host, then bring the vault up: its pool's data in memory no longer matches the image",
            )
        return DeviceGone(
            what,
            f"{mapping.client} is on its blocklist, and no other host has had the image since",
            f"'ceph osd blocklist rm {mapping.client}', by the cluster's administrator, lets this host in again; no"
            " reboot is needed",
        )

    async def rest(self, data: Data, *, resting: bool) -> None:
        """Nothing to do: it starts no requests by itself."""

    async def down(
        self, slot: DeviceSlot, data: Data, found: FoundLayer, *, lost: bool, say: SayProgress
    ) -> None:
        """Unmap it; for rbd-nbd, disconnect it and wait for its unit to end."""
        if data and (record := ImageRecord.of_data(data)).map == "krbd":
            cluster = CephCluster(**record.cluster)
            if record.copy is not None:
                await throw_away_copy.remove_copy(
                    slot, record.copy, record.spec, record.image_id, cluster, self.nbd, say
                )
            elif (mapping := record.mapping()) is not None and await self._kept(slot, record):
                await rbd_map.unmap_image(mapping, cluster, self.runner)
            elif mapping is not None:
                await throw_away_copy.release_mapping(mapping, cluster, self.nbd, say)
            if record.leased:
                await image_lease.stop_keeper(slot, self.units)
        else:
            if found.path is not None:
                try:
                    await connection.disconnect_device(int(found.path.removeprefix("/dev/nbd")), self.runner)
                except connection.StillOpen as error:
                    # Its rbd-nbd ends below, so nothing of who has it open reaches the image.
                    say(f"{error}. Until then the vault takes another number")
            pid = (await self.units.state(_unit(slot))).main_pid
            await self.units.stop(_unit(slot))
            if (
                pid and (number := rbd_map.find_served_device(pid)) is not None
            ):  # zvault was stopped while it connected
                await connection.disconnect_device(number, self.runner)
            slot.server.script.unlink(missing_ok=True)
        connection.forget_owner(slot.client_file)

    async def _kept(self, slot: DeviceSlot, record: ImageRecord) -> bool:
        """True if an image is this host's: then its lease is not given back while something has it open."""
        return not record.leased or (await self.units.state(image_lease.name_keeper_unit(slot))).running

    def leftover(self, data: Data) -> str | None:
        """The device that stays: a krbd device vanishes, an NBD device stays and keeps its queue settings."""
        number = data.get("number")
        return (
            f"nbd{number}" if number is not None and connection.read_nbd_status(number).pid is None else None
        )


def _unit(slot: DeviceSlot) -> str:
    """The systemd unit of its rbd-nbd."""
    return f"zvault-rbd@{slot.name}.service"


def make_image_layout(device: Device) -> ImageLayout:
    """The configured layout of a device's image."""
    features = None if device.features is None else tuple(device.features)
    return ImageLayout(
        size=device.size,
        data_pool=device.data_pool,
        object_size=device.object_size,
        stripe_unit=device.stripe_unit,
        stripe_count=device.stripe_count,
        features=features,
    )


def _krbd(slot: DeviceSlot, record: ImageRecord, unit: UnitState | None) -> FoundLayer:
    mapping = record.mapping()
    if mapping is not None and record.leased and (unit is None or not unit.running):
        # Without its path: a pool that has it open keeps it until the lease is had again, or it is given up.
        return FoundLayer("gone", image_lease.explain_lost_lease(slot), present=True)
    if mapping is not None:
        return FoundLayer("up", "", mapping.path, mapping.size, present=True)
    if record.mapped:
        return FoundLayer("gone", f"{record.image} is not mapped any more", present=True)
    return FoundLayer("partial", "it is being brought up, or was when zvault stopped", present=True)


def _served(record: ImageRecord, unit: UnitState | None) -> FoundLayer:
    running = unit is not None and unit.running
    number, pid = record.number, record.pid
    if number is None and unit is not None and unit.running:  # zvault stopped before it recorded the number
        number, pid = rbd_map.find_served_device(unit.main_pid), unit.main_pid
    status = connection.read_nbd_status(number) if number is not None else None
    if number is not None and status is not None and status.pid is not None and status.pid == pid:
        up = FoundLayer("up", "", connection.nbd_device_path(number), status.size, present=True)
        if running:
            return up
        state = "is gone" if unit is None else f"is {unit.active} ({unit.result})"
        return replace(up, state="gone", detail=f"rbd-nbd died: its unit {state}")
    if record.mapped:
        return FoundLayer("gone", f"{record.image} is not mapped any more", present=True)
    return FoundLayer("partial", "it is being brought up, or was when zvault stopped", present=True)
