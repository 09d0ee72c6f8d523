"""A disk image of this host became a second machine: both have its hostid, by which ZFS tells who has a pool.

ZFS imports a pool that was not exported if its label has this host's hostid: the other machine may have it imported at
that moment, and two that write to it destroy it. A lease, or an image's lock, keeps the second one out. Where a device
has neither, zvault compares the machine with the one on which the vault was up last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zvault.config.schema import Vault
from zvault.core.errors import Refused
from zvault.system.machine_serial import read_machine_serial
from zvault.system.process.runner import ToolRunner
from zvault.system.record_store import RecordStore
from zvault.zfs.pool.hostid import read_hostid
from zvault.zfs.pool.label import LABEL_DEADLINE, is_label_active, label_argv, parse_label_host

IDENTITY_ADVICE = (
    "give one of the two machines its own identity: 'zgenhostid -f', a new /etc/machine-id "
    "('systemd-machine-id-setup' once the file is gone), and another name ('hostnamectl hostname')"
)


@dataclass(frozen=True)
class MachineBook:
    """On which machine each vault was up last, in a small file for each."""

    store: RecordStore
    serial: Callable[[], str | None] = read_machine_serial
    hostid: Callable[[], int] = read_hostid

    def note(self, vault: str) -> None:
        """Write down that a vault is up on this machine. Where that cannot be done it is not known later."""
        serial = self.serial()
        if serial is not None:
            self.store.note(vault, {"serial": serial, "hostid": self.hostid()})

    def find_other(self, vault: str) -> str | None:
        """Return the UUID of the machine on which a vault was up last, if that was another one with this hostid."""
        known = self.store.recall(vault, dict)
        serial = self.serial()
        if known is None or serial is None or known.get("hostid") != self.hostid():
            return None
        other = str(known.get("serial", ""))
        return other if other and other != serial else None


def describe_other_machine(vault: str, other: str) -> str:
    """Tell that this system was at work on another machine when a vault was up last."""
    return (
        f"vault {vault} was last up on another machine (UUID {other}) with the hostid of this one: its disk was moved, "
        f"or copied. If that machine still runs, {IDENTITY_ADVICE}"
    )


def has_lock(config: Vault) -> bool:
    """True if the storage of each device of a vault keeps a second host out."""
    return bool(config.device) and all(
        device.lease_bound is not None or (device.rbd is not None and device.exclusive)
        for device in config.device
    )


async def refuse_pool_of_clone(
    book: MachineBook, config: Vault, devices: Sequence[str], runner: ToolRunner
) -> None:
    """Raise Refused where ZFS would import a pool that the machine may have imported of which this one is a copy.

    A pool that was exported is nobody's. One whose label has another hostid ZFS refuses by itself.
    """
    if has_lock(config) or (other := book.find_other(config.name)) is None:
        return
    mine = book.hostid()
    for device in devices:
        text = (await runner.run(label_argv(device), deadline=LABEL_DEADLINE, check=False)).stdout
        host = parse_label_host(text)
        if host is not None and host[1] == mine and is_label_active(text):
            raise Refused(
                f"the pool '{config.pool}' may be in use on the machine that this one is a copy of",
                f"it was not exported, and vault '{config.name}' was last up on another machine (UUID {other}) with"
                f" the same hostid {mine:x}: ZFS would import it on both, which destroys it",
                f"{IDENTITY_ADVICE}. If the other machine is off for good, 'zvaultctl vault take {config.name}' takes"
                " the vault over",
            )
