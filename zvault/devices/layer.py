"""What a layer is to the stack: something that is looked at, brought up on what lies below it, and taken down.

A device of a vault is a chain of layers: its source (NBD, RBD) at the bottom, a cache above it. The stack
orders them and keeps the lease; a layer knows its own tools and the kernel's files, and nothing of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from zvault.config.tables.device import Device
from zvault.core.errors import Busy, NotFound, ZvaultError
from zvault.devices.server_unit import DeviceServer
from zvault.system.system_bus import UnitState

SayProgress = Callable[[str], None]
Data = dict[str, Any]
"""What a layer keeps in the lease: JSON that only the layer itself reads.

That of a layer which lies on another has at least ``below``, the other's block device: where the lease says nothing
yet, the inventory puts it in.
"""

LayerState = Literal["up", "down", "gone", "partial"]
"""``gone``: it was up, and nothing answers any more; ``partial``: neither up nor down, half of it is there."""


@dataclass(frozen=True, slots=True)
class DeviceSlot:
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
    def server(self) -> DeviceServer:
        """Its server, where it has one of ours."""
        return DeviceServer(self.name, self.directory)

    def make_directory(self) -> None:
        """Make the folder of its files. It keeps others out: nbdkit's sockets are open to all, whatever the umask."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o700)

    @property
    def client_file(self) -> Path:
        """The file in which the process that connects it leaves its number."""
        return self.directory / f"{self.name}.client"


@dataclass(frozen=True, slots=True)
class FoundLayer:
    """The state of one layer as it is seen without asking a device anything.

    ``path`` is its block device while that is there and ours, ``size`` in bytes. ``present``: there is something
    to take down, with or without a record of it. ``busy``: why it cannot be, where no open block device tells.
    ``told``: what a server of zvault's own says of itself (zvault/devices/nbd/blockstore_server.py).
    """

    state: LayerState = "down"
    detail: str = ""
    path: str | None = None
    size: int | None = None
    present: bool = False
    busy: Busy | None = None
    told: Data | None = None

    @property
    def usable(self) -> bool:
        """True if requests to it are answered, as far as can be told without one."""
        return self.path is not None and self.state in ("up", "partial")


@dataclass(frozen=True, slots=True)
class MissingPart:
    """The absence of something that is not made either: why, and what to do.

    ``retryable``: it may be made after a while, with nobody doing anything about it.
    """

    why: str = "zvault makes a vault's device only where it is told to"
    next: str = "if the vault is not new, find what it lies on"
    retryable: bool = False

    def error(self, what: str, where: str = "") -> NotFound:
        """The error: ``what`` is missing, ``where`` it was looked for."""
        error = NotFound(what, "; ".join(filter(None, (where, self.why))), self.next)
        error.retryable = self.retryable
        return error


@dataclass(frozen=True, slots=True)
class LayerJob:
    """One layer's share of bringing a device up.

    ``below`` is the block device that it lies on, "" for a source. ``had`` is what the lease has of it: when it
    is up already that, else what it was when it was lost (a pool that is suspended finds its device only under
    the same name), {} if there is nothing. ``create``: the vault's pool is to be made, so what is blank may be
    formatted.
    """

    slot: DeviceSlot
    device: Device
    below: str
    had: Data
    create: bool
    write: Callable[[Data], None]
    """Puts this layer's data into the lease; it is on disk when this returns. To be called before each effect."""
    say: SayProgress
    resume: bool = False
    """A pool of this host's still waits for the device, so nobody may have had it in between."""
    absence: MissingPart = field(default_factory=MissingPart)
    """What to tell of what is not there, without ``create``."""
    throw_away: bool = False
    """What is written to it shall reach nobody: see DeviceStack.throw_away."""
    uploads: int | None = None
    """How many objects to have on their way to a store whose settings do not say; None: as many as its server has by
    default."""
    pool_path: str | None = None
    """Where the pool that waits for it looks for it, if that is known."""


@dataclass(frozen=True, slots=True)
class CreationCommand:
    """A command that makes something which is not there yet: what it is for, and its argv."""

    what: str
    argv: list[str]


class DeviceLayer(Protocol):
    """One kind of layer. It keeps nothing: what is up is in the lease and in the kernel.

    Whatever may wait for a device runs in a process with a deadline (system/process/). Every method is called
    with the vault's lock held, ``look`` also without it.
    """

    def unit(self, slot: DeviceSlot, data: Data | None, device: Device | None) -> str | None:
        """The systemd unit it runs in, by the lease or else as configured; None where it has none."""

    def look(self, slot: DeviceSlot, data: Data | None, unit: UnitState | None) -> FoundLayer:
        """Return what there is of it; ``data`` is None without a lease. Reads /sys and /proc only and never waits."""

    def making(self, slot: DeviceSlot, device: Device, below: str) -> list[CreationCommand]:
        """List what ``up`` runs for a new vault, in words and commands; ``below`` stands for the device below."""

    async def check(self, device: Device) -> None:
        """See that its tools are there. Raises ToolMissing; starts nothing."""

    async def settle(self, slot: DeviceSlot, data: Data) -> bool:
        """End what a crash left on its way, lest it arrive later; whether there was anything."""

    async def up(self, job: LayerJob) -> str:
        """Bring it up; the result is its block device's path. It may find part of it there already."""

    async def adjust(self, job: LayerJob) -> None:
        """Bring the settings of one that was up already to the configuration's."""

    async def cut_off(self, data: Data) -> None:
        """Have a lost device fail at once all that waits for it; it vanishes once who has it open closes it."""

    async def find_cause(self, data: Data) -> ZvaultError | None:
        """Why it does not answer though it is there, where its storage says so; None otherwise."""

    async def rest(self, data: Data, *, resting: bool) -> None:
        """Before the host sleeps, begin nothing of its own accord on what is below; and go on after."""

    async def down(
        self, slot: DeviceSlot, data: Data, found: FoundLayer, *, lost: bool, say: SayProgress
    ) -> None:
        """Take it down, whatever there is of it; with ``lost`` what lies below does not answer.

        Returns once nothing can reach the layer below any more. Raises when it cannot be done; the layers below
        then stay as they are.
        """

    def leftover(self, data: Data) -> str | None:
        """The block device that outlives it, by name (``nbd0``), with its queue settings; None: there is none."""
