"""Measures how fast a vault is read, by the counters of its devices, and reports it as an event."""

from __future__ import annotations

from dataclasses import dataclass

from zvault.api.events import Emit, VaultRead
from zvault.core.errors import ZvaultError
from zvault.core.integrity.restore_time import ReadingKind, count_bytes_read
from zvault.ops.vaults.vault import OpenVault
from zvault.zfs.pool.vdev_properties import count_device_reads


@dataclass(frozen=True, slots=True)
class ReadMeter:
    """A measurement that goes on: ``before`` is the count of its devices when it began, None if nobody counts."""

    vault: OpenVault
    kind: ReadingKind
    emit: Emit
    before: int | None

    async def report_reading(self, moved: int, seconds: float) -> None:
        """Report that ``moved`` bytes were read in so many seconds: as many of them as came from the devices."""
        after = await _count_reads(self.vault) if self.before is not None else None
        if read := count_bytes_read(moved, self.before, after):
            self.emit(VaultRead(vault=self.vault.name, kind=self.kind, bytes=read, seconds=seconds))


async def start_read_meter(vault: OpenVault, kind: ReadingKind, emit: Emit) -> ReadMeter:
    """Begin to measure what is read from a vault."""
    return ReadMeter(vault, kind, emit, await _count_reads(vault))


async def _count_reads(vault: OpenVault) -> int | None:
    """The count of its devices. What cannot be measured fails nothing that is measured."""
    try:
        return await count_device_reads(vault.zfs.host, vault.pool)
    except ZvaultError:
        return None
