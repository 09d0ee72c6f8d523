"""The last base where snapshots and datasets vanish while a run protects them."""

from __future__ import annotations

import pytest

from tests.unit.ops.ops_world import (
    Host,
    snap,
)
from tests.unit.ops.replication.base_guard_world import (
    COLD,
    advanced,
    assert_nothing_leaked,
    carried_out,
    fresh,
    planned,
)
from zvault.core.names import DatasetName
from zvault.core.replication.base_names import (
    make_hold_tag,
    make_mark_name,
)
from zvault.ops.replication.base_guard import BaseGuard
from zvault.zfs.changes import NamesGone


def vanish(host: Host, *numbers: int) -> None:
    host.snapshots = [one for one in host.snapshots if one.guid - 100 not in numbers]


@pytest.mark.parametrize("gone", [(1,), (2,), (1, 2)])
async def test_what_vanished_before_it_was_held_is_sent_no_more(gone: tuple[int, ...]) -> None:
    host = fresh()
    faked = await planned(host)
    vanish(host, *gone)
    await carried_out(faked)
    assert [s.guid - 100 for s in host.vault or ()] == [n for n in (1, 2, 3) if n not in gone]
    assert_nothing_leaked(host)


async def test_where_the_newest_vanished_the_one_before_it_is_the_base() -> None:
    host = await advanced()
    faked = await planned(host)
    vanish(host, 5, 2)
    await carried_out(faked)
    assert [s.guid - 100 for s in host.vault or ()] == [1, 3]
    held = [name for name, tags in host.holds.items() if make_hold_tag(COLD) in tags]
    assert held == [snap(3).name]


async def test_what_was_held_for_a_dataset_whose_turn_never_comes_is_asked_for_again() -> None:
    host = fresh()
    faked = await planned(host)
    await faked.cover()
    assert faked.forgotten == ["tank"]


async def test_a_base_that_vanished_is_replaced_by_its_bookmark() -> None:
    host = await advanced()
    host.holds.clear()
    faked = await planned(host)
    vanish(host, 1)
    await carried_out(faked)
    assert [s.guid - 100 for s in host.vault or ()] == [1, 2, 3, 5]
    assert_nothing_leaked(host)


async def test_a_dataset_that_vanished_is_told_and_one_that_was_renamed_tried_again() -> None:
    host = fresh()
    faked = await planned(host)
    vanish(host, 1, 2, 3)
    host.gone = True
    await carried_out(faked)
    assert faked.said == ["gone from the source, and left out: tank"]
    host = fresh()
    faked = await planned(host)
    vanish(host, 1, 2, 3)
    host.gone, host.renamed = True, "tank/b"
    with pytest.raises(NamesGone, match="was renamed") as failure:
        await carried_out(faked)
    assert failure.value.retryable


async def test_what_one_has_lost_keeps_no_other_from_being_held_in_the_same_call() -> None:
    host = fresh()
    mine, other = (BaseGuard(host, COLD, DatasetName(name)) for name in ("tank", "tank/a"))  # type: ignore[arg-type]
    lost = snap(9, "tank/a")
    await BaseGuard.cover_all([(other, [lost]), (mine, host.snapshots)])
    assert mine.held.keys() == {one.name for one in host.snapshots}
    assert not other.held
    host.marks[f"tank/a#{make_mark_name(COLD, 101)}"] = snap(1)
    other.marks = {f"tank/a#{make_mark_name(COLD, 101)}": 1}
    mine.held.clear()
    await BaseGuard.cover_all([(other, [lost]), (mine, host.snapshots)])
    assert mine.held.keys() == {one.name for one in host.snapshots}
    assert not other.held
