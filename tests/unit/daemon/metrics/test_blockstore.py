"""What /metrics says of block stores, from what their servers wrote, read back with Prometheus's own parser."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from zvault.daemon.metrics.blockstore import collect_blockstore
from zvault.devices.nbd.blockstore_server import SILENT, make_store_document
from zvault.object_store.metered_store import BOUNDS, MeteredStore

NOW = 1_795_265_053.5
ENGINE = {
    "mode": "writeback",
    "journal_used": 3 << 30,
    "journal_capacity": 8 << 30,
    "live_bytes": 1000,
    "stored_bytes": 1200,
    "segments": 7,
    "uploads_waiting": 2,
    "cache_hits": 5,
    "cache_misses": 4,
    "cache_used": 99,
    "gc_moved_bytes": 11,
    "written_bytes": 22,
    "read_bytes": 33,
    "fenced": False,
}
SERVES = {"at": NOW, "ready": True, "closed": False, "error": None, "trouble": None, "engine": ENGINE}


class Nothing:
    """A store that has nothing and takes anything."""

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return b"12345"

    def put(self, key: str, data: bytes, condition: str | None = None) -> str:
        raise OSError("it does not answer")


def samples(told: dict[str, Any] | None) -> dict[str, float]:
    """A scrape of one vault with a block store and another device, by name and the labels beyond vault and device."""
    store = make_store_document(told, NOW) if told is not None else None
    devices = [
        {"name": "cold-0", "store": store},
        {"name": "cold-1", "store": None},
        {"name": "cold-2", "store": None},
    ]

    class One(Collector):
        def collect(self) -> Any:
            return collect_blockstore([{"name": "cold", "devices": devices}])

    registry = CollectorRegistry(auto_describe=False)
    registry.register(One())
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            assert sample.labels.pop("vault") == "cold"
            assert sample.labels.pop("device") == "cold-0"
            words = [sample.name, *(sample.labels[name] for name in ("type", "le") if name in sample.labels)]
            found[" ".join(words)] = sample.value
    return found


def test_a_store_that_is_well() -> None:
    found = samples(SERVES)
    assert found["zvault_blockstore_trouble"] == 0
    assert found["zvault_blockstore_fenced"] == 0
    assert found["zvault_blockstore_journal_bytes"] == 3 << 30
    assert found["zvault_blockstore_journal_capacity_bytes"] == 8 << 30
    assert found["zvault_blockstore_live_bytes"] == 1000
    assert found["zvault_blockstore_stored_bytes"] == 1200
    assert found["zvault_blockstore_uploads_waiting"] == 2
    assert found["zvault_blockstore_cache_hits_total"] == 5
    assert found["zvault_blockstore_gc_moved_bytes_total"] == 11


def test_requests_by_type() -> None:
    store: Any = Nothing()
    counted = MeteredStore(store, iter([0.0, 0.3, 0.3, 0.304, 1.0, 100.0]).__next__)
    counted.get("a")
    counted.get("a")
    with pytest.raises(OSError, match="does not answer"):
        counted.put("a", b"123")
    requests = {kind: count.as_dict() for kind, count in counted.counts().items()}
    found = samples(SERVES | {"requests": requests, "bounds": list(BOUNDS)})
    assert found["zvault_blockstore_requests_total get"] == 2
    assert found["zvault_blockstore_request_bytes_total get"] == 10
    assert found["zvault_blockstore_request_errors_total put"] == 1
    assert found["zvault_blockstore_request_seconds_bucket get 0.005"] == 1
    assert found["zvault_blockstore_request_seconds_bucket get 0.5"] == 2
    assert found["zvault_blockstore_request_seconds_bucket put 60.0"] == 0
    assert found["zvault_blockstore_request_seconds_bucket put +Inf"] == 1
    assert found["zvault_blockstore_request_seconds_count get"] == 2
    assert found["zvault_blockstore_request_seconds_sum get"] == pytest.approx(0.304)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"trouble": "it answers 503"}, "it answers 503"),
        ({"ready": False, "error": {"what": "no store", "why": "no bucket"}}, "no store: no bucket"),
        ({"ready": False}, "3G is not in the bucket, but in its journal: the next 'vault up' puts it there"),
        ({"ready": False, "closed": True}, None),
        ({"at": NOW - SILENT - 5}, "its server has said nothing for 35s"),
        ({"at": NOW - SILENT + 5}, None),
    ],
)
def test_trouble_is_told_in_words(change: dict[str, Any], told: str | None) -> None:
    assert make_store_document(SERVES | change, NOW)["trouble"] == told
    assert samples(SERVES | change)["zvault_blockstore_trouble"] == (told is not None)


def test_one_that_never_attached_has_no_figures() -> None:
    found = samples(
        SERVES | {"engine": None, "requests": None, "ready": False, "error": {"what": "x", "why": ""}}
    )
    assert found == {"zvault_blockstore_trouble": 1}


def test_other_devices_have_none() -> None:
    assert samples(None) == {}
