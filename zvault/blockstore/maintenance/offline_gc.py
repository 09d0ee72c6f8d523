"""Collecting all garbage of a store at once, while no server has it: by a server's own ways, without its patience."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from zvault.blockstore.attach import attach_store
from zvault.blockstore.engine import BlockEngine
from zvault.blockstore.maintenance.check import StoreCheck
from zvault.blockstore.maintenance.check_report import Progress
from zvault.blockstore.maintenance.repair import quiet_options
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.segment_cleaner import ALLOWED_GARBAGE, choose_segments_to_clear
from zvault.object_store.interface import ObjectMissing, ObjectStore

ALLOWED_STORED_SHARE = 1.1
"""Bytes that may be stored for each live one."""
SEGMENTS_PER_CHECKPOINT = 64
"""Segments that are cleared between two checkpoints."""


@dataclass(frozen=True, slots=True)
class CollectedGarbage:
    """Bytes stored before and after; strays that were removed; and why segments could not be cleared.

    ``past``: of those after, for moments that are kept alone.
    """

    before: int
    after: int
    past: int
    live: int
    moved: int
    cleared: int
    strays: int
    stray_bytes: int
    trouble: str | None


def collect_all_garbage(
    store: ObjectStore,
    prefix: str,
    options: EngineOptions,
    owner: str,
    *,
    pool: Executor,
    progress: Progress = lambda *_: None,
    say: Callable[[str], None] = lambda _: None,
) -> CollectedGarbage:
    """Take the store, and clear and remove until ALLOWED holds. Raises Busy, Refused, ObjectDamaged, StoreError."""
    engine = attach_store(store, prefix, quiet_options(options), owner, say)
    try:
        before = engine.status()
        _clear(engine, progress)
        checked = StoreCheck(store, prefix, pool, lambda *_: None, settle=0)
        strays = checked.run(0, lambda: 1.0).strays
        store.delete([one.key for one in strays])
        after = engine.status()
        engine.close()
    except BaseException:
        engine.abandon()
        raise
    return CollectedGarbage(
        before=int(before["stored_bytes"]),
        after=int(after["stored_bytes"]),
        past=int(after["past_bytes"]),
        live=int(after["live_bytes"]),
        moved=engine.cleaner.moved_bytes,
        cleared=engine.cleaner.cleared,
        strays=len(strays),
        stray_bytes=sum(one.size for one in strays),
        trouble=engine.cleaner.trouble,
    )


def _clear(engine: BlockEngine, progress: Progress) -> None:
    """Clear and remove until enough is gone, or no more can be."""
    _settle(engine)
    total, done = 0, 0
    tried: set[int] = set()
    while True:
        live, past = engine.usage.live_bytes, engine.checkpoints.past_bytes
        allowed = ALLOWED_STORED_SHARE - ALLOWED_GARBAGE / live if live else ALLOWED_STORED_SHARE
        numbers = [
            one
            for one in choose_segments_to_clear(engine.usage, engine.blocks.root.applied, allowed, past)
            if one not in tried
        ]
        if not numbers:
            return
        total = max(total, done + len(numbers))
        for number in numbers[:SEGMENTS_PER_CHECKPOINT]:
            try:
                engine.cleaner.clear(number)
            except ObjectMissing as error:
                engine.cleaner.trouble = str(error)
            tried.add(number)
            done += 1
            progress("gc", done, total)
        _settle(engine)


def _settle(engine: BlockEngine) -> None:
    """What is dead goes two checkpoints after it died."""
    engine.flush()
    for _ in range(3):
        engine.checkpoint()
