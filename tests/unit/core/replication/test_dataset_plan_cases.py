"""The plan for one dataset, case by case: which streams, from what, and what a conflict says."""

import pytest

from tests.unit.core.replication.dataset_plans import aborted, snap, streams, vault
from tests.unit.core.replication.zfs_model import ours
from zvault.core.model import Bookmark, Dataset, Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.dataset_plan import DatasetCase, plan_transfer
from zvault.core.replication.plan_model import (
    MOST_IN_A_STREAM,
    InterruptedReceive,
    TransferAction,
    TransferPolicy,
    TransferStep,
    list_sent_by,
    make_incremental_steps,
)


def mark(number: int) -> Bookmark:
    return Bookmark(DatasetName("tank/a"), f"b{number}", 100 + number, number, number)


def source(*points: Snapshot | Bookmark) -> Dataset:
    return Dataset(
        DatasetName("tank/a"),
        1,
        "filesystem",
        snapshots=tuple(point for point in points if isinstance(point, Snapshot)),
        bookmarks=tuple(point for point in points if isinstance(point, Bookmark)),
    )


def test_a_new_dataset_goes_in_full_and_its_history_after_it() -> None:
    made = plan_transfer(DatasetCase(source(snap(1), snap(2), snap(3)), "cold/a", None), ours)
    assert made.action is TransferAction.FULL
    assert streams(made) == [
        ("", None, "tank/a@zvault_1"),
        ("-I", "tank/a@zvault_1", "tank/a@zvault_3"),
    ]
    assert (made.reason, made.pending) == ("the vault has no cold/a", 3)


def test_neighbours_go_in_one_stream_and_what_is_not_ours_is_jumped() -> None:
    made = plan_transfer(
        DatasetCase(
            source(snap(1), snap(2), snap(3), snap(4, "by-hand"), snap(5), snap(6)), "cold/a", vault(1)
        ),
        ours,
    )
    assert streams(made) == [
        ("-I", "tank/a@zvault_1", "tank/a@zvault_3"),
        ("-i", "tank/a@zvault_3", "tank/a@zvault_5"),
        ("-i", "tank/a@zvault_5", "tank/a@zvault_6"),
    ]
    assert made.reason == "the newest snapshot both sides share is zvault_1"


def test_a_bookmark_starts_only_the_first_single_step() -> None:
    made = plan_transfer(DatasetCase(source(mark(1), snap(2), snap(3), snap(4)), "cold/a", vault(1)), ours)
    assert streams(made) == [
        ("-i", "tank/a#b1", "tank/a@zvault_2"),
        ("-I", "tank/a@zvault_2", "tank/a@zvault_4"),
    ]
    assert made.reason == "the newest bookmark both sides share is b1"


def test_a_snapshot_is_preferred_to_a_bookmark_of_it() -> None:
    made = plan_transfer(DatasetCase(source(mark(1), snap(1), snap(2), snap(3)), "cold/a", vault(1)), ours)
    assert streams(made) == [("-I", "tank/a@zvault_1", "tank/a@zvault_3")]


def test_an_older_snapshot_that_never_arrived_stays_behind() -> None:
    made = plan_transfer(DatasetCase(source(snap(1), snap(2), snap(3)), "cold/a", vault(2)), ours)
    assert streams(made) == [("-i", "tank/a@zvault_2", "tank/a@zvault_3")]


def test_a_vault_that_is_up_to_date_says_with_what() -> None:
    made = plan_transfer(DatasetCase(source(snap(1)), "cold/a", vault(1)), ours)
    assert (made.action, made.reason) == (TransferAction.NOTHING, "the vault has was1, the newest")


def test_a_source_without_our_snapshots_has_nothing_to_send() -> None:
    made = plan_transfer(DatasetCase(source(snap(1, "by-hand")), "cold/a", None), ours)
    assert (made.action, made.reason) == (
        TransferAction.NOTHING,
        "the source has no snapshot made by zvault yet",
    )


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        (vault(), "holds no snapshot"),
        (vault(77), "have no snapshot or bookmark in common"),
        (vault(1, 77), "cold/a has was77, newer than the base was1 and unknown to the source"),
        (vault(1, written=8192), "was written to after was1 (8192 bytes)"),
    ],
)
def test_a_conflict_says_why_and_what_to_do(there: Dataset, reason: str) -> None:
    made = plan_transfer(DatasetCase(source(snap(1), snap(2)), "cold/a", there), ours)
    assert made.action is TransferAction.CONFLICT
    assert reason in made.reason
    assert "cold/a" in made.next
    assert made.steps == ()


