"""A stuck pool whose device fails each read: is the device lost, or does it answer after all?"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zvault.core.errors import DeadlineExceeded, DeviceGone, Refused, TakenOver, ZvaultError
from zvault.core.integrity.put_back import PoolTxgs
from zvault.ops.vaults import assembly, clear_suspended_pool
from zvault.ops.vaults.assembly import VaultAssembly
from zvault.ops.vaults.clear_suspended_pool import SuspendedPoolClear
from zvault.system.process.kernel_waits import KernelWaits, WaitingProgram
from zvault.system.process.runner import ProcessResult
from zvault.zfs.pool import hostid
from zvault.zfs.pool.label import DevicesWentBack
from zvault.zfs.pool.pool import MultihostSuspended, PoolState

UP = SimpleNamespace(state="up", path="/dev/nbd0", spec="tcp:nas")
GONE = SimpleNamespace(state="gone", path="/dev/nbd0", spec="tcp:nas")


def no_doubt() -> None: ...


no_pause = nullcontext


class Device:
    """One that fails so many reads, and whose connection is seen to be gone after so many looks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, fails: int, gone_after: int) -> None:
        self.reads = self.looks = 0
        self.fails, self.gone_after = fails, gone_after
        self.slept = 0.0
        monkeypatch.setattr(clear_suspended_pool, "check_response", self.answer)
        monkeypatch.setattr(clear_suspended_pool.asyncio, "sleep", self.sleep)
        monkeypatch.setattr(clear_suspended_pool.time, "monotonic", lambda: self.slept)
        monkeypatch.setattr(clear_suspended_pool, "is_lost", lambda one: one is GONE)

    async def answer(self, path: str, _: object) -> None:
        self.reads += 1
        if self.reads <= self.fails:
            raise DeviceGone(f"{path} does not answer", "Input/output error", "see its server")

    async def sleep(self, seconds: float) -> None:
        self.slept += seconds

    async def probe(self) -> list[Any]:
        self.looks += 1
        return [GONE if self.looks > self.gone_after else UP]

    cause: ZvaultError | None = None
    """What its storage says of it."""

    async def find_cause(self) -> ZvaultError | None:
        return self.cause

    async def lost(self) -> list[Any]:
        it: Any = SuspendedPoolClear("cold", "cold", None, self, None, None, no_doubt, no_pause)  # type: ignore[arg-type]
        return await it._lost_after_all(["/dev/nbd0"])  # type: ignore[no-any-return]


async def test_one_that_answers_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(monkeypatch, fails=0, gone_after=99)
    assert await device.lost() == []
    assert device.looks == 0


async def test_one_whose_server_sees_late_that_its_connection_is_gone_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await Device(monkeypatch, fails=99, gone_after=3).lost() == [GONE]


async def test_one_that_answers_in_time_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await Device(monkeypatch, fails=3, gone_after=99).lost() == []


async def test_one_that_stays_as_it_is_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(monkeypatch, fails=999, gone_after=999)
    with pytest.raises(DeviceGone, match="does not answer") as failure:
        await device.lost()
    assert "zvaultctl vault up cold" in failure.value.next
    assert clear_suspended_pool.LOSS_NOTICE_TIME <= device.slept <= clear_suspended_pool.LOSS_NOTICE_TIME + 1


async def test_what_its_storage_says_of_it_is_told_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(monkeypatch, fails=999, gone_after=999)
    device.cause = DeviceGone("the cluster refuses it", "it is on its blocklist", "'ceph osd blocklist rm A'")
    with pytest.raises(DeviceGone, match="the cluster refuses it") as failure:
        await device.lost()
    assert failure.value.next == "'ceph osd blocklist rm A'; then zvault goes on by itself"
    device.cause = TakenOver("the cluster refuses it", "another host has it", "reboot this host")
    with pytest.raises(TakenOver):
        await device.lost()


class NobodyKnown:
    """A host that does not say who has a device open."""

    @staticmethod
    async def nothing() -> None: ...

    async def run(self, argv: Sequence[str], **_: object) -> ProcessResult:
        return ProcessResult(tuple(argv), 1, "", "Failed to connect to bus", 0.0)


