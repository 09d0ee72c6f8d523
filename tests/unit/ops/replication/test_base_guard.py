"""The last base is sacred: what is held and bookmarked when the power fails between any two changes."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.examples import cases
from tests.unit.ops.ops_world import (
    Crash,
    Host,
    context,
    dataset,
    snap,
    snapname,
    tree,
    with_source,
    with_vault,
)
from zvault.core.errors import Conflict
from zvault.core.model import Bookmark, Dataset, Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.core.replication.base_names import (
    hold_tag,
    mark_name,
    marks_by_vault,
    sent_marks,
    unsent_mark_name,
)
from zvault.core.replication.plan_model import Step, TransferPlan
from zvault.core.replication.planner import plan_tree
from zvault.core.replication.progress import RunMeter
from zvault.ops.replication.base_guard import BaseGuard, perhaps_held
from zvault.ops.replication.bases import Bases
from zvault.ops.replication.run_plan import Estimates, OpenBackup, RunPlan
from zvault.ops.replication.sides_and_plan import ours_of
from zvault.ops.replication.transfer import Transfers
from zvault.zfs.changes import NamesGone

COLD, CLOUD = 0x1F, 0x2E

CORRECTED = ("destroy", "hold", "receive")
"""Changes by which, or before which, a run corrects the bookmarks of what the vault does not have any more."""


class NoAsides:
    async def run(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(stdout="", stderr="", returncode=0)


async def unwritten(_: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, "0")


@dataclass
class Faked(Transfers):
    """The real order of a transfer; only the stream is made of thin air."""

    host: Host = field(default_factory=Host)
    said: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, host: Host) -> Faked:
        async def nothing(_: str) -> None:
            pass

        where = context()

        forgotten: list[str] = []

        async def exists(_: str) -> bool:
            return not host.gone

        async def source(_: str, *, sizes: bool = True) -> Tree:
            found = replace(host.source(), name=DatasetName(host.renamed))
            return tree(found) if host.renamed else tree()

        async def there(_: str, *, sizes: bool = True) -> Tree:
            return host.sides().vault

        with_source(
            where,
            SimpleNamespace(lzc=host, held=host.held, forget=forgotten.append, exists=exists, tree=source),
        )
        zfs = SimpleNamespace(
            make_parents=nothing, abort_receive=nothing, tree_or_none=there, host=NoAsides(), get=unwritten
        )
        with_vault(where, SimpleNamespace(holds=host.no_holds, get=unwritten))
        vault: Any = SimpleNamespace(guid=COLD, zfs=zfs)
        said: list[str] = []

        def note(_: str, **fields: Any) -> None:
            said.append(str(fields.get("text", "")))

        opened = OpenBackup(where, where.env.backup("b"), vault, note)
        sides = host.sides()
        plans = plan_tree(sides.pairing, sides.vault, wanted=ours_of(opened.backup))
        plan = RunPlan(sides, plans, Bases(opened.source, COLD), Estimates(opened), {}, {})
        return cls(opened, plan, RunMeter(), host=host, said=said, forgotten=forgotten)

    async def _stream(self, step: Step, plan: TransferPlan, *_: Any) -> None:
        """The snapshots arrive one by one: each is a change after which the power may fail."""
        start = step.base.createtxg if step.base else 0
        between = step.intermediates
        for arriving in self.host.snapshots:
            if (start < arriving.createtxg < step.to.createtxg and between) or arriving.guid == step.to.guid:
                self.host.change(f"receive {arriving.snapname}")
                self.host.vault = [*(self.host.vault or ()), arriving]


async def run(host: Host) -> None:
    """One run's transfer, planned on what a listing shows."""
    await carried_out(await planned(host))


async def planned(host: Host) -> Faked:
    faked = Faked.of(host)
    await faked.plan.bases.learn(
        [faked.plan.sides.source.datasets[plan.dataset] for plan in faked.plan.plans]
    )
    return faked


async def carried_out(faked: Faked) -> None:
    (plan,), bases = faked.plan.plans, faked.plan.bases
    await faked.cover()
    await faked.carry_out(plan)
    for error in (await bases.wait_advanced()).values():
        raise error


def is_safe(host: Host) -> bool:
    """Whether the next incremental's base is kept for this vault; another vault's hold may go at any moment."""
    if not host.vault:
        return True
    base = host.vault[-1]
    marks = {f"tank#{name(COLD, base.guid)}" for name in (mark_name, unsent_mark_name)}
    return hold_tag(COLD) in host.holds[base.name] or not marks.isdisjoint(host.marks)


