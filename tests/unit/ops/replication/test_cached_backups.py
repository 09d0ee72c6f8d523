"""What is looked up of an earlier look equals what working all out anew gives, whatever changed in between."""

import asyncio

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.examples import cases
from tests.unit.ops.replication.known_world import World, config
from zvault.core import cached_results
from zvault.ops.state.cached_backups import CachedBackups

WHAT = (
    "clock", "config", "pools", "create", "snapshot", "send", "destroy", "prune", "write", "token", "sent",
    "own snapshot", "rename", "clone", "choose", "long name", "hold", "lapse", "error", "cancel", "stop",
)  # fmt: skip
CHANGE = st.tuples(st.sampled_from(WHAT), st.integers(0, 9), st.integers(0, 9))


@example(looks=[[("clone", 1, 4)], [("destroy", 1, 1)], [("send", 2, 0)]], few=16)
@example(looks=[[("clock", 3, 0)], [("clock", 4, 0)], [("clock", 7, 0)]], few=16)
@example(looks=[[("config", 0, 9)], [("destroy", 0, 1), ("own snapshot", 0, 0)]], few=16)
@example(looks=[[("prune", 1, 4)], [("rename", 1, 0)]], few=16)
@example(looks=[[("pools", 1, 0)], [("pools", 0, 0)]], few=16)
@example(looks=[[("sent", 1, 4), ("sent", 0, 4)], [("sent", 0, 5)]], few=16)
@given(looks=st.lists(st.lists(CHANGE, max_size=3), min_size=1, max_size=8), few=st.sampled_from([1, 16]))
@settings(max_examples=cases(200), deadline=None)
def test_what_is_looked_up_equals_what_is_worked_out_anew(
    looks: list[list[tuple[str, int, int]]], few: int
) -> None:
    """``few``: whether things are compared place by place also where many are others."""

    async def all_looks() -> None:
        world = World()
        await world.check()
        for changes in looks:
            for what, one, other in changes:
                if what in {"error", "cancel", "stop"}:
                    await world.break_off(what, other % 5)
                else:
                    world.change(what, one, other)
            await world.check()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cached_results, "MOVED_SHARE", few)
        asyncio.run(all_looks())


async def test_nothing_is_decided_again_where_nothing_changed() -> None:
    world = World()
    await world.check()
    backup = world.env.backup("b")
    known = world.knowing.known.of(world.env, backup)
    lags, verdicts = known.lags, known.retention.pairs
    before = lags.results, verdicts.results
    assert len(before[0]) == len(before[1]) == 4
    world.change("snapshot", 1, 0)
    await world.check()
    names = [pair.source.name for pair in lags.things]
    for then, now in zip(before, (lags.results, verdicts.results), strict=True):
        changed = [name for name, old, new in zip(names, then, now, strict=True) if old is not new]
        assert changed == ["tank/a"]


def test_what_is_known_of_a_backup_ends_with_its_configuration() -> None:
    world, known = World(), CachedBackups()
    backup = world.env.backup("b")
    first = known.of(world.env, backup)
    assert known.of(world.env, backup) is first
    world.env.reconfigure(config(1, 1))
    assert known.of(world.env, world.env.backup("b")) is not first