class PoolOfMultihost:
    """A pool with ``multihost=on`` that is suspended after so many seconds without its device; None: never."""

    runner = NobodyKnown()

    def __init__(self, monkeypatch: pytest.MonkeyPatch, suspended_after: float | None) -> None:
        self.slept, self.suspended_after = 0.0, suspended_after
        self.done: list[str] = []
        monkeypatch.setattr(clear_suspended_pool.asyncio, "sleep", self.sleep)
        monkeypatch.setattr(clear_suspended_pool.time, "monotonic", lambda: self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept += seconds

    async def probe(self) -> list[Any]:
        return [GONE]

    async def cut_off(self, _: object) -> None:
        self.done.append("cut off")

    async def kernel_state(self, _: str) -> str:
        after = self.suspended_after
        return "SUSPENDED" if after is not None and self.slept >= after else "ONLINE"

    async def clear(self, *_: object) -> None:
        self.done.append("clear")
        raise DeadlineExceeded("it hangs")

    async def reopen(self, *_: object) -> None:
        self.done.append("reopen")

    async def revive(self, health: str) -> None:
        state = PoolState("cold", 1, 10, 5, 5, health, multihost=True)
        it: Any = SuspendedPoolClear("cold", "cold", self, self, None, None, no_doubt, no_pause)  # type: ignore[arg-type]
        await it.revive(state, print)


async def test_a_suspended_pool_with_multihost_on_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = PoolOfMultihost(monkeypatch, 0.0)
    with pytest.raises(MultihostSuspended):
        await pool.revive("SUSPENDED")
    assert pool.done == []


async def test_one_that_has_just_lost_its_device_is_not_cleared_before_it_is_suspended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = PoolOfMultihost(monkeypatch, 10.0)
    with pytest.raises(MultihostSuspended):
        await pool.revive("ONLINE")
    assert pool.done == ["cut off"]


async def test_one_that_goes_on_without_a_device_gets_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = PoolOfMultihost(monkeypatch, None)
    with pytest.raises(DeviceGone, match="does not release"):
        await pool.revive("DEGRADED")
    assert pool.done.count("reopen") > 1
    assert "clear" not in pool.done


class Trimmed:
    """A suspended pool that is trimmed, or not; its device is back at the first try."""

    runner = NobodyKnown()
    resume = False

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, trims: bool) -> None:
        self.trims, self.done = trims, list[str]()
        monkeypatch.setattr(clear_suspended_pool, "refuse_if_had_since", self.nothing)
        monkeypatch.setattr(clear_suspended_pool, "refuse_if_devices_went_back", self.nothing)

    async def nothing(self, *_: object) -> None: ...

    spec = "tcp:nas"

    async def probe(self) -> list[Any]:
        state, path = "up" if "up" in self.done else "gone", None if "clear" in self.done else "/dev/nbd0"
        return [SimpleNamespace(state=state, path=path, spec=self.spec)]

    async def kernel_state(self, _: str) -> str:
        return "SUSPENDED"

    cut_off = sync = nothing

    async def up(self, _: object) -> list[Any]:
        self.done.append("up")
        return [UP]

    async def devices(self, _: str) -> list[str]:
        return ["/dev/nbd0"]

    async def read_txgs(self, _: str) -> PoolTxgs | None:
        return PoolTxgs(902, 900)

    async def is_trimming(self, _: str) -> bool:
        return self.trims

    async def end_discards(self, _: object) -> None:
        self.done.append("discards end")

    async def clear(self, *_: object) -> None:
        self.done.append("clear")

    async def trouble(self) -> None: ...


@pytest.mark.parametrize("trims", [True, False])
async def test_a_trim_that_cost_the_device_is_not_gone_on_with(
    monkeypatch: pytest.MonkeyPatch, *, trims: bool
) -> None:
    pool, said = Trimmed(monkeypatch, trims=trims), list[str]()
    it: Any = SuspendedPoolClear("cold", "cold", pool, pool, None, pool.trouble, no_doubt, no_pause)  # type: ignore[arg-type]
    await it.revive(PoolState("cold", 1, 10, 5, 5, "SUSPENDED"), said.append)
    # Before the clear that resumes the pool: from then on ZFS sends discards again.
    assert pool.done == ["clear", "up", *(["discards end"] if trims else []), "clear"]
    assert any("'timeout' has to be longer" in text for text in said) == trims


