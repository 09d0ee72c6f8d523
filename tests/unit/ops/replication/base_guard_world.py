"""A source and two vaults in memory, on which a run protects its base and may break off at any change."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from tests.unit.events import split_event
from tests.unit.ops.no_keys import NoKeys
from tests.unit.ops.ops_world import (
    Crash,
    Host,
    context,
    snap,
    tree,
    with_source,
    with_vault,
)
from zvault.api.events import RunEvent
from zvault.core.errors import ZvaultError
from zvault.core.model import Tree
from zvault.core.names import DatasetName
from zvault.core.replication.base_names import (
    list_sent_marks,
    make_hold_tag,
    make_mark_name,
    make_unsent_mark_name,
)
from zvault.core.replication.plan_model import TransferPlan, TransferStep
from zvault.core.replication.planner import plan_tree
from zvault.core.replication.progress import RunMeter
from zvault.ops.replication.listing import make_own_filter
from zvault.ops.replication.run_bases import RunBases
from zvault.ops.replication.run_plan import Estimates, OpenBackup, RunPlan
from zvault.ops.replication.transfer import Transfers
from zvault.ops.replication.transfer_all import StreamLimits, TransferQueue
from zvault.ops.stream.run_stream import StreamResult
from zvault.ops.stream.stream_slots import StreamSlots

COLD, CLOUD = 0x1F, 0x2E


class NoAsides:
    async def run(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(stdout="", stderr="", returncode=0)


async def unestimated(*_: Any) -> int:
    return 0


async def unwritten(_: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, "0")


@dataclass
class Faked(Transfers):
    """The real order of a transfer; only the stream is made of thin air."""

    host: Host = field(default_factory=Host)
    said: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, host: Host) -> Faked:
        async def nothing(_: str, known: set[str] | None = None) -> None:
            pass

        where = context()

        forgotten: list[str] = []

        async def exists(_: str) -> bool:
            return not host.gone

        async def source(_: str, *, sizes: bool = True) -> Tree:
            found = replace(host.source(), name=DatasetName(host.renamed))
            return tree(found) if host.renamed else tree()

        async def there(_: str, *, sizes: bool = True) -> Tree:
            return host.sides().vault

        with_source(
            where,
            SimpleNamespace(
                lzc=host,
                held=host.held,
                forget=forgotten.append,
                exists=exists,
                tree=source,
                estimate=unestimated,
            ),
        )

        async def nowhere_else(_: str) -> list[DatasetName]:
            return []

        zfs = SimpleNamespace(
            names=nowhere_else,
            make_parents=nothing,
            abort_receive=nothing,
            tree_or_none=there,
            host=NoAsides(),
            get=unwritten,
            keys_above=NoKeys().keys_above,
        )
        with_vault(where, SimpleNamespace(holds=host.no_holds, get=unwritten))
        vault: Any = SimpleNamespace(guid=COLD, zfs=zfs)
        said: list[str] = []

        def note(event: RunEvent) -> None:
            if (text := split_event(event)[1].get("text")) is not None:
                said.append(text)

        opened = OpenBackup(where, where.env.backup("b"), vault, note)
        sides = host.sides()
        plans = plan_tree(sides.pairing, sides.vault, wanted=make_own_filter(opened.backup))
        plan = RunPlan(sides, plans, RunBases(opened.source, COLD), Estimates(opened), {}, {})
        return cls(opened, plan, RunMeter(), host=host, said=said, forgotten=forgotten)

    async def _carry(self, step: TransferStep, plan: TransferPlan, *_: Any) -> StreamResult:
        """The snapshots arrive one by one: each is a change after which the power may fail."""
        start = step.base.createtxg if step.base else 0
        between = step.intermediates
        for arriving in self.host.snapshots:
            if (start < arriving.createtxg < step.to.createtxg and between) or arriving.guid == step.to.guid:
                self.host.change(f"receive {arriving.snapname}")
                self.host.vault = [*(self.host.vault or ()), arriving]
        return StreamResult(0, 0.0)


async def run(host: Host) -> None:
    """One run's transfer, planned on what a listing shows."""
    await carried_out(await planned(host))


