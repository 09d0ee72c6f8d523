"""Snapshots keep their own time: made whatever the vault does, and pruned by what the source says that it has."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.ops_world import HOUR, START, context, dataset, snap, tree, with_source
from tests.unit.ops.test_snapshots_only import Source
from zvault.core.errors import DeviceGone, HeldElsewhere, HostUnreachable, Refused, ZvaultError
from zvault.core.model import Bookmark, Dataset
from zvault.core.names import DatasetName
from zvault.core.replication.base_names import make_disproved_mark_name, make_mark_name
from zvault.core.replication.snapshot_refusal import SnapshotFacts
from zvault.ops.context import Context
from zvault.ops.hooks import RunHooks
from zvault.ops.replication.listing import list_both_sides
from zvault.ops.retention.prune_plan import plan_prune
from zvault.ops.run import BackupRun
from zvault.ops.run_outcome import RunOutcome
from zvault.ops.snapshot_run import SnapshotRun
from zvault.ops.state.pool_book import SeenPool
from zvault.zfs.changes import LzcFailure

POOL, OTHER = 77, 78
NOW = START + 9 * HOUR


class Refusing(Source):
    """One whose datasets may refuse a snapshot."""

    refuses: frozenset[str] = frozenset()
    away = False

    async def tree(self, root: str, *, sizes: bool = True) -> Any:
        if self.away:
            raise HostUnreachable("filer does not answer")
        return await super().tree(root, sizes=sizes)

    async def snapshot(self, names: Sequence[str], properties: object) -> None:
        if bad := [name for name in names if name.partition("@")[0] in self.refuses]:
            raise LzcFailure("snapshot", "", [(name, "NoSpace", 28) for name in bad])
        await super().snapshot(names, properties)

    async def snapshot_facts(self, names: Sequence[str], *, below: bool = False) -> list[SnapshotFacts]:
        return [SnapshotFacts(DatasetName(name)) for name in names]


def marked(name: str, number: int, pool: int = POOL) -> Bookmark:
    """The bookmark that tells that a pool has the snapshot of hour ``number``."""
    of = snap(number, name)
    return Bookmark(DatasetName(name), make_mark_name(pool, of.guid), of.guid, of.createtxg, of.creation)


def taken_back(name: str, number: int) -> Bookmark:
    """One that tells no more that the pool has it: a look has disproved that."""
    return replace(marked(name, number), markname=make_disproved_mark_name(POOL, snap(number, name).guid))


def history(name: str = "tank", *marks: Bookmark) -> Dataset:
    """Snapshots of hours 1 to 8."""
    return dataset(name, *(snap(number, name) for number in range(1, 9)), *marks)


def world(folder: Path, *datasets: Dataset, seen: bool = True, **backup: Any) -> tuple[Context, Refusing]:
    source = Refusing(tree(*datasets))
    table = {"keep": {"source": {"last": 2}}, "prune_limit": "100%", "retries": 2, **backup}
    where = with_source(context(NOW, folder=folder, **table), source)
    if seen:
        vault = where.env.vault("cold")
        where.records.pools.note(POOL, SeenPool.of(vault))
    return where, source


@pytest.fixture(autouse=True)
def no_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunHooks, "around", lambda *_: contextlib.nullcontext())


async def make(where: Context, *, may_prune: bool = True) -> RunOutcome:
    outcome = RunOutcome()
    await SnapshotRun(where, "b", lambda _: None, outcome, "r", lambda: may_prune).execute()
    return outcome


def left(source: Source, name: str = "tank") -> list[int]:
    """The hours of the snapshots that were not destroyed; those made now are left out."""
    of = source.there.datasets[name].snapshots
    return [one.guid - 100 for one in of if one.name not in source.gone and one.guid < 900]


async def test_what_the_vault_has_expires_and_what_it_lacks_stays(tmp_path: Path) -> None:
    where, source = world(tmp_path, history("tank", marked("tank", 4)))
    outcome = await make(where)
    assert left(source) == [4, 5, 6, 7, 8], "the base, and what came since"
    assert (outcome.result, outcome.datasets, outcome.pruned) == ("ok", 1, 3)


@pytest.mark.parametrize("marks", [(), (marked("tank", 4, OTHER),)], ids=["none", "another vault's"])
async def test_where_no_bookmark_says_what_the_vault_has_all_stays(
    tmp_path: Path, marks: tuple[Bookmark, ...]
) -> None:
    where, source = world(tmp_path, history("tank", *marks))
    assert (await make(where)).pruned == 0
    assert left(source) == list(range(1, 9))


async def test_where_it_is_not_known_which_pool_the_vault_had_all_stays(tmp_path: Path) -> None:
    where, source = world(tmp_path, history("tank", marked("tank", 4)), seen=False)
    await make(where)
    assert left(source) == list(range(1, 9))


async def test_the_base_before_needs_its_bookmark_only(tmp_path: Path) -> None:
    where, source = world(tmp_path, history("tank", marked("tank", 3), marked("tank", 6)))
    await make(where)
    assert left(source) == [6, 7, 8]
    assert len(source.there.datasets["tank"].bookmarks) == 2


@pytest.mark.parametrize("backlog", ["all", "newest"])
async def test_a_vault_that_went_back_before_both_bases_loses_none_that_it_may_have(
    tmp_path: Path, backlog: str
) -> None:
    """What its bookmarks told was taken back: the base is older than all of them, and no one knows which it is."""
    where, source = world(
        tmp_path, history("tank", taken_back("tank", 5), taken_back("tank", 6)), backlog=backlog
    )
    await make(where)
    assert left(source) == list(range(1, 9))


async def test_where_only_the_newest_is_sent_they_do_not_pile_up(tmp_path: Path) -> None:
    where, source = world(tmp_path, history("tank", marked("tank", 4)), backlog="newest")
    await make(where)
    assert left(source) == [4, 8], "the base, and by the rules the last two, of which one was made now"


async def test_unless_nothing_is_known_to_be_on_the_vault(tmp_path: Path) -> None:
    where, source = world(tmp_path, history(), backlog="newest")
    await make(where)
    assert left(source) == list(range(1, 9))


async def test_while_a_run_is_at_work_nothing_is_pruned(tmp_path: Path) -> None:
    where, source = world(tmp_path, history("tank", marked("tank", 4)))
    assert (await make(where, may_prune=False)).pruned == 0
    assert source.there.datasets["tank"].newest() != snap(8)


async def test_it_makes_them_where_runs_do_not(tmp_path: Path) -> None:
    where, source = world(tmp_path, history(), snapshot={"make": False, "every": "15m"})
    await make(where)
    assert source.there.datasets["tank"].newest() != snap(8)


async def test_one_that_refuses_is_named_and_the_others_have_theirs(tmp_path: Path) -> None:
    half = dataset("tank/half", resume_token="1-abc")
    where, source = world(tmp_path, history(), history("tank/full"), half)
    source.refuses = frozenset({"tank/full"})
    outcome = await make(where)
    assert outcome.result == "partial"
    assert outcome.error is not None
    assert "tank/full" in outcome.error.why
    assert "tank/half" in outcome.error.why
    assert not outcome.error.retryable
    newest = {one.name: one.newest() for one in source.there}
    assert newest["tank"] != snap(8)
    assert newest["tank/full"] == snap(8, "tank/full")
    assert newest["tank/half"] is None


async def test_a_source_that_is_away_fails_it(tmp_path: Path) -> None:
    where, source = world(tmp_path, history())
    source.away = True
    outcome = await make(where)
    assert (outcome.result, outcome.datasets) == ("failed", 0)
    assert isinstance(outcome.error, HostUnreachable)


# A run that cannot have its vault


class Away:
    """A vault that cannot be had."""

    def __init__(self, error: ZvaultError) -> None:
        self.error, self.asked = error, 0

    def __getitem__(self, _: str) -> Away:
        return self

    @contextlib.asynccontextmanager
    async def use(self, *_: object, **__: object) -> AsyncIterator[None]:
        self.asked += 1
        raise self.error
        yield


async def run(where: Context, vaults: Any, turn: Any = None, *, snapshot: bool = True) -> RunOutcome:
    outcome = RunOutcome()

    async def pause(_: float) -> bool:
        return True

    it = BackupRun(where, vaults, "b", lambda _: None, outcome, pause=pause, snapshot=snapshot, turn=turn)
    await it.execute()
    return outcome


async def test_a_run_that_cannot_have_its_vault_makes_its_snapshot_once_and_prunes(tmp_path: Path) -> None:
    where, source = world(tmp_path, history("tank", marked("tank", 4)))
    vaults = Away(DeviceGone("nbd0 is gone"))
    outcome = await run(where, vaults)
    assert vaults.asked == 3
    made = [one for one in source.there.datasets["tank"].snapshots if one.guid >= 900]
    assert len(made) == 1, "once, however often it is tried"
    assert left(source) == [4, 5, 6, 7, 8]
    assert (outcome.result, outcome.error, outcome.pruned) == ("failed", vaults.error, 3)
    assert outcome.datasets == 0, (
        "it did not get as far as a run does: one is due as soon as the vault is there"
    )


async def test_such_a_run_has_pruned_the_source_for_all_its_tries(tmp_path: Path) -> None:
    """prune_limit is a share for each run: the try that has its vault leaves the source alone."""
    where, source = world(tmp_path, history("tank", marked("tank", 4)))
    it = BackupRun(where, Away(DeviceGone("nbd0 is gone")), "b", lambda _: None)  # type: ignore[arg-type]
    await it._snapshot_without_vault(DeviceGone("nbd0 is gone"))
    assert left(source) == [4, 5, 6, 7, 8]
    plans = plan_prune(where, it.backup, await list_both_sides(where, it.backup, None))
    assert [plan.side for plan in plans] == ["source", "vault"]
    assert [plan.side for plan in await it._list_prunable(plans)] == ["vault"]


class Useless(Away):
    """A vault that is up, and to which nothing can be backed up."""

    @contextlib.asynccontextmanager
    async def use(self, *_: object, **__: object) -> AsyncIterator[Any]:
        self.asked += 1

        def refuse(_: str) -> None:
            raise self.error

        yield SimpleNamespace(refuse_read_only=refuse)


async def test_so_does_one_whose_vault_is_read_only(tmp_path: Path) -> None:
    """A dying pool may be like that for weeks, of which there would be no history anywhere."""
    where, source = world(tmp_path, history("tank", marked("tank", 4)))
    vaults = Useless(Refused("nothing can be backed up to it"))
    outcome = await run(where, vaults)
    assert len([one for one in source.there.datasets["tank"].snapshots if one.guid >= 900]) == 1
    assert left(source) == [4, 5, 6, 7, 8]
    assert (outcome.result, outcome.error, outcome.pruned) == ("failed", vaults.error, 3)


@pytest.mark.parametrize("make", [True, False])
async def test_not_where_it_makes_none_anyway(tmp_path: Path, make: bool) -> None:
    where, source = world(tmp_path, history(), snapshot={"make": make})
    await run(where, Away(DeviceGone("nbd0 is gone")), snapshot=False)
    assert source.there.datasets["tank"].newest() == snap(8)


async def test_nor_where_another_host_has_a_vault_that_hosts_share(tmp_path: Path) -> None:
    where, source = world(tmp_path, history())

    @contextlib.asynccontextmanager
    async def taken(*_: object) -> AsyncIterator[None]:
        yield None

    turn = SimpleNamespace(of="", shut_out=None, taken=taken)
    await run(where, Away(HeldElsewhere("other has it")), turn)
    assert source.there.datasets["tank"].newest() == snap(8)
    await run(where, Away(DeviceGone("nbd0 is gone")), turn)
    assert source.there.datasets["tank"].newest() != snap(8)


async def test_what_goes_wrong_with_the_snapshot_hides_not_why_the_vault_is_away(tmp_path: Path) -> None:
    where, source = world(tmp_path, history())
    source.refuses = frozenset({"tank"})
    outcome = await run(where, Away(DeviceGone("nbd0 is gone")))
    assert isinstance(outcome.error, DeviceGone)
