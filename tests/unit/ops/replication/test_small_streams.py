"""Which streams of a run go through libzfs_core, by what both sides say of their properties; and as what."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.ops_world import context, dataset, sides, snap
from zvault.core.names import DatasetName
from zvault.core.replication.plan_model import TransferAction, TransferPlan, TransferStep
from zvault.core.replication.steering_properties import leave_out_steering
from zvault.ops.replication.run_plan import OpenBackup
from zvault.ops.replication.small_streams import SmallStreams
from zvault.system.process.runner import ProcessResult
from zvault.zfs.lzc_stream import SmallStream
from zvault.zfs.stream_argv import SendFlags

TANK, TARGET = DatasetName("tank"), DatasetName("cold/host/tank")
OLD, MIDDLE, NEW = snap(1), snap(2), snap(3)
SOURCE = dataset("tank", OLD, MIDDLE, NEW)
STEP = TransferStep(TransferAction.INCREMENTAL, NEW, OLD, intermediates=True)
PLAN = TransferPlan(TANK, TARGET, TransferAction.INCREMENTAL, "", (STEP,), base=OLD, pending=2)


class Host:
    """Prints properties: by name, rows of property, value, received, source."""

    def __init__(self, rows: Mapping[str, Sequence[tuple[str, str, str, str]]], address: Any = None) -> None:
        self.rows, self.address = rows, address
        self.asked: list[Sequence[str]] = []

    async def run(self, argv: Sequence[str], **_: Any) -> ProcessResult:
        self.asked.append(argv)
        out = "".join(
            "\t".join((name, *row)) + "\n" for name, rows in self.rows.items() if name in argv for row in rows
        )
        return ProcessResult(tuple(argv), 0, out, "", 0.0)


class Hidden(Host):
    """Tells what a stream brought of a property only if it is asked for that one: 'zfs get all' lacks it."""

    async def run(self, argv: Sequence[str], **more: Any) -> ProcessResult:
        if "name,received" not in argv:
            return await super().run(argv, **more)
        name = argv[argv.index("name,received") + 1]
        brought = {
            of: received for of, rows in self.rows.items() for key, _, received, _ in rows if key == name
        }
        out = "".join(f"{of}\t{brought[of]}\n" for of in brought)
        return ProcessResult(tuple(argv), 0, out, "", 0.0)


async def found(
    source: Host,
    vault: Host,
    *,
    plan: TransferPlan = PLAN,
    limited: bool = False,
    size: int = 1000,
    steering: Sequence[str] = (),
    **backup: Any,
) -> SmallStream | None:
    """What becomes of the plan's only step."""
    where = context(**backup)
    where.clients._sources[None] = SimpleNamespace(host=source, lzc=None)  # type: ignore[assignment]
    its: Any = SimpleNamespace(zfs=SimpleNamespace(host=vault, lzc=None), name="cold", guid=1)
    opened = OpenBackup(where, where.env.backup("b"), its, lambda _: None)
    receive = where.env.backup("b").receive
    run: Any = SimpleNamespace(
        receive_properties=lambda *_: leave_out_steering(receive.properties, steering, receive.let_in),
        sides=sides(SOURCE, None),
        moving=[plan],
        sizes={TANK: size},
        source_records={TANK: "none"},
        flags=lambda table, one: SendFlags.of(table.send, one),
    )
    streams = SmallStreams(opened, run)
    await streams.learn()
    return streams.small(plan.steps[0], plan, SOURCE, size, limited=limited, record="1:Lc")


SET = [("atime", "off", "-", "local")]
RECEIVED = [("atime", "off", "off", "received"), ("readonly", "on", "-", "local")]


async def test_each_snapshot_is_a_part_with_an_order_of_its_own() -> None:
    small = await found(Host({"tank": SET}), Host({TARGET: RECEIVED}))
    assert small is not None
    assert small.target == TARGET
    assert [(one.snapshot, one.base) for one in small.parts] == [
        (MIDDLE.name, OLD.name),
        (NEW.name, MIDDLE.name),
    ]
    for part, base, to in zip(small.parts, (OLD, MIDDLE), (MIDDLE, NEW), strict=True):
        assert (part.order.base, part.order.snapshots[0].guid) == (base.guid, to.guid)
        assert (part.order.package, part.order.properties) == (False, False)
    assert small.flags == ("large_blocks", "compress", "embedded_data")
    assert small.properties == {
        "readonly": 1,
        "canmount": 2,
        "org.zvault:sent": "1:Lc",
        "org.zvault:source-properties": "none",
    }


@pytest.mark.parametrize(
    ("mine", "its"),
    [
        ({"tank": SET}, {TARGET: []}),
        ({"tank": []}, {TARGET: RECEIVED}),
        ({"tank": SET, NEW.name: [("com.x:y", "1", "-", "local")]}, {TARGET: RECEIVED}),
        ({"tank": SET}, {TARGET: [*RECEIVED, ("mountpoint", "/x", "/x", "received")]}),
        ({"tank": [*SET, ("com.x:y", "a\nb", "-", "local")]}, {TARGET: RECEIVED}),
    ],
    ids=["new on the source", "gone from the source", "on a snapshot", "in force on the vault", "unclear"],
)
async def test_what_has_properties_to_bring_goes_through_programs(mine: Any, its: Any) -> None:
    assert await found(Host(mine), Host(its)) is None


async def test_what_steers_another_tool_goes_through_programs_until_it_is_out_of_force() -> None:
    steer = "autobackup:x"
    mine = {"tank": [*SET, (steer, "true", "-", "local")]}
    for there, small in ((("true", "true", "received"), False), (("-", "true", "-"), True)):
        its = {TARGET: [*RECEIVED, (steer, *there)]}
        assert (await found(Host(mine), Hidden(its), steering=[steer]) is not None) == small
    assert (
        await found(Host(mine), Host({TARGET: [*RECEIVED, (steer, "true", "true", "received")]})) is not None
    )


async def test_what_is_set_on_the_vault_already_is_not_set_again() -> None:
    """Numbers as they are stored; what a stream brought, or something else, is no setting of its own."""
    own = [
        ("readonly", "1", "-", "local"),
        ("canmount", "0", "-", "local"),
        ("org.zvault:sent", "1:Lc", "-", "local"),
        ("org.zvault:source-properties", "none", "none", "received"),
    ]
    small = await found(
        Host({"tank": [*SET, ("org.zvault:source-properties", "none", "-", "local")]}),
        Host({TARGET: [("atime", "off", "off", "received"), *own]}),
    )
    assert small is not None
    assert small.properties == {"canmount": 2, "org.zvault:source-properties": "none"}


async def test_without_properties_nobody_is_asked_for_them() -> None:
    source, vault = Host({}), Host({})
    assert await found(source, vault, send={"properties": False}) is not None
    assert source.asked == vault.asked == []


async def test_another_host_a_limit_or_a_large_one_has_nobody_asked() -> None:
    for ends in ((Host({}, "filer"), Host({})), (Host({}), Host({}, "far"))):
        assert await found(*ends) is None
        assert not ends[0].asked
    source = Host({"tank": SET})
    assert await found(source, Host({TARGET: RECEIVED}), limited=True, limit="1M") is None
    assert await found(source, Host({TARGET: RECEIVED}), size=1 << 30) is None
    assert not source.asked
