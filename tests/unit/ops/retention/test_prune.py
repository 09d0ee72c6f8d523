"""Destroying in batches: what cannot go is left and named, and nothing else stops for it."""

import errno
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.unit.events import split_event
from tests.unit.ops.ops_world import context, dataset, snap, snapname, tree, with_source
from zvault.api.events import RunEvent
from zvault.core.errors import DeadlineExceeded, ToolFailed
from zvault.core.model import Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.core.policy.retention import KeepDecision
from zvault.ops.retention import prune
from zvault.ops.retention.prune import DESTROY_BATCH, apply_prune, destroy_snapshots
from zvault.ops.retention.prune_plan import PrunePlan
from zvault.system.process.runner import HostRunner
from zvault.zfs.changes import LzcFailure
from zvault.zfs.host import LocalHost


class FakeLzc:
    """Destroys all of a call or none; ``busy`` tells what cannot go."""

    def __init__(
        self, busy: dict[str, tuple[str, int]] | None = None, error: Exception | None = None
    ) -> None:
        self.busy = busy or {}
        self.error = error
        self.calls: list[list[str]] = []

    async def destroy(self, names: Sequence[str]) -> None:
        self.calls.append(list(names))
        if self.error is not None:
            raise self.error
        if stuck := [(name, *self.busy[name]) for name in names if name in self.busy]:
            raise LzcFailure("cannot destroy", "busy", stuck)


class Told:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, event: RunEvent) -> None:
        self.events.append(split_event(event))

    def texts(self) -> list[str]:
        return [fields["text"] for event, fields in self.events if event == "warning"]


HELD = ("SnapshotIsHeld", errno.EBUSY)
CLONED = ("SnapshotIsCloned", errno.EEXIST)


async def test_all_go_at_once() -> None:
    lzc, told = FakeLzc(), Told()
    gone = await destroy_snapshots(lzc, [snap(1), snap(2)], told)  # type: ignore[arg-type]
    assert gone == [snap(1), snap(2)]
    assert lzc.calls == [[f"tank@{snapname(1)}", f"tank@{snapname(2)}"]]
    assert told.events == []


async def test_what_is_held_or_cloned_stays_and_is_named() -> None:
    lzc = FakeLzc({snap(1).name: HELD, snap(3).name: CLONED})
    told = Told()
    assert await destroy_snapshots(lzc, [snap(1), snap(2), snap(3)], told) == [snap(2)]  # type: ignore[arg-type]
    assert told.texts() == [
        f"kept tank@{snapname(1)}: somebody holds it ('zfs holds' tells who)",
        f"kept tank@{snapname(3)}: a clone needs it",
    ]


async def test_where_all_are_busy_none_goes_and_it_ends() -> None:
    lzc = FakeLzc({snap(1).name: HELD, snap(2).name: ("SomethingElse", errno.EBUSY)})
    told = Told()
    assert await destroy_snapshots(lzc, [snap(1), snap(2)], told) == []  # type: ignore[arg-type]
    assert told.texts()[1] == f"kept tank@{snapname(2)}: it is busy"


async def test_only_what_is_busy_is_called_so() -> None:
    """Whatever else ZFS says of one is told as it says it, and keeps no other from going."""
    lzc = FakeLzc({snap(1).name: HELD, snap(2).name: ("ZFSGenericError", errno.EIO)})
    told = Told()
    assert await destroy_snapshots(lzc, [snap(1), snap(2), snap(3)], told) == [snap(3)]  # type: ignore[arg-type]
    assert told.texts() == [
        f"kept tank@{snapname(1)}: somebody holds it ('zfs holds' tells who)",
        f"kept tank@{snapname(2)}: ZFS does not destroy it: Input/output error",
    ]


async def test_nothing_to_destroy_asks_for_nothing() -> None:
    lzc = FakeLzc()
    assert await destroy_snapshots(lzc, [], Told()) == []  # type: ignore[arg-type]
    assert lzc.calls == []


def plan(side: str, snapshots: Sequence[Snapshot], keep: Sequence[Snapshot] = ()) -> PrunePlan:
    verdicts = [KeepDecision(snap, False, "no rule keeps it") for snap in snapshots]
    return PrunePlan(side, (*verdicts, *(KeepDecision(snap, True, "the newest") for snap in keep)))


class Side:
    host = LocalHost(HostRunner())

    def __init__(self, lzc: FakeLzc, held: dict[str, set[str]] | None = None) -> None:
        self.lzc = lzc
        self.held = held or {}

    async def holds(self, names: Sequence[str]) -> dict[str, set[str]]:
        return {name: self.held[name] for name in names if name in self.held}

    async def clones(self, names: Sequence[str]) -> dict[str, list[str]]:
        return {}


async def carry_out(source: FakeLzc, vault: FakeLzc, plans: Sequence[PrunePlan]) -> tuple[int, Told]:
    told = Told()
    return await apply_prune(Side(source), Side(vault), plans, told), told  # type: ignore[arg-type]


