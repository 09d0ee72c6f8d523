"""The verdict on a vault that is only read, with figures as seen in the lab."""

from __future__ import annotations

import pytest

from tests.unit.core.diagnosis.doctor_facts import KIB, MIB, vault
from zvault.core.diagnosis.doctor import diagnose_bottleneck
from zvault.core.diagnosis.observations import DiskRequests, Observations
from zvault.core.tuning.parameters import KNOWN_PARAMETERS
from zvault.core.tuning.reading import ASYNC_READS, SCRUB_READS, SYNC_READS

DEFAULT_DEPTHS = {
    name: int(KNOWN_PARAMETERS[name].default or 0) for name in (ASYNC_READS, SCRUB_READS, SYNC_READS)
}


def read(flying: float, latency: float, size: int, written: int = 0) -> DiskRequests:
    reads = round(flying * 5 / latency)
    return DiskRequests("nbd0", 5.0, 2, written, 0.1, reads, reads * size, flying * 5, busy=1.0)


def seen(disk: DiskRequests, **changes: object) -> Observations:
    return vault(flows=(), queue=None, disks=(disk,), **{"parameters": DEFAULT_DEPTHS, **changes})


@pytest.mark.parametrize("wanted", [{}, {ASYNC_READS: 32}])
def test_three_reads_at_once_of_a_device_that_could_do_more(wanted: dict[str, int]) -> None:
    """A restore from an object store with OpenZFS's defaults."""
    verdict = diagnose_bottleneck(seen(read(2.9, 0.043, 128 * KIB), wanted=wanted))
    assert verdict.bound == "queue-depth"
    assert "2.9 in flight / 43ms x 128K" in verdict.sentence
    assert verdict.knob is not None
    assert (verdict.knob.name, verdict.knob.now, verdict.knob.value) == (
        *(ASYNC_READS, "3", str(wanted.get(ASYNC_READS, 6))),
    )
    assert verdict.knob.where == "[reading] of profile nbd-lan"


def test_as_many_as_the_profile_wants_are_the_devices_limit() -> None:
    depths = dict.fromkeys(DEFAULT_DEPTHS, 32)
    tuned = seen(read(31, 0.13, MIB, written=64 * KIB), parameters=depths, wanted=depths, store=True)
    verdict = diagnose_bottleneck(tuned)
    assert (verdict.bound, verdict.knob) == ("object-store", None)
    assert "31.0 in flight / 130ms x 1M = " in verdict.sentence


def test_a_device_that_was_seen_to_read_no_faster_is_the_limit() -> None:
    """Four requests at a time is all that it does, and its profile wants eight."""
    disk, rate = read(2.9, 0.043, 128 * KIB), round(2.9 / 0.043) * 128 * KIB
    verdict = diagnose_bottleneck(seen(disk, measured_reads=1.1 * rate))
    assert (verdict.bound, verdict.knob) == ("device", None)
    assert "(measured: " in verdict.sentence
    assert diagnose_bottleneck(seen(disk, measured_reads=10 * rate)).bound == "queue-depth"


def test_a_device_that_answers_at_once_is_held_back_by_no_depth() -> None:
    assert diagnose_bottleneck(seen(read(3, 0.0002, 128 * KIB))).bound == "device"


def test_what_is_written_more_than_read_is_judged_as_written() -> None:
    verdict = diagnose_bottleneck(seen(read(1, 0.04, 4 * KIB, written=512 * MIB)))
    assert "only read" not in verdict.sentence
