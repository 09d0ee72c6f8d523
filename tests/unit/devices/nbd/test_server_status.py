"""A block store's server says whatever whoever has taken it over wants; zvaultd goes on."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from zvault.api.vaults import VaultDocument
from zvault.core.errors import ToolFailed
from zvault.daemon.metrics.blockstore import collect_blockstore
from zvault.devices.layer import DeviceSlot
from zvault.devices.nbd import blockstore_server, guarded_server

SAID: dict[str, Any] = {
    "at": 1.0,
    "pid": 7,
    "journal": "/run/zvault/device/journal-0",
    "ready": False,
    "closed": False,
    "error": {"kind": "Busy", "what": "it is busy", "why": "another has it", "next": "wait"},
    "trouble": "it waits",
    "engine": {"mode": "writeback", "journal_used": 4097, "fenced": False, "asked": {"put": 1}},
    "requests": {"put": {"requests": 1, "errors": 0, "bytes": 9, "seconds": 0.1, "buckets": [1, 1]}},
    "bounds": [0.1],
}
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    1 << 64,
    1e400,
    float("nan"),
    "x",
    "x" * 9000,
    [],
    ["x"],
    [[1]],
    {},
    {"put": "x"},
)


def list_odd_words(said: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The same with one word that is odd, at each place."""
    for key, value in said.items():
        yield from ({**said, key: odd} for odd in ODD)
        if isinstance(value, dict):
            yield from ({**said, key: odd} for odd in list_odd_words(value))


@pytest.fixture
def slot(tmp_path: Path) -> DeviceSlot:
    found = DeviceSlot("cold", 0, tmp_path)
    blockstore_server.find_status_file(found.server).parent.mkdir()
    return found


class Stores(Collector):
    def __init__(self, store: object) -> None:
        self.store = store

    def collect(self) -> Any:
        device = {"name": "cold-0", "store": self.store}
        return collect_blockstore([cast(VaultDocument, {"name": "cold", "devices": [device]})])


def use(slot: DeviceSlot, text: str) -> str:
    """All that zvaultd does with a status; its metrics."""
    blockstore_server.find_status_file(slot.server).write_text(text)
    found = blockstore_server.read_server_status(slot.server)
    blockstore_server.is_ready(slot.server)
    blockstore_server.count_unfinished(found)
    guarded_server.read_last_words(slot)
    if found is None:
        return ""
    registry = CollectorRegistry()
    registry.register(Stores(blockstore_server.make_store_document(found, 2.0)))
    blockstore_server.forget_store_server(slot.server, found)
    blockstore_server.find_status_file(slot.server).parent.mkdir()
    return generate_latest(registry).decode()


def test_what_fits_is_taken_as_it_is(slot: DeviceSlot) -> None:
    metrics = use(slot, json.dumps(SAID))
    assert 'zvault_blockstore_journal_bytes{device="cold-0",vault="cold"} 4097.0' in metrics
    assert 'zvault_blockstore_requests_total{device="cold-0",type="put",vault="cold"} 1.0' in metrics


def test_no_word_of_it_brings_zvaultd_down(slot: DeviceSlot) -> None:
    for words in list_odd_words(SAID):
        use(slot, json.dumps(words))
    for whole in (*ODD, 7):
        use(slot, json.dumps(whole))
    use(slot, "[" * 200_000)


def test_an_odd_word_takes_no_other_with_it(slot: DeviceSlot) -> None:
    odd = {**SAID, "engine": {**SAID["engine"], "live_bytes": "many", "fenced": 1}, "requests": {"put": 7}}
    metrics = use(slot, json.dumps(odd))
    assert 'zvault_blockstore_journal_bytes{device="cold-0",vault="cold"} 4097.0' in metrics
    assert "zvault_blockstore_requests_total{" not in metrics


@pytest.mark.parametrize("error", [7, "it failed", [], {"what": 7}])
def test_an_error_that_cannot_be_understood_is_one(slot: DeviceSlot, error: object) -> None:
    blockstore_server.find_status_file(slot.server).write_text(json.dumps({**SAID, "error": error}))
    assert isinstance(guarded_server.read_last_words(slot), ToolFailed)
    assert not blockstore_server.is_ready(slot.server)
