"""Every plan of a try carried out: what one failure takes along, and limits that follow the configuration."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.ops.ops_world import context
from tests.unit.patience import PATIENCE
from zvault.config.schema import Config
from zvault.core.errors import Conflict, DeviceGone, NotFound, Stalled, ZvaultError
from zvault.core.replication.streams_at_once import MOST_SMALL_STREAMS
from zvault.ops.replication.transfer_all import StreamLimits, TransferQueue, make_orphaned_error
from zvault.ops.run_outcome import DatasetResults
from zvault.ops.stream.stream_slots import StreamSlots


class Played:
    """Transfers that fail as told; ``needs`` gives for each dataset what it comes after, ``sizes`` its bytes."""

    def __init__(
        self, needs: dict[str, list[str]], fails: dict[str, ZvaultError], sizes: Mapping[str, int | None] = {}
    ) -> None:
        plans = [SimpleNamespace(dataset=name, after=after) for name, after in needs.items()]
        estimates = SimpleNamespace(total=lambda plan: sizes.get(plan.dataset, 1))
        self.plan = SimpleNamespace(plans=plans, sizes=dict.fromkeys(needs, 1), estimates=estimates)
        zfs = SimpleNamespace(host=SimpleNamespace(address=None))
        vault = SimpleNamespace(name="cold", pool="a-pool-that-is-not-here", zfs=zfs)
        self.opened = SimpleNamespace(context=context(), vault=vault)
        self.fails = fails
        self.tried: list[str] = []

    async def begin(self, _: Any) -> bool:
        return True

    def drop(self, _: Any) -> None: ...

    async def send(self, plan: Any) -> None:
        self.tried.append(plan.dataset)
        if plan.dataset in self.fails:
            raise self.fails[plan.dataset]


async def play(needs: dict[str, list[str]], **fails: ZvaultError) -> tuple[Played, DatasetResults, list[str]]:
    env, results, played = context().env, DatasetResults(), Played(needs, fails)
    transfers: Any = played
    limits = StreamLimits(env, env.backup("b"))
    queue = TransferQueue(transfers, StreamSlots(), limits, results.note)
    await queue.execute()
    return played, results, queue.order.stuck()


async def test_what_one_suffers_stops_only_itself_and_what_comes_after_it() -> None:
    played, results, stuck = await play({"a": [], "b": ["a"], "c": ["b"], "d": []}, a=Stalled("a"))
    assert (sorted(played.tried), stuck) == (["a", "d"], [])
    assert (list(results.failed), results.settled) == (["a", "b", "c"], {"d"})
    assert results.retryable is results.failed["a"]


async def test_what_no_try_mends_settles_also_what_comes_after_it() -> None:
    _, results, _ = await play({"a": [], "b": ["a"]}, a=Conflict("a"))
    assert (results.settled, results.retryable) == ({"a", "b"}, None)


async def test_what_waits_for_each_other_is_not_begun() -> None:
    played, results, stuck = await play({"a": [], "x": ["y"], "y": ["x"]})
    assert (played.tried, sorted(stuck), results.settled) == (["a"], ["x", "y"], {"a"})


def test_an_orphan_is_tried_again_if_its_parent_is() -> None:
    orphan = make_orphaned_error("tank/a", "tank", DeviceGone("gone"))
    assert orphan.retryable
    assert not make_orphaned_error("tank/a", "tank", Conflict("no base")).retryable
    assert not type(orphan)("any other").retryable


def test_a_base_that_could_not_be_settled_has_to_be_tried_again() -> None:
    results = DatasetResults()
    results.note("a", None)
    results.note("b", Conflict("b"))
    results.note("a", Stalled("a"))
    assert (set(results.failed), results.settled) == ({"a", "b"}, {"b"})
    results.begin_try()
    assert (set(results.failed), results.settled) == ({"b"}, {"b"})


def configured(limit: str | None = None, transfers: int | None = 4, source: str = "tank") -> Config:
    limits = {} if limit is None else {"limit": limit}
    at_once = {} if transfers is None else {"transfers": transfers}
    return Config.model_validate(
        {
            "host": {"filer1": {"transfers": 2}},
            "vault": {"cold": {"pool": "cold", **at_once}},
            "backup": {"b": {"source": source, "vault": "cold", **limits}},
        }
    )


def test_limits_are_those_of_the_configuration_in_force() -> None:
    env = context().env
    env.reconfigure(configured("8M"))
    limits = StreamLimits(env, env.backup("b"))
    assert (limits.rate(), limits.slots()) == (8 << 20, {"vault cold": 4})
    env.reconfigure(configured("1M", 1, "ssh://root@filer1/tank"))
    assert (limits.rate(), limits.slots()) == (1 << 20, {"vault cold": 1, "host filer1": 2})


HERE = len(os.sched_getaffinity(0))
SMALL = "vault cold, small streams"


def small_slots(config: Config, **sync_times: float) -> dict[str, int]:
    env = context().env
    env.reconfigure(config)
    return StreamLimits(env, env.backup("b"), sync_times).slots(small=True)


def test_small_streams_have_slots_of_their_own_by_the_time_of_a_group() -> None:
    plain = configured(transfers=None)
    assert small_slots(plain) == {SMALL: 4}, "as long as it is unknown"
    assert small_slots(plain, other=9.0) == {SMALL: 4}
    assert small_slots(plain, cold=9.0) == {SMALL: MOST_SMALL_STREAMS}
    assert small_slots(plain, cold=0.04) == {SMALL: max(4, min(MOST_SMALL_STREAMS, int(8 * HERE)))}


@pytest.mark.parametrize(
    ("config", "slots"),
    [
        (configured(transfers=4), {"vault cold": 4}),
        (configured("8M", transfers=None), {"vault cold": 4}),
        (configured(transfers=None, source="ssh://root@filer1/tank"), {"vault cold": 4, "host filer1": 2}),
    ],
    ids=["transfers", "limit", "ssh"],
)
def test_what_was_configured_wins(config: Config, slots: dict[str, int]) -> None:
    assert small_slots(config, cold=9.0) == slots


async def test_small_streams_do_not_wait_for_large_ones() -> None:
    """One large stream that never ends has the vault's only slot, and another waits for it."""
    env, results = context().env, DatasetResults()
    env.reconfigure(configured(transfers=None))
    sizes = {"large": 1 << 40, "unknown": None, "s1": 1, "s2": 8 << 20}
    played = Played({name: [] for name in sizes}, {}, sizes)
    release = asyncio.Event()

    async def send(plan: Any) -> None:
        played.tried.append(plan.dataset)
        if plan.dataset in {"large", "unknown"}:
            await release.wait()

    played.send = send  # type: ignore[method-assign]
    slots, transfers = StreamSlots(), cast("Any", played)
    held = [await slots.take(lambda: {"vault cold": 4}, "other") for _ in range(3)]
    limits = StreamLimits(env, env.backup("b"), {"cold": 9.0})
    queue = TransferQueue(transfers, slots, limits, results.note)
    run = asyncio.create_task(queue.execute())
    async with asyncio.timeout(PATIENCE):
        while len(results.settled) < 2:
            await asyncio.sleep(0)
    assert (sorted(results.settled), sorted(played.tried)) == (["s1", "s2"], ["large", "s1", "s2"])
    release.set()
    slots.give(held[0])
    await asyncio.wait_for(run, PATIENCE)
    assert queue.order.stuck() == []
    assert results.settled == set(sizes)


def test_a_backup_that_vanishes_while_it_runs_keeps_its_rate() -> None:
    env = context().env
    env.reconfigure(configured("8M"))
    limits = StreamLimits(env, env.backup("b"))
    env.reconfigure(Config())
    assert limits.rate() == 8 << 20
    with pytest.raises(NotFound):
        limits.slots()
