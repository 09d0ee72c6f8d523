"""What is looked up of an earlier look equals what working all out anew gives, whatever changed in between."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.examples import cases
from tests.unit.ops.ops_world import HOUR, START, StoppedClock, with_source, with_vault
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.model import Bookmark, Dataset, Snapshot, Tree
from zvault.core.names import DatasetName, make_snapname
from zvault.core.replication.base_names import mark_name
from zvault.core.replication.plan_model import Interrupted
from zvault.core.snapshot_list import SnapshotList
from zvault.ops.context import Context
from zvault.ops.replication.lag import lags
from zvault.ops.replication.sides_and_plan import look, plan_all
from zvault.ops.retention.prune_plan import plan_prune
from zvault.ops.state.environment import Environment
from zvault.ops.state.known_backups import KnownBackups
from zvault.ops.state.pools import Seen
from zvault.system.process.runner import HostRunner

POOL, USB = 0xC01D, 0x05B
RULES: tuple[dict[str, Any], ...] = (
    {"within": "3h", "hourly": 3},
    {"last": 2},
    {"daily": 2, "weekly": 1},
    {},
)
SPANS = (60, 299, 301, HOUR, 3 * HOUR, 3 * HOUR + 1, 26 * HOUR, -HOUR, -10)


class Asked:
    """What is asked of the pools besides listings: always the same answer to the same question."""

    def __init__(self, world: "World", *, vault: bool) -> None:
        self.world, self.vault, self.host = world, vault, self

    async def run(self, argv: Sequence[str], **_: Any) -> Any:
        return SimpleNamespace(returncode=0, stdout="cold/host\n")

    async def tree(self, root: str, *, sizes: bool = True) -> Tree:
        return self.world.tree(self.world.there if self.vault else self.world.here)

    async def tree_or_none(self, root: str, *, sizes: bool = True) -> Tree:
        return await self.tree(root)

    async def interrupted(self, token: str) -> Interrupted:
        return Interrupted(token, int(token))

    async def get(self, dataset: str, *properties: str) -> dict[str, str]:
        return dict.fromkeys(properties, "0" if len(dataset) % 2 else "1")

    async def holds(self, names: Sequence[str]) -> dict[str, set[str]]:
        return {name: {"mine"} for name in names if name.endswith("0Z")}


class World:
    """Both sides, a clock, and two contexts: one that knows what it worked out before, and one that never does."""

    def __init__(self) -> None:
        self.clock = StoppedClock(START + 5 * HOUR)
        self.number = 0
        self.here: dict[str, Dataset] = {}
        self.there: dict[str, Dataset] = {}
        folder = Path("/dev/null/nowhere")
        self.env = Environment(
            config(0, 0), Paths(folder, folder, folder, folder), HostRunner(), "host", self.clock
        )
        self.pools: dict[int, Seen] = {POOL: Seen("cold", "cold")}
        self.knowing = self.context()
        for name in ("tank", "tank/a", "tank/a/b", "tank/c"):
            self.create(name)
            for at in range(5):
                self.snapshot(name, at)
            self.send(name)

    def context(self) -> Context:
        made = Context.of(self.env)
        object.__setattr__(made.records, "pools", SimpleNamespace(all=lambda: self.pools))
        side: Any = Asked(self, vault=False)
        return with_vault(with_source(made, side), Asked(self, vault=True))

    def tree(self, datasets: dict[str, Dataset]) -> Tree:
        return Tree(dict(sorted(datasets.items(), key=lambda item: item[1].name.parts)))

    # Changes: each takes two numbers, which choose what it is done to

    def _next(self) -> int:
        self.number += 1
        return self.number

    def _pick(self, side: dict[str, Dataset], number: int) -> Dataset | None:
        return side[sorted(side)[number % len(side)]] if side else None

    def create(self, name: str) -> None:
        self.here[name] = Dataset(DatasetName(name), self._next(), "filesystem")

    def snapshot(self, name: str, at: float) -> None:
        one = self.here[name]
        when = int(START + at * HOUR)
        snapname = make_snapname("zvault", datetime.fromtimestamp(when, UTC))
        if any(snap.snapname == snapname for snap in one.snapshots):
            return
        made = Snapshot(one.name, snapname, 1000 + self._next(), self._next(), when)
        self._set(self.here, replace(one, snapshots=_listed((*one.snapshots, made))))

    def send(self, name: str) -> None:
        one, target = self.here[name], DatasetName(f"cold/host/{name}")
        there = self.there.get(target) or Dataset(target, self._next(), one.type)
        have = {snap.guid for snap in there.snapshots}
        taken = {snap.snapname for snap in there.snapshots}
        new = (
            replace(snap, dataset=target, createtxg=self._next())
            for snap in one.snapshots
            if snap.guid not in have and snap.snapname not in taken
        )
        self._set(
            self.there, replace(there, snapshots=_listed((*there.snapshots, *new)), sent=f"{one.guid:x}:Lce")
        )
        if one.snapshots:
            base = one.snapshots[-1]
            mark = Bookmark(one.name, mark_name(POOL, base.guid), base.guid, base.createtxg, base.creation)
            self._set(self.here, replace(one, bookmarks=(mark,)))

    def _set(self, side: dict[str, Dataset], one: Dataset) -> None:
        side[one.name] = one

    def change(self, what: str, one: int, other: int) -> None:  # noqa: PLR0912 - a case each
        side = self.here if other % 2 else self.there
        found = self._pick(side, one)
        source = self._pick(self.here, one)
        match what:
            case "clock":
                self.clock.at += SPANS[one % len(SPANS)]
            case "config":
                self.env.reconfigure(config(one, other))
            case "pools":
                self.pools = {POOL: Seen("cold", "cold")} | ({USB: Seen("usb", "usb")} if one % 2 else {})
            case "create" if source is not None:
                self.create(f"{source.name}/n{other % 3}")
            case "snapshot" if source is not None:
                now = (self.clock.at - START) / HOUR
                self.snapshot(source.name, now if other < 7 else now + 2)
            case "send" if source is not None:
                self.send(source.name)
            case "destroy" if found is not None and len(side) > 1:
                for name in [name for name in side if DatasetName(name).is_within(found.name)]:
                    if name != "tank":
                        del side[name]
            case "prune" if found is not None and found.snapshots:
                left = tuple(
                    snap for at, snap in enumerate(found.snapshots) if at != other % len(found.snapshots)
                )
                self._set(side, replace(found, snapshots=_listed(left)))
            case "write" if found is not None:
                self._set(side, replace(found, written=other % 3))
            case "token" if found is not None and source is not None and source.snapshots:
                token = str(source.snapshots[other % len(source.snapshots)].guid) if other % 3 else None
                self._set(self.there, replace(self._pick(self.there, one) or found, resume_token=token))
            case "sent" if (there := self._pick(self.there, one)) is not None:
                self._set(self.there, replace(there, sent=f"{other:x}:e"))
            case "own snapshot" if (there := self._pick(self.there, one)) is not None:
                made = Snapshot(
                    there.name, f"mine{self._next()}", self._next(), self._next(), int(self.clock.at)
                )
                self._set(self.there, replace(there, snapshots=_listed((*there.snapshots, made))))
            case "rename" if found is not None and found.name not in {"tank", "cold/host/tank"}:
                self._rename(side, found.name, DatasetName(f"{found.name.parent}/r{other % 3}"))
            case "clone" if source is not None and source.snapshots:
                self.create(f"tank/k{other % 3}")
                origin = source.snapshots[other % len(source.snapshots)].name
                self._set(self.here, replace(self.here[f"tank/k{other % 3}"], origin=origin))
            case _:
                pass

    def _rename(self, side: dict[str, Dataset], old: DatasetName, new: DatasetName) -> None:
        if new in side:
            return
        for name in [name for name in side if DatasetName(name).is_within(old)]:
            one = side.pop(name)
            moved = one.name.moved(old, new)
            snaps = _listed(tuple(replace(snap, dataset=moved) for snap in one.snapshots))
            marks = tuple(replace(mark, dataset=moved) for mark in one.bookmarks)
            side[moved] = replace(one, name=moved, snapshots=snaps, bookmarks=marks)
        for name, one in side.items():
            origin = one.origin
            if origin is not None and origin.dataset.is_within(old):
                side[name] = replace(one, origin=origin.dataset.moved(old, new).snapshot(origin.snapname))

    async def check(self) -> None:
        """Both contexts see the same, and make the same of it."""
        found = []
        for where in (self.knowing, self.context()):
            backup = where.env.backup("b")
            sides = await look(where, backup, where.clients.vault_of(backup))
            plans = await plan_all(where, backup, sides)
            pruned = [
                (list(plan.judged), plan.verdicts, plan.selected, plan.unwanted, plan.over)
                for plan in plan_prune(where, backup, sides)
            ]
            found.append((sides.pairs, sides.pairing, plans, lags(where, backup, sides), pruned))
        assert found[0] == found[1]


def _listed(snapshots: Sequence[Snapshot]) -> Sequence[Snapshot]:
    if not snapshots:
        return ()
    rows = ((snap.snapname, snap.guid, snap.createtxg, snap.creation) for snap in snapshots)
    return SnapshotList.of(snapshots[0].dataset, rows)


def config(one: int, other: int) -> Config:
    """One of some configurations: two backups of one source, of which the first is looked at."""
    vault, source = RULES[one % len(RULES)], RULES[other % len(RULES)]
    return Config.model_validate(
        {
            "daemon": {"timezone": "UTC" if one % 5 else "Europe/Vienna", "host": f"host{other // 9 or ''}"},
            "vault": {
                "cold": {"pool": "cold", "min_age": "2h" if other % 2 else "0s"},
                "usb": {"pool": "usb"},
            },
            "backup": {
                "b": {
                    "source": "tank",
                    "vault": "cold",
                    "keep": {"source": source, "vault": vault},
                    "on_conflict": ("stop", "rollback", "new-dataset")[one % 3],
                    "exclude": ["tank/c"] if other % 4 == 3 else [],
                    "snapshot": {"skip_unchanged": bool(other % 2)},
                },
                "usb": {"source": "tank", "vault": "usb"},
            },
        }
    )


WHAT = (
    "clock", "config", "pools", "create", "snapshot", "send", "destroy", "prune", "write", "token", "sent",
    "own snapshot", "rename", "clone",
)  # fmt: skip
CHANGE = st.tuples(st.sampled_from(WHAT), st.integers(0, 9), st.integers(0, 9))


@example([[("clone", 1, 4)], [("destroy", 1, 1)], [("send", 2, 0)]])
@example([[("clock", 3, 0)], [("clock", 4, 0)], [("clock", 7, 0)]])
@example([[("config", 0, 9)], [("destroy", 0, 1), ("own snapshot", 0, 0)]])
@example([[("prune", 1, 4)], [("rename", 1, 0)]])
@example([[("pools", 1, 0)], [("pools", 0, 0)]])
@given(st.lists(st.lists(CHANGE, max_size=3), min_size=1, max_size=8))
@settings(max_examples=cases(150), deadline=None)
def test_what_is_looked_up_equals_what_is_worked_out_anew(looks: list[list[tuple[str, int, int]]]) -> None:
    async def all_looks() -> None:
        world = World()
        await world.check()
        for changes in looks:
            for change in changes:
                world.change(*change)
            await world.check()

    asyncio.run(all_looks())


async def test_nothing_is_decided_again_where_nothing_changed() -> None:
    world = World()
    await world.check()
    backup = world.env.backup("b")
    known = world.knowing.known.of(world.env, backup)
    plans, verdicts = dict(known.plans), dict(known.retention.pairs)
    assert len(plans) == len(verdicts) == 4
    world.change("snapshot", 1, 0)
    await world.check()
    assert [name for name in plans if known.plans[name][1] is not plans[name][1]] == ["tank/a"]
    same = [name for name in verdicts if known.retention.pairs[name] is verdicts[name]]
    assert sorted(same) == ["tank", "tank/a/b", "tank/c"]


def test_what_is_known_of_a_backup_ends_with_its_configuration() -> None:
    world, known = World(), KnownBackups()
    backup = world.env.backup("b")
    first = known.of(world.env, backup)
    assert known.of(world.env, backup) is first
    world.env.reconfigure(config(1, 1))
    assert known.of(world.env, world.env.backup("b")) is not first
