"""A pool that another host has now: exported over copies of its devices, and never over the devices themselves."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.ops.ops_world import context
from zvault.config.paths import Paths
from zvault.config.profile import QueueSettings
from zvault.config.schema import Vault
from zvault.core.errors import Busy, DeviceGone, Refused, TakenOver, ZvaultError
from zvault.devices.device_record import DeviceRecord, FoundDevice, FoundLevel, LayerRecord, mark_throw_away
from zvault.devices.device_state import DeviceState
from zvault.devices.layer import FoundLayer
from zvault.devices.stack import DeviceStack
from zvault.ops.state.pool_health import PoolCondition
from zvault.ops.vaults import clear_suspended_pool
from zvault.ops.vaults.abandon_pool import abandon_pool
from zvault.ops.vaults.assembly import VaultAssembly
from zvault.system.process.runner import HostRunner
from zvault.system.record_store import RecordStore
from zvault.zfs.pool.pool import PoolState

SPEC = "zvault:zv/cold size=1T endpoint=https://s3.example.org credential=zvault.s3"
SHARED = Vault.model_validate({"pool": "cold", "hosts": ["a", "b"], "device": [{"nbd": SPEC}]})
ALONE = Vault.model_validate({"pool": "cold", "device": [{"nbd": SPEC}]})
POOL = PoolState("cold", 1, 10, 5, 5, "ONLINE")


class Pool:
    """A suspended pool on a stack of one device; what is done to it, in order.

    ``copy``: the state of a copy that an earlier try left up; None where there is none.
    """

    def __init__(
        self, *, on: str = "/dev/nbd0", fails: str = "", copy: str | None = None, imported: bool = True
    ) -> None:
        self.done: list[str] = []
        self.on, self.fails, self.copy, self.imported = on, fails, copy, imported
        self.throw_away = self.resume = self.keeps_lost = False
        self.state_there = "ONLINE"

    async def up(self, _: object) -> list[Any]:
        self.done.append("copy up" if self.throw_away else "up")
        if not self.throw_away:
            raise TakenOver("the device was another's meanwhile")
        self.copy = "up"
        return [SimpleNamespace(path="/dev/nbd0")]

    async def down(self, _: object) -> None:
        self.done.append("down")
        self.copy = None

    async def probe(self) -> list[DeviceState]:
        if self.copy is None:
            return [DeviceState("cold-0", SPEC, None, "down", "", None)]
        return [DeviceState("cold-0", mark_throw_away(SPEC), "/dev/nbd0", cast(Any, self.copy), "", 1)]

    async def cut_off(self, _: object) -> None:
        self.done.append("cut off")
        self.state_there = "SUSPENDED"

    async def devices(self, _: str) -> list[str]:
        return [self.on]

    async def state(self, _: str) -> PoolState | None:
        return POOL if self.imported else None

    async def kernel_state(self, _: str) -> str | None:
        return self.state_there if self.imported else None

    async def reopen(self, _: str) -> None:
        self._do("reopen")

    async def clear(self, pool: str, *_: object) -> None:
        if self.copy == "gone":
            self.done.append("close")  # with no device below it nothing is written
            self.copy = None
        else:
            self._do("clear")

    async def sync(self, pool: str, _: float) -> None:
        self._do("sync")

    async def export(self, pool: str, _: float) -> None:
        self._do("export")
        self.imported = False

    def _do(self, what: str) -> None:
        assert self.throw_away, "done on the store itself"
        self.done.append(what)
        if what == self.fails:
            raise Busy(f"zpool {what} failed", "somebody has a shell there")


async def given_up(pool: Pool) -> list[str]:
    it: Any = pool
    said: list[str] = []
    awake = asyncio.Event()
    awake.set()
    await abandon_pool("cold", it, it, awake, said.append, nullcontext)
    return said


async def test_what_it_has_in_memory_goes_to_a_copy_and_then_it_is_exported():
    pool = Pool()
    said = await given_up(pool)
    assert pool.done == ["copy up", "clear", "sync", "export"]
    assert "nothing of it was written to the store" in said[-1]


@pytest.mark.parametrize(
    ("state", "done"),
    [("ONLINE", ["reopen", "clear", "sync", "export"]), ("SUSPENDED", ["clear", "sync", "export"])],
)
async def test_a_pool_that_does_not_know_that_its_device_is_lost_opens_it_again(state: str, done: list[str]):
    pool = Pool()
    pool.keeps_lost, pool.state_there = True, state
    await given_up(pool)
    assert pool.done == ["copy up", *done]


async def test_a_copy_that_is_not_where_the_pool_looks_is_not_used():
    pool = Pool(on="/dev/nbd7")
    with pytest.raises(DeviceGone, match="cannot be given up") as told:
        await given_up(pool)
    assert "needs /dev/nbd7" in told.value.why
    assert pool.done == ["copy up", "down"]


@pytest.mark.parametrize("fails", ["clear", "sync", "export"])
async def test_where_zfs_cannot_it_is_told_what_is_lost_and_a_reboot(fails: str):
    with pytest.raises(DeviceGone, match="cannot be given up") as told:
        await given_up(Pool(fails=fails))
    assert "what is written to the pool here is lost" in told.value.next
    assert "reboot this host" in told.value.next
    assert told.value.retryable


async def test_a_copy_whose_server_died_is_cut_off_first():
    pool = Pool(copy="gone")
    await given_up(pool)
    assert pool.done == ["cut off", "close", "copy up", "clear", "sync", "export"]


async def test_no_export_begins_while_the_host_is_about_to_sleep():
    pool: Any = Pool()
    awake = asyncio.Event()
    giving_up = asyncio.ensure_future(abandon_pool("cold", pool, pool, awake, lambda _: None, nullcontext))
    for _ in range(20):
        await asyncio.sleep(0)
    assert pool.done == ["copy up", "clear", "sync"]
    awake.set()
    await giving_up
    assert pool.done[-1] == "export"


# The vault


class Cold(VaultAssembly):
    """A vault on such a pool."""

    it: Any = None

    @property
    def zpool(self) -> Any:
        return self.it

    def profile(self) -> Any:
        return None

    def stack(self, *_: object) -> Any:
        self.it.throw_away = False  # each try begins anew
        return self.it

    async def patient_stack(self, *_: object) -> Any:
        return self.stack()


def cold(pool: Pool, config: Vault = SHARED) -> Cold:
    found = Cold(context(), "cold", config, known=("/dev/nbd0",))
    found.it = pool
    found.context.activity.awake.set()
    return found


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clear_suspended_pool, "LET_GO_DEADLINE", 0.2)
    monkeypatch.setattr(clear_suspended_pool, "LET_GO_PAUSE", 0.01)


@pytest.mark.parametrize("config", [SHARED, ALONE])
async def test_only_where_hosts_share_the_vault(config: Vault):
    pool, lost = Pool(), TakenOver("the device was another's meanwhile")
    left: ZvaultError | None = None
    vault = cold(pool, config)
    vault.context.records.conditions.put("cold", PoolCondition(7.0, errors=9))
    try:
        await vault._abandon(lost, cast(Any, pool), lambda _: None)
    except ZvaultError as error:
        left = error
    shared = bool(config.hosts)
    seen = vault.context.records.conditions.get("cold")
    assert seen is not None
    assert seen.errors == (0 if shared else 9)
    assert (left is None, "export" in pool.done) == (shared, shared)
    assert shared or left is lost


@pytest.mark.parametrize("fails", ["clear", "sync", "export"])
@pytest.mark.parametrize("later", [SHARED, ALONE], ids=["shared", "no longer shared"])
async def test_a_try_that_failed_is_trouble_and_the_next_goes_on_with_it(fails: str, later: Vault):
    pool = Pool(fails=fails)
    with pytest.raises(DeviceGone, match="cannot be given up"):
        await cold(pool).down(lambda _: None)
    assert pool.imported
    trouble = await cold(pool, later).trouble()
    assert isinstance(trouble, DeviceGone)
    assert "what is written to it here is lost" in trouble.why
    pool.fails, pool.done = "", []
    await cold(pool, later).down(lambda _: None)
    assert pool.done == ["copy up", "clear", "sync", "export", "down"]


async def test_one_that_is_to_be_up_is_given_up_first():
    pool = Pool(copy="up")
    with pytest.raises(TakenOver, match="another host has had vault 'cold'"):
        await cold(pool).up(lambda _: None)
    assert pool.done == ["copy up", "clear", "sync", "export", "down"]


async def test_no_pool_is_imported_from_a_copy_that_is_left():
    pool = Pool(copy="up", imported=False)
    assert not await cold(pool).exported()
    with pytest.raises(TakenOver, match="was another's meanwhile"):
        await cold(pool).up(lambda _: None)
    assert pool.done == ["down", "up"]


# Its devices


@pytest.mark.parametrize("throw_away", [True, False])
@pytest.mark.parametrize("copy", [True, False])
async def test_a_copy_and_a_device_are_never_taken_for_each_other(
    throw_away: bool, copy: bool, tmp_path: Path
):
    stack = DeviceStack("cold", SHARED.device, QueueSettings(), HostRunner(), Paths(), RecordStore(tmp_path))
    stack.throw_away = throw_away
    (slot,), spec = stack.inventory.list_configured(), SHARED.device[0].spec
    record = DeviceRecord(mark_throw_away(spec) if copy else spec, (LayerRecord("nbd"),))
    up = FoundLayer("up", "", "/dev/nbd0", 1 << 40, present=True)
    found = FoundDevice(slot, record, (FoundLevel("nbd", {}, up),))
    assert stack._state(found).throw_away == copy
    if throw_away == copy:
        assert await stack._settle([found], lambda _: None) == ([found], {})
        return
    with pytest.raises(Refused, match="device cold-0 is up as"):
        await stack._settle([found], lambda _: None)


class StaysMapped:
    """A layer whose mapping the suspended pool has open."""

    async def down(self, *_: object, **__: object) -> None:
        raise DeviceGone("/dev/rbd0 stays mapped", "the kernel has it open", "nothing: it is tried again")


@pytest.mark.parametrize("throw_away", [False, True])
async def test_what_a_failed_copy_left_keeps_nobody_from_a_new_one(throw_away: bool, tmp_path: Path):
    stack = DeviceStack("cold", SHARED.device, QueueSettings(), HostRunner(), Paths(), RecordStore(tmp_path))
    stack.throw_away, kinds = throw_away, cast(Any, stack.kinds)
    kinds["nbd"] = StaysMapped()
    (slot,), spec = stack.inventory.list_configured(), SHARED.device[0].spec
    record = DeviceRecord(mark_throw_away(spec), (LayerRecord("nbd", {"path": "/dev/rbd0"}),))
    left = FoundDevice(
        slot, record, (FoundLevel("nbd", {"path": "/dev/rbd0"}, FoundLayer("partial", "", present=True)),)
    )

    async def look(*_: object) -> list[FoundDevice]:
        return [left]

    inventory = cast(Any, stack.inventory)
    inventory.look = look
    if not throw_away:
        with pytest.raises(DeviceGone, match="stays mapped"):
            await stack._settle([left], lambda _: None)
        return
    assert await stack._settle([left], lambda _: None) == ([left], {slot: record})
