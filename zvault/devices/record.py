"""What a lease says of one device, and what is seen of it on the host."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from zvault.config.nbd import NbdkitServer
from zvault.config.schema import Device
from zvault.devices import nbd, sockets
from zvault.devices.nbdkit import Server
from zvault.devices.target import Target, TcpTarget, UnixTarget
from zvault.system.units import UnitState

State = Literal["up", "down", "gone", "partial"]


@dataclass(frozen=True, slots=True)
class Slot:
    """A device's place in a vault, and the names that follow from it."""

    vault: str
    index: int
    directory: Path

    @property
    def name(self) -> str:
        """``cold-0``; the last hyphen parts vault and number, so no two slots share a name."""
        return f"{self.vault}-{self.index}"

    @property
    def lease(self) -> str:
        """The lease's name."""
        return f"device/{self.vault}/{self.index}"

    @property
    def server(self) -> Server:
        """Its server, where it has one of ours."""
        return Server(self.name, self.directory)

    def make_directory(self) -> None:
        """Make the folder of its files. It keeps others out: nbdkit's sockets are open to all, whatever the umask."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o700)

    @property
    def client_file(self) -> Path:
        """Where the process that connects it leaves its number."""
        return self.directory / f"{self.name}.client"


@dataclass(frozen=True, slots=True)
class Record:
    """One device's lease, written before each step that it tells of.

    ``number`` is that of the NBD device tried last, ``pid`` the process that connected it. ``links`` are the
    connections that came with it: None before it was connected, and where the server's sockets cannot be seen.
    ``queue`` is what its queue settings were before.
    """

    spec: str
    connections: int
    serves: bool = False
    unix: str | None = None
    tcp: tuple[str, int] | None = None
    export: str = ""
    number: int | None = None
    pid: int | None = None
    links: tuple[str, ...] | None = None
    queue: dict[str, str] = field(default_factory=dict)

    def as_lease(self) -> dict[str, object]:
        """As the lease holds it."""
        return asdict(self)

    @classmethod
    def from_lease(cls, lease: dict[str, Any]) -> Record:
        """Read back. Keys that another version wrote are left out."""
        known = {key: lease[key] for key in (item.name for item in fields(cls)) if key in lease}
        for key in ("tcp", "links"):
            if known.get(key) is not None:
                known[key] = tuple(known[key])
        return cls(**known)

    @classmethod
    def of(cls, device: Device, slot: Slot, target: Target) -> Record:
        """The first record of a device that is about to be brought up."""
        return cls(
            spec=str(device.nbd),
            connections=device.connections,
            serves=isinstance(device.nbd, NbdkitServer),
            unix=target.path if isinstance(target, UnixTarget) else None,
            tcp=(target.address, target.port) if isinstance(target, TcpTarget) else None,
            export=target.export,
        )

    def links_now(self) -> set[str]:
        """The connections to its server that live now, whoever has them."""
        if self.unix is not None:
            return sockets.unix_links(self.unix)
        return sockets.tcp_links(*self.tcp) if self.tcp is not None else set()


@dataclass(frozen=True, slots=True)
class Seen:
    """One device as it is found: its record, its server's unit, and whether the connection is ours and lives."""

    slot: Slot
    record: Record | None
    unit: UnitState | None
    status: nbd.Status | None = None
    ours: bool = False
    alive: int | None = None

    @property
    def usable(self) -> bool:
        """Whether requests to it are answered, as far as can be told without one."""
        served = self.unit is None or self.unit.running
        return self.ours and served and self.alive != 0

    @property
    def path(self) -> str | None:
        """``/dev/nbdN`` while it is connected."""
        if not self.ours or self.record is None or self.record.number is None:
            return None
        return nbd.device_path(self.record.number)

    def verdict(self) -> tuple[State, str]:
        """What state it is in, and why, in words."""
        if self.record is None:
            if self.unit is not None and self.unit.running:
                return "partial", f"{self.unit.unit} runs, but zvault has no record of having started it"
            return "down", ""
        if self.ours:
            return self._connected(self.record)
        if self.record.pid is not None:
            return "gone", self._loss(self.record)
        return "partial", "it was being brought up when zvault stopped"

    def _connected(self, record: Record) -> tuple[State, str]:
        if self.unit is not None and not self.unit.running:
            return "gone", f"its server died: {self.unit.unit} is {self.unit.active} ({self.unit.result})"
        if self.alive == 0:
            return "gone", f"the connection to {record.spec} is lost"
        if self.alive is not None and self.alive < record.connections:
            return "partial", f"{self.alive} of {record.connections} connections live"
        return "up", ""

    def _loss(self, record: Record) -> str:
        if record.number is None or self.status is None:
            return "its server ended before it was connected"
        path = nbd.device_path(record.number)
        if self.status.pid is not None:
            return f"{path} is now somebody else's (process {self.status.pid} connected it)"
        return f"{path} is not connected any more"


def examine(found: Seen) -> Seen:
    """Add what the kernel says of the recorded connection."""
    record = found.record
    if record is None or record.number is None:
        return found
    status = nbd.status(record.number)
    client = record.pid or nbd.owner(found.slot.client_file)
    ours = status.pid is not None and status.pid == client
    now = record.links_now()
    if record.links is not None:
        alive: int | None = len(now.intersection(record.links))
    else:
        # Zero may mean that the server is in another network namespace, whose sockets cannot be seen.
        alive = len(now) or None
    if alive is not None:
        alive = min(alive, record.connections)
    return replace(found, status=status, ours=ours, alive=alive)
