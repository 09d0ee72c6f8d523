"""What waits to be sent: in order, tried again at growing distances, never for ever, and no ping out of date."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from zvault.core.notify.message import NotifyMessage, RunPing
from zvault.core.notify.outbox import (
    EXPIRES_AFTER,
    FAILING_TRIES,
    MOST_WAITING,
    TargetOutbox,
    drop_expired,
    find_next_due,
    queue_item,
    record_failure,
    record_sent,
)


def message(name: str, made: float = 0.0) -> NotifyMessage:
    return NotifyMessage(name, made, "lab", "test", "ok", "a title", "a text")


def ping(name: str, beat: str, backup: str = "tank") -> RunPing:
    return RunPing(name, 0.0, backup, beat, "run", "")  # type: ignore[arg-type]


def ids(target: TargetOutbox) -> list[str]:
    return [one.item.id for one in target.waiting]


def test_what_fails_is_tried_again_at_growing_distances_and_goes_when_it_is_through() -> None:
    target, now, pauses = queue_item(TargetOutbox(), message("a")), 0.0, []
    assert find_next_due(target, now) == 0.0
    for tries in range(12):
        assert target.failing == (tries >= FAILING_TRIES)
        target = record_failure(target, "a", "refused", now, lambda: 0.5)
        due = find_next_due(target, now)
        assert due is not None
        pauses.append(due - now)
        now = due
    assert pauses[:3] == [10.0, 20.0, 40.0]
    assert pauses[-1] == 3600.0
    assert (target.last_error, target.last_failure) == ("refused", now - 3600.0)
    target = record_sent(target, "a", now)
    assert (ids(target), target.last_error, target.last_success, target.failing) == ([], "", now, False)


def test_nothing_waits_for_ever() -> None:
    target = queue_item(queue_item(TargetOutbox(), message("old")), message("new", EXPIRES_AFTER / 2))
    target = record_failure(target, "old", "refused", EXPIRES_AFTER, lambda: 1.0)
    assert (ids(target), target.given_up) == (["new"], 1)
    assert drop_expired(target, EXPIRES_AFTER) == target


def test_not_more_waits_than_can_be_read() -> None:
    target = TargetOutbox()
    for number in range(MOST_WAITING + 7):
        target = queue_item(target, message(str(number)))
    assert (len(target.waiting), target.given_up, ids(target)[0]) == (MOST_WAITING, 7, "7")


def test_a_clock_that_was_set_back_keeps_nothing_for_years() -> None:
    target = record_failure(queue_item(TargetOutbox(), message("a", 1e9)), "a", "refused", 1e9, lambda: 1.0)
    due = find_next_due(target, 0.0)
    assert due is not None
    assert due <= 2 * 3600


def test_a_ping_stands_in_place_of_what_it_makes_out_of_date() -> None:
    target = queue_item(queue_item(TargetOutbox(), ping("1", "start")), ping("2", "failure"))
    assert ids(target) == ["2"]
    target = queue_item(target, ping("3", "start"))
    assert ids(target) == ["2", "3"], "that the last run failed is yet to be told"
    target = queue_item(target, ping("other", "success", "home"))
    assert ids(queue_item(target, ping("4", "success"))) == ["other", "4"]


@given(st.lists(st.tuples(st.sampled_from(["put", "fail", "sent"]), st.floats(0.0, 4000.0)), max_size=60))
def test_all_is_sent_in_order_and_nothing_is_lost_before_it_expires(steps: list[tuple[str, float]]) -> None:
    target, now, made, through = TargetOutbox(), 0.0, 0, []
    for what, pause in steps:
        now += pause
        if what == "put":
            target, made = queue_item(target, message(str(made), now)), made + 1
        elif target.waiting:
            first = target.waiting[0].item.id
            if what == "fail":
                target = record_failure(target, first, "refused", now, lambda: 0.0)
            else:
                target = record_sent(target, first, now)
                through.append(int(first))
    assert through == sorted(through)
    assert len(through) + len(target.waiting) + target.given_up >= made
    assert all(int(one.item.id) < int(two.item.id) for one, two in pairwise(target.waiting))
