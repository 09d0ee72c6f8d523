"""How old an object is: never less or more than what a host saw itself allows, whatever the store says."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from zvault.core.sharing.foreign_watch import ForeignWatch

ANY = st.none() | st.floats()


@given(
    writes=st.lists(st.floats(0, 1e6), min_size=1, max_size=8),
    looks=st.lists(st.floats(0, 1e6), min_size=1, max_size=8),
    honest=st.booleans(),
    lies=st.lists(ANY, min_size=8, max_size=8),
)
def test_the_true_age_is_between_the_bounds(
    writes: list[float], looks: list[float], honest: bool, lies: list[float | None]
) -> None:
    """The object is written and looked at at random; an upper bound is right also when the store's ages are too large,
    a lower one also when they are too small, and both when it says what is so."""
    written, watch = sorted(writes), None
    looks = sorted(at for at in looks if at >= written[0])
    for at, lie in zip(looks, lies, strict=False):
        version = sum(time <= at for time in written)
        true = at - written[version - 1]
        told = true if honest else lie
        etag = str(version)
        watch = (
            ForeignWatch.begin(version, etag, at, told)
            if watch is None
            else watch.look(version, etag, at, told)
        )
        slack = 1e-6
        assert watch.unchanged(at) <= true + slack
        if honest:
            assert watch.age(at) <= true + slack
            assert watch.at_most(at) >= true - slack
        if watch.before is not None:
            longest = at - watch.before
            assert watch.age(at) <= longest + slack
            assert watch.at_most(at) <= longest + slack
        assert watch.unchanged(at) - slack <= watch.age(at) <= watch.at_most(at) + slack


def test_without_the_stores_word_only_what_was_seen_counts() -> None:
    watch = ForeignWatch.begin("x", "1", 100.0)
    assert (watch.age(130.0), watch.at_most(130.0)) == (30.0, math.inf)
    watch = watch.look("x", "1", 140.0).look("y", "2", 150.0)
    assert (watch.age(155.0), watch.at_most(155.0)) == (5.0, 15.0)


def test_unchanged_is_until_the_last_look_and_no_longer() -> None:
    watch = ForeignWatch.begin("x", "1", 100.0, told=50.0).look("x", "1", 110.0)
    assert watch.unchanged(1000.0) == 10.0


def test_an_age_that_can_be_none_is_not_believed() -> None:
    for told in (-3.0, math.nan, math.inf, -math.inf):
        assert ForeignWatch.begin("x", "1", 0.0, told).told is None
    assert ForeignWatch.begin("x", "1", 0.0, -0.4).told == 0.0
