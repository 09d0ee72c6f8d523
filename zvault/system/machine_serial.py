"""Which machine this is: what its firmware says, so that a disk that moved or was copied to another can be told.

machine-id, hostid and name are on the disk, and go with each copy of it. A hypervisor gives each machine that it makes
from an image another UUID.
"""

from __future__ import annotations

from pathlib import Path

PRODUCT_UUID = Path("/sys/class/dmi/id/product_uuid")

_MEANINGLESS = {"", "0" * 32, "f" * 32, "03000200040005000006000700080009"}
"""UUIDs that whole series of boards have."""


def read_machine_serial(file: Path = PRODUCT_UUID) -> str | None:
    """Return the machine's UUID; None where the firmware has none, or one that many have."""
    try:
        found = file.read_text(encoding="ascii").strip().lower()
    except (OSError, UnicodeDecodeError):
        return None
    return None if found.replace("-", "") in _MEANINGLESS else found
