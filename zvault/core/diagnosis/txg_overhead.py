"""The overhead of a transaction group: the metadata and labels that it writes at its end. Pure.

The overhead is the same for a group of a gigabyte and for one that only changes a property. So a small backup costs
the number of its groups times this overhead.

The figures were counted in the lab (OpenZFS 2.3.9, sectors of 4 KiB, zvault's runs of one dataset): kstat ``txgs``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from zvault.core.tuning.alignment import PoolLayout, StorageGeometry, TuningAdvice, count_storage_units
from zvault.core.units import format_size

DISK_LABELS = 4
"""Labels of a disk, at both of its ends. Each gets the uberblock, one sector (vdev_uberblock_sync)."""

GROUP_METADATA_BLOCKS = 74
"""Metadata blocks in a nearly empty group, with copies: three of each of the pool's blocks, two of a dataset's."""

GROUP_METADATA_BYTES = 300 << 10
"""Bytes of these blocks."""

MERGED, ALONE = 16, 3
"""Writes that carry these blocks: MERGED merged ones, plus ALONE unmerged ones for each write that may be in flight.
Counted with 2, 4, 8, 16 and 32 in flight: 23, 28, 42, 60 and 74."""

MERGING_DEPTH = 4
"""Writes in flight at which most other writes still wait in the queue and so can be merged."""

FIRST, LATER = 12, 6
"""Transaction groups in a run of one dataset: its first run, which creates it on the vault, and a later incremental."""

GOOD_UNIT = 128 << 10
"""Good object size for metadata, in bytes: most merged writes fit in one object, and little else is rewritten."""

COARSE_OBJECT = 4 * GOOD_UNIT
"""Object size in bytes from which on a metadata write rewrites much unrelated data."""


@dataclass(frozen=True, slots=True)
class RequestTotals:
    """Write requests, read requests, bytes that the storage moves, and their cost in the currency of the prices."""

    puts: float
    gets: float
    moved: float
    cost: float | None

    def times(self, count: float) -> RequestTotals:
        """The totals of ``count`` such sets of requests."""
        cost = None if self.cost is None else self.cost * count
        return RequestTotals(self.puts * count, self.gets * count, self.moved * count, cost)


def estimate_group_requests(layout: PoolLayout) -> RequestTotals:
    """The requests of one transaction group besides its data."""
    stores = [layout.data] if layout.special is None else [layout.data, layout.special]
    count = estimate_metadata_writes(layout.depth)
    size = GROUP_METADATA_BYTES / count
    parts = [_asked(store, layout.sector, layout.sector, DISK_LABELS) for store in stores]
    parts.append(_asked(stores[-1], -(-int(size) // layout.sector) * layout.sector, layout.sector, count))
    costs = [part.cost for part in parts if part.cost is not None]
    return RequestTotals(
        sum(part.puts for part in parts),
        sum(part.gets for part in parts),
        sum(part.moved for part in parts),
        sum(costs) if costs else None,
    )


def estimate_metadata_writes(depth: int) -> int:
    """Return how many writes carry a group's metadata if ``depth`` writes may be in flight."""
    return min(GROUP_METADATA_BLOCKS, MERGED + ALONE * depth)


def _asked(store: StorageGeometry, size: int, sector: int, count: float) -> RequestTotals:
    touched, partly = count_storage_units(size, store.unit, sector)
    puts, gets = count * touched, count * partly
    if store.gathers is not None:
        puts = max(1.0, count * size / store.gathers)  # a flush follows and writes the collected data out
    moved = count * size if store.unit is None else (puts + gets) * store.unit
    prices = store.prices
    return RequestTotals(puts, gets, moved, None if prices is None else prices.of_requests(puts, gets))


def advise_on_groups(layout: PoolLayout) -> Iterator[TuningAdvice]:
    """Changes that would save requests per transaction group in a store that rewrites whole objects."""
    store = layout.special or layout.data
    if store.unit is None or store.kind != "object":
        return
    now = estimate_group_requests(layout)
    if layout.depth > MERGING_DEPTH and store.unit > layout.sector:
        then = estimate_group_requests(replace(layout, depth=MERGING_DEPTH))
        yield TuningAdvice(
            (store.name,),
            f"set zfs_vdev_async_write_min_active = {MERGING_DEPTH} in the profile's [module], if "
            "requests matter more than"
            " speed",
            f"{layout.depth} writes may be in flight, so small ones do not wait to be merged: the metadata of each"
            f" transaction group takes {_requests(now)}; with {MERGING_DEPTH} in flight it takes {_requests(then)}",
        )
    better = replace(store, name="", unit=GOOD_UNIT)
    then = estimate_group_requests(replace(layout, special=better))
    if layout.special is None and store.unit >= COARSE_OBJECT:
        yield TuningAdvice(
            (store.name,),
            f'give metadata a device of its own (vdev = "special") in objects of {format_size(GOOD_UNIT)}',
            f"each transaction group writes its metadata in small pieces: with objects of {format_size(store.unit)} the"
            f" storage moves {format_size(int(now.moved))} in {_requests(now)}; with"
            f" {format_size(GOOD_UNIT)} it moves {format_size(int(then.moved))} in {_requests(then)}",
        )
    elif layout.special is not None and layout.sector < store.unit < GOOD_UNIT // 2:
        yield TuningAdvice(
            (store.name,),
            f"make its objects {format_size(GOOD_UNIT)}",
            f"one metadata write spans several objects of {format_size(store.unit)}: each transaction group takes"
            f" {_requests(now)}; with {format_size(GOOD_UNIT)} it takes {_requests(then)}",
        )


def _requests(asked: RequestTotals) -> str:
    return f"{asked.puts + asked.gets:.0f} requests"
