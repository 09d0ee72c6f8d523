"""Any dataset of a source may refuse any step with any errno: all others are done, that one is named, nothing is lost.

zvaultd's own runs over the pools of the simulated year, in which no time passes but the loop's.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.daemon.year import year_oracle as oracle
from tests.unit.daemon.year.simulated_time import SimulatedLoop
from tests.unit.daemon.year.simulated_zfs import Own, SimulatedZfs
from tests.unit.daemon.year.year_world import CONFIG, World
from zvault.api.events import Event
from zvault.core.model import Dataset, Snapshot
from zvault.core.names import DatasetName, split_point
from zvault.core.refusals import Duration, describe_errnos
from zvault.core.replication.snapshot_refusal import SnapshotFacts
from zvault.zfs.changes import ChangeFailure, refusal, some

KEEP = {"source": {"last": 2}, "vault": {"last": 3}}

BEGIN = 1_795_000_000.0
DATASETS = ["tank/a", *(f"tank/a/{name}" for name in ("below", "c", "d", "e"))]

STEPS = ("snapshot", "hold", "held", "release", "bookmark", "destroy_bookmarks", "destroy")
"""What is done with datasets of a source, beside listing them and sending."""

ERRNOS = sorted(set(range(1, 134)) - {errno.ENOENT, errno.EEXIST, 41, 58})
"""All but those that say that it is gone, or done already."""


class RefusingZfs(SimulatedZfs):
    """A source whose datasets refuse steps, each with an errno: what names one of these is done of none, as by ZFS.

    Where ZFS is to be ``silent`` it names nobody.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world.pools)
        self.refuses: dict[tuple[str, str], int] = {}
        self.silent = False
        self.calls: list[tuple[str, list[str]]] = []

    def _ask(self, step: str, names: Iterable[str]) -> None:
        asked = list(names)
        self.calls.append((step, asked))
        found = [
            ChangeFailure("" if self.silent else name, "ZFSGenericError", code, os.strerror(code))
            for name in asked
            if (code := self.refuses.get((split_point(name)[0], step))) is not None
        ]
        if found:
            raise refusal(f"{step} {some(asked)}", found)

    async def snapshot(self, names: Sequence[str], properties: Mapping[str, str]) -> None:
        self._ask("snapshot", names)
        await super().snapshot(names, properties)

    async def hold(self, names: Sequence[str], tag: str) -> None:
        self._ask("hold", names)
        await super().hold(names, tag)

    async def release(self, names: Sequence[str], tag: str) -> None:
        self._ask("release", names)
        await super().release(names, tag)

    async def bookmark(self, marks: Mapping[str, str]) -> None:
        self._ask("bookmark", marks)
        await super().bookmark(marks)

    async def destroy_bookmarks(self, names: Sequence[str]) -> None:
        self._ask("destroy_bookmarks", names)
        await super().destroy_bookmarks(names)

    async def destroy(self, names: Sequence[str]) -> None:
        self._ask("destroy", names)
        await super().destroy(names)

    async def holds(self, names: Sequence[str]) -> dict[str, set[str]]:
        self._ask("held", names)
        return await super().holds(names)

    async def held(self, asked: Iterable[tuple[Dataset, Sequence[Snapshot]]]) -> dict[str, set[str]]:
        return await self.holds([snap.name for _, snaps in asked for snap in snaps])

    async def snapshot_facts(self, names: Sequence[str]) -> list[SnapshotFacts]:
        return [SnapshotFacts(DatasetName(name)) for name in names]


