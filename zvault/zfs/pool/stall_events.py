"""OpenZFS's events (zpool-events(8)): signs that a pool's storage hangs or returns errors.

Reading them takes no lock of a pool, so this works while a pool hangs (seen with 2.3.9).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from zvault.core.diagnosis.stalls import StallKind, StallSign
from zvault.core.units import format_duration

EVENT_STALL_KINDS: Mapping[str, StallKind] = {
    "deadman": "deadman",
    "delay": "delay",
    "io_failure": "suspended",
    "probe_failure": "probe_failure",
    "io": "io",
    "checksum": "checksum",
    "data": "data",
}
"""The classes below ereport.fs.zfs that are signs."""

EREPORT_PREFIX = "ereport.fs.zfs."
EVENT_NANOSECONDS = 1e9

_FIELD = re.compile(r"\s+(\w+) = (.*)")


def follow_argv() -> list[str]:
    """Argv that prints every event that the kernel still has, with its fields, and then each new one."""
    return ["zpool", "events", "-Hvf"]


@dataclass(frozen=True, slots=True)
class PoolEvent:
    """One event: its class, its number since the module was loaded, its time (nanoseconds since the epoch)."""

    kind: str
    number: int
    time: int
    fields: Mapping[str, str]

    def after(self, number: int | None, time: int) -> bool:
        """True if it is newer than the last event seen. Numbers restart with the module, and clocks may be set back."""
        return self.time > time or (number is not None and self.number > number)


@dataclass
class EventReader:
    """Assembles events from the lines of ``zpool events -v``: a header line, field lines, an empty line."""

    _fields: dict[str, str] = field(default_factory=dict)

    def feed(self, line: str) -> PoolEvent | None:
        """Read a line. Returns the event if the line ends one."""
        if found := _FIELD.fullmatch(line):
            # Nested fields (the detector's) come first, and some share a name with a field that matters here.
            self._fields[found[1]] = found[2].strip()
            return None
        if line.strip():
            return None
        fields, self._fields = self._fields, {}
        if "class" not in fields:
            return None
        return PoolEvent(
            _text(fields["class"]), _number(fields.get("eid")) or 0, _time(fields.get("time", "")), fields
        )


def find_stall_sign(event: PoolEvent) -> StallSign | None:
    """The sign in an event; None for events of a healthy pool."""
    kind = (
        EVENT_STALL_KINDS.get(event.kind.removeprefix(EREPORT_PREFIX))
        if event.kind.startswith(EREPORT_PREFIX)
        else None
    )
    pool = _text(event.fields.get("pool", ""))
    if kind is None or not pool:
        return None
    path = _text(event.fields.get("vdev_path", ""))
    return StallSign(kind, _told(kind, PurePosixPath(path).name or "its devices", event), pool=pool)


def _told(kind: StallKind, device: str, event: PoolEvent) -> str:
    took = _number(event.fields.get("zio_delta"))
    seconds = format_duration(took / EVENT_NANOSECONDS) if took else "a long time"
    return {
        "deadman": f"a request to {device} has been in flight for longer than OpenZFS's deadman allows",
        "delay": f"a request to {device} took {seconds}",
        "suspended": "its pool has suspended its I/O",
        "probe_failure": f"{device} does not answer when OpenZFS asks it",
        "io": f"{device} returned an error (errno {_number(event.fields.get('zio_err')) or 'unknown'})",
        "checksum": f"{device} returned wrong data (checksum error)",
        "data": "data could not be read, and there is no other copy: see 'zvaultctl vault status'",
    }[kind]


def _text(word: str) -> str:
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] == '"' else word


def _number(word: str | None) -> int | None:
    """``0x1f`` or ``0x1f [NAMES]``; a number of 64 bits."""
    found = re.match(r"0x([0-9a-f]{1,16})|([0-9]{1,20})", word or "")
    if found is None:
        return None
    return int(found[1], 16) if found[1] else int(found[2])


def _time(words: str) -> int:
    """``0xSECONDS 0xNANOSECONDS``."""
    seconds, _, rest = words.partition(" ")
    return (_number(seconds) or 0) * 1_000_000_000 + (_number(rest.strip()) or 0)
