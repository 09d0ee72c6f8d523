"""What is promised of locks holds at any time, and is had by few requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zvault.core.policy.object_lock import LockState, ObjectLock, count_renewals

DAY = 86400.0
LOCK = ObjectLock("compliance", 30 * DAY)


def test_a_new_store_has_to_be_locked_at_once_and_then_for_days_not() -> None:
    state = LockState()
    assert state.due(LOCK, 0.0)
    state = state.begin(LOCK, DAY).done(LOCK, DAY + 9)
    assert state == LockState("compliance", DAY + 45 * DAY, seen=DAY + 9)
    assert not state.due(LOCK, 10 * DAY)
    assert state.due(LOCK, 13.1 * DAY)


def test_another_mode_or_a_longer_time_is_due_at_once() -> None:
    state = LockState("governance", 100 * DAY)
    assert not state.due(ObjectLock("governance", 30 * DAY), 0.0)
    assert state.due(ObjectLock("compliance", 30 * DAY), 0.0)
    assert state.due(ObjectLock("governance", 95 * DAY), 0.0)


def test_a_renewal_goes_on_where_it_was_unless_that_comes_too_late() -> None:
    state = LockState().begin(LOCK, 100 * DAY).come_to("k/maps/5")
    assert state.begin(LOCK, 101 * DAY) == state
    late = state.begin(LOCK, 120 * DAY)
    assert (late.begun, late.after) == (120 * DAY, "")


def test_how_often_a_month() -> None:
    assert round(count_renewals(LOCK), 6) == 2.5


@given(
    st.lists(st.tuples(st.floats(0.01, 20), st.booleans(), st.floats(0, 3)), min_size=1, max_size=40),
    st.floats(1, 400),
)
def test_until_is_never_later_than_any_object_is_locked(
    steps: list[tuple[float, bool, float]], days: float
) -> None:
    """Objects are put and locked again, renewals break off anywhere: none ends before what the state says."""
    lock = ObjectLock("compliance", days * DAY)
    now, state, objects = 0.0, LockState(), dict[int, float]()
    for number, (wait, whole, took) in enumerate(steps):
        now += wait * DAY
        objects[number] = now + lock.span
        state = state.begin(lock, now)
        if state.begun:
            names = sorted(objects)
            names = names[: len(names) if whole else len(names) // 2]
            for name in names:
                if str(name).zfill(5) > state.after:
                    objects[name] = max(objects[name], now + lock.span)
                    state = state.come_to(str(name).zfill(5))
            now += took * DAY
            if whole:
                state = state.done(lock, now)
        assert state.until <= min(objects.values())
