"""From a measurement to parameters with their arithmetic, and which of those that were tried is kept."""

from __future__ import annotations

import pytest
from device_model import HDD, MODELS, Model, search
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.measure import LARGEST
from zvault.core.settings import (
    DIRTY,
    LEAST,
    LIMIT,
    MOST,
    THROTTLE,
    TIMEOUT,
    Candidate,
    Choice,
    Try,
    advice,
    candidates,
    settings,
    winner,
)
from zvault.core.tuning import DIRTY_BOUND, Host, Parameter, Wish, decide, default_of, most_dirty

MIB, GIB = 1 << 20, 1 << 30


def host(memory: int) -> Host:
    known = {LIMIT: "131072", MOST: "10", LEAST: "2", THROTTLE: "1", DIRTY: "1", TIMEOUT: "5"}
    known[DIRTY_BOUND] = str(min(memory // 4, 4 * GIB))
    return Host((2, 3, 9), memory, {name: Parameter(value, True) for name, value in known.items()})


def found(model: Model, memory: int = 8 * GIB) -> dict[str, Choice]:
    return {one.name: one for one in settings(search(model)[1], host(memory))}


def test_slow_disks():
    chosen = found(HDD)
    assert {name: one.value for name, one in chosen.items()} == {
        LIMIT: str(4 * MIB),
        MOST: "4",
        LEAST: "4",
        THROTTLE: "0",
        DIRTY: str(2 * GIB),
        TIMEOUT: "8",
    }
    assert "of 128K only 13.4M/s: each takes 37.2 ms, however small" in chosen[LIMIT].why
    assert (
        "Little's law: 76.2M/s in requests of 1M that take 52.5 ms each are 4.0 at once" in chosen[MOST].why
    )
    assert "20 writes one after another, of 37.2 ms each: for that to be a 10th" in chosen[DIRTY].why


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
    verdicts = decide([Wish("cold", chosen)], here)
    assert {one.name: one.value for one in verdicts} == chosen, "the host takes every one as it is"


@given(MODELS, st.sampled_from([1 * MIB, 4 * MIB, LARGEST]))
def test_what_is_tried_out(model: Model, largest: int):
    best = search(model, largest)[1]
    offered = candidates(best, host(8 * GIB), largest)
    assert offered[0].choices == settings(best, host(8 * GIB))
    assert offered[-1].module == {}
    for one in offered[:-1]:
        assert int(one.module.get(LIMIT, "1")) <= largest
        assert int(one.module.get(MOST, "1")) >= 1
    assert len({tuple(one.module.items()) for one in offered}) == len(offered)


WORKED = Candidate("worked out", (Choice(MOST, "4", ""),))
OTHER = Candidate("half the depth", (Choice(MOST, "2", ""),))
DEFAULT = Candidate("OpenZFS's defaults")


@pytest.mark.parametrize(
    ("tries", "won"),
    [
        ([Try(WORKED, 100), Try(OTHER, 103), Try(DEFAULT, 99)], WORKED),
        ([Try(WORKED, 100), Try(OTHER, 110), Try(DEFAULT, 99)], OTHER),
        ([Try(WORKED, 100), Try(OTHER, 100, stopped=True), Try(DEFAULT, 101)], DEFAULT),
        ([Try(WORKED, 10, stopped=True), Try(DEFAULT, 10, stopped=True)], WORKED),
        ([Try(WORKED, 10, stopped=True), Try(OTHER, 10, stopped=True), Try(DEFAULT, 12)], DEFAULT),
    ],
)
def test_who_wins(tries: list[Try], won: Candidate):
    assert winner(tries).candidate == won


def test_without_a_try_nobody_wins():
    with pytest.raises(ValueError, match="nothing was tried"):
        winner([])


def test_records_worth_having():
    assert "recordsize=1M at the source" in advice(search(HDD)[1])
    assert advice(search(Model(1, 0.00001, 500e6))[1]) == ""
    assert "recordsize=256K" in advice(search(Model(16, 0.002, 100e6))[1])


def test_why_it_was_measured_so_is_told_with_the_verdict():
    (verdict,) = decide([Wish("cold", {MOST: "4"}, reasons={MOST: "Little's law"})], host(GIB))
    assert verdict.why == "wanted by cold; Little's law"
    spins = Wish("cold", {LIMIT: "4194304"}, frozenset({True}), {LIMIT: "each takes 37 ms"})
    here = host(GIB)
    other = "zfs_vdev_aggregation_limit"
    parameters = {**here.parameters, other: Parameter("1048576", True)}
    verdicts = {one.name: one for one in decide([spins], Host(here.version, GIB, parameters))}
    assert verdicts[other].value == "4194304"
    assert "each takes 37 ms" in verdicts[other].why
