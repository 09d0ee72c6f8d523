"""Making a moment of the past the newest: as a new root beside all that there is, which destroys nothing.

What the device was until then becomes a moment of the past itself, so that this too can be taken back.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from operator import setitem

import numpy as np

from zvault.blockstore.attach import attach_store, load_usage
from zvault.blockstore.kept_moments import KeptMoment, add_moment
from zvault.blockstore.maintenance.repair import put_root, quiet_options
from zvault.blockstore.map.map_writer import MapWriter
from zvault.blockstore.map.root import MAP_REFERENCE, CheckpointRoot
from zvault.blockstore.map.usage import PAGE_SEGMENTS, SegmentUsage
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.recovery import read_kept_moment, read_root_at, read_superblock
from zvault.object_store.interface import ObjectStore


def rewind_store(
    store: ObjectStore,
    prefix: str,
    options: EngineOptions,
    moment: KeptMoment,
    *,
    owner: str,
    pool: Executor,
    say: Callable[[str], None] = lambda _: None,
) -> KeptMoment:
    """Take the store, and have it be what it was at a moment that is kept; the moment that it was until now.

    What only a journal of this host has goes to the store before, and belongs to that last moment. Raises NotFound,
    Busy, Refused, ObjectDamaged, StoreError.
    """
    what = read_superblock(store, prefix)
    read_kept_moment(store, prefix, what, moment.epoch, moment.number)
    # The rules could drop it meanwhile.
    engine = attach_store(store, prefix, quiet_options(replace(options, history=None)), owner, say)
    try:
        engine.put_all()
        engine.checkpoint()
        engine.fence.look()
        newest, usage = engine.blocks.root.copy(), engine.usage
        old, then = read_root_at(store, prefix, what, moment), SegmentUsage()
        load_usage(then, store, prefix, old, pool)
        until = newest.moment
        _put(store, prefix, newest, usage, old, then, options.clock())
        engine.close()
    except BaseException:
        engine.abandon()
        raise
    return until


def _put(
    store: ObjectStore,
    prefix: str,
    newest: CheckpointRoot,
    usage: SegmentUsage,
    old: CheckpointRoot,
    then: SegmentUsage,
    now: float,
) -> None:
    """Put a root whose map is the old one's, and whose counts tell of all that is there now."""
    root = newest.copy()
    root.past, root.taken = add_moment(root.past, newest.moment), now
    root.parts = old.parts.copy()
    _count_as(usage, then, newest.number + 1)
    pages = -(-len(usage.live) // PAGE_SEGMENTS)
    root.pages, root.maps = np.zeros(pages, MAP_REFERENCE), {**newest.maps, **old.maps}
    writer = MapWriter(store, prefix, root, root.epoch)
    for page in range(pages):
        writer.add(usage.page_bytes(page), partial(setitem, root.pages, page))
    writer.flush()
    put_root(store, prefix, root)


def _count_as(usage: SegmentUsage, then: SegmentUsage, root: int) -> None:
    """Have the counts be those of then, of the segments that are there. What was live until now dies with this root."""
    live = np.zeros(len(usage.live), np.uint16)
    known = min(len(live), len(then.live))
    live[:known] = then.live[:known]
    dies = (live == 0) & (usage.live > 0)
    usage.live[:] = live
    usage.died[dies] = root
    usage.died[live > 0] = 0
