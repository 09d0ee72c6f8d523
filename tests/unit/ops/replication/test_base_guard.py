"""The last base is sacred: what is held and bookmarked when the power fails between any two changes."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.examples import cases
from tests.unit.ops.ops_world import (
    Crash,
    Host,
    dataset,
    snap,
    snapname,
)
from tests.unit.ops.replication.base_guard_world import (
    CLOUD,
    COLD,
    advanced,
    assert_nothing_leaked,
    assert_others_are_untouched,
    crashed,
    fresh,
    had,
    is_safe,
    marked_as_sent,
    planned,
    run,
)
from zvault.core.errors import Conflict
from zvault.core.model import Bookmark
from zvault.core.names import DatasetName
from zvault.core.replication.base_names import (
    group_marks_by_vault,
    make_hold_tag,
    make_mark_name,
)
from zvault.core.replication.plan_model import TransferAction
from zvault.ops.replication.base_guard import BaseGuard, list_perhaps_held

CORRECTED = ("destroy", "hold", "receive")
"""Changes by which, or before which, a run corrects the bookmarks of what the vault does not have any more."""


async def test_a_first_run_holds_and_bookmarks_what_the_vault_has() -> None:
    host = fresh()
    await run(host)
    assert [s.snapname for s in host.vault or ()] == [snapname(1), snapname(2), snapname(3)]
    assert_nothing_leaked(host)


async def test_the_old_base_goes_only_after_the_new_one_is_safe() -> None:
    host = await advanced()
    await run(host)
    assert_nothing_leaked(host)
    assert_others_are_untouched(host)
    last_arrival = max(i for i, what in enumerate(host.log) if what.startswith("receive"))
    assert host.log[last_arrival + 1 :] == [
        f"bookmark {snapname(5)}",
        f"release {snapname(3)}",
        "destroy 1 bookmarks",
    ]


@pytest.mark.parametrize("world", ["fresh", "advanced"])
async def test_after_a_crash_anywhere_the_base_is_safe_and_the_next_run_tidies_up(world: str) -> None:
    for at in range(1, 40):
        host = fresh() if world == "fresh" else await advanced()
        fell = await crashed(host, at)
        if not _mid_stream(host):
            assert is_safe(host), f"before change {at}: {host.log}"
        await run(host)
        assert is_safe(host)
        assert_nothing_leaked(host)
        if world == "advanced":
            assert_others_are_untouched(host)
        if not fell:
            return
    pytest.fail("a run never ended")


def _mid_stream(host: Host) -> bool:
    """Whether the last that happened is that a snapshot of many arrived which is not the stream's last."""
    return bool(host.log) and host.log[-1] == f"receive {snapname(2)}"


@pytest.mark.parametrize("world", ["fresh", "advanced"])
async def test_no_bookmark_tells_of_what_was_only_about_to_be_sent(world: str) -> None:
    for at in range(1, 40):
        host = fresh() if world == "fresh" else await advanced()
        fell = await crashed(host, at)
        assert marked_as_sent(host) <= had(host), f"before change {at}: {host.log}"
        if not fell:
            assert marked_as_sent(host)
            return


async def test_what_a_vault_lost_is_protected_on_but_not_told_of() -> None:
    host = await advanced()
    await run(host)
    assert host.vault
    lost = host.vault.pop()
    host.crash_at, host.changes = 3, 0
    with pytest.raises(Crash):
        await run(host)
    assert host.log[-2:] == [f"bookmark {lost.snapname}", "destroy 1 bookmarks"]
    former = snap(1).guid
    assert marked_as_sent(host) == {former}
    assert {mark.guid for mark in group_marks_by_vault(host.source())[COLD]} == {lost.guid, former}
    host.crash_at = None
    await run(host)
    assert marked_as_sent(host) == {lost.guid, former}
    assert_nothing_leaked(host)


async def test_a_vault_that_went_back_by_one_run_goes_on_incrementally() -> None:
    """However many streams that run took, and though the source has nothing but bookmarks of that time any more."""
    host = await advanced()
    before = list(host.vault or ())
    await run(host)
    newest = host.snapshots[-1]
    host.snapshots = [newest, snap(6)]
    host.vault = before
    (plan,) = (await planned(host)).plan.plans
    assert plan.action is TransferAction.INCREMENTAL
    assert plan.base is not None
    assert plan.base.guid == before[-1].guid
    await run(host)
    assert_nothing_leaked(host)
    assert host.vault[-1].guid == snap(6).guid


async def test_no_more_than_two_bases_are_bookmarked_and_each_run_makes_as_many_calls_as_before() -> None:
    host = fresh()
    for number in range(4, 9):
        await run(host)
        host.snapshots.append(snap(number))
        host.log.clear()
    await run(host)
    assert host.log == [
        f"hold {snapname(8)}",
        f"receive {snapname(8)}",
        f"bookmark {snapname(8)}",
        f"release {snapname(7)}",
        "destroy 1 bookmarks",
    ]
    assert marked_as_sent(host) == {snap(7).guid, snap(8).guid}


