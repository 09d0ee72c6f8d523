"""Whether a backup's records fit the vault's storage: expected requests, their cost, and advice. Pure.

zfs receive never makes records larger (OpenZFS #9347, #11313, #16184), and ZFS places them at any multiple of a
sector. So before the first byte is sent zvault can compute how many objects of the storage a write touches, and how
many of them only in part. A store that keeps whole objects must read and rewrite the partly written ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from zvault.core.cost.prices import StorePrices
from zvault.core.tuning.tuning import AGGREGATION_LIMITS
from zvault.core.units import format_size

GIBIBYTE = 1 << 30
OLD_RECORD = 128 << 10
"""Bytes: the largest record in a stream without ``-L`` (zfs-send(8))."""

SMALL_RECORD = 16 << 10
"""Bytes: record size of databases and volumes. These are small on purpose, so zvault gives no advice about them."""

WELL_MERGED, MOST_MERGED = 4 << 20, 16 << 20
"""Bytes that ZFS should merge on object storage: the value that did well in the lab, and the maximum
(vdev_queue_aggregate)."""

ADVISED_OVERHEAD = 2.0
"""Ratio of bytes moved by the storage to bytes sent from which on zvault gives advice."""


@dataclass(frozen=True, slots=True)
class StorageGeometry:
    """The units in which the storage below a device handles writes; sizes in bytes.

    ``unit``: the storage rewrites a whole unit when part of it changes: an object, or the stripe of an erasure-coded
    pool. None if it can write single sectors. ``kind`` is the word for a unit. ``largest``: maximum request size
    (max_sectors_kb). ``gathers``: the storage collects writes and puts this many bytes as one object. ``renewals``: how
    often a month each object is locked again.
    """

    name: str
    largest: int
    unit: int | None = None
    kind: Literal["object", "stripe"] = "object"
    prices: StorePrices | None = None
    gathers: int | None = None
    renewals: float = 0.0

    @property
    def locks(self) -> float | None:
        """Requests a month that keep a TiB locked; None where nothing is."""
        return self.renewals * (1 << 40) / self.gathers if self.gathers and self.renewals else None


@dataclass(frozen=True, slots=True)
class PoolLayout:
    """The properties of a vault's pool that matter here.

    ``sector``: 2^ashift bytes. ``merge``: ZFS merges requests up to this many bytes. ``depth``: writes in flight.
    Blocks of up to ``small`` bytes go to the ``special`` device, if there is one (special_small_blocks).
    """

    sector: int
    merge: int
    data: StorageGeometry
    special: StorageGeometry | None = None
    small: int = 0
    compression: bool = False
    encryption: bool = False
    depth: int = 2


@dataclass(frozen=True, slots=True)
class SentDataset:
    """A dataset and how it is sent: ``record`` is its recordsize or volblocksize, ``ratio`` its compressratio."""

    name: str
    record: int
    volume: bool = False
    ratio: float = 1.0
    large_blocks: bool = True
    compressed: bool = True
    encrypted: bool = False


@dataclass(frozen=True, slots=True)
class DatasetFit:
    """The fit of a dataset's blocks to the storage; sizes in bytes.

    ``block``: a full record on the vault's disk. ``request``: a request to the store after merging. ``touched``: units
    that one request touches; ``partly``: those of them that it writes only in part. ``moved``: bytes that the store
    moves for each byte sent. ``puts`` and ``gets``: requests per GiB sent; ``cost``: their cost per GiB sent, in the
    currency of the prices.
    """

    dataset: str
    store: str
    block: int
    request: int
    touched: float
    partly: float
    moved: float
    puts: float
    gets: float
    cost: float | None


def fit_dataset(sent: SentDataset, layout: PoolLayout) -> DatasetFit:
    """Compute what to expect of a dataset's full records if they are written one after the other, as zfs receive
    does.
    """
    block = measure_on_disk(sent, layout.sector)
    record = measure_record(sent)
    special = layout.special if layout.special is not None and record <= layout.small else None
    store = special or layout.data
    request = min(max(block, layout.merge // block * block), store.largest)
    touched, partly = count_storage_units(request, store.unit, layout.sector)
    share = block / record
    requests = GIBIBYTE * share / request
    puts, gets = requests * touched, requests * partly
    if store.gathers is not None:
        puts = GIBIBYTE * share / store.gathers
    moved = share if store.unit is None else (puts + gets) * store.unit / GIBIBYTE
    cost = None if store.prices is None else store.prices.of_requests(puts, gets)
    return DatasetFit(sent.name, store.name, block, request, touched, partly, moved, puts, gets, cost)


def measure_record(sent: SentDataset) -> int:
    """The size in bytes of a dataset's largest record as it arrives at the vault."""
    return sent.record if sent.large_blocks else min(sent.record, OLD_RECORD)


