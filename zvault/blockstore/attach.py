"""Opening a store for writing: taking it, reading what there is, and bringing back what only the journal has."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor

import numpy as np

from zvault.blockstore.engine import Engine
from zvault.blockstore.format import SLOT_BITS, ZERO, Damaged, Segment
from zvault.blockstore.log.journal import Frame, Journal
from zvault.blockstore.map.blockmap import BlockMap, fetched
from zvault.blockstore.map.root import EpochStart, Root
from zvault.blockstore.map.usage import Usage
from zvault.blockstore.options import Options
from zvault.blockstore.recovery import Epoch, newest_root, superblock, tail
from zvault.core.errors import Busy, Refused
from zvault.core.units import format_size
from zvault.object_store.interface import ObjectStore, StoreError

Say = Callable[[str], None]
TEND = 0.5
"""Seconds between two looks at what is to be done."""
TOGETHER = 64
"""Pages of one request at most."""
LOOKS = 16
"""Requests at once while a store is opened."""


def attach(
    store: ObjectStore, prefix: str, options: Options, owner: str, say: Say = lambda _: None
) -> Engine:
    """Take a store and open it. Whoever had it can write no more, and finds that out.

    Raises NotFound, Busy, Damaged, StoreError; Refused where the journal holds what would be lost.
    """
    what = superblock(store, prefix)
    journal = Journal(
        options.journal, what.identity, capacity=options.journal_size, durable=options.mode == "writeback"
    )
    engine: Engine | None = None
    try:
        root = newest_root(store, prefix, what)
        refuse_to_lose(journal, root, options)
        # Roots are ordered by their epoch, so the next is after all of them, also where the object was lost.
        epoch = Epoch.read(store, prefix).taken_by(store, prefix, owner, root.epoch)
        root = newest_root(store, prefix, what)
        if root.epoch >= epoch.number:
            raise Busy(
                f"the block store {prefix} could not be taken", "another writer is at it", "see who it is"
            )
        refuse_to_lose(journal, root, options)
        engine = Engine(store, prefix, what, root, epoch, journal, options)
        _open(engine, root, what.identity, say)
    except BaseException:
        if engine is not None:
            engine.fail(StoreError("the block store was not opened"))
            engine.abandon()
        else:
            journal.close()
        raise
    if options.uploads:
        threading.Thread(target=_tending, args=(engine, say), name="tend", daemon=True).start()
    return engine


def _open(engine: Engine, root: Root, identity: bytes, say: Say) -> None:
    pool = ThreadPoolExecutor(LOOKS, "attach") if engine.options.uploads else None
    try:
        load_usage(engine.usage, engine.store, engine.prefix, root, pool)
        rest = tail(engine.store, engine.prefix, root, pool)
    finally:
        if pool is not None:
            pool.shutdown(wait=False)
    take_in(engine.blocks, rest.segments)
    engine.log.done = {segment.sequence: segment for segment in rest.segments}
    last = root.applied + len(rest.segments)
    frame = rest.segments[-1].frame if rest.segments else root.frame
    engine.log.begin(engine.fence.epoch.number, last, frame)
    engine.checkpoints.strays = rest.strays
    if rest.strays:
        say(f"{len(rest.strays)} segments after the end of the log were never acknowledged, and are removed")
    for number in range(engine.options.uploads):
        threading.Thread(target=_uploading, args=(engine,), name=f"upload-{number}", daemon=True).start()
    if engine.journal.epoch == root.epoch and root.epoch:
        _replay(engine, frame, say)
    engine.checkpoints.begin(root, EpochStart(last + 1, engine.fence.epoch.number, engine.log.frame))
    engine.opened = True
    engine.journal.begin(engine.fence.epoch.number, engine.log.frame + 1)


def load_usage(usage: Usage, store: ObjectStore, prefix: str, root: Root, pool: Executor | None) -> None:
    """Read how much of each segment is live. Raises Damaged, StoreError."""
    pages = np.flatnonzero(root.pages["map"])
    pages = pages[np.argsort(root.pages[pages], order=["map", "epoch", "offset"])]

    def read(several: list[int]) -> list[bytes]:
        return fetched(store, prefix, [root.pages[page] for page in several])

    groups = _neighbours(root.pages, pages.tolist())
    for several, found in zip(
        groups, map(read, groups) if pool is None else pool.map(read, groups), strict=True
    ):
        for page, data in zip(several, found, strict=True):
            try:
                usage.load_page(page, data)
            except (ValueError, zlib.error) as error:
                what = "how much of the segments is live cannot be read"
                raise Damaged(what, str(error), "run 'zvaultctl blockstore check'") from error


def _neighbours(refs: np.ndarray, ordered: list[int]) -> list[list[int]]:
    """Pages that lie one behind the other in one object, together: one request is enough for them."""
    out: list[list[int]] = []
    end: tuple[int, ...] = ()
    for page in ordered:
        ref = refs[page]
        where = (int(ref["map"]), int(ref["epoch"]), int(ref["offset"]))
        if where == end and len(out[-1]) < TOGETHER:
            out[-1].append(page)
        else:
            out.append([page])
        end = (*where[:2], where[2] + int(ref["length"]))
    return out


def take_in(blocks: BlockMap, segments: list[Segment]) -> None:
    """Have the map tell of these segments too."""
    for segment in segments:
        for block, count, slot in segment.table.tolist():
            if slot == ZERO:
                blocks.overlay.zero(block, count, segment.sequence)
            else:
                blocks.overlay.put(block, count, segment.sequence << SLOT_BITS | slot)


def refuse_to_lose(journal: Journal, root: Root, options: Options) -> None:
    """See that the journal holds nothing that another writer made impossible to keep. Raises Refused."""
    if journal.epoch in (0, root.epoch):
        return
    after = _known_end(journal.epoch, root)
    lost = sum(1 for _ in journal.frames(after)) if after is not None else -1
    if lost == 0 or options.mode == "strict" or options.give_up_journal:
        return  # in strict mode it holds nothing that a flush was answered for
    many = f"{lost} writes" if lost > 0 else "writes"
    raise Refused(
        f"the journal in {options.journal} holds {many} that the store never got",
        f"another host has written to it since (epoch {root.epoch}, the journal's is {journal.epoch})",
        "see what that host has; to go on with the store as it is and lose these writes, run"
        " 'zvaultctl blockstore check --give-up-journal'",
    )


def _known_end(epoch: int, root: Root) -> int | None:
    """The last frame of an epoch that is in the store; None if that is not known any more."""
    for before, after in zip(root.reigns, root.reigns[1:], strict=False):
        if before.epoch == epoch:
            return after.frame
    return None


def _replay(engine: Engine, after: int, say: Say) -> None:
    """Put into the log what was answered and never reached the store."""
    frames = size = 0
    for frame in _frames(engine, after, say):
        with engine.changed:
            while not engine.log.room(frame.count if frame.data is not None else 1):
                engine.log.wait()
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
                engine.log.wait()


def _frames(engine: Engine, after: int, say: Say) -> Iterator[Frame]:
    try:
        yield from engine.journal.frames(after)
    except Damaged as error:
        if not engine.options.give_up_journal:
            raise
        say(f"{error.what}: {error.why}; what comes after that is given up")


def _uploading(engine: Engine) -> None:
    """A thread that uploads."""
    try:
        while engine.failure is None:
            if engine.log.upload():
                engine.release()
            else:
                with engine.changed:
                    if not engine.log.waiting and engine.failure is None:
                        engine.changed.wait(1.0)
                    if engine.failure is None:
                        engine.seal_what_lingers()
    except Exception as error:
        _give_up(engine, error)


def _tending(engine: Engine, say: Say) -> None:
    """A thread that looks after everything else."""
    written, since, watched = 0, time.monotonic(), time.monotonic()
    try:
        while engine.failure is None:
            time.sleep(TEND)
            if engine.closing:
                return
            now = time.monotonic()
            if engine.written_bytes != written:
                written, since = engine.written_bytes, now
            engine.tend(now - since)
            if now - watched >= engine.options.watch and now - since < 2 * engine.options.watch:
                watched = now
                engine.fence.look()
    except Exception as error:
        say(str(error))
        _give_up(engine, error)


def _give_up(engine: Engine, error: Exception) -> None:
    """Nobody may wait for a thread that is no more."""
    what = "the block store failed by a fault of its own"
    engine.fail(
        error if isinstance(error, StoreError) else StoreError(what, repr(error), "start its server anew")
    )
