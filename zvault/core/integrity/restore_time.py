"""How long it takes to read a backup back from its vault, by what was really read from that vault. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from zvault.core.dates import reject_future
from zvault.core.units import format_duration, format_rate

ReadingKind = Literal["restore", "drill", "files", "verify", "scrub"]
READING_KINDS: tuple[ReadingKind, ...] = get_args(ReadingKind)

LEAST_BELIEVED_BYTES = 64 << 20
"""A rate is believed from so many bytes on: four times OpenZFS's queue of a ``zfs send`` (zfs_send_queue_length). What
is less is mostly the begin and the end of a stream, each of which waits for a transaction group.
"""

LEAST_BELIEVED_SECONDS = 1.0
"""And from so many seconds on: a shorter read came out of a cache of the storage, or was cut off at once."""

DATASET_KINDS: tuple[ReadingKind, ...] = ("restore", "drill", "verify", "files", "scrub")
"""The kinds that tell how long a restore of datasets takes, the best first: real restores go to the real target."""

FILE_KINDS: tuple[ReadingKind, ...] = ("files", "verify", "restore", "drill", "scrub")
"""The same for a restore of files: a verification reads files, too."""

_KIND_WORDS: dict[ReadingKind, str] = {
    "restore": "the restore",
    "drill": "the drill",
    "files": "the restore of files",
    "verify": "the verification",
    "scrub": "the scrub",
}


@dataclass(frozen=True, slots=True)
class TimedRead:
    """Bytes that were read from a vault's devices in so many seconds; ``at``: when it ended (seconds since the epoch).

    ``backup``: whose data it was; the vault's own name for a scrub, which reads everybody's.
    """

    kind: ReadingKind
    backup: str
    vault: str
    at: float
    bytes: int
    seconds: float

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return self.bytes / max(self.seconds, 0.001)

    @property
    def believed(self) -> bool:
        """True if it was long enough to tell of others."""
        return self.bytes >= LEAST_BELIEVED_BYTES and self.seconds >= LEAST_BELIEVED_SECONDS


def count_bytes_read(moved: int, before: int | None, after: int | None) -> int:
    """How many bytes were really read from a vault: no more than its devices gave meanwhile, by their counters.

    What was in memory already (ZFS's ARC) is no read of the vault, and what others read meanwhile is none for this.
    Where either counter is not known, or one began anew between them, none counts.
    """
    if before is None or after is None or after < before:
        return 0
    return min(moved, after - before)


def choose_reading(
    readings: Iterable[TimedRead], backup: str, now: float, kinds: Sequence[ReadingKind] = DATASET_KINDS
) -> TimedRead | None:
    """The reading of a vault that tells most of how long a restore of ``backup`` takes; None where none does.

    The best kind counts, of that the backup's own, of those the newest. One that is too short, or dated later than now,
    tells nothing.
    """
    usable = [
        one
        for one in readings
        if one.believed and one.kind in kinds and reject_future(one.at, now) is not None
    ]
    return min(usable, key=lambda one: (kinds.index(one.kind), one.backup != backup, -one.at), default=None)


@dataclass(frozen=True, slots=True)
class RestoreEstimate:
    """How long a restore takes: of so many ``bytes`` (None: not known), at the rate of a ``reading``, if there is one.

    ``backup`` is what is restored, ``now`` when that is asked, in seconds since the epoch.
    """

    backup: str
    now: float
    bytes: int | None
    reading: TimedRead | None

    @property
    def seconds(self) -> float | None:
        """Seconds that the restore takes; None where that is not known."""
        if self.bytes is None or self.reading is None:
            return None
        return self.bytes / self.reading.rate

    def describe(self) -> str:
        """``6h 20m at 41M/s, by the drill of 3d ago``, or that it is unknown, and what measures it."""
        if self.reading is None:
            return (
                "unknown: nothing of some size was read from its vault yet; "
                f"'zvaultctl verify {self.backup} --level drill' measures it"
            )
        whose = (
            ""
            if self.reading.backup in {self.backup, self.reading.vault}
            else f"backup {self.reading.backup} "
        )
        ago = format_duration(max(0.0, self.now - self.reading.at))
        how = f"{format_rate(self.reading.rate)}, by {_KIND_WORDS[self.reading.kind]} of {whose}{ago} ago"
        if self.seconds is None:
            return f"unknown: nobody has read yet how much it is on the vault; it comes back at {how}"
        return f"{format_duration(self.seconds)} at {how}"
