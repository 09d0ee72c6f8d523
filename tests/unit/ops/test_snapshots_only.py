"""A backup without a vault makes snapshots, prunes them by its rules, and says that it sends nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.ops_world import (
    HOUR,
    START,
    context,
    dataset,
    sides,
    snap,
    snapname,
    tree,
    with_source,
)
from zvault.core.model import Snapshot, Tree
from zvault.core.replication.snapshot_refusal import SnapshotFacts
from zvault.ops.context import Context
from zvault.ops.forecast import make_forecast_document
from zvault.ops.hooks import RunHooks
from zvault.ops.list_documents import make_list_document
from zvault.ops.plan_documents import make_plan_document
from zvault.ops.replication.listing import list_both_sides
from zvault.ops.retention.prune_plan import plan_prune
from zvault.ops.run import BackupRun
from zvault.ops.run_outcome import RunOutcome
from zvault.ops.vaults.vault import Vaults


class Source:
    """A side that makes snapshots and destroys them."""

    def __init__(self, there: Tree) -> None:
        self.there = there
        self.host: Any = SimpleNamespace(address=None)
        self.lzc = self
        self.gone: list[str] = []
        self.kept: list[str] = []
        self.lapses: int | None = None

    async def tree(self, _: str, *, sizes: bool = True) -> Tree:
        return self.there

    async def snapshot(self, names: Sequence[str], _: object) -> None:
        for name in names:
            of, _, snapname_ = name.partition("@")
            before = self.there.datasets[of]
            new = Snapshot(before.name, snapname_, 900 + len(self.there.datasets), 900, START + 9 * HOUR)
            self.there.datasets[of] = dataset(of, *before.snapshots, new, *before.bookmarks)

    async def destroy(self, names: Sequence[str]) -> None:
        self.gone += names

    async def hold(self, names: Sequence[str], _: str) -> None:
        self.kept += names

    async def tagged(self, names: Sequence[str], _: str) -> set[str]:
        return set(names) & set(self.kept)

    async def holds(self, _: Sequence[str]) -> dict[str, set[str]]:
        return {}

    async def clones(self, _: Sequence[str]) -> dict[str, list[Any]]:
        return {}

    async def held(self, _: Any) -> dict[str, set[str]]:
        return {}

    async def snapshot_facts(self, names: Sequence[str], *, below: bool = False) -> list[SnapshotFacts]:
        return []

    async def range_space(self, ranges: Sequence[tuple[str, str]]) -> list[int]:
        return [7 for _ in ranges]


def world(tmp_path: Path, **backup: Any) -> tuple[Context, Source]:
    source = Source(tree(dataset("tank", snap(1), snap(2)), dataset("tank/new")))
    only = {"snapshots_only": True, "keep": {"source": {"last": 2}}}
    return with_source(context(START + 9 * HOUR, folder=tmp_path, **only, **backup), source), source


@pytest.fixture(autouse=True)
def no_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunHooks, "around", lambda *_: contextlib.nullcontext())


async def test_a_run_makes_a_snapshot_prunes_the_source_and_touches_no_vault(tmp_path: Path) -> None:
    where, source = world(tmp_path)
    outcome = RunOutcome()
    run = BackupRun(where, Vaults(where), "b", lambda _: None, outcome)
    await run._try()
    assert [one.newest() is not None for one in source.there] == [True, True]
    assert source.gone == [f"tank@{snapname(1)}"]
    assert (outcome.pruned, outcome.datasets, outcome.sent) == (1, 2, 0)
    assert outcome.made == {"tank": START + 9 * HOUR, "tank/new": START + 9 * HOUR}
    assert outcome.lags == {}


async def test_a_dataset_that_include_names_and_is_gone_makes_a_run_partial_and_the_others_are_taken(
    tmp_path: Path,
) -> None:
    where, source = world(tmp_path, include=["tank/new", "tank/renamed"])
    outcome = RunOutcome()
    run = BackupRun(where, Vaults(where), "b", lambda _: None, outcome)
    await run.execute()
    assert source.there.datasets["tank/new"].newest() is not None
    assert (outcome.result, outcome.datasets) == ("partial", 1)
    assert outcome.error is not None
    assert outcome.error.what == "there is no dataset 'tank/renamed'"
    source.there = tree(*source.there, dataset("tank/renamed"))
    again = RunOutcome()
    await BackupRun(where, Vaults(where), "b", lambda _: None, again).execute()
    assert (again.result, again.error) == ("ok", None)


async def test_what_another_backup_has_not_sent_yet_stays(tmp_path: Path) -> None:
    where, _ = world(tmp_path)
    config = where.env.config
    other = context(max_lag="3h").env.config.backup["b"].named("c")
    where.env.reconfigure(config.model_copy(update={"backup": {**config.backup, "c": other}}))
    (plan,) = plan_prune(
        where, where.env.backup("b"), await list_both_sides(where, where.env.backup("b"), None)
    )
    assert plan.side == "source"
    assert plan.selected == []
    # And it is none that has anything to send.
    both = plan_prune(where, other, await list_both_sides(where, other, None))
    assert all("backup b" not in verdict.reason for one in both for verdict in one.verdicts)


async def test_plan_and_forecast_say_that_nothing_is_sent(tmp_path: Path) -> None:
    where, _ = world(tmp_path)
    backup = where.env.backup("b")
    plan = await make_plan_document(where, Vaults(where), backup, bring_up=True)
    assert (plan["vault"], {row["action"] for row in plan["datasets"]}) == (None, {"nothing"})
    assert [row["snapshot"] for row in plan["prune"] if not row["keep"]] == []
    told = await make_forecast_document(where, backup)
    assert (told["vault"], told["vault_seen"], told["snapshotted"]) == (None, True, ["tank", "tank/new"])
    assert [row["snapshot"] for row in told["prune"] if not row["keep"]] == [f"tank@{snapname(1)}"]
    listed = await make_list_document(where, Vaults(where), "b")
    assert [(row["dataset"], row["lag_seconds"], row["snapshots_vault"]) for row in listed["datasets"]] == [
        ("tank", None, None),
        ("tank/new", None, None),
    ]


async def test_one_that_only_prunes_makes_nothing_holds_the_newest_and_keeps_what_is_too_young(
    tmp_path: Path,
) -> None:
    where, source = world(tmp_path, snapshot={"make": False}, prune_limit="100%")
    source.there = tree(dataset("tank", *(snap(number) for number in range(1, 7))))
    await BackupRun(where, Vaults(where), "b", lambda _: None, RunOutcome())._try()
    assert source.kept == [f"tank@{snapname(6)}"]
    assert source.gone == [f"tank@{snapname(number)}" for number in (1, 2, 3, 4)]
    source.gone.clear()
    young = where.env.config.vault["cold"].model_copy(update={"pool": "tank", "min_age": 6.5 * HOUR})
    where.env.reconfigure(where.env.config.model_copy(update={"vault": {"cold": young}}))
    await BackupRun(where, Vaults(where), "b", lambda _: None, RunOutcome())._try()
    assert source.gone == [f"tank@{snapname(number)}" for number in (1, 2)], "the others are below min_age"


async def test_where_the_vaults_host_prunes_nothing_there_is_judged_held_or_released() -> None:
    where = context(START + 9 * HOUR, prune={"vault": "elsewhere"}, keep={"source": {"last": 1}})
    there = dataset("cold/host/tank", *(snap(number, "cold/host/tank") for number in (1, 2, 3)))
    plans = plan_prune(where, where.env.backup("b"), sides(dataset("tank", snap(2), snap(3)), there))
    assert [(plan.side, plan.replica) for plan in plans] == [("source", False)]
    assert [one.name for one in plans[0].selected] == [f"tank@{snapname(2)}"]
