"""From a measurement to parameters with their arithmetic, and which of those that were tried is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.tuning.device_model import HDD, MODELS, SSD, Model, search
from zvault.core.tuning.candidates import (
    DIRTY,
    LEAST,
    LIMIT,
    MOST,
    THROTTLE,
    TIMEOUT,
    Candidate,
    CandidateTrial,
    ParameterChoice,
    advice,
    both,
    candidates,
    contested,
    settings,
    winner,
)
from zvault.core.tuning.measurement import LARGEST
from zvault.core.tuning.tuning import (
    DIRTY_BOUND,
    Host,
    Parameter,
    TuningRequest,
    decide,
    default_of,
    most_dirty,
)

MIB, GIB = 1 << 20, 1 << 30


def host(memory: int) -> Host:
    known = {LIMIT: "131072", MOST: "10", LEAST: "2", THROTTLE: "1", DIRTY: "1", TIMEOUT: "5"}
    known[DIRTY_BOUND] = str(min(memory // 4, 4 * GIB))
    return Host((2, 3, 9), memory, {name: Parameter(value, True) for name, value in known.items()})


def found(model: Model, memory: int = 8 * GIB) -> dict[str, ParameterChoice]:
    return {one.name: one for one in settings(search(model)[1], host(memory))}


def test_slow_disks():
    chosen = found(HDD)
    assert {name: one.value for name, one in chosen.items()} == {
        LIMIT: str(8 * MIB),
        MOST: "8",
        LEAST: "8",
        THROTTLE: "0",
        DIRTY: str(2 * GIB),
        TIMEOUT: "15",
    }
    assert "those of 128K only 13.4M/s: even a small one takes 37.2 ms" in chosen[LIMIT].why
    assert (
        "Little's law: 76.2M/s in requests of 1M that take 52.5 ms each are 4.0 at once" in chosen[MOST].why
    )
    assert "20 writes one after another, of 37.2 ms each: for that to be a 20th" in chosen[DIRTY].why


def test_a_disk_in_the_host_is_left_as_it_is():
    assert set(found(Model(1, 0.00001, 500e6))) <= {MOST}


@given(MODELS, st.sampled_from([1, 2, 4, 8, 64]))
def test_nothing_is_below_what_openzfs_has_by_itself(model: Model, memory: int):
    here = host(memory * GIB)
    chosen = {one.name: one.value for one in settings(search(model)[1], here)}
    if LIMIT in chosen:
        assert 128 << 10 < int(chosen[LIMIT]) <= LARGEST
        assert int(chosen[LEAST]) == int(chosen[MOST]) >= 1
    if DIRTY in chosen:
        assert int(default_of(DIRTY, here) or 0) < int(chosen[DIRTY]) <= most_dirty(here)
    assert 5 < int(chosen.get(TIMEOUT, "6")) <= 30
    verdicts = decide([TuningRequest("cold", chosen)], here)
    assert {one.name: one.value for one in verdicts} == chosen, "the host takes every one as it is"


def requests(size: int, depth: int) -> dict[str, str]:
    return {LIMIT: str(size), MOST: str(depth), LEAST: str(depth), THROTTLE: "0"}


PROFILES = {
    "rbd-hdd": {**requests(4 * MIB, 4), DIRTY: str(4 * GIB)},
    "deep": requests(MIB, 24),
    "odd": {LIMIT: "much", MOST: "4"},
    "local": {},
}


@given(MODELS, st.sampled_from([1 * MIB, 4 * MIB, LARGEST]))
def test_what_is_tried_out(model: Model, largest: int):
    best = search(model, largest)[1]
    offered = candidates(best, host(8 * GIB), largest, PROFILES)
    assert offered[0].choices == settings(best, host(8 * GIB))
    assert offered[-1].module == {}
    for one in offered[:-1]:
        assert int(one.module.get(LIMIT, "1")) <= largest
        assert int(one.module.get(MOST, "1")) >= 1
    assert len({tuple(one.module.items()) for one in offered}) == len(offered)


@given(MODELS)
def test_requests_wait_in_the_device_while_others_are_on_their_way(model: Model):
    """As seen in the lab: with one more in flight than it works on, a third of the device had nothing to do."""
    best = search(model)[1]
    offered = {one.what: one.module for one in candidates(best, host(8 * GIB), LARGEST, {})}
    if best.size > 128 << 10:
        assert int(offered["worked out"][MOST]) == 2 * best.depth
        assert int(offered["half the depth"][MOST]) == best.depth, "for a device on which that does harm"


@given(MODELS, st.sampled_from([MIB, 4 * MIB, LARGEST]))
def test_larger_requests_have_no_more_bytes_in_flight(model: Model, largest: int):
    best = search(model, largest)[1]
    offered = {one.what: one.module for one in candidates(best, host(8 * GIB), largest, {})}
    larger = offered.get("twice the size, half the depth")
    assert (larger is not None) == (128 << 10 < best.size <= largest // 2)
    if larger is not None:
        ours = offered["worked out"]
        assert int(larger[LIMIT]) * int(larger[MOST]) == int(ours[LIMIT]) * int(ours[MOST])


def test_profiles_for_such_a_device_are_tried_too():
    here = host(8 * GIB)
    offered = {one.what: one for one in candidates(search(SSD)[1], here, LARGEST, PROFILES)}
    assert offered["as deep"].module.items() >= requests(MIB, 24).items()
    assert "from profile deep" in offered["as deep"].choices[0].why
    assert "as rbd-hdd" not in offered, "it is four times shallower"
    known = {**PROFILES, "same": requests(8 * MIB, 8)}
    slow = {one.what: one for one in candidates(search(HDD)[1], here, LARGEST, known)}
    assert "as rbd-hdd" in slow
    assert not {"as deep", "as same"} & slow.keys(), "one is too deep, the other what was worked out"
    other = {"mine": {**requests(4 * MIB, 6), TIMEOUT: "9"}}
    groups = {one.name: one.value for one in settings(search(HDD)[1], here)}
    mine = next(one for one in candidates(search(HDD)[1], here, LARGEST, other) if one.what == "as mine")
    assert mine.module == {**requests(4 * MIB, 6), TIMEOUT: "9", DIRTY: groups[DIRTY]}
    assert "as mine" not in {one.what for one in candidates(search(HDD)[1], here, 2 * MIB, other)}
    much = {"mine": {**requests(4 * MIB, 6), DIRTY: str(4 * GIB)}}
    mine = next(one for one in candidates(search(HDD)[1], here, LARGEST, much) if one.what == "as mine")
    assert mine.module[DIRTY] == str(most_dirty(here)), "no more than the host is given"


WORKED = Candidate("worked out", (ParameterChoice(MOST, "4", ""),))
OTHER = Candidate("half the depth", (ParameterChoice(MOST, "2", ""),))
DEFAULT = Candidate("OpenZFS's defaults")


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
def test_who_wins(tries: list[CandidateTrial], won: Candidate):
    assert winner(tries).candidate == won


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
    assert contested(tries) == again


def test_two_tries_are_one_of_twice_the_bytes():
    assert both(CandidateTrial(WORKED, 60), CandidateTrial(WORKED, 30)) == CandidateTrial(
        WORKED, pytest.approx(40), runs=2
    )


def test_one_that_was_tried_once_does_not_win_over_those_tried_twice():
    """As seen in the lab: the host was busier when the two best ran again, and the third won by its one try."""
    tries = [CandidateTrial(WORKED, 99.4), CandidateTrial(OTHER, 114), CandidateTrial(DEFAULT, 115)]
    for place, again in zip(contested(tries), (80.6, 86.2), strict=True):
        tries[place] = both(tries[place], CandidateTrial(tries[place].candidate, again))
    assert [round(one.rate, 1) for one in tries] == [99.4, 94.4, 98.5]
    assert winner(tries).candidate == DEFAULT


def test_without_a_try_nobody_wins():
    with pytest.raises(ValueError, match="nothing was tried"):
        winner([])


def test_records_worth_having():
    assert "recordsize=1M at the source" in advice(search(HDD)[1])
    assert advice(search(Model(1, 0.00001, 500e6))[1]) == ""
    assert "recordsize=256K" in advice(search(Model(16, 0.002, 100e6))[1])


def test_why_it_was_measured_so_is_told_with_the_verdict():
    (verdict,) = decide([TuningRequest("cold", {MOST: "4"}, reasons={MOST: "Little's law"})], host(GIB))
    assert verdict.why == "wanted by cold; Little's law"
    spins = TuningRequest("cold", {LIMIT: "4194304"}, frozenset({True}), {LIMIT: "each takes 37 ms"})
    here = host(GIB)
    other = "zfs_vdev_aggregation_limit"
    parameters = {**here.parameters, other: Parameter("1048576", True)}
    verdicts = {one.name: one for one in decide([spins], Host(here.version, GIB, parameters))}
    assert verdicts[other].value == "4194304"
    assert "each takes 37 ms" in verdicts[other].why
