"""Hosts, pools and datasets are renamed and moved: nothing is sent again because of that, and no base is given up."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given, settings

from tests.unit.core.replication.pool_histories import NAMES, histories, ours
from tests.unit.core.replication.pool_model import Clock, Data, Illegal, Point, Pool, below
from tests.unit.core.replication.pools_model import Pools
from tests.unit.examples import cases
from zvault.core.integrity.damage import HealTarget, LoggedBlock
from zvault.core.integrity.healing import list_resend_commands
from zvault.core.model import Bookmark, Dataset, Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.core.refusals import SET_ASIDE_ADVICE
from zvault.core.replication.base_elsewhere import BasesElsewhere, PoolSearch, lacks_base
from zvault.core.replication.base_names import make_mark_name, make_unsent_mark_name
from zvault.core.replication.dataset_plan import DatasetCase, plan_transfer
from zvault.core.replication.lineage import ASIDE_INFIX, DatasetPair, Pairing
from zvault.core.replication.pair_datasets import pair_datasets
from zvault.core.replication.plan_model import OnConflict, TransferAction, TransferPlan, TransferPolicy
from zvault.core.replication.planner import PoolAnswers, plan_tree
from zvault.core.replication.send_record import find_flag_conflict
from zvault.core.replication.stream_flags import SentFlags

POOL = 0xC01D
HOSTS = ("h1", "h2", "h1/deep")
ROOT = DatasetName("tank/s")


@dataclass
class World:
    """Two pools, the root of the source, and this host's name: both decide where the backup belongs."""

    pools: Pools
    root: DatasetName = ROOT
    host: str = HOSTS[0]
    runs: int = 0

    @classmethod
    def new(cls) -> World:
        clock = Clock()
        pools = Pools(Pool(clock, {"tank": Data(clock.tick())}), Pool(clock, {"cold": Data(clock.tick())}))
        pools.source.create("tank/s")
        return cls(pools)

    def copy(self) -> World:
        return replace(self, pools=self.pools.copy())

    @property
    def target(self) -> DatasetName:
        return DatasetName(f"cold/{self.host}/{self.root.name}")

    def listing(self) -> Tree:
        """The backup's place, and what was set aside beside it."""
        beside = [name for name in self.pools.vault.data if name.startswith(self.target + ASIDE_INFIX)]
        roots = [self.target, *(name for name in beside if "/" not in name[len(self.target) :])]
        trees = [self.pools.vault.tree(name) for name in roots]
        return Tree({name: one for tree in trees for name, one in tree.datasets.items()})

    def look(self, on_conflict: OnConflict) -> tuple[Pairing, Tree, BasesElsewhere]:
        source = self.pools.source.tree(self.root)
        wanted = [(one, one.name.moved(self.root, self.target)) for one in source]
        there = self.listing()
        pool = self.pools.vault.tree("cold")
        search = PoolSearch(pool, POOL, [self.target], anew=on_conflict == "new-dataset")
        found = search.find(pair_datasets(source, wanted, there))
        there = Tree({**there.datasets, **found.follow})
        return pair_datasets(source, wanted, there), there, found

    def plan(self, on_conflict: OnConflict = "stop") -> list[TransferPlan]:
        pairing, there, found = self.look(on_conflict)
        self.runs += 1
        stamp = f"{20000000 + self.runs:08d}T000000Z"
        return list(
            plan_tree(
                pairing,
                there,
                wanted=ours,
                policy=TransferPolicy(on_conflict=on_conflict, stamp=stamp),
                answers=PoolAnswers(self.pools.interrupted()),
                conflicts=found.stray,
            )
        )

    def run(self) -> None:
        """A run: its plan, what it sends, and the bookmarks of the bases, of which the former ones go."""
        plans = self.plan()
        self.check_plans(plans)
        stood = self.standing()
        failed = self.pools.carry_out(plans)
        for plan in plans:
            if plan.dataset not in failed:
                self.advance(plan)
        for guid, names in stood.items():
            for name in names & self.pools.source.data.keys():
                marks = {mark.guid for mark in self.pools.source.data[name].marks}
                assert guid in marks or guid not in self.standing(), f"the base {guid} of {name} was given up"

    def advance(self, plan: TransferPlan) -> None:
        source, there = self.pools.source.data[plan.dataset], self.pools.vault.data.get(plan.target)
        known = {point.guid: point for point in source.snaps}
        base = (
            next((known[snap.guid] for snap in reversed(there.snaps) if snap.guid in known), None)
            if there
            else None
        )
        if base is not None:
            others = [mark for mark in source.marks if not mark.snapname.startswith("zvault")]
            source.marks = [*others, Point(base.guid, make_mark_name(POOL, base.guid), base.txg)]

    def standing(self) -> dict[int, set[str]]:
        """By GUID, the bases that a dataset of the vault ends with, and the source datasets that bookmark each."""
        ends = {data.snaps[-1].guid for data in self.pools.vault.data.values() if data.snaps}
        found: dict[int, set[str]] = {}
        for name, data in self.pools.source.data.items():
            for mark in data.marks:
                if mark.guid in ends and mark.snapname.startswith("zvault"):
                    found.setdefault(mark.guid, set()).add(name)
        return found

    def check_plans(self, plans: list[TransferPlan]) -> None:
        """What is sent in full has no base anywhere in the pool, unless that is another dataset's that has it too."""
        pairing, _, _ = self.look("stop")
        followed = {pair.vault.name for pair in pairing.pairs if pair.vault is not None}
        vault = self.pools.vault.data
        for plan in plans:
            if not any(step.kind is TransferAction.FULL for step in plan.steps):
                continue
            source = self.pools.source.data[plan.dataset]
            guids = {point.guid for point in (*source.snaps, *source.marks)}
            for name, data in vault.items():
                if not data.snaps or name in followed or ASIDE_INFIX in name or below(name, self.target):
                    continue
                assert data.snaps[-1].guid not in guids, (
                    f"{plan.dataset} is sent in full, and {name} has its base"
                )


