"""What waits to be sent: in order, tried again at growing distances, never for ever, and no ping out of date."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from zvault.core.notify.message import Message, Ping
from zvault.core.notify.outbox import EXPIRES, FAILING, MOST, Target, expired, failed, next_due, put, sent


def message(name: str, made: float = 0.0) -> Message:
    return Message(name, made, "lab", "test", "ok", "a title", "a text")


def ping(name: str, beat: str, backup: str = "tank") -> Ping:
    return Ping(name, 0.0, backup, beat, "run", "")  # type: ignore[arg-type]


def ids(target: Target) -> list[str]:
    return [one.item.id for one in target.waiting]


def test_what_fails_is_tried_again_at_growing_distances_and_goes_when_it_is_through() -> None:
    target, now, pauses = put(Target(), message("a")), 0.0, []
    assert next_due(target, now) == 0.0
    for tries in range(12):
        assert target.failing == (tries >= FAILING)
        target = failed(target, "a", "refused", now, lambda: 0.5)
        due = next_due(target, now)
        assert due is not None
        pauses.append(due - now)
        now = due
    assert pauses[:3] == [10.0, 20.0, 40.0]
    assert pauses[-1] == 3600.0
    assert (target.last_error, target.last_failure) == ("refused", now - 3600.0)
    target = sent(target, "a", now)
    assert (ids(target), target.last_error, target.last_success, target.failing) == ([], "", now, False)


def test_nothing_waits_for_ever() -> None:
    target = put(put(Target(), message("old")), message("new", EXPIRES / 2))
    target = failed(target, "old", "refused", EXPIRES, lambda: 1.0)
    assert (ids(target), target.given_up) == (["new"], 1)
    assert expired(target, EXPIRES) == target


def test_not_more_waits_than_can_be_read() -> None:
    target = Target()
    for number in range(MOST + 7):
        target = put(target, message(str(number)))
    assert (len(target.waiting), target.given_up, ids(target)[0]) == (MOST, 7, "7")


def test_a_clock_that_was_set_back_keeps_nothing_for_years() -> None:
    target = failed(put(Target(), message("a", 1e9)), "a", "refused", 1e9, lambda: 1.0)
    due = next_due(target, 0.0)
    assert due is not None
    assert due <= 2 * 3600


def test_a_ping_stands_in_place_of_what_it_makes_out_of_date() -> None:
    target = put(put(Target(), ping("1", "start")), ping("2", "failure"))
    assert ids(target) == ["2"]
    target = put(target, ping("3", "start"))
    assert ids(target) == ["2", "3"], "that the last run failed is yet to be told"
    target = put(target, ping("other", "success", "home"))
    assert ids(put(target, ping("4", "success"))) == ["other", "4"]


@given(st.lists(st.tuples(st.sampled_from(["put", "fail", "sent"]), st.floats(0.0, 4000.0)), max_size=60))
def test_all_is_sent_in_order_and_nothing_is_lost_before_it_expires(steps: list[tuple[str, float]]) -> None:
    target, now, made, through = Target(), 0.0, 0, []
    for what, pause in steps:
        now += pause
        if what == "put":
            target, made = put(target, message(str(made), now)), made + 1
        elif target.waiting:
            first = target.waiting[0].item.id
            if what == "fail":
                target = failed(target, first, "refused", now, lambda: 0.0)
            else:
                target = sent(target, first, now)
                through.append(int(first))
    assert through == sorted(through)
    assert len(through) + len(target.waiting) + target.given_up >= made
    assert all(int(one.item.id) < int(two.item.id) for one, two in pairwise(target.waiting))
