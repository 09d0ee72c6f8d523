"""One snapshot of all that can have one, under a name that is free; and a listing that is good for a moment."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.ops_world import START, StoppedClock, context, dataset, tree, with_source
from zvault.core.errors import NotFound, Refused, ZvaultError
from zvault.ops.replication import source_snapshot
from zvault.ops.replication.source_snapshot import (
    MOST_REFUSED_CALLS,
    RELISTINGS,
    SNAPNAME_TRIES,
    RecentSource,
    SourceSnapshot,
)
from zvault.zfs.changes import LzcFailure, NamesGone

TAKEN = LzcFailure("snapshot", "", [("tank@x", "SnapshotExists", 17)])
NOBODY = LzcFailure("snapshot", "", [("", "NoSpace", errno.ENOSPC)])
FULL = LzcFailure("snapshot", "", [("tank@x", "SnapshotExists", 17), ("tank/a@x", "NoSpace", 28)])


class Source:
    """Refuses as often as told; each try is a second later."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *refusals: ZvaultError) -> None:
        self.lists = 0
        self.clock = StoppedClock(START)
        self.refusals = list(refusals)
        self.tried: list[list[str]] = []
        self.names: list[str] = []
        self.make_room: Callable[[], Awaitable[bool]] | None = None
        monkeypatch.setattr(source_snapshot, "asyncio", SimpleNamespace(sleep=self.sleep))

    @property
    def refused(self) -> dict[str, int]:
        return {name: answer.code for name, answer in self.snapshot_.refused.items()}

    async def sleep(self, seconds: float) -> None:
        self.clock.at += seconds

    async def snapshot(self, names: list[str], _: object) -> None:
        self.tried.append(names)
        if self.refusals:
            raise self.refusals.pop(0)

    async def make(self) -> str:
        lzc: Any = self
        self.snapshot_ = SourceSnapshot(lzc, context().env.backup("b"), self.listed, self.clock)
        self.snapshot_.make_room = self.make_room
        return await self.snapshot_.make()

    async def listed(self) -> list[str]:
        self.lists += 1
        return self.names or ["tank", "tank/a", f"tank/{self.lists}"]


async def test_a_name_that_is_taken_is_tried_again_a_second_later(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(monkeypatch, TAKEN)
    made = await source.make()
    first, second = source.tried
    assert second == [f"tank@{made}", f"tank/a@{made}", f"tank/1@{made}"]
    assert not set(first) & set(second)


async def test_one_that_refuses_is_left_out_and_all_others_get_theirs_in_one_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Source(monkeypatch, FULL)
    made = await source.make()
    assert source.tried[-1] == [f"tank@{made}", "tank/1@" + made]
    assert len(source.tried) == 2
    assert source.refused == {"tank/a": errno.ENOSPC}


async def test_where_there_is_no_room_some_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def make_room() -> bool:
        asked.append(True)
        return True

    source = Source(monkeypatch, NOBODY, FULL)
    source.make_room = make_room
    made = await source.make()
    assert source.tried == [source.tried[0], source.tried[0], [f"tank@{made}", f"tank/1@{made}"]]
    assert asked == [True]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EPERM, errno.EIO, 12345])
