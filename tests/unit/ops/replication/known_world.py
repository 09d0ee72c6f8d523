"""Both sides of a backup, which change at random, and what is made of them with and without what was known before."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.no_keys import NoKeys
from tests.unit.ops.ops_world import HOUR, START, StoppedClock, with_source, with_vault
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.errors import NotFound
from zvault.core.model import Bookmark, Dataset, Snapshot, Tree
from zvault.core.names import DatasetName, make_snapname
from zvault.core.replication import planner
from zvault.core.replication.base_names import make_mark_name
from zvault.core.replication.plan_model import InterruptedReceive
from zvault.core.snapshot_list import SnapshotList
from zvault.ops.context import Context
from zvault.ops.replication import plan_all as planning
from zvault.ops.replication.lag import measure_lags
from zvault.ops.replication.listing import BothListings, list_both_sides
from zvault.ops.replication.plan_all import plan_all
from zvault.ops.retention.prune_plan import plan_prune
from zvault.ops.retention.vault_holds import note_held, plan_holds
from zvault.ops.state.cached_backups import CachedBackup
from zvault.ops.state.environment import Environment
from zvault.ops.state.pool_book import SeenPool
from zvault.system.process.runner import HostRunner

POOL, USB = 0xC01D, 0x05B
RULES: tuple[dict[str, Any], ...] = (
    {"within": "3h", "hourly": 3},
    {"last": 2},
    {"daily": 2, "weekly": 1},
    {},
)
SPANS = (60, 299, 301, HOUR, 3 * HOUR, 3 * HOUR + 1, 26 * HOUR, -HOUR, -10)


class Asked(NoKeys):
    """What is asked of the pools besides listings: always the same answer to the same question."""

    def __init__(self, world: "World", *, vault: bool) -> None:
        self.world, self.vault, self.host = world, vault, self

    async def run(self, argv: Sequence[str], **_: Any) -> Any:
        lines = ["cold/host"]
        if argv[1] == "get":
            chosen = {name: "false" if name in self.world.unchosen else "true" for name in self.world.here}
            lines = [f"{name}\t{value}\tlocal" for name, value in chosen.items()]
        return SimpleNamespace(returncode=0, stdout="".join(f"{line}\n" for line in lines), stderr="")

    async def tree(self, root: str, *, sizes: bool = True) -> Tree:
        return self.world.tree(self.world.there if self.vault else self.world.here)

    async def tree_or_none(self, root: str, *, sizes: bool = True) -> Tree:
        return await self.tree(root)

    async def interrupted(self, token: str) -> InterruptedReceive:
        self.world.question()
        return InterruptedReceive(token, int(token))

    async def get(self, dataset: str, *properties: str) -> dict[str, str]:
        self.world.question()
        return dict.fromkeys(properties, "0" if len(dataset) % 2 else "1")

    async def holds(self, names: Sequence[str]) -> dict[str, set[str]]:
        self.world.question()
        return {name: {"mine"} for name in names if name.endswith("0Z")}


@contextlib.contextmanager
def no_short_cuts() -> Iterator[None]:
    """Every pair is planned as a part of the whole, and asked for what the pools may say of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "_simple_plan", lambda *_: None)
        patch.setattr(planning, "_to_be_asked", lambda _, sides: sides.pairing.pairs)
        yield


