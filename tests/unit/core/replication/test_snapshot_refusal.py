"""What is known before a snapshot, and what ZFS's errno means: with advice that helps, or none."""

from __future__ import annotations

import errno
import os

import pytest

from tests.unit.ops.ops_world import dataset, snap
from zvault.core.names import DatasetName
from zvault.core.replication.snapshot_refusal import (
    SnapshotAnswer,
    SnapshotFacts,
    explain_refusal,
    find_half_received,
    find_obstacle,
)

VM = DatasetName("tank/vm")
MIB = 1 << 20


def test_a_half_received_dataset_is_known_by_its_token_and_no_snapshot() -> None:
    half = find_half_received(dataset("tank", resume_token="1-abc"))
    assert half is not None
    assert "'zfs receive -A tank'" in half.next
    assert find_half_received(dataset("tank")) is None


def test_an_incremental_stream_that_waits_keeps_no_dataset_from_being_snapshotted() -> None:
    assert find_half_received(dataset("tank", snap(1), resume_token="1-abc")) is None


def test_what_is_received_without_a_token_is_waited_for() -> None:
    found = find_obstacle(SnapshotFacts(VM, inconsistent=True))
    assert found is not None
    assert "-A" not in found.next
    assert "wait" in found.next


@pytest.mark.parametrize(
    ("alone", "available", "refused"),
    [
        # As seen in the lab (OpenZFS 2.3.9): a volume of 150M with 120M written, in a pool with 41M free.
        (126468096, 78864384, True),
        (126468096, 35536896 + 126468096, False),
        (0, 78864384, False),
    ],
)
def test_a_reservation_wants_what_was_written_once_more(alone: int, available: int, refused: bool) -> None:
    facts = SnapshotFacts(
        VM,
        "volume",
        refreservation=162004992,
        referenced_alone=alone,
        reserved_rest=35536896,
        available=available,
    )
    assert (find_obstacle(facts) is not None) == refused


def test_the_advice_for_a_thick_volume_says_how_much_and_what_else() -> None:
    found = explain_refusal(
        VM,
        SnapshotAnswer(errno.ENOSPC, "No space left on device"),
        SnapshotFacts(VM, "volume", refreservation=200 * MIB, referenced_alone=150 * MIB, available=50 * MIB),
    )
    assert "150M free" in found.why
    assert found.next.startswith("free 100M in pool tank")
    assert "'zfs set refreservation=none tank/vm'" in found.next


@pytest.mark.parametrize("code", range(1, 134))
def test_every_errno_is_told_and_none_is_tried_again(code: int) -> None:
    found = explain_refusal(VM, SnapshotAnswer(code, os.strerror(code)))
    assert found.what == "tank/vm cannot be snapshotted"
    assert found.why
    assert not found.retryable
    assert "run it again" not in found.next
    assert "{" not in found.next


def test_what_is_not_known_is_told_as_it_is() -> None:
    found = explain_refusal(VM, SnapshotAnswer(0, ""))
    assert (found.why, found.next) == ("ZFS did not say why", "")