@pytest.mark.parametrize("world", ["fresh", "advanced"])
async def test_a_stream_of_many_that_breaks_off_leaves_a_base_that_is_safe(world: str) -> None:
    for at in range(1, 40):
        host = fresh() if world == "fresh" else await advanced()
        if not await crashed(host, at):
            return
        assert is_safe(host), f"before change {at}: {host.log}"


async def test_two_crashes_in_a_row_do_no_more_harm_than_one() -> None:
    for first in range(1, 12):
        for second in range(1, 12):
            host = await advanced()
            await crashed(host, first)
            await crashed(host, second)
            await run(host)
            assert_nothing_leaked(host)
            assert_others_are_untouched(host)


async def test_an_advanced_base_needs_no_change_at_all() -> None:
    host = fresh()
    await run(host)
    host.changes = 0
    await run(host)
    assert host.changes == 0


async def test_a_base_that_lost_its_protection_gets_it_back() -> None:
    host = fresh()
    await run(host)
    host.holds.clear()
    host.marks.clear()
    await run(host)
    assert_nothing_leaked(host)


async def test_all_that_one_stream_brings_is_held_in_one_call() -> None:
    host = fresh()
    guard = BaseGuard(host, COLD, DatasetName("tank"))  # type: ignore[arg-type]
    await guard.cover(*host.snapshots)
    await guard.cover(*host.snapshots[1:])
    assert host.log == [f"bookmark {snapname(1)}", f"hold {snapname(1)} {snapname(2)} {snapname(3)}"]
    assert marked_as_sent(host) == set()
    host.vault = list(host.snapshots)
    await guard.advance(host.snapshots[-1])
    assert_nothing_leaked(host)


async def test_a_guard_knows_from_a_listing_what_is_its_own() -> None:
    host = await advanced()
    guard = BaseGuard.of(host, COLD, host.source(), host.holds)  # type: ignore[arg-type]
    assert guard.held == {snap(1).name: snap(1)}
    assert guard.marks == {f"tank#{make_mark_name(COLD, 101)}": 1}


# What is asked for its holds


def unasked(host: Host) -> list[str]:
    """What is held for the vault, and would not be asked whether it is."""
    asked = {snap.name for snap in list_perhaps_held(host.source(), COLD)}
    return [name for name, tags in host.holds.items() if make_hold_tag(COLD) in tags and name not in asked]


def test_of_a_dataset_with_an_advanced_base_only_what_came_since_its_base_is_asked() -> None:
    marks = [
        Bookmark(DatasetName("tank"), make_mark_name(vault, 100 + n), 100 + n, n, 0)
        for vault, n in ((CLOUD, 1), (COLD, 3))
    ]
    source = dataset("tank", *(snap(number) for number in range(1, 6)), *marks)
    assert [*list_perhaps_held(source, COLD)] == [snap(3), snap(4), snap(5)]
    assert list_perhaps_held(source, 0x77) == source.snapshots
    assert list_perhaps_held(replace(source, origin="tank/x@s"), COLD) == source.snapshots


@settings(max_examples=cases(400), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("run"), st.none()),
            st.tuples(st.just("crash"), st.integers(1, 12)),
            st.tuples(st.just("snapshots"), st.integers(1, 3)),
            st.tuples(st.just("vault goes back"), st.integers(0, 4)),
            st.tuples(st.just("prune"), st.integers(0, 8)),
            st.tuples(st.just("lose the marks"), st.none()),
        ),
        max_size=12,
    )
)
@example([("crash", 10), ("vault goes back", 0), ("crash", 3)])
async def test_whatever_breaks_off_nothing_is_held_that_is_not_asked(
    story: list[tuple[str, int | None]],
) -> None:
    """The bookmarks tell where to look: after any crash, and also where a vault was put back to an older state."""
    host, taken = fresh(), 3
    unseen: set[int] = set()
    for what, number in story:
        count, began = number or 0, len(host.log)
        if what == "run":
            with contextlib.suppress(Conflict):  # the two sides may have nothing in common any more
                await run(host)
                assert_nothing_leaked(host)
        elif what == "crash":
            with contextlib.suppress(Conflict):
                await crashed(host, count)
        elif what == "snapshots":
            host.snapshots += [snap(taken + more) for more in range(1, count + 1)]
            taken += count
        elif what == "vault goes back" and host.vault:
            unseen |= had(host)
            host.vault = host.vault[:count] or None
        elif what == "prune" and host.vault:
            free = [one for one in host.snapshots[: count % len(host.snapshots)] if not host.holds[one.name]]
            host.snapshots = [one for one in host.snapshots if one not in free or one == host.vault[-1]]
        elif what == "lose the marks":
            host.marks.clear()
        assert unasked(host) == [], host.log
        if what == "run" or any(done.startswith(CORRECTED) for done in host.log[began:]):
            unseen.clear()
        assert marked_as_sent(host) <= had(host) | unseen, host.log
