"""fio's command and what it says."""

from __future__ import annotations

import json

import pytest

from zvault.core.errors import ToolFailed
from zvault.core.tuning.measurement import MeasuredPoint
from zvault.devices.fio import REGION, UNTOUCHED_EDGE, fill_argv, parse_point, point_argv

GIB = 1 << 30


def test_what_holds_data_is_only_read():
    argv = point_argv("/dev/nbd0", 100 * GIB, "read", 1 << 20, 4)
    assert {"--readonly", "--rw=read", "--direct=1"} <= set(argv)
    assert "--readonly" not in point_argv("/dev/nbd0", 100 * GIB, "write", 1 << 20, 4)


def test_nothing_of_it_is_in_a_session_of_its_own():
    """As seen in the lab: killed while it started, it left its job behind, which waited for ever."""
    assert "--thread" in point_argv("/dev/nbd0", 100 * GIB, "read", 1 << 20, 4)
    assert "--thread" in fill_argv("/zvault-scratch/stream", GIB)


@pytest.mark.parametrize("capacity", [64 << 20, 256 << 20, GIB, 90 << 40])
@pytest.mark.parametrize("size", [128 << 10, 16 << 20])
def test_both_ends_of_a_device_stay_as_they_are(capacity: int, size: int):
    """So that one that was measured and has no pool yet is still blank."""
    argv = point_argv("/dev/x", capacity, "write", size, 1)
    words = dict(word.removeprefix("--").split("=") for word in argv if "=" in word)
    offset, region = int(words["offset"]), int(words["size"])
    assert offset >= UNTOUCHED_EDGE
    assert size <= region <= REGION
    assert region % size == 0
    assert offset + region <= capacity - UNTOUCHED_EDGE


def test_a_device_too_small_is_not_measured():
    with pytest.raises(ToolFailed, match="too small"):
        point_argv("/dev/x", 2 * UNTOUCHED_EDGE, "write", 1 << 20, 1)


def test_what_fio_says():
    said = {"jobs": [{"write": {"bw_bytes": 75497472, "lat_ns": {"mean": 55555555.5}}}]}
    text = "note: both iodepth >= 1 and synchronous I/O engine\n" + json.dumps(said)
    assert parse_point(text, "write", 1 << 20, 4) == MeasuredPoint(1 << 20, 4, 75497472.0, 0.0555555555)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fio: engine libaio not loadable", "not understood"),
        ('{"jobs": []}', "not understood"),
        ('{"jobs": [{"read": {"bw_bytes": 0, "lat_ns": {"mean": 0}}}]}', "measured nothing"),
    ],
)
def test_what_fio_does_not_say(text: str, words: str):
    with pytest.raises(ToolFailed, match=words):
        parse_point(text, "read", 4096, 1)
