"""Opening a store for writing: taking it, reading what there is, and bringing back what only the journal has."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor

import numpy as np

from zvault.blockstore.awaited_journal import FoundJournal, MissingJournal, find_missing_journal
from zvault.blockstore.engine import BlockEngine
from zvault.blockstore.format import (
    BLOCK_SIZE,
    SLOT_BITS,
    ZERO_SLOT,
    ObjectDamaged,
    Segment,
    find_key_numbers,
)
from zvault.blockstore.known_position import (
    NEXT_WENT_BACK,
    SeenPosition,
    StoreWentBack,
    refuse_older_checkpoint,
    refuse_older_log,
)
from zvault.blockstore.log.journal import Journal, JournalFrame
from zvault.blockstore.log_tail import LogTail, read_log_tail
from zvault.blockstore.map.blockmap import BlockMap, fetch_references
from zvault.blockstore.map.root import CheckpointRoot, EpochStart
from zvault.blockstore.map.usage import SegmentUsage
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.recovery import WriterEpoch, read_newest_root, read_superblock, refuse_older_root
from zvault.core.errors import Busy, Refused
from zvault.core.units import format_size
from zvault.object_store.interface import ObjectStore, StoreError

Say = Callable[[str], None]
TEND_INTERVAL = 0.5
"""Seconds between two looks at what is to be done."""
PAGES_PER_REQUEST = 64
"""Pages of one request at most."""
READS_WHILE_OPENING = 16
"""Requests at once while a store is opened."""


def attach_store(
    store: ObjectStore,
    prefix: str,
    options: EngineOptions,
    owner: str,
    say: Say = lambda _: None,
    requests: Callable[[], dict[str, int]] = dict,
) -> BlockEngine:
    """Take a store and open it. Whoever had it can write no more, and finds that out. ``requests``: see BlockEngine.

    Raises NotFound, Busy, ObjectDamaged, StoreError; Refused where the journal holds what would be lost,
    JournalMissing where the one that holds it is not there: then nothing is taken, so that it can come back.
    """
    what = read_superblock(store, prefix)
    journal = Journal(
        options.journal, what.identity, capacity=options.journal_size, durable=options.mode == "writeback"
    )
    seen: SeenPosition | None = None
    if options.seen is not None:
        seen = SeenPosition(options.seen, what.identity, options.open_position)
    if seen is not None and seen.trouble is not None:
        say(seen.trouble)
    engine: BlockEngine | None = None
    try:
        root = read_newest_root(store, prefix, what)
        _refuse_what_went_back(seen, journal, root, prefix, options)
        # Roots are ordered by their epoch, so the next is after all of them, also where the object was lost.
        before = WriterEpoch.read(store, prefix)
        _refuse_without_journal(before, root, seen, journal, prefix, options)
        refuse_to_lose(journal, root, options, before.owner)
        if not options.accept_older:
            refuse_older_root(before, root, prefix)
        known = seen.known.epoch if seen is not None and seen.known is not None else 0
        newest = (root.epoch, root.number)
        epoch = before.taken_by(store, prefix, owner, newest, max(known, journal.epoch))
        root = read_newest_root(store, prefix, what)
        _refuse_what_went_back(seen, journal, root, prefix, options)
        if not options.accept_older:
            refuse_older_root(epoch, root, prefix)
        if root.epoch >= epoch.number:
            raise Busy(
                f"the block store {prefix} could not be taken", "another writer is at it", "see who it is"
            )
        refuse_to_lose(journal, root, options, before.owner)
        engine = BlockEngine(store, prefix, what, root, epoch, journal, options, seen, requests)
        _open(engine, root, what.identity, say)
    except BaseException:
        if engine is not None:
            engine.fail(StoreError("the block store was not opened"))
            engine.abandon()
        else:
            journal.close()
            if seen is not None:
                seen.close()
        raise
    if options.uploads:
        threading.Thread(target=_tending, args=(engine, say), name="tend", daemon=True).start()
        if engine.keeper is not None:
            threading.Thread(target=_keeping_locked, args=(engine, say), name="lock", daemon=True).start()
    return engine


def _open(engine: BlockEngine, root: CheckpointRoot, identity: bytes, say: Say) -> None:
    pool = ThreadPoolExecutor(READS_WHILE_OPENING, "attach") if engine.options.uploads else None
    try:
        load_usage(engine.usage, engine.store, engine.prefix, root, pool)
        rest = read_log_tail(engine.store, engine.prefix, root, pool)
    finally:
        if pool is not None:
            pool.shutdown(wait=False)
    add_segments(engine.blocks, rest.segments)
    engine.log.done = {segment.sequence: segment for segment in rest.segments}
    last = root.applied + len(rest.segments)
    frame = rest.segments[-1].frame if rest.segments else root.frame
    _refuse_a_log_that_went_back(engine, root, last, frame)
    engine.log.begin(engine.fence.epoch.number, last, frame)
    # At once: each of them costs a look whenever the store is opened. Those of whoever comes after are left alone.
    gone = {key for key in rest.broken_off if find_key_numbers(key)[1] < engine.fence.epoch.number}
    if gone and engine.options.removes_at_once:
        engine.store.delete(sorted(gone))
    engine.remover.strays = [key for key in rest.strays if key not in gone]
    _tell_of(rest, last, say)
    for number in range(engine.options.uploads):
        threading.Thread(target=_uploading, args=(engine,), name=f"upload-{number}", daemon=True).start()
    if engine.journal.epoch == root.epoch and root.epoch:
        _replay(engine, frame, say)
    engine.checkpoints.begin(root, EpochStart(last + 1, engine.fence.epoch.number, engine.log.frame))
    # What the journal has is dropped now: only where whoever takes the store from here on sees it there.
    engine.fence.look()
    engine.progress.opened = True
    engine.note_position(engine.log.uploaded, durable=True, anew=engine.options.accept_older)
    engine.journal.begin(engine.fence.epoch.number, engine.log.frame + 1)
    engine.await_journal()


def _refuse_without_journal(
    before: WriterEpoch,
    root: CheckpointRoot,
    seen: SeenPosition | None,
    journal: Journal,
    prefix: str,
    options: EngineOptions,
) -> None:
    """See that the journal is there which may hold what was answered. Raises JournalMissing."""
    if options.give_up_journal or options.accept_older:
        return
    there = FoundJournal(journal.epoch, journal.find_last())
    # In mode writeback, an empty folder (the journal's disk had dropped off) was begun anew: what had been flushed was
    # gone without a word, and the journal that came back was refused.
    missing = find_missing(before, root, seen, there, options)
    if missing is not None:
        raise missing.error(prefix, options.journal_name or str(options.journal))


def find_missing(
    before: WriterEpoch,
    root: CheckpointRoot,
    seen: SeenPosition | None,
    there: FoundJournal,
    options: EngineOptions,
) -> MissingJournal | None:
    """Return what is missing of the journal that the store waits for, by what the bucket and this host say."""
    note = seen.journal if seen is not None else None
    # Whoever only took the store has changed nothing yet: its first root comes before its first write.
    return find_missing_journal(before.journal, note, there, root.epoch, options.boot)


def _refuse_what_went_back(
    seen: SeenPosition | None, journal: Journal, root: CheckpointRoot, prefix: str, options: EngineOptions
) -> None:
    """See that the newest checkpoint is not older than this host knows the store. Raises StoreWentBack."""
    if options.accept_older:
        return
    if seen is not None and seen.known is not None:
        refuse_older_checkpoint(seen.known, root, prefix)
    if journal.epoch > root.epoch:
        raise StoreWentBack(
            f"the block store {prefix} is older than this host's journal knows it",
            f"the journal is of epoch {journal.epoch}, and the newest checkpoint of epoch {root.epoch}",
            NEXT_WENT_BACK,
        )


def _refuse_a_log_that_went_back(engine: BlockEngine, root: CheckpointRoot, last: int, frame: int) -> None:
    """The same, of the log, which ends with this segment and frame."""
    if engine.options.accept_older:
        return
    if engine.seen is not None and engine.seen.known is not None:
        refuse_older_log(engine.seen.known, root, last, engine.prefix)
    first = engine.journal.first
    if engine.journal.epoch == root.epoch and root.epoch and first is not None and first > frame + 1:
        raise StoreWentBack(
            f"the block store {engine.prefix} is older than this host's journal knows it",
            f"its log ends with write {frame}, and all before write {first} had been put there",
            NEXT_WENT_BACK,
        )


def _tell_of(rest: LogTail, last: int, say: Say) -> None:
    """Say what is odd about the log; ``last`` is the last segment of it."""
    # A listing that left a segment out ended the log there: what came after was taken for what a crash left, and
    # removed.
    if rest.unlisted:
        say(
            f"the store has {rest.unlisted} segments that it did not list: they are used, but see what is wrong with it"
        )
    if len(rest.strays) > rest.unproven:
        many = len(rest.strays) - rest.unproven
        say(
            f"{many} segments after the end of the log (segment {last}) were not acknowledged as far as they say, and"
            " are removed"
        )
    if rest.unproven:
        say(
            f"{rest.unproven} segments after the end of the log (segment {last}) are of an older zvault, which did not"
            " say what was acknowledged: they are taken for what a crash left, and removed"
        )


def load_usage(
    usage: SegmentUsage, store: ObjectStore, prefix: str, root: CheckpointRoot, pool: Executor | None
) -> None:
    """Read how much of each segment is live. Raises ObjectDamaged, StoreError."""
    pages = np.flatnonzero(root.pages["map"])
    pages = pages[np.argsort(root.pages[pages], order=["map", "epoch", "offset"])]

    def read(several: list[int]) -> list[bytes]:
        return fetch_references(store, prefix, [root.pages[page] for page in several])

    groups = _neighbours(root.pages, pages.tolist())
    for several, found in zip(
        groups, map(read, groups) if pool is None else pool.map(read, groups), strict=True
    ):
        for page, data in zip(several, found, strict=True):
            try:
                usage.load_page(page, data)
            except (ValueError, zlib.error) as error:
                what = "how much of the segments is live cannot be read"
                raise ObjectDamaged(what, str(error), "run 'zvaultctl blockstore check'") from error


def _neighbours(refs: np.ndarray, ordered: list[int]) -> list[list[int]]:
    """Pages that lie one behind the other in one object, together: one request is enough for them."""
    out: list[list[int]] = []
    end: tuple[int, ...] = ()
    for page in ordered:
        ref = refs[page]
        where = (int(ref["map"]), int(ref["epoch"]), int(ref["offset"]))
        if where == end and len(out[-1]) < PAGES_PER_REQUEST:
            out[-1].append(page)
        else:
            out.append([page])
        end = (*where[:2], where[2] + int(ref["length"]))
    return out


def add_segments(blocks: BlockMap, segments: list[Segment]) -> None:
    """Have the map tell of these segments too."""
    for segment in segments:
        for block, count, slot in segment.table.tolist():
            if slot == ZERO_SLOT:
                blocks.overlay.zero(block, count, segment.sequence)
            else:
                blocks.overlay.put(block, count, segment.sequence << SLOT_BITS | slot)


def refuse_to_lose(journal: Journal, root: CheckpointRoot, options: EngineOptions, owner: str) -> None:
    """See that the journal holds nothing that a later writer, ``owner``, made impossible to keep. Raises Refused."""
    if journal.epoch in (0, root.epoch) or (options.accept_older and journal.epoch > root.epoch):
        return
    after = _known_end(journal.epoch, root)
    lost = sum(1 for _ in journal.frames(after)) if after is not None else -1
    if lost == 0 or options.mode == "strict" or options.give_up_journal:
        return  # in strict mode it holds nothing that a flush was answered for
    many = f"{lost} writes" if lost > 0 else "writes"
    raise Refused(
        f"the journal in {options.journal} holds {many} that the store never got",
        f"the store went on without it, last with {owner or 'another host'} (epoch {root.epoch}, the journal's is"
        f" {journal.epoch})",
        "see what the store has; to go on with it as it is and lose these writes, run"
        " 'zvaultctl blockstore check PLACE --give-up-journal FOLDER'",
    )


def _known_end(epoch: int, root: CheckpointRoot) -> int | None:
    """The last frame of an epoch that is in the store; None if that is not known any more."""
    for before, after in zip(root.reigns, root.reigns[1:], strict=False):
        if before.epoch == epoch:
            return after.frame
    return None


def _replay(engine: BlockEngine, after: int, say: Say) -> None:
    """Put into the log what was answered and never reached the store."""
    frames = size = 0
    for frame in _frames(engine, after, say):
        if frame.block + frame.count > engine.size // BLOCK_SIZE:
            why = f"frame {frame.number} is of blocks beyond the end of the device"
            raise ObjectDamaged(
                f"the journal in {engine.options.journal} is damaged", why, "see what it is of"
            )
        with engine.changed:
            while not engine.log.room(frame.count if frame.data is not None else 1):
                engine.progress.wait()
            if frame.data is None:
                engine.blocks.overlay.zero(
                    frame.block, frame.count, engine.log.zero(frame.block, frame.count)
                )
            else:
                place = engine.log.place(frame.block, memoryview(frame.data))
                engine.blocks.moved(frame.block, frame.count, *place)
                size += len(frame.data)
            engine.log.frame = frame.number
        frames += 1
    if frames:
        say(f"{frames} writes ({format_size(size)}) were in the journal only: putting them into the store")
        with engine.changed:
            engine.log.seal()
            while engine.log.uploaded < engine.log.sealed:
                engine.progress.wait()


def _frames(engine: BlockEngine, after: int, say: Say) -> Iterator[JournalFrame]:
    try:
        yield from engine.journal.frames(after)
    except ObjectDamaged as error:
        if not (engine.options.give_up_journal or engine.options.accept_older):
            raise
        say(f"{error.what}: {error.why}; what comes after that is given up")


def _uploading(engine: BlockEngine) -> None:
    """A thread that uploads."""
    try:
        while engine.failure is None:
            if engine.log.upload():
                engine.progress.release()
            else:
                with engine.changed:
                    if not engine.log.waiting and engine.failure is None:
                        engine.state.sealed_one.wait(1.0)
                    if engine.failure is None:
                        engine.seal_what_lingers()
    except Exception as error:
        _give_up(engine, error)


def _tending(engine: BlockEngine, say: Say) -> None:
    """A thread that looks after everything else."""
    written, since, watched = 0, time.monotonic(), time.monotonic()
    try:
        while engine.failure is None:
            time.sleep(TEND_INTERVAL)
            if engine.state.closing:
                return
            now = time.monotonic()
            if engine.writer.written_bytes != written:
                written, since = engine.writer.written_bytes, now
            engine.tend(now - since)
            if now - watched >= engine.options.watch and now - since < 2 * engine.options.watch:
                watched = now
                engine.fence.look()
    except Exception as error:
        say(str(error))
        _give_up(engine, error)


def _keeping_locked(engine: BlockEngine, say: Say) -> None:
    """A thread that has what is needed locked."""
    told = None
    try:
        while engine.failure is None and not engine.state.closing:
            time.sleep(TEND_INTERVAL)
            engine.keep_locked()
            trouble = engine.keeper.trouble if engine.keeper is not None else None
            if trouble is not None and trouble != told:
                say(trouble)
            told = trouble
    except Exception as error:
        if engine.failure is None:
            say(str(error))
            _give_up(engine, error)


def _give_up(engine: BlockEngine, error: Exception) -> None:
    """Nobody may wait for a thread that is no more."""
    what = "the block store failed by a fault of its own"
    engine.fail(
        error if isinstance(error, StoreError) else StoreError(what, repr(error), "start its server anew")
    )
