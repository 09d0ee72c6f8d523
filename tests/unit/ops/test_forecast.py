"""What a run is said to do before it begins, asked of pools that can only be read."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.api.conforms import wrong
from tests.unit.ops.no_keys import NoKeys
from tests.unit.ops.ops_world import (
    HOUR,
    START,
    context,
    dataset,
    snap,
    snapname,
    tree,
    with_source,
    with_vault,
)
from zvault.api.backups import ForecastDocument
from zvault.core.model import Tree
from zvault.core.names import DatasetName
from zvault.core.replication.base_names import make_hold_tag
from zvault.core.replication.plan_model import TransferStep
from zvault.core.replication.snapshot_refusal import SnapshotFacts
from zvault.ops.context import Context
from zvault.ops.forecast import make_forecast_document

POOL = 0xC01D
TARGET = "cold/host/tank"


class ReadOnly(NoKeys):
    """A side that lists and tells sizes. Whoever would change anything finds no function for it."""

    def __init__(self, there: Tree) -> None:
        self.host = self
        self.there = there
        self.lzc = self
        self.asked: list[TransferStep] = []
        self.full: set[str] = set()

    async def snapshot_facts(self, names: Sequence[str], *, below: bool) -> list[SnapshotFacts]:
        return [
            SnapshotFacts(one.name, refreservation=9, referenced_alone=9 if one.name in self.full else 0)
            for one in self.there
        ]

    async def run(self, argv: Sequence[str], **_: Any) -> Any:
        """Asked for what lies beside the root on the vault, and for properties, of which none is set."""
        assert argv[1] in {"list", "get"}
        return SimpleNamespace(returncode=0, stdout="", stderr="")

    async def tree(self, _: str, *, sizes: bool = True) -> Tree:
        assert sizes
        return self.there

    tree_or_none = tree

    async def names(self, _: str) -> list[DatasetName]:
        """Its pool has nothing else."""
        return []

    async def estimate(self, step: TransferStep, _: object) -> int:
        assert step.to.guid > 0, "ZFS is asked of what there is"
        self.asked.append(step)
        return 1000

    async def holds(self, names: Sequence[str]) -> dict[str, set[str]]:
        """On the source the newest is held as the base; nobody holds anything on the vault."""
        sources = [one for one in self.there if one.name.pool == "tank"]
        held = {snap.name: {make_hold_tag(POOL)} for one in sources for snap in one.snapshots[-1:]}
        return {name: held[name] for name in names if name in held}

    async def clones(self, _: Sequence[str]) -> dict[str, list[Any]]:
        return {}

    async def range_space(self, ranges: Sequence[tuple[str, str]]) -> list[int]:
        return [7 for _ in ranges]


def world(source: Tree, vault: Tree | None, **backup: Any) -> Context:
    """At hour 9."""
    where = context(START + 9 * HOUR, **backup)
    with_source(where, ReadOnly(source))

    async def state(_: str) -> Any:
        return SimpleNamespace(guid=POOL) if vault is not None else None

    where.clients.zpool = SimpleNamespace(state=state)  # type: ignore[assignment]
    with_vault(where, ReadOnly(vault if vault is not None else Tree()))
    return where


async def told(where: Context, **how: Any) -> ForecastDocument:
    found = await make_forecast_document(where, where.env.backup("b"), **how)
    assert list(wrong(found, ForecastDocument)) == []
    return found


KEEP_TWO = {"keep": {"source": {"last": 2}, "vault": {"last": 2}}}


async def test_it_counts_the_snapshot_that_the_run_would_make() -> None:
    source = tree(dataset("tank", snap(1), snap(2), written=50), dataset("tank/new", written=30))
    vault = tree(dataset(TARGET, snap(1, TARGET), snap(2, TARGET)))
    found = await told(world(source, vault, **KEEP_TWO))
    assert (found["snapshot"], found["snapshotted"]) == (snapname(9), ["tank", "tank/new"])
    assert [(row["dataset"], row["action"]) for row in found["datasets"]] == [
        ("tank", "incremental"),
        ("tank/new", "full"),
    ]
    assert [row["steps"][0]["bytes"] for row in found["datasets"]] == [50, 30]
    # Of three snapshots two stay, though the second is held as the base until the new one is there.
    pruned = [(row["side"], row["snapshot"]) for row in found["prune"] if not row["keep"]]
    assert pruned == [("source", f"tank@{snapname(1)}"), ("vault", f"{TARGET}@{snapname(1)}")]
    assert found["freed"] == {"source": 7, "vault": 7}


async def test_right_after_a_run_the_next_snapshot_is_named_for_the_next_second() -> None:
    """As the run would name it: of this second there is one already, and on the vault the same."""
    source = tree(dataset("tank", snap(8), snap(9), written=50))
    vault = tree(dataset(TARGET, snap(8, TARGET), snap(9, TARGET)))
    found = await told(world(source, vault))
    assert found["snapshot"] == snapname(9).replace(":40Z", ":41Z") != snapname(9)
    assert [row["action"] for row in found["datasets"]] == ["incremental"]


async def test_a_base_whose_hold_is_released_by_then_is_pruned() -> None:
    keep = {"keep": {"source": {"last": 1}, "vault": {"last": 1}}}
    source = tree(dataset("tank", snap(2), written=50))
    found = await told(world(source, tree(dataset(TARGET, snap(2, TARGET))), **keep))
    assert [row["snapshot"] for row in found["prune"] if not row["keep"]] == [
        f"tank@{snapname(2)}",
        f"{TARGET}@{snapname(2)}",
    ]


async def test_what_cannot_be_snapshotted_is_told_and_not_imagined() -> None:
    source = tree(dataset("tank", snap(1), written=50), dataset("tank/vm", written=30))
    where = world(source, tree(dataset(TARGET, snap(1, TARGET))))
    where.clients.source_at(None).full = {"tank/vm"}  # type: ignore[attr-defined]
    found = await told(where)
    assert found["snapshotted"] == ["tank"]
    assert [one["dataset"] for one in found["not_snapshotted"]] == ["tank/vm"]
    assert [row["action"] for row in found["datasets"]] == ["incremental", "nothing"]


async def test_without_a_snapshot_it_tells_what_there_is_to_send() -> None:
    source = tree(dataset("tank", snap(1), snap(2), written=50))
    found = await told(world(source, tree(dataset(TARGET, snap(1, TARGET)))), snapshot=False)
    assert (found["snapshot"], found["snapshotted"]) == (None, [])
    (row,) = found["datasets"]
    assert (row["steps"][0]["to"], row["steps"][0]["bytes"]) == (snapname(2), 1000)


async def test_what_is_unchanged_would_be_left_out() -> None:
    source = tree(dataset("tank", snap(2), written=50), dataset("tank/a", snap(1, "tank/a")))
    there = dataset(f"{TARGET}/a", snap(1, f"{TARGET}/a"))
    where = world(source, tree(dataset(TARGET, snap(2, TARGET)), there), snapshot={"skip_unchanged": True})
    found = await told(where)
    assert found["snapshotted"] == ["tank"]
    assert [(row["dataset"], row["action"]) for row in found["datasets"]] == [
        ("tank", "incremental"),
        ("tank/a", "nothing"),
    ]


async def test_of_a_vault_that_is_down_nothing_is_said() -> None:
    source = tree(dataset("tank", snap(1), written=50))
    found = await told(world(source, None))
    assert not found["vault_seen"]
    assert [(row["action"], row["written"], row["steps"]) for row in found["datasets"]] == [
        ("unknown", 50, [])
    ]
    assert (found["prune"], found["freed"], found["gone"]) == ([], {}, [])
    assert found["snapshot"] == snapname(9)


async def test_a_vault_that_is_exported_while_it_is_listed_is_not_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where = world(tree(dataset("tank", snap(1))), Tree())
    answers = iter([SimpleNamespace(guid=POOL), None])

    async def state(_: str) -> Any:
        return next(answers)

    monkeypatch.setattr(where.clients.zpool, "state", state)
    found = await told(where)
    assert (found["vault_seen"], found["datasets"][0]["action"]) == (False, "unknown")


async def test_what_is_refused_says_why() -> None:
    source = tree(dataset("tank", snap(1), written=50))
    found = await told(world(source, tree(dataset(TARGET, snap(5, TARGET)))), refused="a run is under way")
    assert found["refused"] == "a run is under way"
    (row,) = found["datasets"]
    assert row["action"] == "conflict"
    assert "no snapshot or bookmark in common" in row["reason"]
    assert row["next"]
