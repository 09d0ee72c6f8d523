"""Whether the store is still this writer's. Whoever takes it says so in one object, and looks at the log after that."""

from __future__ import annotations

import threading
from collections.abc import Callable

from zvault.blockstore.awaited_journal import JournalMark
from zvault.blockstore.recovery import WriterEpoch
from zvault.object_store.interface import ObjectStore, StoreError


class WriterFenced(StoreError):
    """Another writer has the store."""

    reason = "fenced"


class WriterFence:
    """One writer's time with a store. Safe for threads."""

    def __init__(self, store: ObjectStore, prefix: str, epoch: WriterEpoch) -> None:
        self.store = store
        self.prefix = prefix
        self.epoch = epoch
        self._looking = threading.Lock()
        self._asking = threading.Lock()
        self._sure = 0

    def look(self) -> None:
        """Raises WriterFenced when another writer has taken the store, StoreError when that cannot be known."""
        # One at a time: who looks while the mark is put would take its new ETag for another writer's.
        with self._asking:
            now, mine = WriterEpoch.read(self.store, self.prefix), self.epoch
        if (now.number, now.etag.strip('"')) != (mine.number, mine.etag.strip('"')):
            raise WriterFenced(
                f"this host may not write to the block store {self.prefix} any more",
                f"{now.owner or 'somebody'} has taken it (epoch {now.number}, after ours, {mine.number})",
                "what was written here since is lost; give the device up, and see who has it",
            )

    def mark_journal(self, mark: JournalMark | None) -> None:
        """Have the bucket say which journal is waited for. Raises Busy where the store is another's, StoreError."""
        with self._asking:
            if self.epoch.journal != mark:
                self.epoch = self.epoch.with_journal(self.store, self.prefix, mark)

    def sure_of(self, segment: int, uploaded: Callable[[], int]) -> None:
        """See that the segments up to this one, which are in the store, count for whoever takes it.

        They were put before anybody had: he lists the log after he has taken it, and so finds them. ``uploaded`` tells
        up to which segment all are there by now: one look does for all who ask at that time. Raises as ``look``.
        """
        with self._looking:
            # A writer that had been shut out answered flushes for up to ten seconds more.
            if self._sure < segment:
                there = uploaded()
                self.look()
                self._sure = there
