"""Every plan of a try carried out: what one failure takes along, and limits that follow the configuration."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.ops_world import context
from zvault.config.schema import Config
from zvault.core.errors import Conflict, DeviceGone, NotFound, Stalled, ZvaultError
from zvault.ops.replication.transfer_all import StreamLimits, make_orphaned_error, transfer_all
from zvault.ops.run_outcome import DatasetResults
from zvault.ops.stream.stream_slots import StreamSlots


class Played:
    """Transfers that fail as told; ``needs`` gives for each dataset what it comes after."""

    def __init__(self, needs: dict[str, list[str]], fails: dict[str, ZvaultError]) -> None:
        plans = [SimpleNamespace(dataset=name, after=after) for name, after in needs.items()]
        self.plan = SimpleNamespace(plans=plans, sizes=dict.fromkeys(needs, 1))
        self.fails = fails
        self.tried: list[str] = []

    async def carry_out(self, plan: Any) -> None:
        self.tried.append(plan.dataset)
        if plan.dataset in self.fails:
            raise self.fails[plan.dataset]


async def play(needs: dict[str, list[str]], **fails: ZvaultError) -> tuple[Played, DatasetResults, list[str]]:
    env, results, played = context().env, DatasetResults(), Played(needs, fails)
    transfers: Any = played
    limits = StreamLimits(env, env.backup("b"))
    return played, results, await transfer_all(transfers, StreamSlots(), limits, results.note)


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


def configured(limit: str | None = None, transfers: int = 4, source: str = "tank") -> Config:
    limits = {} if limit is None else {"limit": limit}
    return Config.model_validate(
        {
            "host": {"filer1": {"transfers": 2}},
            "vault": {"cold": {"pool": "cold", "transfers": transfers}},
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


def test_a_backup_that_vanishes_while_it_runs_keeps_its_rate() -> None:
    env = context().env
    env.reconfigure(configured("8M"))
    limits = StreamLimits(env, env.backup("b"))
    env.reconfigure(Config())
    assert limits.rate() == 8 << 20
    with pytest.raises(NotFound):
        limits.slots()
