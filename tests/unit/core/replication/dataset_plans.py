"""What happens to a dataset on both of its sides, drawn at random, and the plan that is made for it."""

from tests.unit.core.replication.zfs_model import OURS, World, ours
from zvault.core.model import Dataset, Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.dataset_plan import DatasetCase, plan_transfer
from zvault.core.replication.plan_model import (
    SnapshotFilter,
    TransferPlan,
    TransferPolicy,
)
from zvault.core.replication.vault_changes import AbortReceive

CASES = {
    "what is wanted": 2500,
    "fewest streams": 1000,
    "conflicts": 1000,
    "bases": 1000,
    "nothing left": 1000,
}


# Histories: what may befall the two sides, in any order.


def aborted(plan: TransferPlan) -> str:
    """Why the vault's resume token is of no use and has to go; empty where it does not."""
    return next((change.reason for change in plan.changes if isinstance(change, AbortReceive)), "")


def plan(world: World, *, newest_only: bool = False, wanted: SnapshotFilter = ours) -> TransferPlan:
    base = newest_common(world)
    case = DatasetCase(
        world.source_dataset(),
        world.target,
        world.vault_dataset(),
        interrupted=world.interrupted(),
        unchanged=base is not None and not world.written and world.quiet.issuperset(world.after(base)),
    )
    return plan_transfer(case, wanted, TransferPolicy(newest_only))


def newest_common(world: World) -> int | None:
    """By brute force: walk the vault back until a GUID is on the source."""
    known = {point.guid for point in (*world.source, *world.marks)}
    return next((guid for guid in reversed(world.had()) if guid in known), None)


def snap(number: int, snapname: str | None = None, dataset: str = "tank/a") -> Snapshot:
    return Snapshot(DatasetName(dataset), snapname or f"{OURS}{number}", 100 + number, number, number)


def vault(*numbers: int, written: int = 0, token: str | None = None) -> Dataset:
    snapshots = tuple(
        Snapshot(DatasetName("cold/a"), f"was{number}", 100 + number, 900 + place, number)
        for place, number in enumerate(numbers)
    )
    return Dataset(
        DatasetName("cold/a"), 2, "filesystem", written=written, resume_token=token, snapshots=snapshots
    )


def streams(made: TransferPlan) -> list[tuple[str, str | None, str]]:
    return [
        (
            "-I" if step.intermediates else "-i" if step.base else "",
            step.base and step.base.name,
            step.to.name,
        )
        for step in made.steps
    ]