def test_the_advice_for_a_conflict_begins_with_what_loses_nothing() -> None:
    made = plan_transfer(DatasetCase(source(snap(1), snap(2)), "cold/a", vault(1, 77, written=8192)), ours)
    rename, rollback = made.next.index("zfs rename cold/a"), made.next.index("zfs rollback -r cold/a@was1")
    assert rename < rollback
    assert "destroys @was77 and 8K written since for good" in made.next


def test_an_interrupted_receive_is_resumed_and_the_rest_follows() -> None:
    there = vault(1, token="t")
    case = DatasetCase(
        source(snap(1), snap(2), snap(3), snap(4)), "cold/a", there, interrupted=InterruptedReceive("t", 102)
    )
    made = plan_transfer(case, ours)
    assert made.action is TransferAction.RESUME
    assert made.steps[0] == TransferStep(
        TransferAction.RESUME,
        snap(2),
        token="t",
        reason="an interrupted receive of zvault_2 waits on the vault",
    )
    assert streams(made)[1:] == [("-I", "tank/a@zvault_2", "tank/a@zvault_4")]
    assert made.pending == 3


@pytest.mark.parametrize(
    ("interrupted", "why"),
    [
        (InterruptedReceive("t", 102, "used in the initial send no longer exists"), "no longer exists"),
        (InterruptedReceive("t", 999), "the snapshot it was sending is gone from the source"),
        (InterruptedReceive("t", 103, from_guid=0), "starts from another snapshot"),
        (InterruptedReceive("t", 103, from_guid=102), "starts from another snapshot"),
        (InterruptedReceive("t", 103, pool="other"), "for the pool other, not tank"),
    ],
)
def test_a_stale_token_is_given_up_with_its_reason(interrupted: InterruptedReceive, why: str) -> None:
    made = plan_transfer(
        DatasetCase(source(snap(1), snap(3)), "cold/a", vault(1, token="t"), interrupted=interrupted), ours
    )
    assert made.action is TransferAction.INCREMENTAL
    assert why in aborted(made)
    assert streams(made) == [("-i", "tank/a@zvault_1", "tank/a@zvault_3")]


def test_who_may_destroy_nothing_on_the_vault_says_who_can_give_a_stale_token_up() -> None:
    case = DatasetCase(
        source(snap(1), snap(3)), "cold/a", vault(1, token="t"), interrupted=InterruptedReceive("t", 999)
    )
    made = plan_transfer(case, ours, TransferPolicy(destroys=False))
    assert (made.action, made.changes, made.pending) == (TransferAction.CONFLICT, (), 2)
    assert "gone from the source; this host may not give it up" in made.reason
    assert made.next == "run 'zfs receive -A cold/a' on the vault's host"


@pytest.mark.parametrize("numbers", [(), (1,)])
def test_a_token_that_starts_from_what_was_received_is_resumed(numbers: tuple[int, ...]) -> None:
    interrupted = InterruptedReceive("t", 103, from_guid=101 if numbers else 0, pool="tank")
    there = vault(*numbers, token="t")
    made = plan_transfer(
        DatasetCase(source(snap(1), snap(3)), "cold/a", there, interrupted=interrupted), ours
    )
    assert made.action is TransferAction.RESUME


def test_a_full_receive_that_cannot_be_resumed_begins_anew() -> None:
    made = plan_transfer(
        DatasetCase(source(snap(3)), "cold/a", vault(token="t"), interrupted=InterruptedReceive("t", 102)),
        ours,
    )
    assert made.action is TransferAction.FULL
    assert aborted(made)


def test_a_very_long_backlog_comes_in_several_streams_that_follow_on_each_other() -> None:
    snapshots = tuple(snap(number) for number in range(1, MOST_IN_A_STREAM + 12))
    steps = list(make_incremental_steps(snapshots, snapshots[0], snapshots[1:]))
    assert [(step.base, step.to) for step in steps] == [
        (snapshots[0], snapshots[MOST_IN_A_STREAM]),
        (snapshots[MOST_IN_A_STREAM], snapshots[-1]),
    ]
    assert [snap for step in steps for snap in list_sent_by(step, snapshots)] == list(snapshots[1:])
