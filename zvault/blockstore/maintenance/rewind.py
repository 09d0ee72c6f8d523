"""Making a moment of the past the newest: as a new root beside all that there is, which destroys nothing.

What the device was until then becomes a moment of the past itself, so that this too can be taken back.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace

import numpy as np

from zvault.blockstore.attach import attach, load_usage
from zvault.blockstore.history import Moment, with_next
from zvault.blockstore.maintenance.repair import MapWriter, put_root, quiet
from zvault.blockstore.map.root import REF, Root
from zvault.blockstore.map.usage import PAGE, Usage
from zvault.blockstore.options import Options
from zvault.blockstore.recovery import kept_moment, root_at, superblock
from zvault.object_store.interface import ObjectStore


def rewind(
    store: ObjectStore,
    prefix: str,
    options: Options,
    moment: Moment,
    *,
    owner: str,
    pool: Executor,
    say: Callable[[str], None] = lambda _: None,
) -> Moment:
    """Take the store, and have it be what it was at a moment that is kept; the moment that it was until now.

    What only a journal of this host has goes to the store before, and belongs to that last moment. Raises NotFound,
    Busy, Refused, Damaged, StoreError.
    """
    what = superblock(store, prefix)
    kept_moment(store, prefix, what, moment.epoch, moment.number)
    # The rules could drop it meanwhile.
    engine = attach(store, prefix, quiet(replace(options, history=None)), owner, say)
    try:
        engine.put_all()
        engine.checkpoint()
        engine.fence.look()
        newest, usage = engine.blocks.root.copy(), engine.usage
        old, then = root_at(store, prefix, what, moment), Usage()
        load_usage(then, store, prefix, old, pool)
        until = newest.moment
        _put(store, prefix, newest, usage, old, then, options.clock())
        engine.close()
    except BaseException:
        engine.abandon()
        raise
    return until


def _put(
    store: ObjectStore, prefix: str, newest: Root, usage: Usage, old: Root, then: Usage, now: float
) -> None:
    """Put a root whose map is the old one's, and whose counts tell of all that is there now."""
    root = newest.copy()
    root.past, root.taken = with_next(root.past, newest.moment), now
    root.parts = old.parts.copy()
    _count_as(usage, then, newest.number + 1)
    pages = -(-len(usage.live) // PAGE)
    root.pages, root.maps = np.zeros(pages, REF), {**newest.maps, **old.maps}
    writer = MapWriter(store, prefix, root, root.epoch)
    for page in range(pages):
        writer.add(root.pages, page, usage.page_bytes(page))
    writer.flush()
    put_root(store, prefix, root)


def _count_as(usage: Usage, then: Usage, root: int) -> None:
    """Have the counts be those of then, of the segments that are there. What was live until now dies with this root."""
    live = np.zeros(len(usage.live), np.uint16)
    known = min(len(live), len(then.live))
    live[:known] = then.live[:known]
    dies = (live == 0) & (usage.live > 0)
    usage.live[:] = live
    usage.died[dies] = root
    usage.died[live > 0] = 0
