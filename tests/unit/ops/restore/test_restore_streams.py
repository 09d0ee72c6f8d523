"""Datasets are restored several at once, within the slots of the vault, and one that fails stops only what needs it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.events import split_event
from tests.unit.ops.ops_world import START, context, dataset, snap
from zvault.api.events import RunEvent
from zvault.core.errors import DeviceGone, ToolFailed, ZvaultError
from zvault.core.model import Tree
from zvault.core.names import DatasetName
from zvault.core.replication.restore_order import pick_newest, plan_restorations
from zvault.ops.restore.plan_restore import DatasetWork
from zvault.ops.restore.restore_streams import RestoreStreams

MIB = 1 << 20


@dataclass
class Streams(RestoreStreams):
    """Restores by waiting a few turns of the loop; what is in ``bad`` fails. ``most`` is how many went at once."""

    bad: dict[str, ZvaultError] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)
    whole: list[str] = field(default_factory=list)
    at_once: int = 0
    most: int = 0

    async def restore_one(self, work: DatasetWork) -> None:
        target = work.restoration.target
        self.begun.append(target)
        if not work.streams:
            self.whole.append(target)
            return
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        self.meter.begin(target, work.bytes)
        moved = None
        try:
            for _ in range(10):
                await asyncio.sleep(0)
            if target in self.bad:
                raise self.bad[target]
            moved = work.bytes
            self.whole.append(target)
        finally:
            self.at_once -= 1
            self.meter.end(target, moved)


def works(*names: str, done: Sequence[str] = ()) -> list[DatasetWork]:
    cold = Tree({name: dataset(name, snap(number, name)) for number, name in enumerate(["c", *names])})
    found = plan_restorations(cold, DatasetName("c"), DatasetName("new"), pick_newest, recursive=True)
    return [
        DatasetWork(one, (), (), "done")
        if one.target in done
        else DatasetWork(one, one.streams, (MIB,), "restore")
        for one in found
    ]


def streams(transfers: int = 4, trouble: ZvaultError | None = None, **more: Any) -> tuple[Streams, list[Any]]:
    told: list[Any] = []

    def emit(event: RunEvent) -> None:
        told.append(split_event(event))

    async def look() -> ZvaultError | None:
        return trouble

    where = context(START, vault={"pool": "cold", "transfers": transfers})
    vault: Any = SimpleNamespace(name="cold", trouble=look)
    zfs: Any = SimpleNamespace(host=SimpleNamespace(address=None))
    return Streams(where, vault, "b", zfs, emit, **more), told


MANY = [f"c/{number}" for number in range(9)]


@pytest.mark.parametrize("transfers", [1, 3, 4])
async def test_as_many_at_once_as_the_vault_has_slots(transfers: int) -> None:
    it, _ = streams(transfers)
    await it.restore_all(works(*MANY))
    assert it.most == transfers
    assert it.begun[0] == "new", "the others lie in it"
    assert (len(it.whole), it.done, it.meter.total) == (10, 10 * MIB, 10 * MIB)


async def test_what_is_there_already_takes_no_slot() -> None:
    it, _ = streams(1)
    taken = await it.context.activity.slots.take(lambda: {"vault cold": 1}, "another run")
    await it.restore_all(works(*MANY, done=["new", *(f"new/{number}" for number in range(9))]))
    assert len(it.whole) == 10
    it.context.activity.slots.give(taken)


async def test_one_that_fails_stops_only_what_needs_it() -> None:
    error = ToolFailed("cannot receive", "no room", "make room")
    it, told = streams(2, bad={"new/a": error})
    with pytest.raises(ToolFailed) as raised:
        await it.restore_all(works("c/a", "c/a/x", "c/b", "c/b/y"))
    assert raised.value is error
    assert sorted(it.whole) == ["new", "new/b", "new/b/y"]
    assert "new/a/x" not in it.begun
    (failed,) = [fields for event, fields in told if event == "dataset-failed"]
    assert (failed["dataset"], failed["error"]["why"], failed["again"]) == ("new/a", "no room", False)
    assert [fields["text"] for event, fields in told if event == "warning"] == [
        "new/a/x is not restored: it comes after new/a, which failed"
    ]
    assert it.meter.total == it.meter.done == 3 * MIB, "nothing more comes of the others"


async def test_a_vault_that_fell_away_stops_all() -> None:
    error = ToolFailed("cannot send", "I/O error", "")
    it, told = streams(1, trouble=DeviceGone("gone", "unplugged"), bad={"new/0": error})
    with pytest.raises(ToolFailed):
        await it.restore_all(works(*MANY))
    assert it.begun == ["new", "new/0"], "the others would only fail as well"
    assert not [event for event, _ in told if event == "dataset-failed"]


async def test_a_restore_and_a_run_share_the_slots_of_the_vault() -> None:
    it, _ = streams(2)
    slots = it.context.activity.slots
    taken = [await slots.take(lambda: {"vault cold": 2}, "b") for _ in range(2)]
    task = asyncio.create_task(it.restore_all(works(*MANY)))
    for _ in range(50):
        await asyncio.sleep(0)
    assert it.begun == []
    assert slots.describe_wait(it.owner) == (
        "one of the 2 streams that may go at once (vault cold); they are taken by: b 2"
    )
    for one in taken:
        slots.give(one)
    await task
    assert it.most == 2
