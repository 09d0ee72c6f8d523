"""What is said of a snapshot before a run is what the run does with it, whatever befell the pools."""

from __future__ import annotations

from datetime import UTC

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.unit.core.replication.pool_histories import after, histories, ours, pairing, planned
from tests.unit.examples import cases
from zvault.core.model import Bookmark, Dataset, Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.dataset_plan import DatasetCase, plan_transfer
from zvault.core.replication.lag import DatasetLag, describe_lag_basis, measure_dataset_lag
from zvault.core.replication.plan_model import TransferPolicy
from zvault.core.replication.sent_reason import SnapshotFate, find_blocking_plan, find_snapshot_fate

NAME, TARGET = DatasetName("tank/a"), DatasetName("cold/a")


@settings(max_examples=cases(1000))
@given(histories(20), st.sampled_from(["stop", "rollback", "new-dataset"]))
def test_what_is_said_is_what_a_run_does(history: bytes, on_conflict: str) -> None:
    two = after(history)
    found, plans = pairing(two), planned(two, on_conflict)
    pairs = {pair.source.name: pair for pair in found.pairs}
    by_name = {plan.dataset: plan for plan in plans}
    fates: list[tuple[Snapshot, SnapshotFate, DatasetName]] = []
    before = {snap.guid for data in two.vault.data.values() for snap in data.snaps}
    for plan in plans:
        pair = pairs[plan.dataset]
        there = {snap.guid for snap in pair.vault.snapshots} if pair.vault is not None else set()
        for snap in pair.source.snapshots:
            fate = find_snapshot_fate(
                snap, plan, pair.source, there, wanted=ours, blocked_by=find_blocking_plan(plan, by_name)
            )
            assert (fate.fate == "there") == (snap.guid in there)
            assert fate.reason
            event(fate.fate)
            fates.append((snap, fate, plan.target))
    two.carry_out(plans)
    for snap, fate, target in fates:
        came = target in two.vault.data and any(one.guid == snap.guid for one in two.vault.data[target].snaps)
        if fate.fate == "to be sent":
            # One that another dataset of the vault had already may end there: a promote takes it over by its GUID.
            assert came or snap.guid in before, (snap, fate)
        elif fate.fate in ("not sent", "blocked"):
            assert not came or snap.guid in before, (snap, fate)


def snap(number: int, name: str = "zvault_") -> Snapshot:
    return Snapshot(NAME, f"{name}{number}", number, number, number * 3600)


def dataset(name: DatasetName, *points: Snapshot, **fields: object) -> Dataset:
    return Dataset(name, 1, "filesystem", snapshots=points, **fields)


def fates(source: Dataset, vault: Dataset | None, **policy: object) -> dict[str, tuple[str, str]]:
    made = TransferPolicy(**policy)
    plan = plan_transfer(DatasetCase(source, TARGET, vault), ours, made)
    there = {one.guid for one in vault.snapshots} if vault is not None else set()
    told = {}
    for one in source.snapshots:
        fate = find_snapshot_fate(one, plan, source, there, wanted=ours, newest_only=made.newest_only)
        told[one.snapname] = (fate.fate, fate.reason)
    return told


def test_a_foreign_snapshot_is_not_sent_and_says_how_it_would_be() -> None:
    source = dataset(NAME, snap(1), snap(2, "by-hand-"))
    told = fates(source, None)
    assert told["zvault_1"] == ("to be sent", "full: the vault has nothing of this dataset")
    assert told["by-hand-2"][0] == "not sent"
    assert "also" in told["by-hand-2"][1]


def test_what_is_older_than_the_base_is_never_sent() -> None:
    told = fates(dataset(NAME, snap(1), snap(2), snap(3)), dataset(TARGET, snap(2)))
    assert told["zvault_1"] == ("not sent", "streams go on from zvault_2, which is newer, and never back")
    assert told["zvault_2"][0] == "there"
    assert told["zvault_3"] == ("to be sent", "incremental: the snapshot after zvault_2")


def test_a_backlog_of_the_newest_leaves_the_others() -> None:
    told = fates(dataset(NAME, snap(1), snap(2), snap(3)), dataset(TARGET, snap(1)), newest_only=True)
    assert told["zvault_2"] == ("not sent", "backlog is 'newest': only the newest of several goes")
    assert told["zvault_3"][0] == "to be sent"


def test_a_conflict_blocks_what_is_newer() -> None:
    vault = dataset(TARGET, snap(1), snap(9, "local-"), written=1)
    assert fates(dataset(NAME, snap(1), snap(2)), vault)["zvault_2"] == (
        "blocked",
        "cold/a has local-9, newer than the base zvault_1 and unknown to the source",
    )


def test_a_bookmark_as_the_base_is_older_than_what_comes() -> None:
    mark = Bookmark(NAME, "zvault_1_1", 1, 1, 3600)
    source = dataset(NAME, snap(2), bookmarks=(mark,))
    assert fates(source, dataset(TARGET, snap(1)))["zvault_2"][0] == "to be sent"


@pytest.mark.parametrize(
    ("lag", "told"),
    [
        (DatasetLag("tank/a", None, None), "nobody has seen yet what the vault has of it"),
        (
            DatasetLag("tank/a", None, 3),
            "the vault has no snapshot of it that zvault made for this backup",
        ),
        (
            measure_dataset_lag([snap(1), snap(2), snap(3)], {1}),
            "the vault has @zvault_1, made 1970-01-01 01:00; the source has 2 newer ones",
        ),
        (
            measure_dataset_lag([snap(1)], {1}, unchanged={1: 7200.0}),
            "the vault has @zvault_1, made 1970-01-01 01:00, and nothing was written to the source until "
            "1970-01-01 02:00; the source has no newer one",
        ),
    ],
)
def test_what_a_lag_rests_on(lag: DatasetLag, told: str) -> None:
    assert describe_lag_basis(lag, UTC, 9e9) == told
