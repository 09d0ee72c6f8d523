"""OpenZFS's counters as 2.3.9 printed them in the lab."""

from __future__ import annotations

import pytest

from zvault.core.diagnosis.observations import SyncedGroup
from zvault.zfs.pool.statistics import (
    estimate_bytes_written,
    estimate_request_size,
    parse_groups,
    parse_queue,
    parse_requests,
    parse_syncing,
    parse_writers,
)

QUEUE = (
    "cold\t450560\t2012815360\t0\t91\t0\t12034304\t-\t393899853\t-\t25165824\t-\t-\t-\t385146523\t-\t-\t-\t"
    "0\t0\t0\t0\t0\t0\t30\t2\t0\t0\t0\t0\t0\t0\n"
    "/dev/nbd0\t450560\t2012815360\t0\t91\t0\t12033363\t-\t393899853\t-\t25165824\t-\t-\t-\t385146523\t-\t-\t-\t"
    "0\t0\t0\t0\t0\t0\t30\t2\t0\t0\t0\t0\t0\t0\n"
)

GROUPS = """
18 1 0x01 8 896 27953891840 33567324672
txg  birth  state ndirty  nread  nwritten  reads  writes  otime  qtime  wtime  stime
8  31596542208  C  0  0  200704  0  22  293120  1280  5888  423082240
9  31596835328  C  81543680  0  81047552  0  103  559020032  2048  5888  2455795712
11  34676772352  S  0  0  0  0  0  2640282624  2048  6400  0
12  37317054976  O  0  0  0  0  0  0  0  0  0
"""


def test_what_waits_in_the_queue_and_for_how_long():
    found = parse_queue(QUEUE)
    assert found is not None
    assert (found.pending, found.active) == (30, 2)
    assert found.wait == pytest.approx(0.3939, abs=1e-4)
    assert found.disk_wait == pytest.approx(0.0252, abs=1e-4)


def test_several_looks_are_averaged_and_the_busiest_device_counts():
    idle = QUEUE.replace("/dev/nbd0", "/dev/nbd1").replace("30\t2", "0\t0").replace("393899853", "-")
    more = QUEUE.replace("30\t2", "10\t4")
    found = parse_queue(QUEUE + idle + more + idle)
    assert found is not None
    assert (found.pending, found.active) == (20, 3)


@pytest.mark.parametrize("text", ["", "\n", "cannot open 'cold': no such pool\n", "cold\t1\t2\n"])
def test_what_is_no_answer_tells_nothing(text: str):
    assert parse_queue(text) is None
    assert parse_requests(text) == {}
    assert parse_groups(text, 7) == ({}, 7)


def test_what_writers_waited_for():
    text = "8 1 0x01 2 544 1 2\nname                            type data\ndmu_tx_assigned                 4    812\n"
    assert parse_writers(text) == {"dmu_tx_assigned": 812}
    assert parse_writers("") == {}


def test_requests_by_size_between_two_looks():
    def line(size: int, alone: int, merged: int) -> str:
        return "\t".join(map(str, [size, 0, 0, 1, 0, 9, 9, alone, merged, 0, 0, 0, 0, 0, 0]))

    before = parse_requests(f"\ncold\n{line(4096, 10, 0)}\n{line(1 << 20, 0, 5)}\n")
    after = parse_requests(f"\ncold\n{line(4096, 266, 0)}\n{line(1 << 20, 0, 8)}\n")
    assert before == {4096: 11, 1 << 20: 6}
    assert estimate_bytes_written(before, after) == 4 << 20
    assert estimate_request_size(before, after) == pytest.approx(0.75 * (1 << 20) + 0.25 * 4096)
    assert estimate_request_size(after, after) is None
    assert estimate_bytes_written(after, before) == 0, (
        "a pool that was exported and imported counts from 0 again"
    )


def test_transaction_groups_that_were_written_out():
    found, newest = parse_groups(GROUPS, 8)
    assert newest == 9
    assert parse_groups(GROUPS, 9) == ({}, 9)
    assert found == {9: SyncedGroup(81047552, 0.559020032, 2.455795712)}


SYNCING = """\
10 0 0x01 9 1008 6600000000 16000000000
txg birth state ndirty nread nwritten reads writes otime qtime wtime stime
7 9662351360 C 0 0 0 0 0 3696896 512 3328 30720
8 9666048256 S 0 0 0 0 0 777739264 2048 8704 0
9 10443787520 O 0 0 0 0 0 0 0 0 0
"""


def test_a_group_that_is_being_written_out_has_an_age() -> None:
    group, seconds = parse_syncing(SYNCING, 15_931_681_024) or (0, 0.0)
    assert group == 8
    assert seconds == pytest.approx((15_931_681_024 - 9_666_048_256 - 777_739_264 - 2048 - 8704) / 1e9)
    assert parse_syncing(SYNCING.replace(" S ", " C "), 1) is None
    assert parse_syncing("", 1) is None


@pytest.mark.parametrize("word", ["-1", "x", "9" * 5000, "²", "1_0"])
def test_what_is_no_number_counts_as_none(word: str) -> None:
    names = "txg birth state ndirty nread nwritten reads writes otime qtime wtime stime"
    for state in "CS":
        row = f"5 {word} {state} 1 2 {word} 4 5 {word} 7 8 {word}"
        groups, newest = parse_groups(f"{names}\n{row}\n")
        assert set(groups) <= {5}
        assert newest in {0, 5}
        parse_syncing(f"{names}\n{row}\n", 10)
    assert parse_groups(f"{names}\n{word} 1 C 1 2 3 4 5 6 7 8 9\n") == ({}, 0)
    assert parse_writers(f"dmu_tx_delay 4 {word}") == {}
