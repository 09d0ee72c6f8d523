"""What the tests bring to a machine: a stick with zvault's packages."""

from __future__ import annotations

from collections.abc import Callable

from machine import Machine

NEW, OLD = "/media/new/zvault_*.deb", "/media/old/zvault_*.deb"

Switch = Callable[..., Machine]
"""Makes a fresh machine of that name, by default with all that zvault's package depends on."""


def install(machine: Machine, package: str = NEW) -> str:
    """What apt says as it installs a package from the stick; all that it depends on is in apt's cache."""
    machine.run("mountpoint -q /media || mount -o ro /dev/vdb /media")
    apt = "DEBIAN_FRONTEND=noninteractive apt-get install -y"
    return machine.run(f"{apt} {package}", seconds=900)
