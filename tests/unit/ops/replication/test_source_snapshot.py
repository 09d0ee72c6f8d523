"""One snapshot of everything: under a name that is free, or not at all; and a listing that is good for a moment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.ops_world import START, StoppedClock, context, dataset, tree, with_source
from zvault.core.errors import Refused
from zvault.ops.replication import source_snapshot
from zvault.ops.replication.source_snapshot import TRIES, RecentSource, snapshot_all
from zvault.zfs.changes import LzcFailure

TAKEN = LzcFailure("snapshot", "", [("tank@x", "SnapshotExists", 17)])
FULL = LzcFailure("snapshot", "", [("tank@x", "SnapshotExists", 17), ("tank/a@x", "NoSpace", 28)])


class Source:
    """Refuses as often as told; each try is a second later."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *refusals: LzcFailure) -> None:
        self.clock = StoppedClock(START)
        self.refusals = list(refusals)
        self.tried: list[list[str]] = []
        monkeypatch.setattr(source_snapshot, "asyncio", SimpleNamespace(sleep=self.sleep))

    async def sleep(self, seconds: float) -> None:
        self.clock.at += seconds

    async def snapshot(self, names: list[str], _: object) -> None:
        self.tried.append(names)
        if self.refusals:
            raise self.refusals.pop(0)

    async def make(self) -> str:
        lzc: Any = self
        return await snapshot_all(lzc, context().env.backup("b"), ["tank", "tank/a"], self.clock)


async def test_a_name_that_is_taken_is_tried_again_a_second_later(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(monkeypatch, TAKEN)
    made = await source.make()
    first, second = source.tried
    assert second == [f"tank@{made}", f"tank/a@{made}"]
    assert not set(first) & set(second)


async def test_anything_else_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(monkeypatch, FULL)
    with pytest.raises(LzcFailure):
        await source.make()
    assert len(source.tried) == 1


async def test_a_clock_that_stands_still_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(monkeypatch, *[TAKEN] * TRIES)
    with pytest.raises(Refused, match="cannot name a snapshot"):
        await source.make()
    assert len(source.tried) == TRIES


async def test_a_listing_is_good_for_a_moment_unless_it_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = 0.0, []

    async def listed(root: str) -> Any:
        asked.append(root)
        return tree(dataset(root))

    monkeypatch.setattr(source_snapshot, "time", SimpleNamespace(monotonic=lambda: now))
    where = with_source(context(), SimpleNamespace(tree=listed))
    recent, backup = RecentSource(where.clients), where.env.backup("b")
    assert await recent.tree(backup) is await recent.tree(backup)
    assert len(asked) == 1
    now += source_snapshot.A_MOMENT + 1
    await recent.tree(backup)
    assert len(asked) == 2
    recent.forget()
    await recent.tree(backup)
    assert len(asked) == 3
