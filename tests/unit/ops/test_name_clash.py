"""After the clock was set back a run's name may be one that only the vault still has: the run takes another name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ops.name_clash_world import World
from tests.unit.ops.ops_world import (
    HOUR,
    START,
    StoppedClock,
    dataset,
    snap,
    snapname,
)
from zvault.config.schema import Config
from zvault.core.model import Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.core.replication.plan_model import TransferAction
from zvault.core.snapshot_list import SnapnameIndex, SnapshotList
from zvault.ops.retention import prune


async def test_a_name_that_the_vault_has_is_given_up_for_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    run = await world.run()
    assert run.plans == {"tank": TransferAction.INCREMENTAL, "tank/a": TransferAction.INCREMENTAL}
    first, second = snapname(5), run.hooks.snapname
    assert second > first
    assert world.source.gone == [f"tank@{first}", f"tank/a@{first}"]
    assert world.names() == [[snapname(9), second]] * 2
    (warning,) = world.warnings
    assert f"tank@{first}" in warning
    assert "later name" in warning
    assert [fields["snapname"] for event, fields in world.told if event == "snapshot"] == [first, second]


async def test_the_new_snapshots_are_there_before_the_first_ones_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    run = await world.run()
    first, second = snapname(5), run.hooks.snapname
    assert world.source.did == [f"snapshot {first}", f"snapshot {second}", f"destroy {first}"]
    assert world.hooks_run == 2


async def test_where_a_hook_fails_the_second_time_the_first_snapshots_stay_and_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    world.hooks_fail_at = 2
    run = await world.run()
    assert (world.source.gone, run.hooks.snapname) == ([], snapname(5))
    assert world.names() == [[snapname(9), snapname(5)]] * 2
    assert run.plans == {"tank": TransferAction.CONFLICT, "tank/a": TransferAction.INCREMENTAL}
    assert any("could not be made anew" in text and "no room" in text for text in world.warnings)


async def test_where_no_name_is_free_on_the_vault_nothing_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    elsewhere = DatasetName("cold/host/tank/gone")
    names = [world.where.env.backup("b").snapshot.names.make(_moment(world, second)) for second in range(900)]
    every = (Snapshot(elsewhere, name, 5000 + at, at, START) for at, name in enumerate(names))
    world.vault.there.datasets[elsewhere] = dataset(elsewhere, *every)
    run = await world.run()
    assert world.source.did == [f"snapshot {snapname(5)}"], "nor is it made again under a name that is had"
    assert run.plans == {"tank": TransferAction.CONFLICT, "tank/a": TransferAction.INCREMENTAL}
    assert any("could not be made anew" in text for text in world.warnings)


async def test_a_dataset_that_got_no_new_snapshot_keeps_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)

    async def nothing_of_a(_: str, *, sizes: bool = True) -> Tree:
        seen = dict(world.source.there.datasets)
        if len(world.source.did) == 1 and world.hooks_run == 2:
            del seen[DatasetName("tank/a")]
        return Tree(seen)

    monkeypatch.setattr(world.source, "tree", nothing_of_a)
    await world.run()
    assert world.source.gone == [f"tank@{snapname(5)}"]


async def test_a_name_that_the_vault_is_known_to_have_is_not_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    world.clock.at += 60
    await world.run()
    world.clock.at -= 60
    run = await world.run()
    assert run.plans == {"tank": TransferAction.INCREMENTAL, "tank/a": TransferAction.INCREMENTAL}
    assert run.hooks.snapname > snapname(5)
    assert (world.source.gone, world.warnings) == ([], [])


async def test_what_somebody_holds_by_then_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, monkeypatch)
    run = await world.run(lambda: world.source.kept.add(f"tank@{snapname(5)}"))
    assert world.source.gone == [f"tank/a@{snapname(5)}"]
    assert run.plans == {"tank": TransferAction.CONFLICT, "tank/a": TransferAction.INCREMENTAL}
    assert any("kept tank@" in text for text in world.warnings)


async def test_where_nothing_may_be_destroyed_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    world.source.refuses = True
    run = await world.run()
    assert run.plans == {"tank": TransferAction.CONFLICT, "tank/a": TransferAction.INCREMENTAL}
    assert any("permission denied" in text for text in world.warnings)


async def test_a_snapshot_of_that_name_that_is_not_the_runs_own_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch, exclude=["tank/a"])
    mine = Snapshot(DatasetName("tank/a"), snapname(5), 7, 7, START)
    there = world.source.there.datasets
    there[mine.dataset] = replace(there[mine.dataset], snapshots=(mine,))
    await world.run()
    assert world.source.gone == [f"tank@{snapname(5)}"]


async def test_what_went_before_an_error_is_planned_as_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    world.source.breaks_off = True
    run = await world.run()
    assert world.names() == [
        [snapname(9), run.hooks.snapname],
        [snapname(9), snapname(5), run.hooks.snapname],
    ]
    assert run.plans == {"tank": TransferAction.INCREMENTAL, "tank/a": TransferAction.INCREMENTAL}
    assert any("it broke off" in text for text in world.warnings)
    assert [fields["snapshots"] for event, fields in world.told if event == "pruned"] == [
        [f"tank@{snapname(5)}"]
    ]


async def test_many_are_destroyed_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, monkeypatch)
    monkeypatch.setattr(prune, "DESTROY_BATCH", 1)
    await world.run()
    assert world.source.orders == [[f"tank@{snapname(5)}"], [f"tank/a@{snapname(5)}"]]


def received(world: World, name: str, guid: int) -> None:
    """Somebody destroyed a dataset and received it again, with a snapshot of the name that the run gave."""
    there, of = world.source.there.datasets, DatasetName(name)
    again = Snapshot(of, snapname(5), guid, 5000, START)
    there[of] = replace(there[of], snapshots=(*there[of].snapshots[:-1], again))


@pytest.mark.parametrize("guid", [105, 777])
async def test_a_dataset_that_was_received_again_keeps_what_it_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guid: int
) -> None:
    world = World(tmp_path, monkeypatch)
    below = DatasetName("tank/b")
    world.source.there.datasets[below] = dataset(below, snap(9, below))
    there = DatasetName("cold/host/tank/b")
    world.vault.there.datasets[there] = dataset(there, snap(9, there))
    run = await world.run(lambda: received(world, "tank/a", guid))
    assert world.source.gone == [f"tank@{snapname(5)}", f"tank/b@{snapname(5)}"]
    assert run.plans["tank"] == TransferAction.INCREMENTAL


async def test_so_does_one_that_was_received_again_while_the_new_snapshot_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    world.at_hook_two = lambda: received(world, "tank/a", 777)
    await world.run()
    assert world.source.gone == [f"tank@{snapname(5)}"]


def with_other(world: World, source: str) -> None:
    """Another backup sends every snapshot of a source, to another vault, which has none of them yet."""
    cold = {"pool": "cold"}
    backups = {
        "b": {"source": "tank", "vault": "cold"},
        "o": {"source": source, "vault": "usb", "backlog": "all"},
    }
    world.where.env.config = Config.model_validate(
        {
            "daemon": {"timezone": "UTC"},
            "vault": {"cold": cold, "usb": {"pool": "usb"}},
            "backup": backups,
        }
    )


async def test_what_another_backup_has_still_to_send_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    with_other(world, "tank/a")
    run = await world.run()
    assert world.source.gone == [f"tank@{snapname(5)}"]
    assert run.plans == {"tank": TransferAction.INCREMENTAL, "tank/a": TransferAction.INCREMENTAL}
    assert f"kept tank/a@{snapname(5)}: backup o has not sent it yet" in world.warnings


async def test_where_all_that_clash_stay_nothing_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    with_other(world, "tank")
    run = await world.run()
    assert world.source.did == [f"snapshot {snapname(5)}"]
    assert run.plans == {"tank": TransferAction.CONFLICT, "tank/a": TransferAction.INCREMENTAL}
    (warning,) = world.warnings
    assert "it stays: backup o has not sent it yet" in warning


async def test_a_source_that_lies_in_a_vault_with_min_age_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    monkeypatch.setattr(type(world.where.env), "min_age_of", lambda *_: 3600.0)
    run = await world.run()
    assert world.source.gone == []
    assert run.plans["tank"] == TransferAction.CONFLICT
    assert any("min_age" in text for text in world.warnings)


async def test_a_vault_that_has_every_name_does_not_keep_the_source_from_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    above = DatasetName("cold/host/tank")
    names = [world.where.env.backup("b").snapshot.names.make(_moment(world, second)) for second in range(900)]
    every = tuple(Snapshot(above, name, 5000 + at, at - 900, START) for at, name in enumerate(names))
    world.vault.there.datasets[above] = dataset(above, *every, snap(9, above))
    run = await world.run()
    assert run.plans["tank"] == TransferAction.CONFLICT
    assert all(len(names) == 2 for names in world.names())


def _moment(world: World, seconds: int) -> Any:
    return StoppedClock(world.clock.at + seconds).now()


@given(st.lists(st.lists(st.integers(0, 9))), st.integers(0, 9))
def test_whether_a_name_is_had_is_told_of_lists_of_both_kinds(lists: list[list[int]], sought: int) -> None:
    plain = [tuple(map(snap, numbers)) for numbers in lists]
    compact = [
        SnapshotList.of(DatasetName("tank"), [(s.snapname, s.guid, s.createtxg, s.creation) for s in some])
        for some in plain
    ]
    had = any(sought in numbers for numbers in lists)
    assert (snapname(sought) in SnapnameIndex(plain)) is had
    assert (snapname(sought) in SnapnameIndex(compact)) is had


class Killed(BaseException):
    """zvaultd is no more."""


async def killed_while_anew(world: World, monkeypatch: pytest.MonkeyPatch, *, before: bool) -> str:
    """A run that ends before its snapshots are made anew, or after that and before the first ones go; their name."""
    with monkeypatch.context() as patch:
        if before:
            patch.setattr(world, "hooks_run", 0)
            world.at_hook_two = _killed
        else:
            patch.setattr(world.source, "destroy", _killed)
        with pytest.raises(Killed):
            await world.run()
    world.at_hook_two = lambda: None
    assert world.source.gone == []
    return snapname(5)


def _killed(*_: object) -> None:
    raise Killed


@pytest.mark.parametrize("before", [True, False])
async def test_what_a_killed_run_was_to_destroy_goes_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    world = World(tmp_path, monkeypatch)
    first = await killed_while_anew(world, monkeypatch, before=before)
    assert first in world.names()[0]
    world.clock.at += HOUR
    run = await world.run()
    assert world.source.gone == [f"tank@{first}"], "of tank/a nothing is in the way: it can be sent"
    assert run.plans == {"tank": TransferAction.INCREMENTAL, "tank/a": TransferAction.INCREMENTAL}
    assert world.where.records.replaced.of("b") == []
    world.clock.at += HOUR
    told = len(world.warnings)
    await world.run()
    assert len(world.warnings) == told, "and that is all"


async def test_what_came_under_that_name_since_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, monkeypatch)
    first = await killed_while_anew(world, monkeypatch, before=False)
    there = world.source.there.datasets[DatasetName("tank")]
    other = tuple(replace(snap, guid=77) if snap.snapname == first else snap for snap in there.snapshots)
    world.source.there.datasets[there.name] = replace(there, snapshots=other)
    world.clock.at += HOUR
    run = await world.run()
    assert world.source.gone == []
    assert run.plans["tank"] is TransferAction.CONFLICT


async def test_it_stays_until_a_run_has_made_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, monkeypatch)
    first = await killed_while_anew(world, monkeypatch, before=True)
    world.clock.at += HOUR
    await world.run(wanted=False)
    assert world.source.gone == []
    world.clock.at += HOUR
    await world.run()
    assert world.source.gone == [f"tank@{first}"]


async def test_a_later_try_of_the_run_keeps_what_is_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    world.hooks_fail_at = 2
    run = await world.run()
    first = run.hooks.snapname
    assert first == snapname(5)
    opened: Any = SimpleNamespace(zfs=world.vault, name="cold")
    made, seen = await run.snapshots.make(opened)
    await run._look_and_plan(opened, made, seen)
    world.hooks_fail_at = 0
    world.clock.at += HOUR
    assert (await world.run()).plans["tank"] is TransferAction.INCREMENTAL
    assert world.source.gone == [f"tank@{first}"]


async def test_it_stays_while_it_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, monkeypatch)
    first = await killed_while_anew(world, monkeypatch, before=False)
    world.source.kept = {f"tank@{first}"}
    world.clock.at += HOUR
    await world.run()
    assert world.source.gone == []
    world.source.kept = set()
    world.clock.at += HOUR
    await world.run()
    assert world.source.gone == [f"tank@{first}"]