class World:
    """Both sides, a clock, and two contexts: one that knows what it worked out before, and one that never does."""

    def __init__(self) -> None:
        self.clock = StoppedClock(START + 5 * HOUR)
        self.number = 0
        self.here: dict[str, Dataset] = {}
        self.there: dict[str, Dataset] = {}
        self.unchosen: set[str] = set()
        # By dataset and snapshot (GUIDs), what zvault holds on the vault, and how often events were lost.
        self.held: set[tuple[int, int]] = set()
        self.lapses = 0
        self.broken: tuple[type[BaseException], int] | None = None
        self.earlier: BothListings | None = None
        folder = Path("/dev/null/nowhere")
        self.env = Environment(
            config(0, 0), Paths(folder, folder, folder, folder), HostRunner(), "host", self.clock
        )
        self.pools: dict[int, SeenPool] = {POOL: SeenPool("cold", "cold")}
        self.knowing = self.context()
        for name in ("tank", "tank/a", "tank/a/b", "tank/c"):
            self.create(name)
            for at in range(5):
                self.snapshot(name, at)
            self.send(name)

    def context(self) -> Context:
        made = Context.of(self.env)
        object.__setattr__(
            made.records, "pools", SimpleNamespace(all=lambda: self.pools, last=lambda _: None)
        )
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
            mark = Bookmark(
                one.name, make_mark_name(POOL, base.guid), base.guid, base.createtxg, base.creation
            )
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
                self.pools = {POOL: SeenPool("cold", "cold")} | (
                    {USB: SeenPool("usb", "usb")} if one % 2 else {}
                )
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
            case "choose" if source is not None:
                self.unchosen ^= {source.name}
            case "long name" if source is not None:
                self.create(f"{source.name.pool}/{'n' * 200}{other % 2}")
            case "hold" if (there := self._pick(self.there, one)) is not None and there.snapshots:
                # The event of it has the dataset listed again.
                self.held ^= {(there.guid, there.snapshots[other % len(there.snapshots)].guid)}
                self._set(self.there, replace(there, snapshots=_listed(tuple(there.snapshots))))
            case "lapse":
                self.held, self.lapses = set(), self.lapses + 1
            case _:
                pass

    def question(self) -> None:
        """The pools are asked something; a look that is to break off may do so now."""
        if self.broken is not None:
            how, left = self.broken
            if not left:
                raise how
            self.broken = how, left - 1

    async def break_off(self, what: str, passes: int) -> None:
        """A look that does not come to its end: at a question, or after some passes."""
        if what != "stop":
            self.broken = {"error": GoneWrong, "cancel": asyncio.CancelledError}[what], passes % 3
        with contextlib.suppress(GoneWrong, asyncio.CancelledError, NotFound):
            await self.worked_out(
                self.knowing, await self.look(self.knowing), passes if what == "stop" else 9
            )
        self.broken = None

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

    async def look(self, where: Context) -> BothListings:
        backup = where.env.backup("b")
        return await list_both_sides(where, backup, where.clients.vault_of(backup))

    async def worked_out(self, where: Context, sides: BothListings, passes: int = 9) -> list[Any]:
        """All that is worked out of a look, or what some passes make of it."""
        backup = where.env.backup("b")
        found: list[Any] = [sides.pairs, sides.left_out]
        if passes > 0:
            found.append(sides.pairing)
        if passes > 1:
            found.append(list(await plan_all(where, backup, sides)))
        if passes > 2:
            found.append(measure_lags(where, backup, sides))
        if passes > 3:
            found += [
                (list(plan.judged), list(plan.verdicts), plan.selected, plan.unwanted, plan.over)
                for plan in plan_prune(where, backup, sides)
            ]
        return found

    async def check(self) -> None:
        """Both contexts see the same, and make the same of it; and of what was seen before that."""
        if self.earlier is not None and self.earlier.known is self.known():
            anew = replace(self.earlier, known=None)
            assert await self.worked_out(self.knowing, self.earlier) == await self.worked_out(
                self.knowing, anew
            )
        fresh = self.context()
        try:
            other = await self.look(fresh)
        except NotFound:
            self.earlier = None
            with pytest.raises(NotFound):
                await self.look(self.knowing)
            return
        sides = await self.look(self.knowing)
        found = await self.worked_out(self.knowing, sides)
        with no_short_cuts():
            assert found == await self.worked_out(fresh, other)
        self.move_holds(self.knowing, sides, self.lapses)
        assert self.move_holds(fresh, other, None) == set()
        self.earlier = sides

    def known(self) -> CachedBackup:
        return self.knowing.known.of(self.env, self.env.backup("b"))

    def move_holds(self, where: Context, sides: BothListings, lapses: int | None) -> set[str]:
        """Hold what is to be held, and release what is not any more; of which datasets that is another by then."""
        backup, moved = where.env.backup("b"), set[str]()
        plan = plan_prune(where, backup, sides)[-1]
        move = plan_holds(where, backup, plan, lapses)
        guids = {snap.name: (one.guid, snap.guid) for one in sides.vault for snap in one.snapshots}
        for name in {*move.wanted, *move.asked}:
            if (guids[name] in self.held) != (name in move.wanted):
                self.held ^= {guids[name]}
                moved.add(name.dataset)
        note_held(plan, moved, lapses)
        return moved


class GoneWrong(Exception):
    """A question that got no answer."""


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
                    **({"select": "org.example:backup"} if one % 4 == 3 else {}),
                },
                "usb": {"source": "tank", "vault": "usb"},
            },
        }
    )