async def test_what_names_nobody_is_told_of_all(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    source = Source(monkeypatch, LzcFailure("snapshot", "", [("", "", code)]))
    assert await source.make() == ""
    assert source.refused == dict.fromkeys(["tank", "tank/a", "tank/1"], code)
    assert len(source.tried) == 1


async def test_a_pool_that_is_read_only_is_no_refusal_of_single_datasets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Source(monkeypatch, LzcFailure("snapshot", "", [("tank", "", errno.EROFS)]))
    with pytest.raises(LzcFailure):
        await source.make()
    assert source.refused == {}


async def test_words_that_nobody_knows_are_told_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(monkeypatch, LzcFailure("snapshot", "cannot create snapshots : oops", [("", "", 0)]))
    await source.make()
    assert {answer.said for answer in source.snapshot_.refused.values()} == {"cannot create snapshots : oops"}


async def test_a_limit_that_is_told_of_a_dataset_above_is_for_all_below(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over = LzcFailure("snapshot", "", [("tank/a", "QuotaExceeded", errno.EDQUOT)])
    source = Source(monkeypatch, over, over)
    source.names = ["tank", "tank/a", "tank/a/b", "tank/c"]
    made = await source.make()
    assert source.tried[-1] == [f"tank@{made}", f"tank/c@{made}"]


async def test_a_pool_that_names_another_one_each_time_is_not_asked_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"tank/{number}" for number in range(100)]
    source = Source(
        monkeypatch, *(LzcFailure("snapshot", "", [(f"{name}@x", "NoSpace", errno.ENOSPC)]) for name in names)
    )
    source.names = names
    assert await source.make() == ""
    assert len(source.tried) == MOST_REFUSED_CALLS
    assert source.refused.keys() == set(names)


async def test_a_clock_that_stands_still_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(monkeypatch, *[TAKEN] * SNAPNAME_TRIES)
    with pytest.raises(Refused, match="cannot name a snapshot"):
        await source.make()
    assert len(source.tried) == SNAPNAME_TRIES


@pytest.mark.parametrize("must_be_free", [False, True])
async def test_a_vault_that_has_every_name_keeps_a_source_from_a_second_snapshot_only(
    monkeypatch: pytest.MonkeyPatch, must_be_free: bool
) -> None:
    class Every:
        def __contains__(self, _: object) -> bool:
            return True

    source = Source(monkeypatch)
    lzc: Any = source
    snapshot = SourceSnapshot(
        lzc, context().env.backup("b"), source.listed, source.clock, Every(), must_be_free=must_be_free
    )
    if must_be_free:
        with pytest.raises(Refused, match="the vault has"):
            await snapshot.make()
    else:
        await snapshot.make()
    assert (len(source.tried), source.clock.at) == (0 if must_be_free else 1, START + SNAPNAME_TRIES)


class Busy(Source):
    """Its listings name datasets that are gone when the snapshot is made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *vanishing: str) -> None:
        super().__init__(monkeypatch)
        self.vanishing = vanishing

    async def snapshot(self, names: list[str], _: object) -> None:
        self.tried.append(names)
        if gone := [name for name in names if name.partition("@")[0] in self.vanishing]:
            # Over ssh zfs names the first dataset only, here libzfs_core all snapshots.
            raise NamesGone("cannot snapshot", "gone", [gone[0].partition("@")[0]])


async def test_a_dataset_that_vanished_since_the_listing_has_it_listed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Busy(monkeypatch, "tank/1", "tank/2")
    made = await source.make()
    assert source.tried[-1] == [f"tank@{made}", f"tank/a@{made}", f"tank/3@{made}"]
    assert source.snapshot_.warning == ""


async def test_one_that_vanishes_whenever_it_was_listed_is_left_out_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Busy(monkeypatch, "tank/a", *(f"tank/{number}" for number in range(1, 20)))
    made = await source.make()
    assert source.lists == RELISTINGS + 1
    assert source.tried[-1] == [f"tank@{made}"]
    assert source.snapshot_.left_out == ["tank/a", f"tank/{RELISTINGS + 1}"]
    assert "tank/a, tank/4" in source.snapshot_.warning


async def test_where_nothing_is_left_that_is_told_and_may_go_better(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Busy(monkeypatch, "tank", "tank/a", *(f"tank/{number}" for number in range(1, 20)))
    with pytest.raises(NotFound) as failure:
        await source.make()
    assert failure.value.retryable


async def test_a_name_that_is_taken_beside_a_dataset_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    both = LzcFailure("snapshot", "", [("tank@x", "SnapshotExists", 17), ("tank/1", "FilesystemNotFound", 2)])
    source = Source(monkeypatch, both, NamesGone("snapshot", "", ["tank/1"]))
    made = await source.make()
    assert source.tried[-1][-1] == f"tank/2@{made}"


async def test_a_listing_is_good_for_a_moment_unless_it_is_forgotten() -> None:
    asked = []
    clock = StoppedClock(START)

    async def listed(root: str, *, sizes: bool) -> Any:
        assert not sizes
        asked.append(root)
        return tree(dataset(root))

    where = with_source(context(), SimpleNamespace(tree=listed))
    recent, backup = RecentSource(where.clients, clock), where.env.backup("b")
    assert await recent.tree(backup) is await recent.tree(backup)
    assert len(asked) == 1
    clock.at += source_snapshot.A_MOMENT + 1
    await recent.tree(backup)
    assert len(asked) == 2
    recent.forget()
    await recent.tree(backup)
    assert len(asked) == 3