# What may befall them; numbers choose what it befalls.


def _names(world: World) -> list[str]:
    return sorted(name for name in world.pools.source.data if below(name, world.root))


def _pick(world: World, number: int) -> str:
    names = _names(world)
    return names[number % len(names)]


def _take(world: World, _: int) -> None:
    snapname = f"zvault_{world.pools.source.clock.tick()}"
    for name in _names(world):
        world.pools.source.snapshot(name, snapname)


def _create(world: World, number: int) -> None:
    world.pools.source.create(f"{_pick(world, number // 4)}/{NAMES[number % 4]}")


def _rename(world: World, number: int) -> None:
    old = _pick(world, number // 7)
    if old != world.root:
        world.pools.source.rename(old, f"{_pick(world, number // 28)}/{NAMES[number % 4]}")


def _rename_root(world: World, number: int) -> None:
    """Of the source: as where its pool gets another name, and the configuration with it."""
    new = DatasetName(f"tank/{('s', 't', 'u')[number % 3]}")
    world.pools.source.rename(world.root, new)
    world.root = new


def _rename_host(world: World, number: int) -> None:
    world.host = HOSTS[number % len(HOSTS)]


def _move(world: World, number: int) -> None:
    """The source goes to another root by ``zfs send -R``: with its snapshots, and without bookmarks."""
    new = DatasetName(f"tank/{('s', 't', 'u')[number % 3]}")
    source = world.pools.source
    if new in source.data:
        return
    for name in _names(world):
        data, txg = source.data.pop(name), source.clock.tick()
        copies = [Point(snap.guid, snap.snapname, source.clock.tick()) for snap in data.snaps]
        at = DatasetName(name).moved(world.root, new)
        source.data[at] = Data(txg, data.encrypted, copies)
    world.root = new


def _prune(world: World, number: int) -> None:
    """The source keeps the newest; the vault, too."""
    for pool in (world.pools.source, world.pools.vault):
        for data in pool.data.values():
            if not any(pool.cloned(snap) for snap in data.snaps):
                data.snaps = data.snaps[-1 - number % 3 :]


def _run(world: World, _: int) -> None:
    world.run()


EVENTS = [
    *[_take] * 4,
    *[_run] * 4,
    _create,
    _rename,
    _rename,
    _rename_root,
    *[_rename_host] * 2,
    _move,
    _prune,
]


def after(history: bytes) -> World:
    world = World.new()
    _take(world, 0)
    for which, number in zip(history[::2], history[1::2], strict=False):
        before = world.copy()
        event = EVENTS[which % len(EVENTS)]
        try:
            event(world, number)
        except Illegal:
            if event is _run:
                raise
            world = before
    return world


@settings(max_examples=cases(600), deadline=None)
@given(histories(16))
@example(bytes([4, 0, 0, 0, 12, 1, 4, 0]))
def test_whatever_is_renamed_nothing_is_sent_again_and_no_base_is_given_up(history: bytes) -> None:
    world = after(history)
    _take(world, 0)
    world.run()


@settings(max_examples=cases(200), deadline=None)
@given(histories(10))
def test_a_host_that_is_renamed_to_and_fro_ends_where_it_began(history: bytes) -> None:
    """Whatever had a base before has it afterwards, at its own place, and nothing is sent for it."""
    world = after(history)
    _take(world, 0)
    world.run()
    pairing, _, _ = world.look("stop")
    had = {pair.source.name: pair.target for pair in pairing.pairs if pair.base is not None}
    host = world.host
    for name in (*(one for one in HOSTS if one != host), host):
        world.host = name
        plans = world.plan()
        for plan in plans:
            assert plan.dataset not in had or not plan.steps, plan
        world.pools.carry_out(plans)
    assert {
        plan.dataset: plan.target for plan in world.plan() if plan.base is not None
    }.items() >= had.items()


# Who decides


def snap(dataset: str, number: int) -> Snapshot:
    return Snapshot(DatasetName(dataset), f"zvault_{number}", 100 + number, number, number)


def source(*numbers: int, marks: tuple[int, ...] = (), pool: int = POOL, sent: bool = True) -> Dataset:
    name = DatasetName("tank")
    form = make_mark_name if sent else make_unsent_mark_name
    return Dataset(
        name,
        7,
        "filesystem",
        snapshots=tuple(snap("tank", number) for number in numbers),
        bookmarks=tuple(Bookmark(name, form(pool, 100 + one), 100 + one, one, one) for one in marks),
    )


def old(*numbers: int, name: str = "cold/filer1/tank", written: int = 0, sent: str = "7:Lce") -> Dataset:
    snaps = tuple(snap(name, number) for number in numbers)
    return Dataset(DatasetName(name), 8, "filesystem", snapshots=snaps, written=written, sent=sent)


def decided(
    here: Dataset, *there: Dataset, anew: bool = False, at_place: Dataset | None = None
) -> BasesElsewhere:
    target = DatasetName("cold/filer2/tank")
    own = Tree({at_place.name: at_place} if at_place is not None else {})
    pairing = pair_datasets(Tree({here.name: here}), [(here, target)], own)
    pool = Tree({one.name: one for one in there})
    return PoolSearch(pool, POOL, [target], [DatasetName("cold/live")], anew).find(pairing)


@pytest.mark.parametrize(
    ("here", "there", "follows"),
    [
        (source(1, 2, 3, marks=(2,)), old(1, 2), True),
        # The snapshot itself is gone from the source: the bookmark is enough.
        (source(3, marks=(2,)), old(1, 2), True),
        (source(1, 2, 3, marks=(2,), sent=False), old(1, 2), True),
        # A run that was cut off had sent more than it came to bookmark.
        (source(1, 2, 3, marks=(1,)), old(1, 2), True),
        (source(1, 2, 3, marks=(2,)), old(1, 2, written=512), False),
        (source(1, 2, 3, marks=(2,)), old(1, 2, sent=""), False),
        # A clone of this host has sent there since.
        (source(1, 2, 3, marks=(2,)), old(1, 2, 9), False),
        # It was moved here, or restored, or is a copy of what another host backs up.
        (source(1, 2, 3), old(1, 2), False),
        (source(1, 2, 3, marks=(2,), pool=0x05B), old(1, 2), False),
    ],
)
def test_a_backup_elsewhere_is_followed_only_where_all_agree(
    here: Dataset, there: Dataset, follows: bool
) -> None:
    found = decided(here, there)
    assert set(found.follow) == ({there.name} if follows else set())
    assert set(found.stray) == (set() if follows else {"tank"})


@pytest.mark.parametrize(
    ("root", "follows"), [("cold/filer1", False), ("cold/filer1/tank", True), ("cold", True), ("", True)]
)
def test_what_inherits_its_key_is_renamed_nowhere_outside_of_where_that_comes_from(
    root: str, follows: bool
) -> None:
    found = decided(source(1, 2, 3, marks=(2,)), replace(old(1, 2), key_root=root))
    assert bool(found.follow) is follows
    if not follows:
        stray = found.stray["tank"]
        assert "encrypted by the key of cold/filer1" in stray.problem
        assert stray.advice.startswith("'zfs rename cold/filer1/tank cold/filer1/tank-old_zvault-conflict-")


@pytest.mark.parametrize(
    ("here", "there"),
    [
        # A copy that has gone its own way since, and what other tools put there: no stream could go on from it.
        (source(1, 2, 3), old(1, 2, 9)),
        (source(1, 2, 3), old(1, 2, sent="")),
        (source(1, 2, 3, marks=(2,)), old(1, 2, name="cold/live/data")),
        (source(1, 2, 3, marks=(2,)), old(1, 2, name=f"cold/filer1/tank{ASIDE_INFIX}20261121T090000Z")),
    ],
)
def test_what_is_no_backup_of_it_is_no_matter(here: Dataset, there: Dataset) -> None:
    assert decided(here, there) == BasesElsewhere()


SENT_FLAGS = SentFlags(large_blocks=True, compressed=True, embedded=True, raw=False)
UNLIKE = replace(SENT_FLAGS, large_blocks=False)
CHANGED = old(1, 2, 9, name="cold/filer2/tank", written=512)
WOUND = HealTarget("cold/filer2/tank", "/f", (), LoggedBlock("cold/filer2/tank", 7, 1, 0, 1))
ADVICES: dict[str, Callable[[Dataset], object]] = {
    "flags": lambda there: find_flag_conflict(source(1), there, UNLIKE, SENT_FLAGS),
    "raw": lambda there: find_flag_conflict(replace(source(1), encrypted=True), there, UNLIKE, None),
    "zfs": lambda there: SET_ASIDE_ADVICE.replace("NAME", there.name),
    "plan": lambda there: plan_transfer(DatasetCase(source(1, 2), there.name, CHANGED), lambda _: True),
    "heal": lambda there: list_resend_commands(
        [WOUND], {there.name: there}, f"{ASIDE_INFIX}20261121T090000Z"
    ),
}


@pytest.mark.parametrize("advice", ADVICES)
def test_what_is_renamed_as_an_advice_says_is_sent_in_full(advice: str) -> None:
    """The search through the pool would put a backup back that was renamed to any other name."""
    there = old(1, 2, name="cold/filer2/tank")
    told = str(ADVICES[advice](there))
    command = re.search(r"zfs rename cold/filer2/tank ([^']+)'", told)
    assert command is not None, told
    name = command[1].replace("$(date -u +%Y%m%dT%H%M%SZ)", "20261121T090000Z")
    renamed = old(1, 2, name=name)
    assert decided(source(1, 2, 3, marks=(2,)), renamed) == BasesElsewhere()
    assert decided(source(1, 2, 3, marks=(2,)), replace(renamed, written=512)) == BasesElsewhere()


def test_what_has_nothing_but_the_snapshot_of_this_run_is_new() -> None:
    pair = DatasetPair(source(3), DatasetName("cold/filer2/tank"))
    assert not lacks_base(pair, "zvault_3")
    assert lacks_base(pair, "zvault_4")
    assert lacks_base(replace(pair, source=source(3, marks=(2,))), "zvault_3")


def test_a_user_who_wants_new_datasets_gets_one_unless_the_old_one_stands_on_the_base() -> None:
    assert decided(source(1, 2, 3), old(1, 2), anew=True) == BasesElsewhere()
    assert decided(source(1, 2, 3, marks=(2,)), old(1, 2, 9), anew=True) == BasesElsewhere()
    assert decided(source(1, 2, 3, marks=(2,)), old(1, 2, written=512), anew=True).stray


def test_what_lies_below_comes_along_and_of_two_that_have_it_the_newer_one() -> None:
    here = source(1, 2, 3, 4, marks=(3,))
    child = replace(old(7), name=DatasetName("cold/filer1/tank/gone"))
    found = decided(here, old(1, 2, name="cold/filer0/tank"), old(1, 2, 3), child)
    assert set(found.follow) == {"cold/filer1/tank", "cold/filer1/tank/gone"}


def test_the_advice_renames_a_tree_by_its_top() -> None:
    names = ("tank", "tank/home", "tank/home/ann")
    here = [replace(source(1, 2), name=DatasetName(name), guid=number) for number, name in enumerate(names)]
    there = {
        f"cold/filer1/{name}": replace(
            old(1, 2, name=f"cold/filer1/{name}"),
            snapshots=tuple(replace(one, guid=one.guid + 100 * number) for one in old(1, 2).snapshots),
        )
        for number, name in enumerate(names)
    }
    here = [
        replace(one, snapshots=tuple(replace(it, guid=it.guid + 100 * number) for it in one.snapshots))
        for number, one in enumerate(here)
    ]
    wanted = [(one, DatasetName(f"cold/filer2/{one.name}")) for one in here]
    pairing = pair_datasets(Tree({one.name: one for one in here}), wanted, Tree())
    found = PoolSearch(Tree({DatasetName(name): one for name, one in there.items()}), POOL).find(pairing)
    assert found.stray.keys() == set(names)
    for stray in found.stray.values():
        assert stray.advice.startswith("'zfs rename -p cold/filer1/tank cold/filer2/tank' on the vault")