class Refusals:
    """A zvaultd over such a source, and what it told of each run of backup a."""

    def __init__(self, world: World, zfs: RefusingZfs) -> None:
        self.world, self.zfs = world, zfs
        self.told: list[Event] = []

    async def run(self) -> tuple[str, list[Event]]:
        """Run it; its result, and what was told."""
        self.told.clear()
        await asyncio.sleep(60.0)
        run = self.world.daemon.runs.start("a", "hand")
        await self.world.daemon.runs.current[run].task
        found = self.world.daemon.history.run(run)
        assert found is not None
        return str(found["result"]), list(self.told)

    def sides(self, dataset: str) -> tuple[Own, Own]:
        source, there = self.world.sides(dataset)
        assert there is not None, f"the vault has nothing of {dataset}"
        return source, there

    def is_sent(self, dataset: str) -> bool:
        source, there = self.sides(dataset)
        newest = oracle.base(source, there)
        return newest is not None and newest.guid == list(source.points.values())[-1].guid

    def check_protected(self, dataset: str, *, marked: bool = True) -> None:
        """The base is there and held, and bookmarked too where bookmarks can be made."""
        source, there = self.sides(dataset)
        newest = oracle.base(source, there)
        assert newest is not None, f"{dataset} has no base any more"
        assert source.holds.get(newest.snapname), f"the base of {dataset} is not held"
        marks = {mark.guid for mark in source.marks.values()}
        assert newest.guid in marks if marked else marks, f"the base of {dataset} has no bookmark"


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[Refusals]:
    for name in DATASETS:
        world.pools.pools["tank"].datasets.setdefault(name, Own(world.pools.new()))
    await world.start()
    zfs = RefusingZfs(world)
    clients: Any = world.daemon.context.clients
    clients._sources[None] = zfs
    here = Refusals(world, zfs)
    world.daemon.events.hooks.append(here.told.append)
    try:
        yield here
    finally:
        zfs.refuses.clear()
        await world.stop()


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Plays something in a world whose time is its own. Backups run by hand only; to their tables ``more`` is added."""
    loops: list[SimulatedLoop] = []

    def played(what: Callable[[Refusals], Awaitable[None]], **more: Any) -> None:
        loop = SimulatedLoop()
        loops.append(loop)
        world = World(tmp_path, loop, BEGIN, monkeypatch)
        by_hand = {
            name: {"source": table["source"], "vault": table["vault"], "keep": KEEP, "prune_limit": "100%"}
            | more
            for name, table in CONFIG["backup"].items()
        }
        monkeypatch.setitem(CONFIG, "backup", by_hand)

        async def do() -> None:
            async with serving(world) as here:
                await what(here)

        loop.run_until_complete(do())

    yield played
    for loop in loops:
        loop.close()


def names_of(told: Sequence[Event]) -> str:
    """All that a run told of what is wrong, in one text."""
    return "\n".join(str(one) for one in told if one["event"] in {"dataset-failed", "warning"})


async def refuse(here: Refusals, refused: Mapping[tuple[str, str], int]) -> None:
    """Some runs in peace, some in which datasets refuse, and one in peace again."""
    bad = {dataset for dataset, _ in refused}
    for _ in range(4):
        assert (await here.run())[0] == "ok"
    here.zfs.refuses = dict(refused)
    for _ in range(3):
        result, told = await here.run()
        assert result in {"ok", "partial"}
        if (
            describe_errnos(set(refused.values()))[0] is Duration.PERMANENT
            and len(set(refused.values())) == 1
        ):
            assert [one for one in told if one["event"] == "retry"] == [], "nothing changes by another try"
        for dataset in DATASETS:
            here.check_protected(dataset, marked=(dataset, "bookmark") not in refused)
            if dataset in bad:
                continue
            assert here.is_sent(dataset), f"{dataset} was not sent as {refused}"
            assert f"'{dataset}'" not in names_of(told)
        for dataset, step in refused:
            if any(step == one and dataset in {split_point(n)[0] for n in of} for one, of in here.zfs.calls):
                assert dataset in names_of(told), f"{dataset} refuses {step}, which nobody tells"
        here.zfs.calls.clear()
    here.zfs.refuses = {}
    assert (await here.run())[0] == "ok"
    for dataset in DATASETS:
        assert here.is_sent(dataset)
        here.check_protected(dataset)
        source, _ = here.sides(dataset)
        assert len(source.marks) in {1, 2}, "of the base, and of the one before"
        assert sum(map(bool, source.holds.values())) == 1
        assert len(source.points) <= 3, "what expired while it was refused goes once it is not"


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("code", [errno.EBUSY, errno.EIO, errno.ENOTSUP])
def test_one_that_refuses_one_step(step: str, code: int, play: Any) -> None:
    play(lambda here: refuse(here, {("tank/a/c", step): code}))


@pytest.mark.parametrize("seed", range(8))
def test_some_that_refuse_some_steps(seed: int, play: Any) -> None:
    """Each with an errno of its own. The root may be among them."""
    chance = random.Random(seed)
    bad = chance.sample(DATASETS, chance.randint(1, 3))
    refused = {(name, chance.choice(STEPS)): chance.choice(ERRNOS) for name in bad for _ in range(2)}
    play(lambda here: refuse(here, refused))


@pytest.mark.parametrize("step", [step for step in STEPS if step != "snapshot"])
def test_one_that_refuses_and_is_not_named(step: str, play: Any) -> None:
    """ZFS says only that something refuses: it is found."""

    async def silent(here: Refusals) -> None:
        here.zfs.silent = True
        await refuse(here, {("tank/a/c", step): errno.EIO})

    play(silent)


def test_snapshots_at_their_own_time_are_told_where_they_fail_and_else_only_made(play: Any) -> None:
    async def watch(here: Refusals) -> None:
        daemon = here.world.daemon
        backup = daemon.context.env.backup("a")

        def troubles() -> list[str]:
            verdict = daemon.status.backup_verdict(backup)
            return [one.condition.key for one in verdict.findings if one.condition.key == "not-snapshotted"]

        def rows() -> list[str]:
            return [
                str(run["result"]) for run in daemon.history.runs("a", 99) if run["trigger"] == "snapshot"
            ]

        def points(dataset: str) -> int:
            return len(here.world.sides(dataset)[0].points)

        assert daemon.status.backup(backup)["next_snapshot"] is not None
        await asyncio.sleep(3700.0)
        assert [points(name) for name in DATASETS] == [4] * 5, "one at the start, and one each 20 minutes"
        assert (rows(), troubles()) == ([], [])
        here.zfs.refuses = {("tank/a/c", "snapshot"): errno.EBUSY}
        await asyncio.sleep(1300.0)
        assert [points(name) for name in DATASETS] == [5, 5, 4, 5, 5]
        assert (rows(), troubles()) == (["partial"], ["not-snapshotted"])
        assert daemon.history.last("a") is None, "that is no run"
        here.zfs.refuses = {}
        await asyncio.sleep(1300.0)
        assert (rows(), troubles()) == (["partial"], [])
        assert (await here.run())[0] == "ok"
        for dataset in DATASETS:
            assert here.is_sent(dataset)
            assert len(here.sides(dataset)[1].points) == 3, "all that its rules keep were sent"

    play(watch, snapshot={"every": "20m"})


def test_a_read_only_source_without_a_snapshot_is_no_backup(play: Any) -> None:
    """Nothing can be snapshotted there, and nothing that is there may be sent: to end well would be a lie."""

    async def run(here: Refusals) -> None:
        here.zfs.refuses = {(one, step): errno.EROFS for one in DATASETS for step in STEPS if step != "held"}
        result, told = await here.run()
        assert "is read-only" in names_of(told)
        assert result == "failed"
        here.zfs.refuses = {}
        assert (await here.run())[0] == "ok"
        assert all(map(here.is_sent, DATASETS))

    play(run)