async def planned(host: Host) -> Faked:
    faked = Faked.of(host)
    await faked.plan.bases.learn(
        [faked.plan.sides.source.datasets[plan.dataset] for plan in faked.plan.plans]
    )
    return faked


async def carry_out_plan(transfers: Transfers, plan: TransferPlan) -> None:
    """Carry out one plan as a run does. Raises what its dataset suffers."""

    def note(_: str, error: ZvaultError | None) -> None:
        if error is not None:
            raise error

    opened = transfers.opened
    limits = StreamLimits(opened.context.env, opened.backup)
    await TransferQueue(transfers, StreamSlots(), limits, note).carry_out(plan.dataset)


async def carried_out(faked: Faked) -> None:
    (plan,), bases = faked.plan.plans, faked.plan.bases
    await faked.cover()
    await carry_out_plan(faked, plan)
    for error in (await bases.wait_advanced()).values():
        raise error


def is_safe(host: Host) -> bool:
    """Whether the next incremental's base is kept for this vault; another vault's hold may go at any moment."""
    if not host.vault:
        return True
    base = host.vault[-1]
    marks = {f"tank#{name(COLD, base.guid)}" for name in (make_mark_name, make_unsent_mark_name)}
    return make_hold_tag(COLD) in host.holds[base.name] or not marks.isdisjoint(host.marks)


def fresh() -> Host:
    return Host(snapshots=[snap(1), snap(2), snap(3)])


async def advanced() -> Host:
    """The vault has the first snapshot; three more came since, and one by hand."""
    host = Host(snapshots=[snap(1)])
    await run(host)
    host.snapshots += [snap(2), snap(3), snap(4, name="by-hand"), snap(5)]
    host.holds[snap(1).name].add("somebody")
    host.holds[snap(2).name].add(make_hold_tag(CLOUD))
    host.marks[f"tank#{make_mark_name(CLOUD, 102)}"] = snap(2)
    host.marks["tank#mine"] = snap(1)
    host.changes, host.log = 0, []
    return host


def assert_nothing_leaked(host: Host) -> None:
    """Only the base is held for this vault, and bookmarked with one before it at most; others' holds stay."""
    assert host.vault
    newest = host.vault[-1]
    assert [name for name, tags in host.holds.items() if make_hold_tag(COLD) in tags] == [newest.name]
    ours = [
        mark
        for mark in host.marks
        if mark.startswith((f"tank#zvault_{COLD:x}_", "tank#zvault-", "tank#zvault."))
    ]
    mine = f"tank#{make_mark_name(COLD, newest.guid)}"
    assert mine in ours
    former = [host.marks[mark] for mark in ours if mark != mine]
    assert len(former) <= 1
    for one in former:
        assert f"tank#{make_mark_name(COLD, one.guid)}" in ours
        assert one.createtxg < newest.createtxg


def assert_others_are_untouched(host: Host) -> None:
    assert host.holds[snap(1).name] == {"somebody"}
    assert make_hold_tag(CLOUD) in host.holds[snap(2).name]
    assert {"tank#mine", f"tank#{make_mark_name(CLOUD, 102)}"} <= set(host.marks)


async def crashed(host: Host, at: int) -> bool:
    host.crash_at, host.changes = at, 0
    try:
        await run(host)
    except Crash:
        return True
    finally:
        host.crash_at = None
    return False


def marked_as_sent(host: Host) -> set[int]:
    """The GUIDs of which the bookmarks tell that the vault has them."""
    return {mark.guid for mark in list_sent_marks(host.source(), COLD)}


def had(host: Host) -> set[int]:
    return {one.guid for one in host.vault or ()}
