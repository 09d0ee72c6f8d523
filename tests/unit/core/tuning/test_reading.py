"""Parameters for reading, from those for writing: as deep, never below OpenZFS's defaults, known, and bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zvault.core.tuning.candidates import AGGREGATION_LIMIT, MOST_ACTIVE_PARAMETER
from zvault.core.tuning.parameters import KNOWN_PARAMETERS
from zvault.core.tuning.reading import (
    ASYNC_READS,
    MOST_READ_AHEAD,
    SCAN_LIMIT,
    SCRUB_DELAY,
    SCRUB_READS,
    SEND_QUEUE,
    SYNC_READS,
    advise_on_reads,
    derive_reading,
)
from zvault.core.tuning.tuning import (
    READ_AHEAD_PARAMETERS,
    READ_AHEAD_SHARE,
    KernelParameter,
    TunedHost,
    TuningRequest,
    decide_parameters,
)

MIB = 1 << 20


def derived(depth: int, size: int) -> dict[str, str]:
    module = {MOST_ACTIVE_PARAMETER: str(depth), AGGREGATION_LIMIT: str(size)}
    return {one.name: one.value for one in derive_reading(module)}


def test_slow_disks_and_an_object_store() -> None:
    assert derived(8, 4 * MIB) == {
        ASYNC_READS: "8",
        SCRUB_READS: "8",
        SCRUB_DELAY: "0",
        SEND_QUEUE: str(128 * MIB),
        SCAN_LIMIT: str(128 * MIB),
    }
    assert derived(32, MIB) == {
        ASYNC_READS: "32",
        SYNC_READS: "32",
        SCRUB_READS: "32",
        SCRUB_DELAY: "0",
        SEND_QUEUE: str(128 * MIB),
        SCAN_LIMIT: str(128 * MIB),
    }


def test_nothing_follows_from_nothing() -> None:
    assert derive_reading({}) == derive_reading({MOST_ACTIVE_PARAMETER: "many"}) == ()


@given(st.integers(1, 1000), st.integers(512, 1 << 30))
def test_each_is_known_and_better_than_its_default(depth: int, size: int) -> None:
    found = derived(depth, size)
    for name, value in found.items():
        known = KNOWN_PARAMETERS[name]
        assert known.rule is not None, "two vaults may want it"
        if name != SCRUB_DELAY:
            assert int(value) > int(known.default or 0)
    assert all(int(found.get(name, 0)) <= MOST_READ_AHEAD for name in (SEND_QUEUE, SCAN_LIMIT))


@given(st.integers(1 << 28, 1 << 40), st.sampled_from(READ_AHEAD_PARAMETERS), st.integers(0, 1 << 40))
def test_what_is_read_ahead_fits_the_hosts_memory(memory: int, name: str, wanted: int) -> None:
    host = TunedHost((2, 3, 9), memory, {name: KernelParameter("16777216", True)})
    (verdict,) = decide_parameters([TuningRequest("cold", {name: str(wanted)})], host)
    assert int(verdict.value or -1) == min(wanted, memory // READ_AHEAD_SHARE)
    assert ("the most that this host's memory allows" in verdict.why) == (wanted > memory // READ_AHEAD_SHARE)


def test_advice_only_for_devices_that_are_read_as_by_default() -> None:
    assert advise_on_reads("s3", ["nbd:/dev/nbd0"], {ASYNC_READS: "32"}) == []
    assert advise_on_reads("local", [], {}) == [], "disks of this host"
    (advice,) = advise_on_reads("nbd-lan", ["nbd:/dev/nbd0"], {})
    assert advice.about == ("nbd:/dev/nbd0",)
    assert ASYNC_READS in advice.what
    assert "3 reads at the device" in advice.why
