"""How far this host knows a store to have come, kept on its disk: a store that went back is refused.

Nothing in a bucket is signed, and an old state of it is as sound as the newest: only somebody who remembers can tell.
So a folder of this host has a small file for each store, named for its uuid, with two records that are written in turn:
a crash may spoil one. What it says was in the store for sure and counted; it may lag behind, and then tells less.

Behind them two more records say which journal the store waits for (see awaited_journal.py), in the same way.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from xxhash import xxh3_64_digest

from zvault.blockstore.awaited_journal import JournalNote
from zvault.blockstore.format import ObjectDamaged, make_checkpoint_key, make_segment_key
from zvault.blockstore.map.root import CheckpointRoot

_RECORD = struct.Struct("<8s16sQQQQ")  # magic, identity, count, epoch, checkpoint, segment
_MAGIC = b"zvSEEN01"
_SIZE = _RECORD.size + 8

_JOURNAL = struct.Struct("<8s16sQQQ16s")  # magic, identity, count, epoch, last flushed frame, boot
_JOURNAL_MAGIC = b"zvJNOTE1"
_JOURNAL_SIZE = _JOURNAL.size + 8
_JOURNAL_AT = 2 * _SIZE


class StoreWentBack(ObjectDamaged):
    """The store is older than this host knows it."""

    reason = "went-back"


@dataclass(frozen=True, slots=True)
class StorePosition:
    """A writer's epoch, the number of its newest checkpoint, and a segment that counts, with all before it."""

    epoch: int
    checkpoint: int
    segment: int

    def __str__(self) -> str:
        return f"epoch {self.epoch}, checkpoint {self.checkpoint}, segment {self.segment}"


class SeenPosition:
    """The file of one store. Safe for threads; what its disk refuses is ``trouble``, and no error."""

    def __init__(self, folder: Path, identity: bytes, opened: Callable[[bytes], int] | None = None) -> None:
        """``opened`` opens the file where this process itself may not."""
        self.path = folder / identity.hex()
        self.trouble: str | None = None
        self.known: StorePosition | None = None
        self.journal: JournalNote | None = None
        """What is known of the journal; None where nothing was ever noted."""
        self._identity, self._count, self._journal_count, self._fd = identity, 0, 0, -1
        self._lock = threading.Lock()
        try:
            if opened is None:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            else:
                self._fd = opened(identity)
            self._load(os.pread(self._fd, 2 * _SIZE, 0))
            self._load_journal(os.pread(self._fd, 2 * _JOURNAL_SIZE, _JOURNAL_AT))
        except OSError as error:
            self._refused(error)

    def _load(self, data: bytes) -> None:
        for at in (0, _SIZE):
            record = data[at : at + _SIZE]
            if len(record) < _SIZE or xxh3_64_digest(record[:-8]) != record[-8:]:
                continue
            magic, identity, count, *position = _RECORD.unpack(record[:-8])
            if magic == _MAGIC and identity == self._identity and count > self._count:
                self._count, self.known = count, StorePosition(*position)
        if data and self.known is None:
            self.trouble = f"{self.path} cannot be read: whether the store went back is not known"

    def _load_journal(self, data: bytes) -> None:
        for at in (0, _JOURNAL_SIZE):
            record = data[at : at + _JOURNAL_SIZE]
            if len(record) < _JOURNAL_SIZE or xxh3_64_digest(record[:-8]) != record[-8:]:
                continue
            magic, identity, count, epoch, flushed, boot = _JOURNAL.unpack(record[:-8])
            if magic == _JOURNAL_MAGIC and identity == self._identity and count > self._journal_count:
                self._journal_count = count
                self.journal = JournalNote(epoch, flushed, boot if any(boot) else b"")

    def note_journal(self, note: JournalNote, *, durable: bool = False) -> None:
        """Keep what is known of the journal in the place of what was; ``durable``: on the disk too."""
        with self._lock:
            if self._fd < 0 or (note == self.journal and not durable):
                return
            count = self._journal_count + 1
            fields = (_JOURNAL_MAGIC, self._identity, count, note.epoch, note.flushed, note.boot)
            record = _JOURNAL.pack(*fields)
            record += xxh3_64_digest(record)
            try:
                at = _JOURNAL_AT + count % 2 * _JOURNAL_SIZE
                if os.pwrite(self._fd, record, at) != _JOURNAL_SIZE:
                    raise OSError("the disk took only a part of it")
                self._journal_count, self.journal = count, note
                if durable:
                    os.fdatasync(self._fd)
            except OSError as error:
                self._refused(error)

    def note(self, position: StorePosition, *, durable: bool = False, anew: bool = False) -> None:
        """Keep it, where it is further than what is known, or ``anew`` in its place; ``durable``: on the disk too."""
        with self._lock:
            known = self.known
            if known is not None and not anew:
                if position.epoch < known.epoch:
                    return
                if position.epoch == known.epoch:
                    checkpoint = max(position.checkpoint, known.checkpoint)
                    position = StorePosition(known.epoch, checkpoint, max(position.segment, known.segment))
            if self._fd < 0 or (position == known and not durable):
                return
            try:
                self._write(position, durable=durable)
            except OSError as error:
                self._refused(error)

    def _write(self, position: StorePosition, *, durable: bool) -> None:
        count = self._count + 1
        fields = (_MAGIC, self._identity, count, position.epoch, position.checkpoint, position.segment)
        record = _RECORD.pack(*fields)
        if os.pwrite(self._fd, record + xxh3_64_digest(record), count % 2 * _SIZE) != _SIZE:
            raise OSError("the disk took only a part of it")
        self._count, self.known, self.trouble = count, position, None
        if durable:
            os.fdatasync(self._fd)

    def _refused(self, error: OSError) -> None:
        self.trouble = (
            f"{self.path} cannot be kept: {error}; whether the store goes back will not be known from here"
        )

    def close(self) -> None:
        """Let the file go."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1


def refuse_older_checkpoint(seen: StorePosition, root: CheckpointRoot, place: str) -> None:
    """See that the newest checkpoint is none from before. Raises StoreWentBack.

    By one it may be: where the newest is damaged, the one before it says the same.
    """
    if root.epoch < seen.epoch or (root.epoch == seen.epoch and root.number + 1 < seen.checkpoint):
        missing = make_checkpoint_key(place, seen.checkpoint, seen.epoch)
        raise _went_back(place, seen, f"epoch {root.epoch}, checkpoint {root.number}", missing)


def refuse_older_log(seen: StorePosition, root: CheckpointRoot, last: int, place: str) -> None:
    """See that all that counted is in the log, which ends with the segment ``last``. Raises StoreWentBack."""
    after = [reign.first - 1 for reign in root.reigns if reign.epoch > seen.epoch]
    end = min(after) if after else last
    if end < seen.segment:
        what = f"segment {end}" if end == last else f"segment {end} of that epoch"
        missing = make_segment_key(
            place, seen.segment, root.epoch_of(seen.segment) if end == last else seen.epoch
        )
        raise _went_back(place, seen, f"epoch {root.epoch}, {what}", missing)


def _went_back(place: str, seen: StorePosition, now: str, missing: str) -> StoreWentBack:
    return StoreWentBack(
        f"the block store {place} is older than this host knows it",
        f"it was at {seen}, and is now at {now}: what was written in between is missing, {missing} among it",
        NEXT_WENT_BACK,
    )


NEXT_WENT_BACK = (
    "see whether the bucket was restored to an older state, its server lost its power, or somebody else wrote to it;"
    " to go on with what there is, run 'zvaultctl blockstore check PLACE --accept-rollback --yes'"
)
