"""What is told of a vault's writes while a run goes on: only what lasts, and once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from zvault.core.diagnosis.write_drift import DriftWatch, ExpectedWrites, WriteSample

KIB, MIB = 1 << 10, 1 << 20
GOOD = WriteSample(300 * MIB, 3.5 * MIB, 1.5, 0.105, 1.0)
BAD = replace(GOOD, request=120.0 * KIB)


def watch() -> DriftWatch:
    return DriftWatch("cold", ExpectedWrites(4 * MIB, 5.0))


def told(*samples: WriteSample) -> list[tuple[str, str]]:
    one = watch()
    return [found for sample in samples if (found := one.note(sample)) is not None]


def test_a_vault_that_is_well_is_not_told_of():
    assert told(*[GOOD] * 20) == []
    assert told(*[WriteSample(0, None, None, None, None)] * 20) == [], "nor one that gets nothing"


def test_requests_that_are_much_smaller_than_they_were_to_be():
    ((cause, text),) = told(GOOD, BAD, BAD, BAD, BAD)
    assert cause == "request-size"
    assert text == (
        "vault cold: its requests have 120K on average, although up to 4M may be merged;"
        " 'zvaultctl doctor cold' names the bottleneck"
    )


@pytest.mark.parametrize(
    "samples",
    [(BAD, GOOD, BAD, GOOD), (BAD, replace(GOOD, sync=90.0), BAD), (BAD,)],
    ids=["turns", "else", "once"],
)
def test_what_does_not_last_is_not_told(samples: tuple[WriteSample, ...]):
    assert told(*samples) == []


def test_little_data_makes_small_requests_anywhere():
    assert told(*[replace(BAD, written=10 * MIB)] * 5) == []


def test_a_profile_that_does_not_care_for_sizes():
    one = DriftWatch("cold", ExpectedWrites(None, 5.0))
    assert not any(one.note(BAD) for _ in range(5))


def test_requests_that_wait_for_more_others_than_before_are_not_slow():
    """As when a limit ends for the night: the device does all the more."""
    few = replace(GOOD, written=20 * MIB, disk_wait=0.02)
    many = replace(GOOD, disk_wait=0.13)
    assert told(few, many, many, many) == []
    ((cause, _),) = told(few, *[replace(many, written=40 * MIB)] * 2)
    assert cause == "latency", "it does hardly more"
    ((cause, text),) = told(few, many, *[replace(many, disk_wait=0.6)] * 2)
    assert (cause, "earlier in this run it took 130ms" in text) == ("latency", True)


def test_a_device_that_becomes_slow():
    slow = replace(GOOD, disk_wait=0.5)
    ((cause, text),) = told(GOOD, slow, slow)
    assert cause == "latency"
    assert "a request takes 500ms; earlier in this run it took 105ms" in text
    assert told(replace(GOOD, disk_wait=0.0001), *[replace(GOOD, disk_wait=0.002)] * 3) == [], (
        "2 ms are not slow"
    )
    larger = replace(GOOD, request=64.0 * KIB, disk_wait=0.02)
    assert DriftWatch("cold", ExpectedWrites(None, 5.0)).note(larger) is None


def test_a_group_that_takes_long_and_a_queue_that_does():
    ((cause, _),) = told(*[replace(GOOD, sync=61.0)] * 3)
    assert cause == "txg-sync"
    ((cause, text),) = told(*[replace(GOOD, wait=121.0)] * 3)
    assert cause == "queue"
    assert "a write takes 121.0s, 105ms of them on the device" in text
