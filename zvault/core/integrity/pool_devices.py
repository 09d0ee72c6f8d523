"""Which devices a pool needs, and which of them are not its vault's own. Pure.

Somebody who says ``zpool add`` for ``zpool attach``, or wants to make room, gives the vault's pool a disk of the very
host that the vault protects. From then on the store alone is worth nothing: without that disk the pool cannot be
imported.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

SPARE_ROLES = frozenset({"cache", "l2cache", "spare", "spares"})
"""Roles of devices without which a pool is imported all the same, as ``zpool status`` has them with and without -j."""

_PARITY = re.compile(r"(?:raidz|draid)(\d)")


@dataclass(frozen=True, slots=True)
class TopVdev:
    """A top-level vdev: its name as zpool-status(8) has it, its role, and the paths of all devices below it.

    ``role``: normal, special, dedup, log (``logs`` without -j); or one of SPARE_ROLES.
    """

    name: str
    role: str
    devices: tuple[str, ...]

    def can_lose(self) -> int:
        """How many of its devices may be missing at an import; all but one of a mirror."""
        if parity := _PARITY.match(self.name):
            return int(parity[1])
        return len(self.devices) - 1


def list_foreign_devices(vdevs: Iterable[TopVdev], own: Collection[str]) -> list[str]:
    """The devices that are not the vault's ``own``, and without which the pool cannot be imported; sorted.

    One that mirrors a device of the vault's own is not needed, nor is a cache or a spare.
    """
    found: set[str] = set()
    for vdev in vdevs:
        foreign = [device for device in vdev.devices if device not in own]
        if vdev.role not in SPARE_ROLES and len(foreign) > vdev.can_lose():
            found.update(foreign)
    return sorted(found)
