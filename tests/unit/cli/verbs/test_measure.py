"""zvaultctl tune measure: what is told while it goes, and the tables at the end."""

import json

import pytest

from zvault.core.tuning.candidates import CandidateTrial, ParameterChoice, TuningCandidate
from zvault.core.tuning.measurement import MeasuredPoint
from zvault.ops.tuning.measurements import MeasurementOutcome, ReadingOutcome, make_trial_row
from zvault.ops.tuning.tuning_report import make_measured_document

WHY = "Little's law: 76.2M/s in requests of 1M that take 52.5 ms each are 4.0 at once"
MEASURED = make_measured_document(
    MeasurementOutcome(
        ("rbd:rbd_meta/cold",),
        1,
        "write",
        (MeasuredPoint(1 << 20, 4, 79.9e6, 0.0525),),
        (
            ParameterChoice("zfs_dirty_data_max", "2147483648", "its end is a tenth of it"),
            ParameterChoice("zfs_vdev_async_write_max_active", "4", WHY),
        ),
        "recordsize=1M at the source",
        (
            make_trial_row(CandidateTrial(TuningCandidate("worked out"), 100 << 20), True),
            make_trial_row(
                CandidateTrial(TuningCandidate("OpenZFS's defaults"), 90 << 20, stopped=True), False
            ),
        ),
        1.0,
        ReadingOutcome(
            (MeasuredPoint(1 << 20, 8, 95e6, 0.061),),
            (ParameterChoice("zfs_send_queue_length", "134217728", "4 requests of 4M for each"),),
            (make_trial_row(CandidateTrial(TuningCandidate("half the depth"), 70 << 20), True),),
            (make_trial_row(CandidateTrial(TuningCandidate("as deep as sends"), 50 << 20), True),),
        ),
    )
)
ASKED = "POST /v1/vaults/cold/measure"


@pytest.fixture
def telling(daemon):
    """The lines that the daemon answers."""
    daemon.lines[ASKED] = [{"text": "measuring /dev/rbd0"}, {"text": ""}]
    return daemon.lines[ASKED]


def test_the_points_the_tries_and_why(telling, ctl):
    telling.append({"answer": {"measured": MEASURED}})
    said = ctl("tune", "measure", "cold")
    assert (said.code, said.err) == (0, "measuring /dev/rbd0\n")
    cells = [line.split() for line in said.lines]
    assert ["1M", "4", "76.2M/s", "52.5ms"] in cells
    assert ["worked", "out", "100M/s", "kept"] in cells
    assert ["OpenZFS's", "defaults", "<90M/s", "stopped"] in cells
    assert ["zfs_dirty_data_max", "2G"] in cells
    assert WHY in said.out
    assert "recordsize=1M at the source" in said.lines
    assert ["1M", "8", "90.6M/s", "61.0ms"] in cells
    assert ["half", "the", "depth", "70M/s", "kept"] in cells
    assert ["as", "deep", "as", "sends", "50M/s", "kept"] in cells
    assert ["zfs_send_queue_length", "128M"] in cells
    assert "4 requests of 4M for each" in said.lines[-1]


def test_one_whose_reads_were_not_measured(telling, ctl):
    telling.append({"answer": {"measured": {**MEASURED, "reading": None}}})
    assert "recordsize=1M" in ctl("tune", "measure", "cold").lines[-1]


def test_as_json(telling, ctl):
    telling.append({"answer": {"measured": MEASURED}})
    assert json.loads(ctl("tune", "measure", "cold", "-j").out)["measured"] == MEASURED


def test_what_went_wrong(telling, ctl):
    telling.append(
        {"error": {"reason": "busy", "what": "vault 'cold' is in use", "why": "by a run", "next": ""}}
    )
    said = ctl("tune", "measure", "cold")
    assert said.code == 1
    assert "vault 'cold' is in use" in said.err


def test_an_answer_that_breaks_off(telling, ctl):
    said = ctl("tune", "measure", "cold")
    assert said.code == 2
    assert "broke off" in said.err
