"""Metrics of vaults' block stores, from what their servers said last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from zvault.api.blockstore import StoreDocument
from zvault.api.vaults import VaultDocument

Gauge = Literal[
    "live_bytes",
    "stored_bytes",
    "segments",
    "moments",
    "past_bytes",
    "locked_until",
    "journal_used",
    "journal_capacity",
    "uploads_waiting",
    "cache_used",
    "map_memory",
    "fenced",
]
Counted = Literal["read_bytes", "written_bytes", "gc_moved_bytes", "cache_hits", "cache_misses"]

STORE_LABELS = ("vault", "device")

STORE_GAUGES: dict[str, tuple[Gauge, str]] = {
    "live_bytes": ("live_bytes", "Bytes of the device that hold something."),
    "stored_bytes": ("stored_bytes", "Bytes of all segments in the bucket, with what is dead in them."),
    "segments": ("segments", "Segments in the bucket."),
    "moments": ("moments", "Moments of the past that are kept."),
    "past_bytes": ("past_bytes", "Of the stored bytes, those that are there for these moments alone."),
    "locked_until_timestamp_seconds": (
        "locked_until",
        "Until when all that is needed is locked in the bucket; 0 where it is not, or that is not known.",
    ),
    "journal_bytes": ("journal_used", "Bytes in the journal: what is not in the bucket yet."),
    "journal_capacity_bytes": ("journal_capacity", "Bytes that the journal may hold; writers wait for more."),
    "uploads_waiting": ("uploads_waiting", "Segments on their way to the bucket, or waiting for their turn."),
    "cache_bytes": ("cache_used", "Bytes in the local cache."),
    "map_memory_bytes": ("map_memory", "Bytes of memory that the map takes."),
    "fenced": ("fenced", "Whether another writer took the store, so that this one only fails."),
}
"""By metric: what the engine calls it."""

STORE_COUNTERS: dict[str, tuple[Counted, str]] = {
    "read_bytes": ("read_bytes", "Bytes that were read from the device."),
    "written_bytes": ("written_bytes", "Bytes that were written to the device."),
    "gc_moved_bytes": ("gc_moved_bytes", "Bytes that collecting garbage has written again."),
    "cache_hits": ("cache_hits", "Chunks that the local cache had."),
    "cache_misses": ("cache_misses", "Chunks that it did not have."),
}
"""The same. They begin at zero with each start of the device's server."""


def collect_blockstore(vaults: Sequence[VaultDocument]) -> Iterator[Metric]:
    """All of them. A device that is no block store has no sample, nor one whose server never said anything."""
    stores = [
        ((vault["name"], device["name"]), store)
        for vault in vaults
        for device in vault["devices"]
        if (store := device["store"]) is not None
    ]
    trouble = GaugeMetricFamily(
        "zvault_blockstore_trouble",
        "Whether something is wrong with a device's block store: the bucket does not answer, the journal's disk is"
        " full. 'zvaultctl vault status' says what.",
        labels=STORE_LABELS,
    )
    for labels, store in stores:
        trouble.add_metric(labels, float(store["trouble"] is not None))
    yield trouble
    for name, (key, text) in STORE_GAUGES.items():
        gauge = GaugeMetricFamily(f"zvault_blockstore_{name}", text, labels=STORE_LABELS)
        for labels, store in stores:
            if (value := store.get(key)) is not None:
                gauge.add_metric(labels, float(value))
        yield gauge
    for name, (counted, text) in STORE_COUNTERS.items():
        counter = CounterMetricFamily(f"zvault_blockstore_{name}", text, labels=STORE_LABELS)
        for labels, store in stores:
            if (value := store.get(counted)) is not None:
                counter.add_metric(labels, float(value))
        yield counter
    yield from _requests(stores)


def _requests(stores: Sequence[tuple[tuple[str, str], StoreDocument]]) -> Iterator[Metric]:
    """Requests to the bucket, by type: get, put, list, delete."""
    labels = (*STORE_LABELS, "type")
    number = CounterMetricFamily(
        "zvault_blockstore_requests",
        "Requests to the object store, by type: get, put, list or delete.",
        labels=labels,
    )
    errors = CounterMetricFamily(
        "zvault_blockstore_request_errors",
        "Those that were denied or had no answer; each is tried again.",
        labels=labels,
    )
    moved = CounterMetricFamily(
        "zvault_blockstore_request_bytes", "Bytes of objects that they moved.", labels=labels
    )
    took = HistogramMetricFamily(
        "zvault_blockstore_request_seconds", "How long one took, with its bytes.", labels=labels
    )
    for own, store in stores:
        for kind, count in (store["requests"] or {}).items():
            each = (*own, kind)
            number.add_metric(each, count["requests"])
            errors.add_metric(each, count["errors"])
            moved.add_metric(each, count["bytes"])
            bounds = [*map(str, store["bounds"] or ()), "+Inf"]
            took.add_metric(each, list(zip(bounds, count["buckets"], strict=True)), count["seconds"])
    yield from (number, errors, moved, took)
