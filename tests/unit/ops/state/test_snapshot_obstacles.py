"""Of which datasets no snapshot can be made: told also where one of them cannot be listed."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from tests.unit.ops.ops_world import context
from zvault.core.names import DatasetName
from zvault.core.replication.snapshot_refusal import SnapshotFacts
from zvault.ops.state.snapshot_obstacles import find_snapshot_obstacles
from zvault.zfs.whole_listing import PartialListing


class Source:
    """A source of which a dataset is damaged, and another half received."""

    async def snapshot_facts(self, names: Sequence[str], *, below: bool = False) -> list[SnapshotFacts]:
        if below:
            raise PartialListing("'tank' cannot be listed whole")
        return [SnapshotFacts(DatasetName(name), inconsistent=name == "tank/half") for name in names]


async def test_a_dataset_that_cannot_be_listed_hides_no_other() -> None:
    where = context()
    clients: Any = SimpleNamespace(source_of=lambda _: Source())
    found = await find_snapshot_obstacles(clients, where.env.backup("b"), ["tank", "tank/half"])
    assert list(found) == ["tank/half"]