def fresh() -> Host:
    return Host(snapshots=[snap(1), snap(2), snap(3)])


async def advanced() -> Host:
    """The vault has the first snapshot; three more came since, and one by hand."""
    host = Host(snapshots=[snap(1)])
    await run(host)
    host.snapshots += [snap(2), snap(3), snap(4, name="by-hand"), snap(5)]
    host.holds[snap(1).name].add("somebody")
    host.holds[snap(2).name].add(hold_tag(CLOUD))
    host.marks[f"tank#{mark_name(CLOUD, 102)}"] = snap(2)
    host.marks["tank#mine"] = snap(1)
    host.changes, host.log = 0, []
    return host


def assert_nothing_leaked(host: Host) -> None:
    """Only the base is held and bookmarked for this vault; what others hold is as it was."""
    assert host.vault
    newest = host.vault[-1]
    assert [name for name, tags in host.holds.items() if hold_tag(COLD) in tags] == [newest.name]
    ours = [mark for mark in host.marks if mark.startswith((f"tank#zvault_{COLD:x}_", "tank#zvault-"))]
    assert ours == [f"tank#{mark_name(COLD, newest.guid)}"]


def assert_others_are_untouched(host: Host) -> None:
    assert host.holds[snap(1).name] == {"somebody"}
    assert hold_tag(CLOUD) in host.holds[snap(2).name]
    assert {"tank#mine", f"tank#{mark_name(CLOUD, 102)}"} <= set(host.marks)


async def test_a_first_run_holds_and_bookmarks_what_the_vault_has() -> None:
    host = fresh()
    await run(host)
    assert [s.snapname for s in host.vault or ()] == [snapname(1), snapname(2), snapname(3)]
    assert_nothing_leaked(host)


async def test_the_old_base_goes_only_after_the_new_one_is_safe() -> None:
    host = await advanced()
    await run(host)
    assert_nothing_leaked(host)
    assert_others_are_untouched(host)
    last_arrival = max(i for i, what in enumerate(host.log) if what.startswith("receive"))
    assert host.log[last_arrival + 1 :] == [
        f"bookmark {snapname(5)}",
        f"release {snapname(3)}",
        "destroy 1 bookmarks",
    ]


async def crashed(host: Host, at: int) -> bool:
    host.crash_at, host.changes = at, 0
    try:
        await run(host)
    except Crash:
        return True
    finally:
        host.crash_at = None
    return False


@pytest.mark.parametrize("world", ["fresh", "advanced"])
async def test_after_a_crash_anywhere_the_base_is_safe_and_the_next_run_tidies_up(world: str) -> None:
    for at in range(1, 40):
        host = fresh() if world == "fresh" else await advanced()
        fell = await crashed(host, at)
        if not _mid_stream(host):
            assert is_safe(host), f"before change {at}: {host.log}"
        await run(host)
        assert is_safe(host)
        assert_nothing_leaked(host)
        if world == "advanced":
            assert_others_are_untouched(host)
        if not fell:
            return
    pytest.fail("a run never ended")


def _mid_stream(host: Host) -> bool:
    """Whether the last that happened is that a snapshot of many arrived which is not the stream's last."""
    return bool(host.log) and host.log[-1] == f"receive {snapname(2)}"


@pytest.mark.parametrize("world", ["fresh", "advanced"])
async def test_no_bookmark_tells_of_what_was_only_about_to_be_sent(world: str) -> None:
    for at in range(1, 40):
        host = fresh() if world == "fresh" else await advanced()
        fell = await crashed(host, at)
        assert marked_as_sent(host) <= had(host), f"before change {at}: {host.log}"
        if not fell:
            assert marked_as_sent(host)
            return


async def test_what_a_vault_lost_is_protected_on_but_not_told_of() -> None:
    host = await advanced()
    await run(host)
    assert host.vault
    lost = host.vault.pop()
    host.crash_at, host.changes = 3, 0
    with pytest.raises(Crash):
        await run(host)
    assert host.log[-2:] == [f"bookmark {lost.snapname}", "destroy 1 bookmarks"]
    assert marked_as_sent(host) == set()
    assert {mark.guid for mark in marks_by_vault(host.source())[COLD]} == {lost.guid}
    host.crash_at = None
    await run(host)
    assert marked_as_sent(host) == {lost.guid}
    assert_nothing_leaked(host)


@pytest.mark.parametrize("world", ["fresh", "advanced"])
async def test_a_stream_of_many_that_breaks_off_leaves_a_base_that_is_safe(world: str) -> None:
    for at in range(1, 40):
        host = fresh() if world == "fresh" else await advanced()
        if not await crashed(host, at):
            return
        assert is_safe(host), f"before change {at}: {host.log}"