@pytest.mark.parametrize(
    ("spec", "doubted"),
    [
        ("tcp:nas", True),
        ("unix:/run/s", True),
        ("nbdkit:file /x", False),
        ("rbd:p/i", False),
        ("zvault:b/c", False),
    ],
)
async def test_what_a_server_of_somebody_elses_had_confirmed_is_doubted_when_it_was_lost(
    monkeypatch: pytest.MonkeyPatch, spec: str, *, doubted: bool
) -> None:
    pool, noted = Trimmed(monkeypatch, trims=False), list[str]()

    pool.spec = spec
    note = partial(noted.append, spec)
    it: Any = SuspendedPoolClear("cold", "cold", pool, pool, None, pool.trouble, note, no_pause)  # type: ignore[arg-type]
    await it.revive(PoolState("cold", 1, 10, 5, 5, "SUSPENDED"), print)
    assert noted == ([spec] if doubted else [])


class Blocked(Trimmed):
    """A suspended pool whose device answers reads; its storage says why it takes no writes."""

    cause: ZvaultError | None = None

    async def probe(self) -> list[Any]:
        return [SimpleNamespace(state="up", path="/dev/rbd0", spec="rbd:rbd_meta/cold")]

    async def find_cause(self) -> ZvaultError | None:
        return self.cause


async def test_a_pool_whose_storage_takes_no_writes_is_not_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Blocked(monkeypatch, trims=False)
    monkeypatch.setattr(clear_suspended_pool, "check_response", pool.nothing)
    it: Any = SuspendedPoolClear("cold", "cold", pool, pool, None, pool.trouble, no_doubt, no_pause)  # type: ignore[arg-type]
    suspended = PoolState("cold", 1, 10, 5, 5, "SUSPENDED")
    pool.cause = DeviceGone("Ceph takes no writes", "pool 'data' is full: each write waits", "add OSDs")
    with pytest.raises(DeviceGone, match="takes no writes") as failure:
        await it.revive(suspended, print)
    assert failure.value.next.startswith("add OSDs; then zvault goes on by itself")
    assert pool.done == []
    pool.cause = None
    await it.revive(suspended, print)
    assert pool.done == ["clear"]


class Labelled:
    """A host that runs zdb: what is told of a device's labels."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def run(self, argv: Sequence[str], **_: object) -> ProcessResult:
        return ProcessResult(tuple(argv), 0, self.text, "", 0.0)


class Cleared(Blocked):
    """A suspended pool whose device answers and has these labels."""

    def __init__(self, text: str) -> None:
        self.trims, self.done = False, list[str]()
        self.runner = Labelled(text)  # type: ignore[assignment]

    async def revive(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(clear_suspended_pool, "check_response", self.nothing)
        it: Any = SuspendedPoolClear("cold", "cold", self, self, None, self.trouble, no_doubt, no_pause)  # type: ignore[arg-type]
        await it.revive(PoolState("cold", 1, 10, 5, 5, "SUSPENDED"), print)


MINE = "    hostid: 7\n    hostname: 'here'\n"

# zdb -lu of OpenZFS 2.3.9, of which only the figures count.
NEWEST = "    Uberblock[0]\n\ttxg = 899\n    Uberblock[4]\n\ttxg = {}\n"


async def test_a_pool_that_another_host_had_since_is_not_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostid, "read_hostid", lambda: 7)
    pool = Cleared(MINE.replace("7", "8").replace("here", "there") + NEWEST.format(900))
    with pytest.raises(Refused, match="another host used the pool 'cold' meanwhile"):
        await pool.revive(monkeypatch)
    assert pool.done == []
    pool = Cleared(MINE + NEWEST.format(900))
    await pool.revive(monkeypatch)
    assert pool.done == ["clear"]


async def test_a_pool_whose_store_went_back_is_not_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Cleared(NEWEST.format(898))
    with pytest.raises(DevicesWentBack, match="has lost what it had confirmed") as refused:
        await pool.revive(monkeypatch)
    assert "its newest transaction group is 899, and it had confirmed 900" in refused.value.why
    assert "bring back the store as it was" in refused.value.next
    assert pool.done == []
    for text in (NEWEST.format(900), NEWEST.format(901), "no label"):
        pool = Cleared(text)
        await pool.revive(monkeypatch)
        assert pool.done == ["clear"], "what is as new, and what cannot be told"


async def test_a_pool_whose_device_cannot_be_cut_off_is_not_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    pool: Any = PoolOfMultihost(monkeypatch, None)

    async def fails(_: object) -> None:
        raise DeviceGone("nbd-client does not end", "", "")

    pool.cut_off = fails
    with pytest.raises(DeviceGone, match="does not end"):
        await clear_suspended_pool.close_lost("cold", pool, pool, print, NobodyKnown.nothing, no_pause)
    assert pool.done == []


class Closing:
    """A pool that has lost its device, in these states one look after the other; the last stays.

    ``closes``: what has ZFS close the device. ``held``: whether the kernel has it still.
    """

    runner = NobodyKnown()

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *states: str, closes: str = "", held: bool = True
    ) -> None:
        self.states, self.closes, self.held = list(states), closes, held
        self.slept, self.done = 0.0, list[str]()
        monkeypatch.setattr(clear_suspended_pool.asyncio, "sleep", self.sleep)
        monkeypatch.setattr(clear_suspended_pool.time, "monotonic", lambda: self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept += seconds

    async def probe(self) -> list[Any]:
        return [GONE if self.held else SimpleNamespace(state="gone", path=None, spec="tcp:nas")]

    async def cut_off(self, _: object) -> None: ...

    async def kernel_state(self, _: str) -> str:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    async def _do(self, what: str) -> None:
        self.done.append(what)
        self.held = self.held and what != self.closes

    async def reopen(self, *_: object) -> None:
        await self._do("reopen")

    async def clear(self, *_: object) -> None:
        await self._do("clear")
        raise DeadlineExceeded("the pool's history is not written")

    @asynccontextmanager
    async def pause(self) -> AsyncIterator[None]:
        self.done.append("pause")
        try:
            yield
        finally:
            self.done.append("go on")

    async def close(self) -> list[str]:
        it: Any = self
        await clear_suspended_pool.close_lost("cold", it, it, print, NobodyKnown.nothing, self.pause)
        return self.done


async def test_a_pool_that_is_not_suspended_is_not_cleared_without_its_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await Closing(monkeypatch, "ONLINE", closes="reopen").close() == ["reopen"]
    turns = await Closing(monkeypatch, "ONLINE", "SUSPENDED", closes="clear").close()
    assert turns == ["reopen", "pause", "clear", "go on"], "suspended meanwhile: ZFS refused to open anew"


async def test_a_suspended_pool_is_cleared_once_without_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Closing(monkeypatch, "SUSPENDED")
    with pytest.raises(DeviceGone):
        await pool.close()
    assert pool.done == ["pause", "clear", "go on"]
    assert pool.slept >= clear_suspended_pool.LET_GO_DEADLINE


async def test_a_pool_whose_device_is_closed_already_is_not_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at the second try, while the server stays away: what the first clear left waiting would stop it for good."""
    assert await Closing(monkeypatch, "SUSPENDED", held=False).close() == []


