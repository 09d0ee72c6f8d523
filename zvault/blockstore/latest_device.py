"""A store as it is now, also after its writer went on, for a copy that is thrown away: no read of it fails.

A pool that is being exported cannot be helped: if a request fails then, OpenZFS suspends the pool, and neither the
export nor a ``zpool clear`` after it ever ends (its issue 6649). So what a view cannot read because its writer has
removed it is read of a newer one: the pool is older than either. What cannot be read at all, or not in time, is zeroes;
the pool's checksums tell.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from zvault.api.blockstore import EngineStatus
from zvault.blockstore import store_view
from zvault.blockstore.options import ReadOptions
from zvault.blockstore.store_view import StoreView
from zvault.core.errors import ZvaultError
from zvault.object_store.interface import ObjectStore, StoreDenied, StoreUnreachable

READ_TRIES = 3
"""Views of which a read is tried."""

READ_PATIENCE = 30.0
"""Seconds for which a request to the object store is tried again, and waited for each time."""

READ_SECONDS = 150.0
"""Seconds after which a read is answered with zeroes. It takes a few requests after each other, and the kernel drops
the device's connection after 240 (devices/nbd/source.py)."""

LATEST_READERS = 16
"""Reads at once, as many as nbdkit has threads."""


class LatestDevice:
    """Safe for threads; see ReadOnlyDevice for what it has in common with one that stays of one moment."""

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        options: ReadOptions,
        say: Callable[[str], None] = lambda _: None,
        *,
        place: str = "",
    ) -> None:
        """``place``: how people know it. Its cache is not used. Raises NotFound, Busy, ObjectDamaged, StoreError."""
        self._store, self._prefix, self._options = store, prefix, options
        self._place = place or prefix
        self._say = say
        self._lock = threading.Lock()
        self._renewing = threading.Lock()
        self._trouble: str | None = None
        self._not_before = 0.0
        """When it is worth to look anew again, by the monotonic clock."""
        self._readers = ThreadPoolExecutor(LATEST_READERS, "latest")
        self.zeroes = 0
        """Reads that were answered with zeroes."""
        self.view = self._now()
        self.size = self.view.size

    def __str__(self) -> str:
        return f"the block store in {self._place}, as it is now and then"

    @property
    def shows(self) -> str:
        """The state of the store that is seen, in words."""
        return f"from checkpoint {self.view.root.number} of epoch {self.view.root.epoch} on"

    def _now(self) -> StoreView:
        self.at = time.time()
        return store_view.view_store_now(
            self._store, self._prefix, workers=self._options.workers, memory=self._options.memory
        )

    def read(self, offset: int, length: int) -> bytes:
        """Read any range, in bytes: zeroes where that fails, or takes longer than READ_SECONDS."""
        data = bytearray(length)
        self.read_into(offset, memoryview(data))
        return bytes(data)

    def read_into(self, offset: int, out: memoryview) -> None:
        """The same, into ``out``, as much as that holds. Answers within READ_SECONDS."""
        reading = self._readers.submit(self._read, offset, len(out))
        try:
            found = reading.result(READ_SECONDS)
        except TimeoutError:
            reading.cancel()
            late = StoreUnreachable(
                "a read took too long", f"the store needs more than {READ_SECONDS:g} s", ""
            )
            found = self._zeroes(len(out), late)
        except Exception as error:  # any that got out would suspend the pool in its export
            found = self._zeroes(len(out), error)
        out[:] = found

    def _read(self, offset: int, length: int) -> bytes | bytearray:
        data, tried = bytearray(length), 0
        while True:
            seen, tried = self.view, tried + 1
            try:
                seen.read_into(offset, memoryview(data))
            except ZvaultError as error:
                # One whose store does not answer would not be answered either.
                vain = isinstance(error, StoreUnreachable | StoreDenied) or tried == READ_TRIES
                if vain or not self._renew(seen):
                    return self._zeroes(length, error)
            else:
                return data

    def _renew(self, seen: StoreView) -> bool:
        """Look at the store anew, unless another thread has done so since; whether there was something new."""
        with self._renewing:
            if self.view is not seen:
                return True
            if time.monotonic() < self._not_before:
                return False
            try:
                newer = self._now()
            except ZvaultError as error:
                self._not_before = time.monotonic() + READ_PATIENCE
                self._note(error)
                return False
            if _stamp(newer) == _stamp(seen):  # what is missing was not removed by the writer
                newer.close()
                self._not_before = time.monotonic() + READ_PATIENCE
                return False
            # Who reads the old one still has its threads; they end with the last of them.
            self.view = newer
        self._say(f"its writer went on: {self._place} is looked at {self.shows}")
        return True

    def _zeroes(self, length: int, error: Exception) -> bytes:
        with self._lock:
            self.zeroes += 1
        self._note(error)
        return bytes(length)

    def _note(self, error: Exception) -> None:
        with self._lock:
            first = self._trouble is None
            self._trouble = f"what cannot be read is answered with zeroes: {error}"
        if first:
            self._say(self._trouble)

    def close(self) -> None:
        """Close the view and end the readers; whoever waits for a read is not waited for."""
        self._readers.shutdown(wait=False, cancel_futures=True)
        self.view.close()

    def status(self) -> EngineStatus:
        """Return what ReadOnlyDevice.status has, of the view that is read now."""
        seen = self.view
        return {
            "mode": "readonly",
            "epoch": seen.root.epoch,
            "checkpoint": seen.root.number,
            "log_segments": len(seen.rest.segments),
            "as_of": self.at,
            "size": self.size,
            "read_bytes": seen.reader.read_bytes,
            "fetched_bytes": seen.fetcher.read_bytes,
            "map_memory": seen.blocks.memory_used,
            "trouble": self._trouble,
            "fenced": False,
        }


def _stamp(seen: StoreView) -> tuple[int, int]:
    """Of which root it is."""
    return seen.root.epoch, seen.root.number