async def test_two_crashes_in_a_row_do_no_more_harm_than_one() -> None:
    for first in range(1, 12):
        for second in range(1, 12):
            host = await advanced()
            await crashed(host, first)
            await crashed(host, second)
            await run(host)
            assert_nothing_leaked(host)
            assert_others_are_untouched(host)


async def test_an_advanced_base_needs_no_change_at_all() -> None:
    host = fresh()
    await run(host)
    host.changes = 0
    await run(host)
    assert host.changes == 0


async def test_a_base_that_lost_its_protection_gets_it_back() -> None:
    host = fresh()
    await run(host)
    host.holds.clear()
    host.marks.clear()
    await run(host)
    assert_nothing_leaked(host)


async def test_all_that_one_stream_brings_is_held_in_one_call() -> None:
    host = fresh()
    guard = BaseGuard(host, COLD, DatasetName("tank"))  # type: ignore[arg-type]
    await guard.cover(*host.snapshots)
    await guard.cover(*host.snapshots[1:])
    assert host.log == [f"bookmark {snapname(1)}", f"hold {snapname(1)} {snapname(2)} {snapname(3)}"]
    assert marked_as_sent(host) == set()
    host.vault = list(host.snapshots)
    await guard.advance(host.snapshots[-1])
    assert_nothing_leaked(host)


def vanish(host: Host, *numbers: int) -> None:
    host.snapshots = [one for one in host.snapshots if one.guid - 100 not in numbers]


@pytest.mark.parametrize("gone", [(1,), (2,), (1, 2)])
async def test_what_vanished_before_it_was_held_is_sent_no_more(gone: tuple[int, ...]) -> None:
    host = fresh()
    faked = await planned(host)
    vanish(host, *gone)
    await carried_out(faked)
    assert [s.guid - 100 for s in host.vault or ()] == [n for n in (1, 2, 3) if n not in gone]
    assert_nothing_leaked(host)


async def test_where_the_newest_vanished_the_one_before_it_is_the_base() -> None:
    host = await advanced()
    faked = await planned(host)
    vanish(host, 5, 2)
    await carried_out(faked)
    assert [s.guid - 100 for s in host.vault or ()] == [1, 3]
    held = [name for name, tags in host.holds.items() if hold_tag(COLD) in tags]
    assert held == [snap(3).name]


async def test_what_was_held_for_a_dataset_whose_turn_never_comes_is_asked_for_again() -> None:
    host = fresh()
    faked = await planned(host)
    await faked.cover()
    assert faked.forgotten == ["tank"]


async def test_a_base_that_vanished_is_replaced_by_its_bookmark() -> None:
    host = await advanced()
    host.holds.clear()
    faked = await planned(host)
    vanish(host, 1)
    await carried_out(faked)
    assert [s.guid - 100 for s in host.vault or ()] == [1, 2, 3, 5]
    assert_nothing_leaked(host)


async def test_a_dataset_that_vanished_is_told_and_one_that_was_renamed_tried_again() -> None:
    host = fresh()
    faked = await planned(host)
    vanish(host, 1, 2, 3)
    host.gone = True
    await carried_out(faked)
    assert faked.said == ["gone from the source, and left out: tank"]
    host = fresh()
    faked = await planned(host)
    vanish(host, 1, 2, 3)
    host.gone, host.renamed = True, "tank/b"
    with pytest.raises(NamesGone, match="was renamed") as failure:
        await carried_out(faked)
    assert failure.value.retryable


async def test_what_one_has_lost_keeps_no_other_from_being_held_in_the_same_call() -> None:
    host = fresh()
    mine, other = (BaseGuard(host, COLD, DatasetName(name)) for name in ("tank", "tank/a"))  # type: ignore[arg-type]
    lost = snap(9, "tank/a")
    await BaseGuard.cover_all([(other, [lost]), (mine, host.snapshots)])
    assert mine.held.keys() == {one.name for one in host.snapshots}
    assert not other.held
    host.marks[f"tank/a#{mark_name(COLD, 101)}"] = snap(1)
    other.marks = {f"tank/a#{mark_name(COLD, 101)}": 1}
    mine.held.clear()
    await BaseGuard.cover_all([(other, [lost]), (mine, host.snapshots)])
    assert mine.held.keys() == {one.name for one in host.snapshots}
    assert not other.held


