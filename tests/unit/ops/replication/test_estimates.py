"""How much is to be sent, by dataset: some streams are asked for at once, however many there are."""

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.unit.ops.ops_world import dataset, sides, snap
from zvault.core.names import DatasetName
from zvault.core.replication.plan_model import TransferAction, TransferPlan, TransferStep
from zvault.ops.replication.run_plan import ESTIMATES, Estimates

COUNT = 1000


class Source:
    """Tells one byte of each stream but every tenth, of which nobody knows."""

    def __init__(self) -> None:
        self.at_once = self.most = 0

    async def estimate(self, step: TransferStep, _: object) -> int | None:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        return 1 if step.to.guid % 10 else None


def test_each_stream_counts_once_and_few_are_asked_for_at_a_time() -> None:
    async def live() -> tuple[dict[str, int], int, int]:
        source = Source()
        opened: Any = SimpleNamespace(source=source, flags=lambda _: None)
        steps = tuple(TransferStep(TransferAction.INCREMENTAL, snap(number)) for number in range(COUNT))
        name = DatasetName("tank")
        plans = [
            TransferPlan(name, DatasetName("cold/host/tank"), TransferAction.INCREMENTAL, "", steps),
            TransferPlan(
                DatasetName("tank/idle"), DatasetName("cold/host/tank/idle"), TransferAction.NOTHING, ""
            ),
        ]
        both: Any = sides(dataset("tank"), None)
        asking = asyncio.create_task(Estimates(opened).by_dataset(plans, both))
        await asyncio.sleep(0)
        tasks = len(asyncio.all_tasks())
        return await asking, source.most, tasks

    sizes, most, tasks = asyncio.run(live())
    assert sizes == {"tank": sum(1 for number in range(COUNT) if snap(number).guid % 10)}
    assert most == ESTIMATES
    assert tasks <= ESTIMATES + 2