def measure_on_disk(sent: SentDataset, sector: int) -> int:
    """The size in bytes of a record on the vault's disk: compressed as on the source, rounded up to whole sectors."""
    record = measure_record(sent)
    packed = record / max(1.0, sent.ratio)
    return min(-(-int(packed) // sector) * sector, -(-record // sector) * sector)


def count_storage_units(request: int, unit: int | None, sector: int) -> tuple[float, float]:
    """Return how many units a request touches on average, and how many of those it covers only in part.

    A request begins at any multiple of ``sector`` with equal probability. Without units it is one write.
    """
    if unit is None:
        return 1.0, 0.0
    step = min(sector, unit)
    touched = 1 + max(0, request - step) / unit
    whole = max(0.0, (request - unit + step) / unit)
    return touched, touched - whole


@dataclass(frozen=True, slots=True)
class TuningAdvice:
    """One piece of advice: ``what`` to do and ``why``. ``about`` names datasets or devices."""

    about: tuple[str, ...]
    what: str
    why: str


def advise_on_datasets(sent: Sequence[SentDataset], layout: PoolLayout) -> list[TuningAdvice]:
    """Changes that would make the datasets fit better, the most important first."""
    return [*_about_the_layout(layout), *_about_records(sent, layout), *_done_twice(sent, layout)]


def _about_the_layout(layout: PoolLayout) -> Iterator[TuningAdvice]:
    stores = [layout.data, *([layout.special] if layout.special is not None else [])]
    for store in stores:
        if store.unit is not None and store.unit < layout.sector and layout.sector % store.unit:
            yield TuningAdvice(
                (store.name,),
                f"make its {store.kind}s a power of two of at least {format_size(layout.sector)}",
                f"the pool writes in multiples of {format_size(layout.sector)} and {store.kind}s have"
                f" {format_size(store.unit)}",
            )
    if layout.special is not None and not layout.small:
        yield TuningAdvice(
            (layout.special.name,),
            "set special_small_blocks on the vault's root dataset, such as 32K",
            "without it the special device gets only metadata, and small files go to the slow device",
        )
    if layout.merge > layout.data.largest:
        yield TuningAdvice(
            (layout.data.name,),
            f"raise max_sectors_kb to {layout.merge >> 10} in the profile's [queue]",
            f"ZFS merges up to {format_size(layout.merge)}, and the kernel cuts that into requests of"
            f" {format_size(layout.data.largest)}",
        )


def _about_records(sent: Sequence[SentDataset], layout: PoolLayout) -> Iterator[TuningAdvice]:
    cut = [one for one in sent if not one.large_blocks and one.record > OLD_RECORD]
    if cut:
        yield TuningAdvice(
            _names(cut),
            "set send = { large_blocks = true } before the first run; it cannot be changed afterwards (OpenZFS #6224)",
            f"their records of up to {format_size(max(one.record for one in cut))} are sent in pieces of"
            f" {format_size(OLD_RECORD)}",
        )
    unit = layout.data.unit
    wide = [one for one in sent if unit is not None and measure_on_disk(one, layout.sector) > unit]
    if wide and unit is not None and layout.data.kind == "object":
        yield TuningAdvice(
            _names(wide),
            f"take larger {layout.data.kind}s for {layout.data.name}, at least four times the record",
            f"each of their records spans two or more {layout.data.kind}s of {format_size(unit)}",
        )
    if layout.special is not None:
        whole = [one for one in sent if measure_record(one) <= layout.small]
        if whole:
            yield TuningAdvice(
                _names(whole),
                f"lower special_small_blocks below {format_size(min(measure_record(one) for one in whole))}",
                f"all their blocks go to {layout.special.name}, because special_small_blocks is"
                f" {format_size(layout.small)}",
            )
    yield from _unmerged(sent, layout)
    yield from _too_small(sent, assume_good_merging(layout))


def assume_good_merging(layout: PoolLayout) -> PoolLayout:
    """The same layout, but ZFS merges so much that a request covers most objects that it touches."""
    unit = layout.data.unit
    if unit is None or layout.data.kind != "object":
        return layout
    merge = min(MOST_MERGED, max(WELL_MERGED, 2 * unit))
    if merge <= layout.merge:
        return layout
    return replace(layout, merge=merge, data=replace(layout.data, largest=max(layout.data.largest, merge)))


def _unmerged(sent: Sequence[SentDataset], layout: PoolLayout) -> Iterator[TuningAdvice]:
    """Advice for requests that cover hardly any object as a whole although larger ones would."""
    well = assume_good_merging(layout)
    pairs = [(one, fit_dataset(one, layout), fit_dataset(one, well)) for one in sent]
    told = [(one, now, then) for one, now, then in pairs if _asked(now) >= ADVISED_OVERHEAD * _asked(then)]
    if told:
        one, now, then = max(told, key=lambda pair: _asked(pair[1]))
        queue = (
            f", and max_sectors_kb = {well.merge >> 10} in its [queue]"
            if layout.data.largest < well.merge
            else ""
        )
        yield TuningAdvice(
            tuple(one.name for one, _, _ in told),
            f'set {AGGREGATION_LIMITS[False]} = "{format_size(well.merge)}" and zio_dva_throttle_enabled = false in the'
            f" profile's [module]{queue}",
            f"a request of {format_size(now.request)} covers no whole {layout.data.kind}, so the storage must read and"
            f" rewrite it: {_asked(now):.0f} requests for each GiB of {one.name}; with adjacent writes merged up to"
            f" {format_size(well.merge)} it is {_asked(then):.0f}",
        )


def _asked(found: DatasetFit) -> float:
    """Requests per GiB sent."""
    return found.puts + found.gets


def _too_small(sent: Sequence[SentDataset], layout: PoolLayout) -> Iterator[TuningAdvice]:
    """Advice for records that make the store move much more than their bytes although larger ones would not."""
    small = []
    for one in sent:
        if one.volume or not SMALL_RECORD < measure_record(one) < (1 << 20):
            continue
        now, then = fit_dataset(one, layout), fit_dataset(_enlarged(one), layout)
        if then.moved * ADVISED_OVERHEAD <= now.moved and now.moved >= ADVISED_OVERHEAD:
            small.append(one)
    if small:
        before, after = fit_dataset(small[0], layout), fit_dataset(_enlarged(small[0]), layout)
        yield TuningAdvice(
            _names(small),
            "set recordsize=1M at the source; it applies to files written from then on",
            f"zfs receive never makes records larger; for each byte of {small[0].name} the storage moves"
            f" {before.moved:.1f} bytes, with records of 1M it would move {after.moved:.1f}",
        )


def _enlarged(one: SentDataset) -> SentDataset:
    return SentDataset(one.name, 1 << 20, False, one.ratio, True, one.compressed, one.encrypted)


def _done_twice(sent: Sequence[SentDataset], layout: PoolLayout) -> Iterator[TuningAdvice]:
    if layout.encryption and (raw := [one for one in sent if one.encrypted]):
        yield TuningAdvice(
            _names(raw),
            "leave encryption to one of the two",
            "they are encrypted on the source and sent raw, and the vault's storage encrypts them again",
        )
    if layout.compression and (packed := [one for one in sent if one.compressed and one.ratio > 1.05]):
        yield TuningAdvice(
            _names(packed),
            "turn off compression in the storage below the vault",
            "their blocks arrive compressed; compressing them again costs processor time and gains nothing",
        )


def _names(sent: Sequence[SentDataset]) -> tuple[str, ...]:
    return tuple(one.name for one in sent)
