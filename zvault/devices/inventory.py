"""What there is of a vault's devices: by their leases, by systemd and by the kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from zvault.config.tables.device import Device
from zvault.devices.device_record import DeviceRecord, FoundDevice, FoundLevel
from zvault.devices.layer import Data, DeviceLayer, DeviceSlot
from zvault.system.record_store import RecordStore
from zvault.system.system_bus import UnitState
from zvault.system.systemd_units import SystemdUnits

PartOf = tuple[str, Data | None, str | None]
"""A layer's kind, what its lease says (None: there is no lease), its unit."""


class DeviceInventory:
    """The devices of one vault, those of the configuration and those that a lease tells of."""

    def __init__(
        self,
        vault_name: str,
        devices: Sequence[Device],
        kinds: Mapping[str, DeviceLayer],
        units: SystemdUnits,
        leases: RecordStore,
        directory: Path,
    ) -> None:
        self.vault = vault_name
        self.devices = devices
        self.kinds = kinds
        self.units = units
        self.leases = leases
        self.directory = directory

    def slots(self) -> list[DeviceSlot]:
        """All there may be something of, leftovers' too."""
        prefix = f"device/{self.vault}/"
        leased = {int(name.removeprefix(prefix)) for name in self.leases.names(prefix)}
        return [self._slot(index) for index in sorted(leased.union(range(len(self.devices))))]

    def _slot(self, index: int) -> DeviceSlot:
        return DeviceSlot(self.vault, index, self.directory)

    def list_configured(self) -> list[DeviceSlot]:
        """Those of the configuration, in its order."""
        return [self._slot(index) for index in range(len(self.devices))]

    def device(self, slot: DeviceSlot) -> Device | None:
        """Return the device that the configuration has for a slot; None for a leftover."""
        return self.devices[slot.index] if slot.index < len(self.devices) else None

    def record(self, slot: DeviceSlot) -> DeviceRecord | None:
        """A slot's lease, if it is of this boot."""
        lease = self.leases.get(slot.lease)
        return None if lease is None or lease["stale"] else DeviceRecord.from_lease(lease)

    def forget_stale(self) -> None:
        """Drop what is left of another boot; what it tells of ended with that."""
        for slot in self.slots():
            if self.record(slot) is None:
                self.leases.drop(slot.lease)

    async def look(self, slots: Sequence[DeviceSlot]) -> list[FoundDevice]:
        """Return what there is of some devices. Asks the kernel and systemd, never a device."""
        records = {slot: self.record(slot) for slot in slots}
        parts = {slot: self._parts(slot, records[slot]) for slot in slots}
        states = await self.units.states([unit for some in parts.values() for _, _, unit in some if unit])
        return [FoundDevice(slot, records[slot], self._levels(slot, parts[slot], states)) for slot in slots]

    def _levels(
        self, slot: DeviceSlot, parts: Sequence[PartOf], states: Mapping[str, UnitState]
    ) -> tuple[FoundLevel, ...]:
        levels: list[FoundLevel] = []
        for kind, written, unit in parts:
            below = levels[-1].found.path if levels else None
            # udev may have brought up what zvault had not begun: a layer is looked at wherever the one below is.
            data = {"below": below} if written == {} and below is not None else written
            levels.append(FoundLevel(kind, data, self.kinds[kind].look(slot, data, states.get(unit or ""))))
        return tuple(levels)

    def _parts(self, slot: DeviceSlot, record: DeviceRecord | None) -> list[PartOf]:
        """Each layer's kind, data and unit, bottom up: by the lease, or else as configured."""
        device = self.device(slot)
        parts: list[tuple[str, Data | None]] = []
        if record is not None:
            parts = [(part.kind, part.data) for part in record.layers]
        elif device is not None:
            parts = [(kind, None) for kind in device.layers]
        return [(kind, data, self.kinds[kind].unit(slot, data, device)) for kind, data in parts]

    async def look_settled(self) -> list[FoundDevice]:
        """Look at all once nothing moves any more: a crash may have left a tool on its way to a device."""
        seen = await self.look(self.slots())
        if not any([await self._settle(found) for found in seen]):
            return seen
        return await self.look(self.slots())

    async def _settle(self, found: FoundDevice) -> bool:
        levels = [level for level in found.levels if level.data]
        return any([await self.kinds[level.kind].settle(found.slot, level.data or {}) for level in levels])