async def test_what_is_held_is_left_alone_and_does_not_count_and_the_others_go() -> None:
    """A batch goes all or not at all: one that is held must not even be tried with the others."""
    lzc, told = FakeLzc(), Told()
    side = Side(lzc, {snap(2).name: {"keep-me"}, snap(3).name: {"zvault:2e"}})
    found = await apply_prune(side, side, [plan("source", [snap(1), snap(2), snap(3), snap(4)])], told)  # type: ignore[arg-type]
    assert found == 2
    assert lzc.calls == [[snap(1).name, snap(4).name]]
    assert told.texts() == []


async def test_a_side_that_cannot_be_asked_is_left_alone() -> None:
    class Hung(Side):
        async def holds(self, names: Sequence[str]) -> dict[str, set[str]]:
            raise DeadlineExceeded("hangs")

    source, vault, told = FakeLzc(), FakeLzc(), Told()
    plans = [plan("source", [snap(1)]), plan("vault", [snap(1, "cold")])]
    assert await apply_prune(Hung(source), Side(vault), plans, told) == 1  # type: ignore[arg-type]
    assert (source.calls, vault.calls) == ([], [[snap(1, "cold").name]])
    assert told.texts() == ["pruning the source: hangs"]


async def test_each_side_destroys_its_own_in_batches_and_keeps_the_rest() -> None:
    source, vault = FakeLzc(), FakeLzc()
    many = [snap(number) for number in range(2 * DESTROY_BATCH + 1)]
    elsewhere = snap(1, "cold/host/tank")
    plans = [plan("source", many, keep=[snap(900)]), plan("vault", [elsewhere])]
    count, told = await carry_out(source, vault, plans)
    assert count == 2 * DESTROY_BATCH + 2
    assert [len(call) for call in source.calls] == [DESTROY_BATCH, DESTROY_BATCH, 1]
    assert vault.calls == [[elsewhere.name]]
    assert [(event, fields["side"], fields["count"]) for event, fields in told.events] == [
        ("pruned", "source", 2 * DESTROY_BATCH + 1),
        ("pruned", "vault", 1),
    ]
    assert told.events[1][1]["snapshots"] == [elsewhere.name]


@pytest.mark.parametrize(
    "error", [DeadlineExceeded("hangs"), ToolFailed("the child ended"), LzcFailure("x", "y", [])]
)
async def test_a_side_that_fails_does_not_keep_the_other_from_its_turn(error: Exception) -> None:
    source, vault = FakeLzc(error=error), FakeLzc()
    many = [snap(number) for number in range(DESTROY_BATCH + 1)]
    count, told = await carry_out(source, vault, [plan("source", many), plan("vault", [snap(1)])])
    assert count == 1
    assert len(source.calls) == 1
    assert told.texts() == [f"pruning the source: {error}"]


async def test_nothing_doomed_tells_nothing() -> None:
    count, told = await carry_out(FakeLzc(), FakeLzc(), [plan("source", []), plan("vault", [], [snap(1)])])
    assert (count, told.events) == (0, [])


async def test_very_many_are_told_in_parts_as_they_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is gone is on record where the run ends in the middle."""
    monkeypatch.setattr(prune, "PRUNED_AT_ONCE", 2 * DESTROY_BATCH)
    many = [snap(number) for number in range(5 * DESTROY_BATCH + 1)]

    class FailingLater(FakeLzc):
        async def destroy(self, names: Sequence[str]) -> None:
            if len(self.calls) == 3:
                assert [fields["count"] for _, fields in told.events] == [2 * DESTROY_BATCH]
            self.error = ToolFailed("the child ended") if len(self.calls) == ends else None
            await super().destroy(names)

    for ends, counts in ((9, [2, 2, 1.01]), (3, [2, 1])):
        told = Told()
        gone = await apply_prune(Side(FailingLater()), None, [plan("source", many)], told)  # type: ignore[arg-type]
        events = [fields for event, fields in told.events if event == "pruned"]
        assert [one["count"] for one in events] == [int(count * DESTROY_BATCH) for count in counts]
        named = [name for one in events for name in one["snapshots"]]
        assert named == [one.name for one in many[:gone]]
        assert told.texts() == ([] if ends == 9 else ["pruning the source: the child ended"])


async def test_what_cannot_be_listed_is_named_and_the_rest_is_pruned() -> None:
    class Source:
        lzc = FakeLzc()
        host = None

        async def tree(self, _: str, *, sizes: bool = True) -> Tree:
            found = tree(dataset("tank", snap(1), snap(2), snap(3)))
            return replace(found, unlisted={DatasetName("tank/bad"): "I/O error"})

        async def holds(self, _: Sequence[str]) -> dict[str, set[str]]:
            return {}

        async def clones(self, _: Sequence[str]) -> dict[str, list[Any]]:
            return {}

        def forget(self, _: str) -> None: ...

    source: Any = Source()
    where = with_source(
        context(snapshots_only=True, keep={"source": {"last": 1}}, prune_limit="100%"), source
    )
    told, vaults = Told(), cast(Any, {})
    gone, selected = await prune.prune_backup(where, vaults, where.env.backup("b"), told)
    assert (gone, selected, source.lzc.calls) == (2, 2, [[snap(1).name, snap(2).name]])
    (named,) = told.texts()
    assert named.startswith("nothing of tank/bad is pruned: tank/bad cannot be listed (I/O error)")
