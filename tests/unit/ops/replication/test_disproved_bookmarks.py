"""What a look at a vault has disproved is taken back where it is written: on the source, and nothing else is."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.no_keys import NoKeys
from tests.unit.ops.ops_world import context, dataset, snap, tree, vaulted, with_source
from zvault.core.errors import ZvaultError
from zvault.core.model import Bookmark, Dataset
from zvault.core.names import DatasetName
from zvault.core.replication.base_names import make_disproved_mark_name, make_mark_name
from zvault.ops.context import Context
from zvault.ops.replication.disproved_bookmarks import correct_disproved
from zvault.ops.replication.listing import BothListings
from zvault.ops.state.pool_book import SeenPool
from zvault.zfs.changes import LzcFailure

POOL = 77


class Source(NoKeys):
    """Has bookmarks renamed; those of datasets that refuse are refused, with this errno."""

    def __init__(self, code: int = 0, *refuse: str) -> None:
        self.host = self.lzc = self
        self.code, self.refuse = code, refuse
        self.made: dict[str, str] = {}
        self.gone: set[str] = set()
        self.done_when_forgotten: dict[str, bool] = {}

    def _check(self, names: Sequence[str]) -> None:
        if bad := [name for name in names if name.partition("#")[0] in self.refuse]:
            raise LzcFailure("change", "", [(name, "", self.code) for name in bad])

    async def bookmark(self, marks: Mapping[str, str]) -> None:
        await asyncio.sleep(0)
        self._check(list(marks))
        self.made |= marks

    async def destroy_bookmarks(self, names: Sequence[str]) -> None:
        await asyncio.sleep(0)
        self._check(names)
        self.gone.update(names)

    def forget(self, name: str) -> None:
        self.done_when_forgotten[name] = any(one.partition("#")[0] == name for one in self.gone)


def told(name: str, number: int) -> Bookmark:
    of = snap(number, name)
    return Bookmark(DatasetName(name), make_mark_name(POOL, of.guid), of.guid, of.createtxg, of.creation)


NAMES = ("tank", "tank/a", "tank/b")


def gone_back(folder: Path, source: Source) -> tuple[Context, BothListings]:
    """Three datasets whose newest bookmark tells of the third snapshot; the vault has the first two."""
    where = with_source(context(folder=folder), source)

    async def state(_: str) -> Any:
        return SimpleNamespace(guid=POOL)

    where.clients.zpool = SimpleNamespace(state=state)  # type: ignore[assignment]
    where.records.places.note(POOL, "tank", "cold/host/tank")
    datasets: list[Dataset] = [
        dataset(name, *(snap(number, name) for number in (1, 2, 3)), told(name, 2), told(name, 3))
        for name in NAMES
    ]
    there = tree(*(vaulted(f"cold/host/{name}", 1, 2) for name in NAMES))
    pairs = tuple((one, DatasetName(f"cold/host/{one.name}")) for one in datasets)
    return where, BothListings(tree(*datasets), there, pairs)


async def test_the_newest_is_renamed_and_the_one_before_stays(tmp_path: Path) -> None:
    source = Source()
    where, sides = gone_back(tmp_path, source)
    found = await correct_disproved(where, where.env.backup("b"), sides)
    assert [one.name for one in found] == [*NAMES]
    assert source.made == {
        f"{name}#{make_disproved_mark_name(POOL, 103)}": f"{name}#{make_mark_name(POOL, 103)}"
        for name in NAMES
    }
    assert source.gone == {f"{name}#{make_mark_name(POOL, 103)}" for name in NAMES}
    assert source.done_when_forgotten == dict.fromkeys(NAMES, True)


async def test_one_that_refuses_keeps_no_other_from_it(tmp_path: Path) -> None:
    source = Source(errno.EBUSY, "tank")
    where, sides = gone_back(tmp_path, source)
    with pytest.raises(LzcFailure):
        await correct_disproved(where, where.env.backup("b"), sides)
    assert source.gone == {f"{name}#{make_mark_name(POOL, 103)}" for name in NAMES[1:]}
    assert source.done_when_forgotten == {"tank": False, "tank/a": True, "tank/b": True}


async def test_a_source_that_is_read_only_was_not_corrected(tmp_path: Path) -> None:
    """Else it was told each time that one looked that all of it is corrected, and nothing was."""
    where, sides = gone_back(tmp_path, Source(errno.EROFS, *NAMES))
    with pytest.raises(ZvaultError, match="read-only"):
        await correct_disproved(where, where.env.backup("b"), sides)


async def test_bookmarks_of_another_place_tell_nothing_of_this_one(tmp_path: Path) -> None:
    source = Source()
    where, sides = gone_back(tmp_path, source)
    where.records.places.note(POOL, "tank", "cold/other/tank")
    assert not await correct_disproved(where, where.env.backup("b"), sides)
    assert not source.made


async def test_a_copy_of_the_pool_disproves_nothing_of_the_pool_itself(tmp_path: Path) -> None:
    """An older copy of a disk is up, and the disk itself in a safe: the bookmarks are for that one."""
    source = Source()
    where, sides = gone_back(tmp_path, source)
    config = {
        "daemon": {"timezone": "UTC"},
        "vault": {
            "cold": {"pool": "cold", "device": [{"nbd": "nbdkit:file /one", "size": "1G"}]},
            "copy": {"pool": "cold", "device": [{"nbd": "nbdkit:file /two", "size": "1G"}]},
        },
        "backup": {
            "b": {"source": "tank", "vault": "cold"},
            "c": {"source": "tank", "vault": "copy", "snapshot": {"prefix": "c"}},
        },
    }
    where.env.config = type(where.env.config).model_validate(config)
    where.records.pools.note(POOL, SeenPool.of(where.env.vault("cold")))
    assert not await correct_disproved(where, where.env.backup("c"), sides)
    assert not source.made
    assert await correct_disproved(where, where.env.backup("b"), sides)