class Looked(Exception):
    """The pool was asked for."""


class PoolOfHangingHold:
    """A pool in which a hold hangs since its storage was lost; nothing ends that before the pool goes on."""

    def __init__(self, proc: Path) -> None:
        self.waits = KernelWaits(proc)
        folder = proc / str(os.getpid())
        folder.mkdir()
        (folder / "status").write_text("State:\tD (disk sleep)\n")
        process = SimpleNamespace(pid=os.getpid(), returncode=None)
        self.waits.leave(WaitingProgram(("libzfs_core", "hold"), "cold", process=process))

    async def state(self, pool: str) -> None:
        async with self.waits.enter(["zpool", "list", "-Hp", "-o", "name", pool], 1.0):
            raise Looked


@pytest.mark.parametrize("doing", ["up", "down", "export", "exported"])
async def test_what_hangs_in_a_lost_pool_does_not_keep_it_from_being_brought_back(
    doing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each of these begins with a look at the pool."""

    async def no_key(*_: object) -> None: ...

    async def no_devices(*_: object) -> list[Any]:
        return []

    pool = PoolOfHangingHold(tmp_path)
    clients, runner = SimpleNamespace(zpool_of=lambda _: pool), SimpleNamespace(runner=None)
    config: Any = SimpleNamespace(pool="cold", device=[object()], is_imported_by_zvault=True)
    context: Any = SimpleNamespace(clients=clients, env=runner)
    vault: Any = VaultAssembly(context, "cold", config)
    monkeypatch.setattr(assembly, "read_pool_key", no_key)
    monkeypatch.setattr(VaultAssembly, "_seen", SimpleNamespace(probe=no_devices))
    monkeypatch.setattr(VaultAssembly, "patient_stack", no_devices)
    calls = {
        "up": lambda: vault.up(print),
        "down": lambda: vault.down(print),
        "export": lambda: vault.export(None, print),
        "exported": vault.exported,
    }
    with pytest.raises(Looked):
        await calls[doing]()
