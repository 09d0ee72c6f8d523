"""Trials of reading: what counts, and that a pool is never left in the middle of a scrub."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.unit.ops.ops_world import context
from zvault.core.errors import Busy, ToolFailed
from zvault.core.policy.scrub import PoolScan
from zvault.core.tuning.candidates import DEFAULTS, ParameterChoice, TuningCandidate, select_winner
from zvault.ops.context import Context
from zvault.ops.provision import read_trial
from zvault.ops.provision.read_trial import ReadTrial
from zvault.ops.provision.receive_trial import ReceiveTrial
from zvault.zfs import trial_dataset
from zvault.zfs.pool.pool import PoolState
from zvault.zfs.pool.scrub import PoolErrors, Scrubber

DEPTH = "zfs_vdev_async_read_max_active"
SIZE = 64 << 20
FAST, SLOW = TuningCandidate("worked out", (ParameterChoice(DEPTH, "32", ""),)), TuningCandidate(DEFAULTS)
TIMES = {"32": 0.02, "": 5.0}
"""Seconds that a send and a scrub take, by the depth that is set."""


@dataclass
class MadeUpPool:
    """A pool whose reads take as long as its parameters have it."""

    allocated: int = SIZE
    cached: bool = False
    state: str = "none"
    read: int = 0
    depth: str = ""
    done: list[str] = field(default_factory=list)
    looked: list[bool] = field(default_factory=list)
    context: Context = field(default_factory=context)

    async def take(self, what: str) -> None:
        self.looked.append("cold" in self.context.activity.measured)
        await asyncio.sleep(TIMES[self.depth])
        self.read += 0 if self.cached else SIZE
        self.done.append(what)

    def trial(self) -> ReadTrial:
        return ReadTrial(
            MadeUpReceives(self.context, self.context.env.vault("cold"), SIZE, print, self), SLOW
        )


@dataclass
class MadeUpReceives(ReceiveTrial):
    it: MadeUpPool

    async def settle(self, module: Mapping[str, str]) -> None:
        self.it.depth = module.get(DEPTH, "")

    async def receive(self, argv: Sequence[str]) -> None:
        assert "primarycache=metadata" in argv


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> MadeUpPool:
    it = MadeUpPool()

    async def count(*_: Any) -> int:
        return it.read

    async def send(*_: Any) -> None:
        await it.take("sent")

    async def scrub(*_: Any) -> None:
        it.state = "scanning"
        await it.take("scrubbed")
        it.state = "finished"

    async def stop(*_: Any) -> None:
        it.state = "canceled"

    async def health(*_: Any) -> PoolErrors:
        return PoolErrors(PoolScan(it.state), 0)  # type: ignore[arg-type]

    async def state(*_: Any) -> PoolState:
        return PoolState("cold", 1, 1 << 40, it.allocated, 1 << 40, "ONLINE")

    async def nothing(*_: Any) -> None: ...

    monkeypatch.setattr(read_trial, "count_device_reads", count)
    monkeypatch.setattr(read_trial, "run_stages", send)
    monkeypatch.setattr(trial_dataset, "sync_pool", nothing)
    monkeypatch.setattr(Scrubber, "run_whole", scrub)
    monkeypatch.setattr(Scrubber, "stop", stop)
    monkeypatch.setattr(Scrubber, "health", health)
    monkeypatch.setattr(it.context.clients.zpool, "state", state)
    return it


async def test_the_faster_one_wins_and_the_slower_one_is_stopped(pool: MadeUpPool) -> None:
    tries = await pool.trial().send([FAST, SLOW])
    assert select_winner(tries).candidate is FAST
    assert [one.stopped for one in tries] == [False, True]
    assert pool.done == ["sent"]


async def test_what_came_out_of_memory_does_not_count(pool: MadeUpPool) -> None:
    pool.cached = True
    with pytest.raises(ToolFailed, match="only 0B of 64M came from the devices"):
        await pool.trial().send([FAST, SLOW])


async def test_the_last_scrub_is_a_whole_one_and_nobody_pauses_it(pool: MadeUpPool) -> None:
    tries = await pool.trial().scrub([FAST, SLOW])
    assert [one.stopped for one in tries] == [False, True]
    assert (pool.state, pool.depth, pool.done) == ("finished", "32", ["scrubbed", "scrubbed"])
    assert pool.looked == [True] * 3, "the scrub's schedule leaves it alone"
    assert "cold" not in pool.context.activity.measured


@pytest.mark.parametrize(("state", "allocated"), [("paused", SIZE), ("scanning", SIZE), ("none", 1 << 40)])
async def test_no_scrub_is_tried_of_a_full_pool_nor_beside_another(
    pool: MadeUpPool, state: str, allocated: int
) -> None:
    pool.state, pool.allocated = state, allocated
    assert await pool.trial().scrub([FAST, SLOW]) == []
    assert (pool.state, pool.done) == (state, [])


async def test_a_scrub_that_somebody_paused_does_not_count(
    pool: MadeUpPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def paused(*_: Any) -> None:
        pool.state = "paused"

    monkeypatch.setattr(Scrubber, "run_whole", paused)
    with pytest.raises(ToolFailed, match="it is paused"):
        await pool.trial().scrub([FAST, SLOW])
    assert "cold" not in pool.context.activity.measured


async def test_the_scrub_that_somebody_began_between_two_tries_goes_on(
    pool: MadeUpPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def anothers(*_: Any) -> None:
        pool.state = "scanning"
        raise Busy("'cold' cannot be scrubbed", "cannot scrub cold: currently scrubbing")

    monkeypatch.setattr(Scrubber, "run_whole", anothers)
    with pytest.raises(ToolFailed, match="currently scrubbing"):
        await pool.trial().scrub([FAST, SLOW])
    assert pool.state == "scanning"