async def test_a_guard_knows_from_a_listing_what_is_its_own() -> None:
    host = await advanced()
    guard = BaseGuard.of(host, COLD, host.source(), host.holds)  # type: ignore[arg-type]
    assert guard.held == {snap(1).name: snap(1)}
    assert guard.marks == {f"tank#{mark_name(COLD, 101)}": 1}


# What is asked for its holds


def unasked(host: Host) -> list[str]:
    """What is held for the vault, and would not be asked whether it is."""
    asked = {snap.name for snap in perhaps_held(host.source(), COLD)}
    return [name for name, tags in host.holds.items() if hold_tag(COLD) in tags and name not in asked]


def marked_as_sent(host: Host) -> set[int]:
    """The GUIDs of which the bookmarks tell that the vault has them."""
    return {mark.guid for mark in sent_marks(host.source(), COLD)}


def had(host: Host) -> set[int]:
    return {one.guid for one in host.vault or ()}


def test_of_a_dataset_with_an_advanced_base_only_what_came_since_its_base_is_asked() -> None:
    marks = [
        Bookmark(DatasetName("tank"), mark_name(vault, 100 + n), 100 + n, n, 0)
        for vault, n in ((CLOUD, 1), (COLD, 3))
    ]
    source = dataset("tank", *(snap(number) for number in range(1, 6)), *marks)
    assert perhaps_held(source, COLD) == [snap(3), snap(4), snap(5)]
    assert perhaps_held(source, 0x77) == source.snapshots
    assert perhaps_held(replace(source, origin="tank/x@s"), COLD) == source.snapshots


@settings(max_examples=cases(400), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("run"), st.none()),
            st.tuples(st.just("crash"), st.integers(1, 12)),
            st.tuples(st.just("snapshots"), st.integers(1, 3)),
            st.tuples(st.just("vault goes back"), st.integers(0, 4)),
            st.tuples(st.just("prune"), st.integers(0, 8)),
            st.tuples(st.just("lose the marks"), st.none()),
        ),
        max_size=12,
    )
)
@example([("crash", 10), ("vault goes back", 0), ("crash", 3)])
async def test_whatever_breaks_off_nothing_is_held_that_is_not_asked(
    story: list[tuple[str, int | None]],
) -> None:
    """The bookmarks tell where to look: after any crash, and also where a vault was put back to an older state."""
    host, taken = fresh(), 3
    unseen: set[int] = set()
    for what, number in story:
        count, began = number or 0, len(host.log)
        if what == "run":
            with contextlib.suppress(Conflict):  # the two sides may have nothing in common any more
                await run(host)
                assert_nothing_leaked(host)
        elif what == "crash":
            with contextlib.suppress(Conflict):
                await crashed(host, count)
        elif what == "snapshots":
            host.snapshots += [snap(taken + more) for more in range(1, count + 1)]
            taken += count
        elif what == "vault goes back" and host.vault:
            unseen |= had(host)
            host.vault = host.vault[:count] or None
        elif what == "prune" and host.vault:
            free = [one for one in host.snapshots[: count % len(host.snapshots)] if not host.holds[one.name]]
            host.snapshots = [one for one in host.snapshots if one not in free or one == host.vault[-1]]
        elif what == "lose the marks":
            host.marks.clear()
        assert unasked(host) == [], host.log
        if what == "run" or any(done.startswith(CORRECTED) for done in host.log[began:]):
            unseen.clear()
        assert marked_as_sent(host) <= had(host) | unseen, host.log


@dataclass
class Family:
    """Datasets that are clones of one another, each with the snapshots that are held and marked of it (by age)."""

    snaps: dict[str, list[int]]
    origin: dict[str, tuple[str, int] | None]
    held: set[int] = field(default_factory=set)
    marks: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    now: int = 0

    def listed(self, name: str) -> Dataset:
        marks = [Bookmark(DatasetName(name), mark, n, n, 0) for mark, n in self.marks[name].items()]
        origin = self.origin[name]
        return dataset(
            name,
            *(Snapshot(DatasetName(name), f"s{n}", n, n, n) for n in self.snaps[name]),
            *marks,
            origin=f"{origin[0]}@s{origin[1]}" if origin else None,
        )

    def snapshot(self, name: str) -> None:
        self.now += 1
        self.snaps[name].append(self.now)

    def clone(self, name: str) -> None:
        if self.snaps[name]:
            new = f"tank/c{len(self.snaps)}"
            self.snaps[new], self.origin[new] = [], (name, self.snaps[name][self.now % len(self.snaps[name])])

    def promote(self, name: str) -> None:
        """As the kernel does it: snapshots and bookmarks up to the origin change their owner."""
        if (origin := self.origin[name]) is None:
            return
        former, last = origin
        moving = [n for n in self.snaps[former] if n <= last]
        self.snaps[name] = moving + self.snaps[name]
        self.snaps[former] = [n for n in self.snaps[former] if n > last]
        moving_marks = {mark: n for mark, n in self.marks[former].items() if n <= last}
        self.marks[name] |= moving_marks
        for mark in moving_marks:
            del self.marks[former][mark]
        self.origin[name], self.origin[former] = self.origin[former], (name, last)
        for other, at in self.origin.items():
            if at is not None and at[0] == former and at[1] in moving and other != former:
                self.origin[other] = (name, at[1])

    async def advance(self, name: str, calls: int) -> None:
        """The first calls of a run for the newest snapshot; then the power fails."""
        if self.snaps[name]:
            there = self.listed(name)
            asked = {
                snap.name: {hold_tag(COLD)} for snap in perhaps_held(there, COLD) if snap.guid in self.held
            }
            changes = FamilyLzc(self, name, calls)
            with contextlib.suppress(Crash):
                await BaseGuard.of(changes, COLD, there, asked).advance(there.snapshots[-1])


