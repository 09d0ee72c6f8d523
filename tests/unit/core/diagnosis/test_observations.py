"""What many looks at counters come to."""

from __future__ import annotations

from typing import Any

import pytest

from zvault.core.diagnosis.observations import (
    measure_cpu_share,
    measure_disk,
    measure_idle_share,
    measure_pipe_fill,
    measure_span,
)


def line(writes: int, sectors: int, spent: int, flying: int, busy: int) -> list[int]:
    """A device's counters: times in ms."""
    return [0, 0, 0, 0, writes, 0, sectors, spent, flying, busy, spent, 0, 0, 0, 0, 0, 0]


def look(at: float, *, numbers: list[int] | None = None, **more: Any) -> dict[str, Any]:
    disks = {"nbd0": numbers} if numbers is not None else {}
    return {"at": at, "cpu": {}, "full": {}, "disks": disks, "host": [0, 0], **more}


def test_a_device_as_it_was_seen_in_the_lab():
    """Two of 128 KiB at a time, 22 ms each."""
    looks = [look(i / 10, numbers=line(9 * i, 9 * 256 * i, 200 * i, 2, 100 * i)) for i in range(51)]
    found = measure_disk(looks, "nbd0")
    assert found is not None
    assert found.in_flight == pytest.approx(2.0)
    assert found.latency == pytest.approx(0.0222, abs=1e-4)
    assert found.size == 128 << 10
    assert found.rate == pytest.approx(90 * (128 << 10))
    assert (found.busy, found.rounds) == (1.0, 0.0)
    assert measure_disk(looks, "nbd1") is None


def test_the_share_of_small_writes_at_the_end_of_groups():
    seen = [line(0, 0, 0, 0, 0)]
    for _ in range(6):
        before = seen[-1]
        seen.append(line(before[4] + 4, before[6] + 4 * 8192, before[7] + 400, 4, before[9] + 100))
    for _ in range(4):
        before = seen[-1]
        seen.append(line(before[4] + 12, before[6] + 12 * 8, before[7] + 400, 2, before[9] + 100))
    found = measure_disk([look(i / 10, numbers=numbers) for i, numbers in enumerate(seen)], "nbd0")
    assert found is not None
    assert found.rounds == pytest.approx(0.4)


def test_time_in_which_no_request_ends_belongs_to_those_that_end_next():
    large = [line(i // 4, i // 4 * 8192, 400 * (i // 4), 4, 100 * i) for i in range(17)]
    small = [line(4 + i, 4 * 8192 + 8 * i, 1600 + i, 1, 1600 + 100 * i) for i in range(1, 5)]
    found = measure_disk(
        [look(i / 10, numbers=numbers) for i, numbers in enumerate([*large, *small])], "nbd0"
    )
    assert found is not None
    assert found.rounds == pytest.approx(4 / 20)


def test_processes_pipes_and_processors():
    looks = [look(float(i), cpu={"7": 50 * i}, full={"7": i % 2}, host=[400 * i, 100 * i]) for i in range(5)]
    assert measure_cpu_share(looks, 100, "7") == pytest.approx(0.5)
    assert measure_pipe_fill(looks, "7") == pytest.approx(0.4)
    assert measure_idle_share(looks) == pytest.approx(0.25)
    assert measure_span(looks) == 4.0


def test_what_was_not_there_is_not_known():
    assert measure_cpu_share([look(0.0), look(1.0)], 100, "7") is None
    assert measure_pipe_fill([look(0.0)], "7") is None
    assert measure_idle_share([]) is None
    assert measure_idle_share([look(0.0), look(1.0)]) is None
    assert measure_span([]) == 0.0
