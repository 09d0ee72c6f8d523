"""What a probe's document says of requests at once, whoever wrote it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.blockstore.format import SEGMENT_SLOTS, SLOT_SIZE
from zvault.core.tuning.store_guess import MOST_READS, MOST_UPLOADS, StoreGuess, guess_from_probe
from zvault.devices.nbd.blockstore_server import NBDKIT_THREADS
from zvault.object_store.probe import LARGE, ProbeReport, Speed


def report(*rates: float) -> ProbeReport:
    speeds = [Speed("put", 4**step, rate) for step, rate in enumerate(rates)]
    return ProbeReport(
        "s3://zv", 7.0, speeds=[*speeds, *(Speed("get", one.depth, one.rate) for one in speeds)]
    )


@given(st.lists(st.floats(1, 1e10), min_size=1, max_size=4))
def test_it_is_the_depth_that_the_probe_itself_tells(rates: list[float]) -> None:
    probed = report(*rates)
    guess = guess_from_probe(probed.as_dict())
    assert guess is not None
    assert (guess.puts, guess.put_rate, guess.at) == (probed.best_depth(), max(rates), 7.0)
    assert (guess.gets, guess.get_rate) == (guess.puts, guess.put_rate)


def test_no_more_than_the_server_can_do() -> None:
    guess = StoreGuess(0.0, 64, 1.0, 64, 1.0)
    assert (guess.uploads, guess.reads) == (MOST_UPLOADS, MOST_READS)
    assert MOST_READS == NBDKIT_THREADS
    assert 0.99 < SEGMENT_SLOTS * SLOT_SIZE / LARGE < 1.01, "what is probed is what is put"


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"at": 1.0, "speeds": []},
        {"at": "then", "speeds": report(1.0).as_dict()["speeds"]},
        {"at": 1.0, "speeds": [{"kind": "put", "depth": 4, "rate": 1.0}]},
        {"at": 1.0, "speeds": "many"},
        {"at": 1.0, "speeds": [{"kind": "put", "depth": float("inf"), "rate": 1.0}]},
        {"at": 1.0, "speeds": [{"kind": kind, "depth": 0, "rate": 0} for kind in ("put", "get")]},
    ],
)
def test_a_document_without_speeds_says_nothing(document: dict[str, object]) -> None:
    assert guess_from_probe(document) is None
