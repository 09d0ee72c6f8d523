"""zvaultctl doctor: the verdict in words, what it rests on as tables, a line for scripts."""

from __future__ import annotations

import json

import pytest

from zvault.core.diagnosis.observations import (
    DiskRequests,
    Observations,
    StreamFlow,
    StreamStage,
    SyncedGroup,
    WriteQueue,
)
from zvault.ops.diagnosis.doctor import write_diagnosis

SENTENCE = "the size of its requests bounds vault cold: 2.0 in flight / 22ms x 128K = 11.4M/s"


SEEN = Observations(
    "cold",
    "cold",
    "x",
    5.0,
    flows=(
        StreamFlow(
            "tank",
            "tank/data",
            (StreamStage("source", "zfs send", 0.031), StreamStage("receive", "zfs receive", 0.1, 1.0)),
            12e6,
            marks=(98, 100),
        ),
    ),
    disks=(DiskRequests("nbd0", 5.0, writes=455, written=455 << 17, write_time=10.0, busy=0.99),),
    queue=WriteQueue(30.0, 2.0, 0.39, 0.025),
    request=131072.0,
    groups=(SyncedGroup(81047552, 0.56, 2.46),),
    idle=0.7,
)


def document(**changes):
    verdict = {
        "bound": "request-size",
        "sentence": SENTENCE,
        "knob": {
            "name": "max_sectors_kb",
            "where": "[queue] of profile x",
            "now": "128",
            "value": "32768",
        },
        "why": "each costs",
    }
    return write_diagnosis("cold", SEEN) | {"verdict": verdict} | changes


@pytest.fixture
def asked(daemon, ctl):
    def ask(*argv, **changes):
        daemon.documents["GET /v1/doctor/cold"] = document(**changes)
        return ctl("doctor", "cold", *argv)

    return ask


def test_the_page(asked, daemon):
    done = asked("--seconds", "2")
    assert done.code == 0
    assert daemon.asked[-1][1] == {"seconds": "2.0", "rights": "1"}
    assert done.out == (
        "     vault: cold\n"
        "  bound by: request-size\n"
        f"   verdict: {SENTENCE}\n"
        "      turn: max_sectors_kb to 32768 in [queue] of profile x, now 128\n"
        "       why: each costs\n"
        "\n"
        "tank/data, 11.4M/s, mbuffer 98 to 100% full\n"
        "STAGE        CPU  INPUT\n"
        "zfs send     3%   -\n"
        "zfs receive  10%  100%\n"
        "\n"
        "DEVICE  OF     OPERATION  EACH SECOND  SIZE  LATENCY  IN FLIGHT  BANDWIDTH  BUSY\n"
        "nbd0    vault  write               91  128K  22ms             2      11.4M  99%\n"
        "\n"
        "PENDING  ACTIVE  WAIT   REQUEST    TXG  OPEN   SYNC\n"
        "     30       2  390ms     128K  77.3M  560ms  2.46s\n"
    )


def test_nothing_under_way(asked):
    nothing = {"bound": "nothing", "sentence": "nothing is under way", "knob": None, "why": ""}
    done = asked(verdict=nothing, streams=[], devices=[], queue=None, groups=[], request=None)
    assert done.code == 0
    assert done.out == "     vault: cold\n  bound by: nothing\n   verdict: nothing is under way\n"


def test_a_line_for_scripts_and_a_document(asked):
    done = asked("-H")
    assert done.out == f"cold\trequest-size\tmax_sectors_kb\t128\t32768\t{SENTENCE}\n"
    found = json.loads(asked("-j").out)
    assert found["output_version"]["command"] == "zvaultctl doctor"
    assert found["verdict"]["bound"] == "request-size"


def test_a_pool_that_is_suspended_is_a_trouble(asked):
    gone = {"bound": "suspended", "sentence": "the pool is suspended", "knob": None, "why": ""}
    assert asked(verdict=gone).code == 1


def test_rights_that_a_ceph_user_lacks_are_told_and_are_a_trouble(asked):
    lacking = [
        "client.zvault may not write to pool 'data'. 'ceph auth caps …'",
        "rbd:p/y cannot be asked now",
    ]
    done = asked(lacking=lacking)
    assert done.code == 1
    assert "   lacking: client.zvault may not write to pool 'data'. 'ceph auth caps …'\n" in done.out
    assert "   lacking: rbd:p/y cannot be asked now\n" in done.out
    assert json.loads(asked("-j", lacking=lacking).out)["lacking"] == lacking
