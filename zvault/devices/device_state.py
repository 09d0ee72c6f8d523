"""A vault's device as a stack brings it up, and as it is found."""

from __future__ import annotations

from dataclasses import dataclass

from zvault.devices.device_record import is_throw_away
from zvault.devices.layer import Data, LayerState

READ_ONLY = "it is read-only"
"""The detail of a device that is up and takes no writes."""


@dataclass(frozen=True, slots=True)
class BlockDevice:
    """A device that is up: where it is, its size in bytes, and what it is as the configuration says."""

    path: str
    size: int
    spec: str


@dataclass(frozen=True, slots=True)
class DeviceState:
    """A device as ``probe`` finds it. ``partial`` is neither up nor down: half of it is there. ``told`` as in Found."""

    name: str
    spec: str
    path: str | None
    state: LayerState
    detail: str
    size: int | None
    told: Data | None = None

    @property
    def throw_away(self) -> bool:
        """True if it is a copy that is thrown away, or what is left of one: see DeviceStack.throw_away."""
        return is_throw_away(self.spec)
