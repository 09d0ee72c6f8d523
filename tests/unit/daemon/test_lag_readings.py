"""A lag that is read again and again lists nothing that events tell of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.unit.ops.no_keys import NoKeys
from tests.unit.ops.ops_world import START, context, dataset, snap, tree, with_source, with_vault
from zvault.core.model import Tree
from zvault.daemon.lag_readings import LagReadings


class Side(NoKeys):
    """One that lists only what changed: whoever wants sizes has all its datasets listed."""

    def __init__(self, there: Tree) -> None:
        self.there = there
        self.host = self

    async def tree(self, _: str, *, sizes: bool = True) -> Tree:
        assert not sizes
        return self.there

    tree_or_none = tree

    async def run(self, *_: Any, **__: Any) -> Any:
        """Asked for the proofs, of which there is none."""
        return SimpleNamespace(returncode=0, stdout="")


async def test_no_sizes_are_asked_for_a_lag() -> None:
    where = context(START + 9000)
    with_source(where, Side(tree(dataset("tank", snap(1), snap(2)))))
    with_vault(where, Side(tree(dataset("cold/host/tank", snap(1, "cold/host/tank")))))

    async def state(_: str) -> Any:
        return SimpleNamespace(guid=1)

    where.clients.zpool = SimpleNamespace(state=state)  # type: ignore[assignment]
    readings = LagReadings(where)
    await readings.refresh(where.env.backup("b"), lambda: False)
    lags = readings.lags.get("b")
    assert lags is not None
    assert lags["tank"].pending == 1
