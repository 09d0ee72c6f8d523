"""What a pool asks of its storage for itself: the metadata and labels that each transaction group ends with. Pure.

It comes to the same for a group of a gigabyte and for one that only changes a property. So what a small backup costs
is the number of its groups, and what each of them writes.

The figures were counted in the lab (OpenZFS 2.3.9, sectors of 4 KiB, zvault's runs of one dataset): kstat ``txgs``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from zvault.core.tuning.alignment import Advice, Layout, StorageGeometry, units
from zvault.core.units import format_size

LABELS = 4
"""Labels of a disk that the uberblock goes to, a sector each: at both ends (vdev_uberblock_sync)."""

BLOCKS = 74
"""Blocks of metadata in a group that has little else, with their copies: three of the pool's, two of a dataset's."""

METADATA = 300 << 10
"""Bytes of these."""

MERGED, ALONE = 16, 3
"""Writes that they go in: those that were merged, and for each that may go at once those that did not wait for it.
Counted with 2, 4, 8, 16 and 32 at once: 23, 28, 42, 60 and 74."""

WAITING = 4
"""Writes at once that still leave most of the others waiting."""

FIRST, LATER = 12, 6
"""Groups of a run of one dataset: that makes it on the vault, and that brings it something new."""

GOOD_UNIT = 128 << 10
"""Bytes in an object for metadata: a merged write mostly lies in one, and little else is moved with it."""

COARSE = 4 * GOOD_UNIT
"""Bytes in an object from which on metadata in it moves much else."""


@dataclass(frozen=True, slots=True)
class RequestTotals:
    """Requests that write and that read, bytes that the storage moves, and what it costs in the prices' currency."""

    puts: float
    gets: float
    moved: float
    cost: float | None

    def times(self, count: float) -> RequestTotals:
        """So many of them."""
        cost = None if self.cost is None else self.cost * count
        return RequestTotals(self.puts * count, self.gets * count, self.moved * count, cost)


def group(layout: Layout) -> RequestTotals:
    """What one transaction group asks besides its data."""
    stores = [layout.data] if layout.special is None else [layout.data, layout.special]
    count = writes(layout.depth)
    size = METADATA / count
    parts = [_asked(store, layout.sector, layout.sector, LABELS) for store in stores]
    parts.append(_asked(stores[-1], -(-int(size) // layout.sector) * layout.sector, layout.sector, count))
    costs = [part.cost for part in parts if part.cost is not None]
    return RequestTotals(
        sum(part.puts for part in parts),
        sum(part.gets for part in parts),
        sum(part.moved for part in parts),
        sum(costs) if costs else None,
    )


def writes(depth: int) -> int:
    """The writes a group's metadata goes in, where ``depth`` of them go to the device at once."""
    return min(BLOCKS, MERGED + ALONE * depth)


def _asked(store: StorageGeometry, size: int, sector: int, count: float) -> RequestTotals:
    touched, partly = units(size, store.unit, sector)
    puts, gets = count * touched, count * partly
    if store.gathers is not None:
        puts = max(1.0, count * size / store.gathers)  # a flush follows, and what was gathered goes
    moved = count * size if store.unit is None else (puts + gets) * store.unit
    prices = store.prices
    return RequestTotals(
        puts, gets, moved, None if prices is None else (puts * prices.put + gets * prices.get) / 1000
    )


def advise_on_groups(layout: Layout) -> Iterator[Advice]:
    """What would make groups ask less of a store that keeps whole objects."""
    store = layout.special or layout.data
    if store.unit is None or store.kind != "object":
        return
    now = group(layout)
    if layout.depth > WAITING and store.unit > layout.sector:
        then = group(replace(layout, depth=WAITING))
        yield Advice(
            (store.name,),
            f"set zfs_vdev_async_write_min_active = {WAITING} in the profile's [module], if requests matter more than"
            " speed",
            f"{layout.depth} writes go at once, so small ones do not wait to be merged: each transaction group asks"
            f" {_requests(now)} for its metadata, and with {WAITING} at once {_requests(then)}",
        )
    better = replace(store, name="", unit=GOOD_UNIT)
    then = group(replace(layout, special=better))
    if layout.special is None and store.unit >= COARSE:
        yield Advice(
            (store.name,),
            f'give metadata a device of its own (vdev = "special") in objects of {format_size(GOOD_UNIT)}',
            f"each transaction group writes its metadata in small pieces: in objects of {format_size(store.unit)} the"
            f" storage moves {format_size(int(now.moved))} for it, and so {format_size(int(then.moved))}, in"
            f" {_requests(then)} instead of {_requests(now)}",
        )
    elif layout.special is not None and layout.sector < store.unit < GOOD_UNIT // 2:
        yield Advice(
            (store.name,),
            f"make its objects {format_size(GOOD_UNIT)}",
            f"metadata is written in pieces that lie in several objects of {format_size(store.unit)}: each"
            f" transaction group asks {_requests(now)}, and so {_requests(then)}",
        )


def _requests(asked: RequestTotals) -> str:
    return f"{asked.puts + asked.gets:.0f} requests"
