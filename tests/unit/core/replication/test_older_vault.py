"""What a plan becomes where the vault's store was put back: nothing in full, nothing set aside or rolled back."""

from __future__ import annotations

import pytest

from tests.unit.ops.ops_world import dataset, snap, vaulted
from zvault.core.model import Dataset
from zvault.core.names import DatasetName
from zvault.core.replication.dataset_plan import DatasetCase, plan_transfer
from zvault.core.replication.older_vault import keep_older_vault
from zvault.core.replication.plan_model import OnConflict, TransferAction, TransferPlan, TransferPolicy

TARGET = DatasetName("cold/host/tank")
OLD = vaulted(TARGET, 1, 2)
WHY, ADVICE = "it is older", "bring it back"


def planned(source: Dataset, vault: Dataset | None, on_conflict: OnConflict = "new-dataset") -> TransferPlan:
    made = plan_transfer(
        DatasetCase(source, TARGET, vault),
        lambda _: True,
        TransferPolicy(False, on_conflict, "20261127T090000Z"),
    )
    (kept,) = keep_older_vault([made], WHY, ADVICE)
    return kept


@pytest.mark.parametrize(
    ("source", "vault", "on_conflict"),
    [
        (dataset("tank", snap(7), snap(8)), None, "stop"),
        (dataset("tank", snap(7), snap(8)), OLD, "stop"),
        (dataset("tank", snap(7), snap(8)), OLD, "new-dataset"),
        (dataset("tank", snap(1), snap(8)), OLD, "rollback"),
        (dataset("tank", snap(1), snap(8)), OLD, "new-dataset"),
    ],
)
def test_nothing_is_begun_anew_over_it(
    source: Dataset, vault: Dataset | None, on_conflict: OnConflict
) -> None:
    kept = planned(source, vault, on_conflict)
    assert kept.action is TransferAction.CONFLICT
    assert (kept.steps, kept.changes, kept.next) == ((), (), ADVICE)
    assert kept.reason.endswith("the vault is not what it was: it is older")


def test_what_follows_on_a_base_is_sent() -> None:
    source = dataset("tank", snap(2), snap(8))
    kept = planned(source, OLD)
    assert kept.action is TransferAction.INCREMENTAL
    assert [step.to.guid for step in kept.steps] == [108]
    assert planned(dataset("tank", snap(1), snap(2)), OLD).action is TransferAction.NOTHING
