"""zvaultctl fit, on a document that the daemon's own arithmetic makes."""

import json

import pytest

from zvault.core.cost.prices import StorePrices
from zvault.core.tuning.alignment import PoolLayout, SentDataset, StorageGeometry
from zvault.core.tuning.candidates import CandidateTrial, TuningCandidate
from zvault.core.tuning.measurement import MeasuredPoint
from zvault.ops.diagnosis.fit import VaultStorage, write_fit
from zvault.ops.tuning.measurements import ReadingOutcome, make_trial_row

STORE = StorageGeometry("nbdkit:S3 bucket=zv", 1280 << 10, 1 << 20, prices=StorePrices(0.005, 0.0004))
LAYOUT = PoolLayout(4096, 128 << 10, STORE)


@pytest.fixture
def fitted(daemon):
    below = VaultStorage({"data": STORE}, unknown=["how cold-1 is laid out"])
    daemon.documents["GET /v1/fit/home"] = write_fit(
        "home", "cold", below, LAYOUT, [SentDataset("tank/home", 128 << 10)]
    )
    return daemon


def test_the_page_ends_with_advice_and_that_is_a_trouble(fitted, ctl):
    said = ctl("fit", "home")
    assert said.code == 1
    assert said.lines[:2] == [
        "    backup: home to vault cold",
        "   devices: nbdkit:S3 bucket=zv (data, objects of 1M, requests up to 1.25M)",
    ]
    assert any(line.startswith("advice: ") for line in said.lines)


def test_for_scripts(fitted, ctl):
    assert ctl("fit", "home", "-Hp", "-o", "dataset,record,block").lines == ["tank/home\t131072\t131072"]
    assert json.loads(ctl("fit", "home", "-j").out)["unknown"] == ["how cold-1 is laid out"]


def test_what_keeping_a_store_locked_costs(daemon, ctl):
    store = StorageGeometry(
        "zvault:zv/cold", 1280 << 10, prices=StorePrices(0.005, 0.0004), gathers=8 << 20, renewals=2.5
    )
    below = VaultStorage({"data": store})
    layout = PoolLayout(4096, 128 << 10, store)
    daemon.documents["GET /v1/fit/home"] = write_fit("home", "cold", below, layout, [])
    said = ctl("fit", "home")
    assert "kept locked by 327,680 puts a month for each TiB that is needed, 1.64" in " ".join(
        line.strip() for line in said.lines
    )


def test_how_fast_it_is_read_back(daemon, ctl):
    points = (MeasuredPoint(1 << 20, 8, 100 << 20, 0.061), MeasuredPoint(4 << 20, 8, 120 << 20, 0.061))
    sent = make_trial_row(CandidateTrial(TuningCandidate("worked out"), 110 << 20), won=True)
    below = VaultStorage({"data": STORE})
    for sends, said in (
        ((sent,), "a send from the pool made 110M/s when it was tried out, the device alone 120M/s"),
        ((), "the device alone 120M/s; no send was tried out"),
    ):
        measured = ReadingOutcome(points, (), sends)
        daemon.documents["GET /v1/fit/home"] = write_fit("home", "cold", below, LAYOUT, [], (), measured)
        assert f"     reads: {said}" in ctl("fit", "home").lines
