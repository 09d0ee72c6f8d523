"""A store as a device that cannot be written to: as it was when it was opened, while another may write to it.

A file system above must not see two moments at once. So when the writer has removed something that is needed, reads
of that fail, and go on failing; nothing newer takes its place.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial

from zvault.api.blockstore import EngineStatus
from zvault.blockstore import store_view
from zvault.blockstore.format import ObjectDamaged, Superblock
from zvault.blockstore.kept_moments import KeptMoment
from zvault.blockstore.options import ReadOptions
from zvault.blockstore.read.disk_cache import DiskCache
from zvault.blockstore.store_view import StoreView
from zvault.object_store.interface import ObjectMissing, ObjectStore, StoreError


class DeviceSuperseded(StoreError):
    """The writer has removed what the device had there."""

    reason = "passed"


class ReadOnlyDevice:
    """Safe for threads; see Engine for what it has in common with one that is written to."""

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        what: Superblock,
        options: ReadOptions,
        say: Callable[[str], None] = lambda _: None,
        *,
        place: str = "",
        at: KeptMoment | None = None,
    ) -> None:
        """``place``: how people know it; ``at``: a moment that is kept.

        Raises NotFound, Busy (also for another's cache), ObjectDamaged, StoreError.
        """
        self.size = what.size
        self.at = time.time() if at is None else at.taken
        """When what is there was so: now, or at that moment."""
        self._place = place or prefix
        self._say = say
        self._passed: DeviceSuperseded | None = None
        self._lock = threading.Lock()
        self.cache = (
            DiskCache(options.cache, what.identity, size=options.cache_size)
            if options.cache is not None
            else None
        )
        try:
            look = store_view.view_store_now if at is None else partial(StoreView, at=at)
            self.view = look(store, prefix, workers=options.workers, cache=self.cache, memory=options.memory)
        except BaseException:
            if self.cache is not None:
                self.cache.close()
            raise

    def __str__(self) -> str:
        return f"the block store in {self._place} as of {_when(self.at)}"

    @property
    def shows(self) -> str:
        """The state of the store that is seen, in words."""
        root, segments = self.view.root, len(self.view.rest.segments)
        if self.view.at is not None:
            return f"checkpoint {root.number} of epoch {root.epoch}, which is kept"
        log = f"{segments} segment{'' if segments == 1 else 's'} of log"
        return f"checkpoint {root.number} of epoch {root.epoch} and {log} after it" if root.number else log

    def read(self, offset: int, length: int) -> bytes:
        """Any range. Raises DeviceSuperseded, ObjectDamaged, StoreError."""
        data = bytearray(length)
        self.read_into(offset, memoryview(data))
        return bytes(data)

    def read_into(self, offset: int, out: memoryview) -> None:
        """The same, into ``out``, as much as that holds."""
        try:
            self.view.read_into(offset, out)
        except (ObjectMissing, ObjectDamaged) as error:
            if isinstance(error, ObjectMissing) or isinstance(error.__cause__, ObjectMissing):
                self._see_why(error)
            raise

    def _see_why(self, error: StoreError) -> None:
        """Raises DeviceSuperseded where something is missing because its writer went on, and says so the first time."""
        with self._lock:
            passed = self._passed
        if passed is None:
            _, checkpoints = self.view.later()
            if checkpoints < 2 or (self.view.at is not None and self.view.kept()):
                return  # it is lost
            passed = DeviceSuperseded(
                f"{self} has passed",
                f"its writer has since removed blocks that it had ({checkpoints} checkpoints later)",
                "reads of these fail; detach the device, and serve and attach it anew to see the store as it is now",
            )
            with self._lock:
                first, self._passed = self._passed is None, self._passed or passed
            if first:
                self._say(str(passed))
        raise DeviceSuperseded(passed.what, passed.why, passed.next) from error

    def close(self) -> None:
        """Close files and end threads."""
        self.view.close()
        if self.cache is not None:
            self.cache.close()

    def status(self) -> EngineStatus:
        """As BlockEngine.status has it; ``checkpoint``: the number of the one that is seen; ``as_of``: since when."""
        cache = self.cache
        return {
            "mode": "readonly",
            "epoch": self.view.root.epoch,
            "checkpoint": self.view.root.number,
            "log_segments": len(self.view.rest.segments),
            "as_of": self.at,
            "size": self.size,
            "cache_hits": cache.hits if cache is not None else 0,
            "cache_misses": cache.misses if cache is not None else 0,
            "cache_used": cache.used if cache is not None else 0,
            "read_bytes": self.view.reader.read_bytes,
            "fetched_bytes": self.view.fetcher.read_bytes,
            "map_memory": self.view.blocks.memory_used,
            "trouble": None if self._passed is None else str(self._passed),
            "fenced": False,
        }


def _when(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().isoformat(sep=" ", timespec="seconds")
