"""The bases of many datasets advance together, and none waits for longer than it has to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.ops_world import dataset, snap
from tests.unit.patience import FOR_EVER, PATIENCE, eventually
from zvault.core.names import DatasetName, split_point
from zvault.core.replication.base_names import make_unsent_mark_name
from zvault.ops.replication import run_bases as module
from zvault.ops.replication.base_guard import BaseGuard
from zvault.ops.replication.run_bases import RunBases

COUNT = 40


class Calls:
    """The calls that protect bases, and what each was about. Each takes a moment, as a transaction group does."""

    def __init__(self) -> None:
        self.made: list[tuple[str, list[str]]] = []

    async def _note(self, call: str, names: Sequence[str]) -> None:
        self.made.append((call, sorted(names)))
        await asyncio.sleep(0.001)

    async def hold(self, names: Sequence[str], tag: str) -> None:
        await self._note("hold", names)

    async def release(self, names: Sequence[str], tag: str) -> None:
        await self._note("release", names)

    async def bookmark(self, marks: Mapping[str, str]) -> None:
        await self._note("bookmark", list(marks))

    async def destroy_bookmarks(self, names: Sequence[str]) -> None:
        await self._note("destroy_bookmarks", names)


def world() -> tuple[Calls, RunBases, list[tuple[BaseGuard, Any]]]:
    """As after streams: the former base and the new one are held, and what was before them is bookmarked."""
    calls = Calls()
    side: Any = SimpleNamespace(lzc=calls, forget=lambda _: None)
    bases, guards = RunBases(side, 7), []
    for number in range(COUNT):
        name = f"tank/d{number}"
        old, new = snap(2 * number + 1, name), snap(2 * number + 2, name)
        guard = BaseGuard.of(bases._together, 7, dataset(name, old, new), {})
        guard.held |= {old.name: old, new.name: new}
        guard.marks[DatasetName(name).bookmark(make_unsent_mark_name(7, old.guid))] = old.createtxg
        guards.append((guard, new))
    return calls, bases, guards


async def advanced_one_by_one(bases: RunBases, guards: Sequence[tuple[BaseGuard, Any]]) -> None:
    for guard, new in guards:
        bases.advance_later(guard, new)
        await asyncio.sleep(0.003)  # the next stream


async def test_bases_of_streams_that_end_one_after_the_other_advance_together() -> None:
    calls, bases, guards = world()
    await advanced_one_by_one(bases, guards)
    assert await bases.wait_advanced() == {}
    assert all(guard.protects_only(new) for guard, new in guards)
    assert len(calls.made) < COUNT, "one call each, and more, would be three for each dataset"
    for call in ("bookmark", "release", "destroy_bookmarks"):
        assert sum(len(names) for made, names in calls.made if made == call) == COUNT
    marked: set[str] = set()
    for call, names in calls.made:
        datasets = {split_point(name)[0] for name in names}
        if call == "bookmark":
            marked |= datasets
        elif call in ("release", "destroy_bookmarks"):
            assert datasets <= marked, "what is released is protected otherwise before"


async def test_a_base_advances_while_others_are_sent_and_the_end_waits_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "GATHER", 0.01)
    _, bases, (first, second, *_) = world()
    bases.advance_later(*first)
    await eventually(lambda: first[0].protects_only(first[1]))
    monkeypatch.setattr(module, "GATHER", FOR_EVER)
    bases.advance_later(*second)
    await asyncio.sleep(0.05)
    assert not second[0].protects_only(second[1]), "it waits for others"
    async with asyncio.timeout(PATIENCE):
        assert await bases.wait_advanced() == {}
    assert second[0].protects_only(second[1])


async def test_what_is_given_up_while_it_waits_stays_protected_as_it_was() -> None:
    calls, bases, (one, *_) = world()
    before = dict(one[0].held), dict(one[0].marks)
    bases.advance_later(*one)
    await bases.stop()
    assert (one[0].held, one[0].marks) == before
    assert calls.made == []
