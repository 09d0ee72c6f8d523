"""The block device: reads, writes and flushes, over the log, the map and the journal.

See docs/reference/blockstore-format.md. What is written goes to the journal and into the segment being filled, in one
order. A flush answers when all before it is where the mode says: in the store, or in the journal and on its disk.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from zvault.api.blockstore import EngineStatus
from zvault.blockstore.awaited_journal import JournalMark, JournalNote
from zvault.blockstore.block_writer import BlockWriter
from zvault.blockstore.checkpoint import Checkpoints
from zvault.blockstore.engine_state import DeviceClosed, EngineState, LogProgress
from zvault.blockstore.format import BLOCK_SIZE, Superblock
from zvault.blockstore.known_position import SeenPosition, StorePosition
from zvault.blockstore.lock_keeper import LockKeeper
from zvault.blockstore.log.journal import Journal, JournalFailed
from zvault.blockstore.log.log import SegmentLog
from zvault.blockstore.map.blockmap import BlockMap
from zvault.blockstore.map.root import CheckpointRoot
from zvault.blockstore.map.usage import SegmentUsage
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.read.block_reader import BlockReader
from zvault.blockstore.read.disk_cache import DiskCache
from zvault.blockstore.read.slot_fetcher import SlotFetcher
from zvault.blockstore.recovery import WriterEpoch
from zvault.blockstore.remove_objects import ObjectRemover
from zvault.blockstore.segment_cleaner import (
    ALLOWED_GARBAGE,
    COLLECTION_LAG_SHARE,
    SegmentCleaner,
    choose_segments_to_clear,
)
from zvault.blockstore.writer_fence import WriterFence, WriterFenced
from zvault.core.errors import Busy
from zvault.object_store.interface import Buffer, ObjectStore, StoreError


class BlockEngine:
    """One open store. Safe for threads; see attach.py for how it comes to be."""

    def __init__(  # noqa: PLR0913, PLR0917 - what attaching finds and takes
        self,
        store: ObjectStore,
        prefix: str,
        what: Superblock,
        root: CheckpointRoot,
        epoch: WriterEpoch,
        journal: Journal,
        options: EngineOptions,
        seen: SeenPosition | None,
        requests: Callable[[], dict[str, int]],
    ) -> None:
        """``seen`` is what this host keeps of it. ``requests`` tells what this process asked of the store: see
        MeteredStore.totals.
        """
        self.store = store
        self.prefix = prefix
        self.uuid, self.size = what.uuid, what.size
        self.options = options
        self.journal = journal
        self.seen = seen
        self.requests = requests
        self._requests_before = dict(root.counts)
        self._care = threading.RLock()
        """Of whoever takes a checkpoint or collects garbage: one at a time."""
        threads = options.uploads
        self.fence = WriterFence(store, prefix, epoch)
        self.state = EngineState()
        self.changed = self.state.changed
        self.log = SegmentLog(store, prefix, what.identity, self.changed, self.state.sealed_one, threads)
        self.progress = LogProgress(self.state, self.log, journal, threads=threads > 0)
        self.blocks = BlockMap(store, prefix, root, options.memory, self.changed)
        self.usage = SegmentUsage()
        self.remover = ObjectRemover(self.blocks, self.usage, self.changed, self.fence.look)
        self.checkpoints = Checkpoints(
            self.blocks,
            self.usage,
            self.log,
            self.changed,
            self.fence.look,
            options.history,
            options.clock,
            remover=self.remover if options.removes_at_once else None,
        )
        self.cleaner = SegmentCleaner(
            self.blocks, self.log, self.progress, what.identity, self.changed, options.collect_rate
        )
        self.pool = ThreadPoolExecutor(max(8, 2 * threads), "fetch") if threads else None
        self.cache = (
            DiskCache(options.cache, what.identity, size=options.cache_size)
            if options.cache is not None
            else None
        )
        self.fetcher = SlotFetcher(store, prefix, self.cache, options.memory // 4, self.pool)
        self.reader = BlockReader(
            self.blocks, self.fetcher, what.blocks, self.log.memory, self.state.refuse_reading
        )
        self.writer = BlockWriter(
            self.state, self.log, self.progress, journal, self.blocks, self.reader, paced=threads > 0
        )
        self.keeper = (
            LockKeeper(
                self.state,
                self.blocks,
                self.usage,
                self.checkpoints,
                lock=options.lock,
                removes=not options.gc_elsewhere,
                care=self._care,
                still_ours=self.fence.look,
                clock=options.clock,
                pool=self.pool,
            )
            if options.keeps_locked and not options.removes_at_once
            else None
        )
        """Keeps objects locked, and removes versions; None where nothing is locked and a delete removes."""

    @property
    def failure(self) -> StoreError | None:
        """Why it cannot be used any more; None where it can."""
        return self.state.failure

    # Writing

    def write(self, offset: int, data: Buffer) -> None:
        """Write bytes at any offset. Waits while journal or memory are full. Raises StoreError."""
        view = memoryview(data).cast("B")
        self._check(offset, len(view))
        self.writer.write(offset, view)

    def zero(self, offset: int, length: int) -> None:
        """Have a range read as zeroes, at no cost of requests. Raises StoreError."""
        self._check(offset, length)
        self.writer.zero(offset, length)

    def discard(self, offset: int, length: int) -> None:
        """Forget a range that is not needed any more. Of blocks that are only touched nothing is lost.

        Raises StoreError.
        """
        self._check(offset, length)
        self.writer.zero_blocks(-(-offset // BLOCK_SIZE), (offset + length) // BLOCK_SIZE)

    def flush(self) -> None:
        """All that was written is durable when this returns. Raises StoreError."""
        with self.changed:
            self.state.refuse_writing()
        if self.options.mode == "writeback":
            self._flush_journal()
            return
        try:
            target = self.put_all()
            self.fence.sure_of(target, lambda: self.log.uploaded)
        except WriterFenced as error:
            self.fail(error)
            raise
        self.note_position(target)

    def note_position(self, segment: int, *, durable: bool = False, anew: bool = False) -> None:
        """Keep on this host that the store has come so far, which was shown; see SeenPosition.note."""
        if self.seen is not None and self.progress.opened:
            position = StorePosition(self.fence.epoch.number, self.log.checkpoint, segment)
            self.seen.note(position, durable=durable, anew=anew)

    def _flush_journal(self) -> None:
        """Raises JournalFailed, and has all that comes fail with it: the journal is not trusted any more.

        Above, a flush that failed may go by unheard: OpenZFS 2.3 does not look at what comes of those that it sends
        when it writes its labels (module/zfs/vdev_label.c). So what is written after it must fail too.
        """
        try:
            self.journal.flush()
        except JournalFailed as error:
            self.fail(error)
            raise
        if self.seen is not None and self.progress.opened:
            # Kept by the kernel, at the price of one small write: what a killed server had flushed is known for sure,
            # and after a power cut what the host's disk got by itself, and with each checkpoint.
            self.seen.note_journal(JournalNote(self.journal.epoch, self.journal.flushed))

    def put_all(self) -> int:
        """Wait until what was written so far is there; up to which segment."""
        with self.changed:
            self.log.seal()
            target = self.log.sealed
            while self.log.uploaded < target:
                self.progress.wait()
            return target

    # Reading

    def read(self, offset: int, length: int) -> bytes:
        """Read any range. Raises ObjectDamaged for what cannot be read rightly, StoreError."""
        self._check(offset, length)
        return self.reader.read(offset, length)

    def read_into(self, offset: int, out: memoryview) -> None:
        """The same, into ``out``, as much as that holds."""
        self._check(offset, len(out))
        self.reader.read_into(offset, out)

    # Keeping

    def tend(self, idle: float) -> None:
        """Do what is due now and then: take checkpoints, collect garbage. Raises StoreError.

        ``idle``: seconds since the last write.
        """
        if idle >= self.options.linger:
            with self.changed:
                self.log.forget_spares()
            self.journal.forget_spares()
        due = self.checkpoints.due
        waits = due > 0 or bool(self.remover.dying)
        if due >= self.options.checkpoint_segments or (waits and idle >= self.options.idle):
            self.checkpoint()
            self.collect()

    def seal_what_lingers(self) -> None:
        """Have uploaded what nobody flushes. With the lock held."""
        filling = self.log.filling
        if filling is not None and time.monotonic() - filling.began >= self.options.linger:
            self.log.seal()

    def checkpoint(self) -> None:
        """Take a checkpoint of what is in the store. Raises StoreError, WriterFenced."""
        with self._care:
            if self.keeper is not None:
                self.keeper.unsaved = False
            self.checkpoints.take(self.asked())
            # With it what is noted of the journal, which is in the same file.
            self.note_position(self.blocks.root.applied, durable=True)

    def await_journal(self) -> None:
        """Say in the bucket and on this host which journal has what will be answered. Before the first write.

        Raises StoreError; Busy where the store is another's by now.
        """
        options, epoch = self.options, self.fence.epoch
        writeback = options.mode == "writeback"
        mark = None
        if writeback:
            host, folder = epoch.owner.partition(",")[0], options.journal_name or str(options.journal)
            mark = JournalMark(self.journal.epoch, host, folder, int(epoch.since))
        if self.seen is not None:
            boot = b"" if writeback else options.boot
            kept = writeback or boot
            note = JournalNote(self.journal.epoch, self.log.frame, boot) if kept else JournalNote(0)
            self.seen.note_journal(note, durable=True)
        self.fence.mark_journal(mark)

    def forget_journal(self) -> None:
        """Say that all is in the bucket: no journal is waited for."""
        # Where that cannot be said the journal, which is empty, is waited for once more.
        with contextlib.suppress(StoreError, Busy):
            self.fence.mark_journal(None)
        if self.seen is not None:
            self.seen.note_journal(JournalNote(0), durable=True)

    def keep_locked(self) -> None:
        """Lock what is needed again, and remove what is not, where that is due. Raises StoreError, WriterFenced."""
        if self.keeper is not None and self.keeper.tend() and not self.state.closing:
            self.checkpoint()

    def asked(self) -> dict[str, int]:
        """Return what all its writers asked of the store, in all its life: see MeteredStore.totals."""
        before, now = self._requests_before, self.requests()
        return {kind: before.get(kind, 0) + now.get(kind, 0) for kind in before | now}

    def collect(self) -> int:
        """Clear what is mostly dead; how many segments were. Raises StoreError."""
        with self._care:
            with self.changed:
                dying = sum(int(self.usage.size[number]) for number in self.usage.dead())
                numbers = choose_segments_to_clear(
                    self.usage, self.blocks.root.applied, self.options.stored, dying
                )
                most = COLLECTION_LAG_SHARE * self.options.stored * self.usage.live_bytes + ALLOWED_GARBAGE
                self.log.reserve = self.log.limit // 3 if self.usage.stored_bytes - dying > most else 0
            done = 0
            for number in numbers:
                if self.state.closing or self.checkpoints.due >= self.options.checkpoint_segments:
                    break
                done += number not in self.cleaner.refused and self.cleaner.clear(number)
            return done

    def fail(self, error: StoreError) -> None:
        """Nothing can be done any more: all that waits, and all that comes, fails with this."""
        self.state.fail(error)

    def close(self) -> None:
        """Have all in the store and a last checkpoint taken. The journal is empty then. Raises StoreError."""
        self.state.closing = True
        try:
            self.state.refuse_reading()
            self.put_all()
            if self.checkpoints.due or (self.keeper is not None and self.keeper.unsaved):
                self.checkpoint()
            self.progress.release()
            self.forget_journal()
        finally:
            self.fail(DeviceClosed("the block store is closed"))
            self.abandon()

    def abandon(self) -> None:
        """Close files and end threads without doing anything more; the journal keeps what is not in the store."""
        self.journal.close()
        if self.cache is not None:
            self.cache.close()
        if self.seen is not None:
            self.seen.close()
        if self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)

    def _check(self, offset: int, length: int) -> None:
        if offset < 0 or length < 0 or offset + length > self.size:
            raise StoreError(f"{length} bytes at {offset} lie outside of a device of {self.size} bytes")

    def _troubles(self) -> str | None:
        seen, keeper = self.seen, self.keeper
        told = (keeper.trouble if keeper else None, self.writer.trouble, self.cleaner.trouble)
        return next((one for one in told if one), seen.trouble if seen else None)

    def status(self) -> EngineStatus:
        """Return the figures of the engine, for JSON: sizes in bytes."""
        with self.changed:
            done = sum(segment.size for segment in self.log.done.values())
            return {
                "mode": self.options.mode,
                "uuid": self.uuid,
                "asked": self.asked(),
                "epoch": self.fence.epoch.number,
                "size": self.size,
                "live_bytes": self.usage.live_bytes,
                "stored_bytes": self.usage.stored_bytes + done,
                "segments": self.usage.segments + len(self.log.done),
                "moments": len(self.blocks.root.past),
                "past_bytes": self.checkpoints.past_bytes,
                "locked_until": self.blocks.root.lock.until,
                "journal_used": self.journal.used,
                "journal_capacity": self.journal.capacity,
                "cache_hits": self.cache.hits if self.cache is not None else 0,
                "cache_misses": self.cache.misses if self.cache is not None else 0,
                "cache_used": self.cache.used if self.cache is not None else 0,
                "uploads_waiting": len(self.log.memory),
                "written_bytes": self.writer.written_bytes,
                "read_bytes": self.reader.read_bytes,
                "uploaded_bytes": self.log.uploaded_bytes,
                "fetched_bytes": self.fetcher.read_bytes,
                "gc_moved_bytes": self.cleaner.moved_bytes,
                "checkpoints": self.checkpoints.taken,
                "map_memory": self.blocks.memory_used,
                "trouble": str(self.failure) if self.failure is not None else self._troubles(),
                "fenced": isinstance(self.failure, WriterFenced),
            }
