"""Parameters for reading, from measured reads or from those for writing: never below OpenZFS's defaults, known, and
bounded; and which are tried out.
"""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.tuning.device_model import HDD, MODELS, S3, SSD, Model, search
from zvault.core.tuning.candidates import (
    AGGREGATION_LIMIT,
    DEFAULTS,
    MOST_ACTIVE_PARAMETER,
    CandidateTrial,
    ParameterChoice,
    TuningCandidate,
    select_winner,
)
from zvault.core.tuning.parameters import KNOWN_PARAMETERS
from zvault.core.tuning.reading import (
    ASYNC_READS,
    MOST_READ_AHEAD,
    SCAN_LIMIT,
    SCRUB_DELAY,
    SCRUB_PARAMETERS,
    SCRUB_READS,
    SEND_QUEUE,
    SYNC_READS,
    advise_on_measuring_reads,
    advise_on_probing,
    advise_on_reads,
    calculate_reading,
    combine_reading,
    derive_reading,
    guess_reading,
    list_reading_candidates,
    list_scrub_candidates,
)
from zvault.core.tuning.store_guess import StoreGuess
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


SLOW_WRITES = {MOST_ACTIVE_PARAMETER: "8", AGGREGATION_LIMIT: str(4 * MIB)}


def values(choices: Iterable[ParameterChoice]) -> dict[str, str]:
    return {one.name: one.value for one in choices}


def test_reads_of_slow_disks() -> None:
    knee = search(HDD)[1]
    chosen = {one.name: one for one in calculate_reading(knee, {AGGREGATION_LIMIT: str(8 * MIB)})}
    assert values(chosen.values()) == derived(8, 8 * MIB), "as many as follow from writes of such a device"
    assert (
        "Little's law: 76.2M/s of reads in requests of 1M that take 52.5 ms each are 4.0 at once"
        in chosen[ASYNC_READS].why
    )


def test_an_object_store_reads_deeper_than_its_writes_and_in_larger_requests() -> None:
    knee = search(S3)[1]
    writes = {MOST_ACTIVE_PARAMETER: "32", AGGREGATION_LIMIT: str(128 << 10)}
    found = values(calculate_reading(knee, writes))
    assert int(found[ASYNC_READS]) == 2 * S3.slots
    assert int(found[AGGREGATION_LIMIT]) == knee.size > 128 << 10
    assert int(found[SEND_QUEUE]) == min(MOST_READ_AHEAD, 4 * 2 * S3.slots * knee.size)


@given(MODELS, st.integers(1, 128), st.integers(17, 24).map(lambda power: 1 << power))
def test_calculated_parameters_are_known_and_never_below_the_defaults(
    model: Model, depth: int, limit: int
) -> None:
    writes = {MOST_ACTIVE_PARAMETER: str(depth), AGGREGATION_LIMIT: str(limit)}
    candidates = list_reading_candidates(search(model)[1], writes)
    assert candidates[-1] == TuningCandidate(DEFAULTS)
    assert len({str(sorted(one.module.items())) for one in candidates}) == len(candidates), (
        "none is tried twice"
    )
    for name, value in (pair for one in candidates for pair in one.module.items()):
        known = KNOWN_PARAMETERS[name]
        assert known.rule is not None
        if name == AGGREGATION_LIMIT:
            assert int(value) > limit, "reads are merged as far as writes anyway"
        elif name != SCRUB_DELAY:
            assert int(value) > int(known.default or 0)


def test_what_is_tried_of_a_fast_and_of_a_slow_device() -> None:
    slow = list_reading_candidates(search(HDD)[1], SLOW_WRITES)
    assert [one.what for one in slow] == ["worked out", "half the depth", DEFAULTS], "writes are as deep"
    deep = list_reading_candidates(search(SSD)[1], {MOST_ACTIVE_PARAMETER: "16"})
    assert [one.what for one in deep][:2] == ["worked out", "as deep as writes"]
    at_once = list_reading_candidates(search(Model(1, 0.00001, 500e6))[1], {})
    assert at_once == [TuningCandidate(DEFAULTS)], "a disk in the host is left as it is"


def test_the_depth_that_a_probe_found_is_tried_too() -> None:
    guess = StoreGuess(0.0, 4, 1e8, 12, 1e8)
    tried = list_reading_candidates(search(HDD)[1], SLOW_WRITES, guess)
    assert [one.what for one in tried][:2] == ["worked out", "as its store's probe"]
    assert tried[1].module[ASYNC_READS] == "12"
    assert "by 12 at once" in next(one.why for one in guess_reading(guess, {}) if one.name == ASYNC_READS)
    (advice,) = [advise_on_probing("cold", ["zvault:zv/cold"])]
    assert advice.what == "run 'zvaultctl blockstore probe cold'"


def test_sends_and_scrubs_are_decided_apart() -> None:
    candidates = list_reading_candidates(search(HDD)[1], SLOW_WRITES)
    scrubs = list_scrub_candidates(candidates[1], candidates)
    assert [one.what for one in scrubs] == ["as deep as sends", DEFAULTS]
    assert scrubs[0].module.keys() <= SCRUB_PARAMETERS
    tries = [CandidateTrial(scrubs[0], 5e6), CandidateTrial(scrubs[1], 7e6)]
    chosen = combine_reading(candidates[1], select_winner(tries).candidate)
    assert {one.name for one in chosen} == {one.name for one in candidates[1].choices} - SCRUB_PARAMETERS
    assert combine_reading(candidates[0], scrubs[0]) != ()
    nobody = list_scrub_candidates(TuningCandidate(DEFAULTS), candidates)
    assert [one.what for one in nobody] == ["worked out", DEFAULTS], "the defaults won with sends"


def test_advice_to_measure_reads() -> None:
    assert advise_on_measuring_reads("cold", ["nbd:/dev/nbd0"]).what == "run 'zvaultctl tune measure cold'"
