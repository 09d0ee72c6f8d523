"""What a lease says of one device, and what is seen of it on the host, layer by layer."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from zvault.devices.layer import Data, DeviceSlot, FoundLayer, LayerState

_COPY, _THROWN_AWAY = "a copy of ", " that is thrown away"
"""Around the device of a copy, in its lease: no device in a configuration is written so."""


def mark_throw_away(spec: str) -> str:
    """Return the name that the lease of a copy of a device has for it."""
    return f"{_COPY}{spec}{_THROWN_AWAY}"


def is_throw_away(spec: str) -> bool:
    """True if a lease's ``spec`` is that of such a copy."""
    return spec.startswith(_COPY) and spec.endswith(_THROWN_AWAY)


@dataclass(frozen=True, slots=True)
class LayerRecord:
    """One layer in a lease: its kind, and what it wrote itself."""

    kind: str
    data: Data = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """One device's lease, written before each step that it tells of.

    ``spec`` is the device as it was configured, ``layers`` all that it has, bottom up; one that was not begun has
    no data. ``queue`` is what the queue settings of each block device were before, by its name.
    """

    spec: str
    layers: tuple[LayerRecord, ...]
    queue: dict[str, dict[str, str]] = field(default_factory=dict)

    def as_lease(self) -> dict[str, object]:
        """As the lease holds it."""
        return asdict(self)

    @classmethod
    def from_lease(cls, lease: dict[str, Any]) -> DeviceRecord:
        """Read back. Keys that another version wrote are left out."""
        parts = tuple(LayerRecord(part["kind"], part["data"]) for part in lease["layers"])
        return cls(lease["spec"], parts, lease.get("queue", {}))

    def with_data(self, depth: int, data: Data) -> DeviceRecord:
        """With other data of one layer."""
        part = replace(self.layers[depth], data=data)
        return replace(self, layers=(*self.layers[:depth], part, *self.layers[depth + 1 :]))


@dataclass(frozen=True, slots=True)
class FoundLevel:
    """One layer of a device: its kind, what its lease says (None: there is no lease), what is seen of it."""

    kind: str
    data: Data | None
    found: FoundLayer


@dataclass(frozen=True, slots=True)
class FoundDevice:
    """One device as it is found: its lease, and each of its layers, bottom up.

    Without a lease they are those of the configuration, of which only a source's unit can be seen.
    """

    slot: DeviceSlot
    record: DeviceRecord | None
    levels: tuple[FoundLevel, ...]

    @property
    def layers(self) -> list[FoundLayer]:
        """The layers as they are seen, bottom up."""
        return [level.found for level in self.levels]

    @property
    def usable(self) -> bool:
        """True if requests to it are answered, as far as can be told without one."""
        return bool(self.levels) and all(layer.usable for layer in self.layers)

    @property
    def present(self) -> bool:
        """True if there is anything to take down."""
        return self.record is not None or any(layer.present for layer in self.layers)

    @property
    def path(self) -> str | None:
        """The block device that a pool lies on, while it is there."""
        return self.layers[-1].path if self.levels else None

    @property
    def size(self) -> int | None:
        return self.layers[-1].size if self.levels else None

    @property
    def topmost(self) -> FoundLayer | None:
        """The topmost layer that is there. Those below it are in use by it, and it alone may be by others."""
        return next((layer for layer in reversed(self.layers) if layer.present), None)

    def verdict(self) -> tuple[LayerState, str]:
        """Return its state and the reason in words: that of the lowest layer that is not up."""
        lame = [layer for layer in self.layers if layer.state != "up"]
        if not lame:
            return "up", ""
        worst = next((layer for layer in lame if not layer.usable), lame[0])
        if worst.state == "down" and self.record is not None:
            return "partial", "it is being brought up, or was when zvault stopped"
        return worst.state, worst.detail