@dataclass
class FamilyLzc:
    family: Family
    name: str
    left: int

    def numbers(self, names: Iterable[str]) -> set[int]:
        self.left -= 1
        if self.left < 0:
            raise Crash
        return {int(name.partition("@s")[2]) for name in names}

    async def hold(self, names: Sequence[str], _: str) -> None:
        self.family.held |= self.numbers(names)

    async def release(self, names: Sequence[str], _: str) -> None:
        self.family.held -= self.numbers(names)

    async def bookmark(self, marks: Mapping[str, str]) -> None:
        (number,) = self.numbers(marks.values())
        self.family.marks[self.name] |= {mark.partition("#")[2]: number for mark in marks}

    async def destroy_bookmarks(self, names: Sequence[str]) -> None:
        self.numbers(())
        for name in names:
            del self.family.marks[self.name][name.partition("#")[2]]


@settings(max_examples=cases(400), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["snapshot", "snapshot", "advance", "advance", "clone", "promote"]),
            st.integers(0, 7),
            st.integers(1, 4),
        ),
        max_size=30,
    )
)
@example(
    [
        ("snapshot", 0, 1),
        ("advance", 0, 4),
        ("snapshot", 0, 1),
        ("advance", 0, 1),
        ("snapshot", 0, 1),
        ("advance", 0, 2),
        ("clone", 0, 1),
        ("promote", 1, 1),
    ]
)
@example(
    [
        ("snapshot", 0, 1),
        ("clone", 0, 1),
        ("snapshot", 1, 1),
        ("advance", 0, 1),
        ("advance", 1, 2),
        ("promote", 1, 1),
    ]
)
async def test_a_promote_hides_no_hold(story: list[tuple[str, int, int]]) -> None:
    family = Family({"tank/a": []}, {"tank/a": None})
    for what, which, calls in story:
        name = sorted(family.snaps)[which % len(family.snaps)]
        if what == "advance":
            await family.advance(name, calls)
        else:
            getattr(family, what)(name)
        asked = {snap.guid for one in family.snaps for snap in perhaps_held(family.listed(one), COLD)}
        assert family.held <= asked


def test_bookmarks_are_told_apart_by_their_vault() -> None:
    names = [
        "zvault_1f_65",
        "zvault_2e_65",
        "zvault-2e_66",
        "zvault_",
        "zvault-_1",
        "zvault_xyz_1",
        "mine",
        "zvaultx_1f_65",
    ]
    marks = [Bookmark(DatasetName("tank"), name, 100 + place, place, 0) for place, name in enumerate(names)]
    found = marks_by_vault(dataset("tank", *marks))
    assert {vault: [mark.markname for mark in marks] for vault, marks in found.items()} == {
        COLD: ["zvault_1f_65"],
        CLOUD: ["zvault_2e_65", "zvault-2e_66"],
    }


def test_names_are_made_of_guids_and_fit_where_they_go() -> None:
    largest = 2**64 - 1
    assert hold_tag(largest) == "zvault:ffffffffffffffff"
    assert mark_name(largest, largest) == "zvault_ffffffffffffffff_ffffffffffffffff"
    assert len(unsent_mark_name(largest, largest)) == len(mark_name(largest, largest))
    mark = Bookmark(DatasetName("tank"), mark_name(largest, largest), largest, 1, 1)
    assert marks_by_vault(dataset("tank", mark)) == {largest: [mark]}
