"""From a measurement to parameters with their arithmetic, and which of those that were tried is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.tuning.device_model import HDD, MODELS, SSD, Model, search
from zvault.core.tuning.candidates import (
    AGGREGATION_LIMIT,
    ALLOCATION_THROTTLE,
    DIRTY_DATA_PARAMETER,
    LEAST_ACTIVE_PARAMETER,
    MOST_ACTIVE_PARAMETER,
    TXG_TIMEOUT,
    CandidateTrial,
    ParameterChoice,
    TuningCandidate,
    advise_on_recordsize,
    calculate_parameters,
    combine_trials,
    find_contested,
    list_candidates,
    select_winner,
)
from zvault.core.tuning.measurement import LARGEST_MERGED
from zvault.core.tuning.tuning import (
    DIRTY_BOUND,
    KernelParameter,
    TunedHost,
    TuningRequest,
    decide_parameters,
    find_default,
    limit_dirty_data,
)

MIB, GIB = 1 << 20, 1 << 30


def host(memory: int) -> TunedHost:
    known = {
        AGGREGATION_LIMIT: "131072",
        MOST_ACTIVE_PARAMETER: "10",
        LEAST_ACTIVE_PARAMETER: "2",
        ALLOCATION_THROTTLE: "1",
        DIRTY_DATA_PARAMETER: "1",
        TXG_TIMEOUT: "5",
    }
    known[DIRTY_BOUND] = str(min(memory // 4, 4 * GIB))
    return TunedHost((2, 3, 9), memory, {name: KernelParameter(value, True) for name, value in known.items()})


def found(model: Model, memory: int = 8 * GIB) -> dict[str, ParameterChoice]:
    return {one.name: one for one in calculate_parameters(search(model)[1], host(memory))}


def test_slow_disks():
    chosen = found(HDD)
    assert {name: one.value for name, one in chosen.items()} == {
        AGGREGATION_LIMIT: str(8 * MIB),
        MOST_ACTIVE_PARAMETER: "8",
        LEAST_ACTIVE_PARAMETER: "8",
        ALLOCATION_THROTTLE: "0",
        DIRTY_DATA_PARAMETER: str(2 * GIB),
        TXG_TIMEOUT: "15",
    }
    assert "those of 128K only 13.4M/s: even a small one takes 37.2 ms" in chosen[AGGREGATION_LIMIT].why
    assert (
        "Little's law: 76.2M/s in requests of 1M that take 52.5 ms each are 4.0 at once"
        in chosen[MOST_ACTIVE_PARAMETER].why
    )
    assert (
        "20 writes one after another, of 37.2 ms each: for that to be a 20th"
        in chosen[DIRTY_DATA_PARAMETER].why
    )


def test_a_disk_in_the_host_is_left_as_it_is():
    assert set(found(Model(1, 0.00001, 500e6))) <= {MOST_ACTIVE_PARAMETER}


@given(MODELS, st.sampled_from([1, 2, 4, 8, 64]))
def test_nothing_is_below_what_openzfs_has_by_itself(model: Model, memory: int):
    here = host(memory * GIB)
    chosen = {one.name: one.value for one in calculate_parameters(search(model)[1], here)}
    if AGGREGATION_LIMIT in chosen:
        assert 128 << 10 < int(chosen[AGGREGATION_LIMIT]) <= LARGEST_MERGED
        assert int(chosen[LEAST_ACTIVE_PARAMETER]) == int(chosen[MOST_ACTIVE_PARAMETER]) >= 1
    if DIRTY_DATA_PARAMETER in chosen:
        assert (
            int(find_default(DIRTY_DATA_PARAMETER, here) or 0)
            < int(chosen[DIRTY_DATA_PARAMETER])
            <= limit_dirty_data(here)
        )
    assert 5 < int(chosen.get(TXG_TIMEOUT, "6")) <= 30
    verdicts = decide_parameters([TuningRequest("cold", chosen)], here)
    assert {one.name: one.value for one in verdicts} == chosen, "the host takes every one as it is"


def requests(size: int, depth: int) -> dict[str, str]:
    return {
        AGGREGATION_LIMIT: str(size),
        MOST_ACTIVE_PARAMETER: str(depth),
        LEAST_ACTIVE_PARAMETER: str(depth),
        ALLOCATION_THROTTLE: "0",
    }


PROFILES = {
    "rbd-hdd": {**requests(4 * MIB, 4), DIRTY_DATA_PARAMETER: str(4 * GIB)},
    "deep": requests(MIB, 24),
    "odd": {AGGREGATION_LIMIT: "much", MOST_ACTIVE_PARAMETER: "4"},
    "local": {},
}


@given(MODELS, st.sampled_from([1 * MIB, 4 * MIB, LARGEST_MERGED]))
def test_what_is_tried_out(model: Model, largest: int):
    best = search(model, largest)[1]
    offered = list_candidates(best, host(8 * GIB), largest, PROFILES)
    assert offered[0].choices == calculate_parameters(best, host(8 * GIB))
    assert offered[-1].module == {}
    for one in offered[:-1]:
        assert int(one.module.get(AGGREGATION_LIMIT, "1")) <= largest
        assert int(one.module.get(MOST_ACTIVE_PARAMETER, "1")) >= 1
    assert len({tuple(one.module.items()) for one in offered}) == len(offered)


@given(MODELS)
def test_requests_wait_in_the_device_while_others_are_on_their_way(model: Model):
    """As seen in the lab: with one more in flight than it works on, a third of the device had nothing to do."""
    best = search(model)[1]
    offered = {one.what: one.module for one in list_candidates(best, host(8 * GIB), LARGEST_MERGED, {})}
    if best.size > 128 << 10:
        assert int(offered["worked out"][MOST_ACTIVE_PARAMETER]) == 2 * best.depth
        assert int(offered["half the depth"][MOST_ACTIVE_PARAMETER]) == best.depth, (
            "for a device on which that does harm"
        )


@given(MODELS, st.sampled_from([MIB, 4 * MIB, LARGEST_MERGED]))
def test_larger_requests_have_no_more_bytes_in_flight(model: Model, largest: int):
    best = search(model, largest)[1]
    offered = {one.what: one.module for one in list_candidates(best, host(8 * GIB), largest, {})}
    larger = offered.get("twice the size, half the depth")
    assert (larger is not None) == (128 << 10 < best.size <= largest // 2)
    if larger is not None:
        ours = offered["worked out"]
        assert int(larger[AGGREGATION_LIMIT]) * int(larger[MOST_ACTIVE_PARAMETER]) == int(
            ours[AGGREGATION_LIMIT]
        ) * int(ours[MOST_ACTIVE_PARAMETER])


def test_profiles_for_such_a_device_are_tried_too():
    here = host(8 * GIB)
    offered = {one.what: one for one in list_candidates(search(SSD)[1], here, LARGEST_MERGED, PROFILES)}
    assert offered["as deep"].module.items() >= requests(MIB, 24).items()
    assert "from profile deep" in offered["as deep"].choices[0].why
    assert "as rbd-hdd" not in offered, "it is four times shallower"
    known = {**PROFILES, "same": requests(8 * MIB, 8)}
    slow = {one.what: one for one in list_candidates(search(HDD)[1], here, LARGEST_MERGED, known)}
    assert "as rbd-hdd" in slow
    assert not {"as deep", "as same"} & slow.keys(), "one is too deep, the other what was worked out"
    other = {"mine": {**requests(4 * MIB, 6), TXG_TIMEOUT: "9"}}
    groups = {one.name: one.value for one in calculate_parameters(search(HDD)[1], here)}
    mine = next(
        one for one in list_candidates(search(HDD)[1], here, LARGEST_MERGED, other) if one.what == "as mine"
    )
    assert mine.module == {
        **requests(4 * MIB, 6),
        TXG_TIMEOUT: "9",
        DIRTY_DATA_PARAMETER: groups[DIRTY_DATA_PARAMETER],
    }
    assert "as mine" not in {one.what for one in list_candidates(search(HDD)[1], here, 2 * MIB, other)}
    much = {"mine": {**requests(4 * MIB, 6), DIRTY_DATA_PARAMETER: str(4 * GIB)}}
    mine = next(
        one for one in list_candidates(search(HDD)[1], here, LARGEST_MERGED, much) if one.what == "as mine"
    )
    assert mine.module[DIRTY_DATA_PARAMETER] == str(limit_dirty_data(here)), "no more than the host is given"


WORKED = TuningCandidate("worked out", (ParameterChoice(MOST_ACTIVE_PARAMETER, "4", ""),))
OTHER = TuningCandidate("half the depth", (ParameterChoice(MOST_ACTIVE_PARAMETER, "2", ""),))
DEFAULT = TuningCandidate("OpenZFS's defaults")


@pytest.mark.parametrize(
    ("tries", "won"),
    [
        ([CandidateTrial(WORKED, 100), CandidateTrial(OTHER, 103), CandidateTrial(DEFAULT, 99)], WORKED),
        ([CandidateTrial(WORKED, 100), CandidateTrial(OTHER, 110), CandidateTrial(DEFAULT, 99)], OTHER),
        (
            [
                CandidateTrial(WORKED, 100),
                CandidateTrial(OTHER, 100, stopped=True),
                CandidateTrial(DEFAULT, 101),
            ],
            DEFAULT,
        ),
        ([CandidateTrial(WORKED, 10, stopped=True), CandidateTrial(DEFAULT, 10, stopped=True)], WORKED),
        (
            [
                CandidateTrial(WORKED, 10, stopped=True),
                CandidateTrial(OTHER, 10, stopped=True),
                CandidateTrial(DEFAULT, 12),
            ],
            DEFAULT,
        ),
    ],
)
def test_who_wins(tries: list[CandidateTrial], won: TuningCandidate):
    assert select_winner(tries).candidate == won


@pytest.mark.parametrize(
    ("tries", "again"),
    [
        ([CandidateTrial(WORKED, 100), CandidateTrial(OTHER, 110)], [0, 1]),
        ([CandidateTrial(WORKED, 110), CandidateTrial(OTHER, 50), CandidateTrial(DEFAULT, 100)], [2, 0]),
        ([CandidateTrial(WORKED, 100), CandidateTrial(OTHER, 130)], []),
        ([CandidateTrial(WORKED, 100), CandidateTrial(OTHER, 100, stopped=True)], []),
        ([], []),
    ],
)
def test_the_two_best_are_tried_again_where_they_are_near(tries: list[CandidateTrial], again: list[int]):
    assert find_contested(tries) == again


def test_two_tries_are_one_of_twice_the_bytes():
    assert combine_trials(CandidateTrial(WORKED, 60), CandidateTrial(WORKED, 30)) == CandidateTrial(
        WORKED, pytest.approx(40), runs=2
    )


def test_one_that_was_tried_once_does_not_win_over_those_tried_twice():
    """As seen in the lab: the host was busier when the two best ran again, and the third won by its one try."""
    tries = [CandidateTrial(WORKED, 99.4), CandidateTrial(OTHER, 114), CandidateTrial(DEFAULT, 115)]
    for place, again in zip(find_contested(tries), (80.6, 86.2), strict=True):
        tries[place] = combine_trials(tries[place], CandidateTrial(tries[place].candidate, again))
    assert [round(one.rate, 1) for one in tries] == [99.4, 94.4, 98.5]
    assert select_winner(tries).candidate == DEFAULT


def test_without_a_try_nobody_wins():
    with pytest.raises(ValueError, match="nothing was tried"):
        select_winner([])


def test_records_worth_having():
    assert "recordsize=1M at the source" in advise_on_recordsize(search(HDD)[1])
    assert advise_on_recordsize(search(Model(1, 0.00001, 500e6))[1]) == ""
    assert "recordsize=256K" in advise_on_recordsize(search(Model(16, 0.002, 100e6))[1])


def test_why_it_was_measured_so_is_told_with_the_verdict():
    (verdict,) = decide_parameters(
        [
            TuningRequest(
                "cold", {MOST_ACTIVE_PARAMETER: "4"}, reasons={MOST_ACTIVE_PARAMETER: "Little's law"}
            )
        ],
        host(GIB),
    )
    assert verdict.why == "wanted by cold; Little's law"
    spins = TuningRequest(
        "cold", {AGGREGATION_LIMIT: "4194304"}, frozenset({True}), {AGGREGATION_LIMIT: "each takes 37 ms"}
    )
    here = host(GIB)
    other = "zfs_vdev_aggregation_limit"
    parameters = {**here.parameters, other: KernelParameter("1048576", True)}
    verdicts = {one.name: one for one in decide_parameters([spins], TunedHost(here.version, GIB, parameters))}
    assert verdicts[other].value == "4194304"
    assert "each takes 37 ms" in verdicts[other].why
