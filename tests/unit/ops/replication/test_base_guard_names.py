"""The names of holds and bookmarks of a base: of which vault they are, and where a promote hides them."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.examples import cases
from tests.unit.ops.ops_world import (
    Crash,
    dataset,
)
from tests.unit.ops.replication.base_guard_world import CLOUD, COLD
from zvault.core.model import Bookmark, Dataset, Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.base_names import (
    group_marks_by_vault,
    make_disproved_mark_name,
    make_hold_tag,
    make_mark_name,
    make_unsent_mark_name,
)
from zvault.ops.replication.base_guard import BaseGuard, list_perhaps_held


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
                snap.name: {make_hold_tag(COLD)}
                for snap in list_perhaps_held(there, COLD)
                if snap.guid in self.held
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
        asked = {snap.guid for one in family.snaps for snap in list_perhaps_held(family.listed(one), COLD)}
        assert family.held <= asked


def test_bookmarks_are_told_apart_by_their_vault() -> None:
    names = [
        "zvault_1f_65",
        "zvault_2e_65",
        "zvault-2e_66",
        "zvault.2e_67",
        "zvault_",
        "zvault-_1",
        "zvault_xyz_1",
        "mine",
        "zvaultx_1f_65",
        "zvaultx2e_67",
    ]
    marks = [Bookmark(DatasetName("tank"), name, 100 + place, place, 0) for place, name in enumerate(names)]
    found = group_marks_by_vault(dataset("tank", *marks))
    assert {vault: [mark.markname for mark in marks] for vault, marks in found.items()} == {
        COLD: ["zvault_1f_65"],
        CLOUD: ["zvault_2e_65", "zvault-2e_66", "zvault.2e_67"],
    }


def test_names_are_made_of_guids_and_fit_where_they_go() -> None:
    largest = 2**64 - 1
    assert make_hold_tag(largest) == "zvault:ffffffffffffffff"
    assert make_mark_name(largest, largest) == "zvault_ffffffffffffffff_ffffffffffffffff"
    for name in (make_unsent_mark_name, make_disproved_mark_name):
        assert len(name(largest, largest)) == len(make_mark_name(largest, largest))
    mark = Bookmark(DatasetName("tank"), make_mark_name(largest, largest), largest, 1, 1)
    assert group_marks_by_vault(dataset("tank", mark)) == {largest: [mark]}
