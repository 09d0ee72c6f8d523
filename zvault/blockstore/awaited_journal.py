"""Which journal a store waits for: the one that may hold writes which were answered and are not in the bucket. Pure.

Seen with ``mode=writeback``: the disk of the journal was not mounted after a power cut, the server began with a new,
empty journal in the folder below the mount point, the pool went on, and what had been flushed was gone without a word.
So the bucket says from before the first such write which journal has them (JournalMark), and so does this host
(JournalNote). An epoch belongs to one writer alone, so store and epoch together name one journal.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from zvault.core.errors import JournalMissing

_LATEST = 1 << 37
"""Seconds since the epoch that no server began at: a bucket may say anything."""


@dataclass(frozen=True, slots=True)
class JournalMark:
    """The mark of a journal in the bucket, from before the first write that only a journal has until a server put all
    of them there.

    ``epoch`` is the journal's; ``host``, ``folder`` and ``since`` (seconds since the epoch) tell people where it was.
    """

    epoch: int
    host: str
    folder: str
    since: float

    def as_data(self) -> dict[str, Any]:
        """As the object ``epoch`` holds it."""
        return {"epoch": self.epoch, "host": self.host, "folder": self.folder, "since": self.since}

    @classmethod
    def of_data(cls, found: Any) -> JournalMark | None:
        """Read back; None where no journal is waited for. Raises ValueError, KeyError, TypeError."""
        if found is None:
            return None
        epoch = int(found["epoch"])
        if not 0 < epoch < 1 << 32:
            raise ValueError(f"{epoch} is no epoch of a journal")
        since = float(found["since"])
        if not 0 <= since < _LATEST:
            raise ValueError(f"{since} is no time")
        return cls(epoch, str(found["host"]), str(found["folder"]), since)

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since, UTC).strftime("%Y-%m-%d %H:%M UTC")
        return f"the journal of epoch {self.epoch} in {self.folder} of {self.host}, in use since {since},"


@dataclass(frozen=True, slots=True)
class JournalNote:
    """The note of this host about the journal: its ``epoch``, 0 once all is in the bucket.

    ``flushed``: the last frame that was on its disk for sure. ``boot``: the boot of a journal in memory, which holds
    what was answered as long as that lasts; b"" for one on a disk.
    """

    epoch: int
    flushed: int = 0
    boot: bytes = b""


@dataclass(frozen=True, slots=True)
class FoundJournal:
    """The journal that is there: its epoch, 0 for an empty folder, and the last frame that it has or knows of."""

    epoch: int
    last: int


@dataclass(frozen=True, slots=True)
class MissingJournal:
    """The journal that is waited for is not the one that was found: there is none, another, or an older copy."""

    kind: Literal["none", "another", "older"]
    epoch: int
    found: FoundJournal
    flushed: int = 0
    mark: JournalMark | None = None

    def error(self, place: str, folder: str) -> JournalMissing:
        """The same for people; ``folder`` is where it was looked for."""
        lost = str(self.mark or f"the journal of epoch {self.epoch}, which this host had in use,")
        if self.kind == "older":
            found = f"it ends with write {self.found.last}, and write {self.flushed} had been on its disk"
        elif self.kind == "another":
            found = f"the journal there is of epoch {self.found.epoch}"
        else:
            found = "there is no journal"
        what = {
            "none": f"the journal of the block store {place} is not in {folder}",
            "another": f"the journal in {folder} is not the one that the block store {place} waits for",
            "older": f"the journal in {folder} is an older copy of the one that the block store {place} waits for",
        }[self.kind]
        return JournalMissing(
            what,
            f"{lost} may hold writes that were answered and are not in the bucket, and {found}; nothing was begun"
            " without it",
            "mount the disk that it is on, or bring its folder back, and zvault goes on from it; if it is lost for"
            " good, 'zvaultctl blockstore give-up-journal' shows what is lost with it",
        )


def find_missing_journal(
    mark: JournalMark | None, note: JournalNote | None, found: FoundJournal, newest: int, boot: bytes = b""
) -> MissingJournal | None:
    """Return what is missing; None where the journal that is waited for is there, or none is.

    ``newest``: the epoch of the newest root. What this host notes counts only while that is its own: after another
    writer its journal can never be applied. ``boot``: of now, b"" where it is not known.
    """
    own = note if note is not None and note.epoch == newest and note.boot in (b"", boot) else None
    waited = max(mark.epoch if mark is not None else 0, own.epoch if own is not None else 0)
    if waited == 0 or found.epoch > waited:
        # A later one was begun by a server that had found this one, and ended before it could say so in the bucket.
        return None
    if found.epoch == 0:
        return MissingJournal("none", waited, found, mark=mark)
    if found.epoch < waited:
        return MissingJournal("another", waited, found, mark=mark)
    flushed = note.flushed if note is not None and note.epoch == waited else 0
    if found.last < flushed:
        return MissingJournal("older", waited, found, flushed, mark)
    return None
