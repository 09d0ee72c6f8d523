"""A guard that ends gives its lease back, also where a renewal was under way."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.unit.devices.s3_lease.awake_clock import Awake
from tests.unit.devices.s3_lease.test_takeover import MINE, Memory
from tests.unit.patience import FOR_EVER, PATIENCE
from zvault import data
from zvault.core.errors import DeviceGone, ToolFailed
from zvault.core.units import parse_duration
from zvault.devices.nbd import blockstore_server
from zvault.devices.s3_lease import guard, held_lease
from zvault.devices.s3_lease.guard import SETTLE_SECONDS, LeaseGuard
from zvault.devices.s3_lease.guard_command import GUARD_STOP_SECONDS
from zvault.devices.s3_lease.held_lease import GIVE_BACK_SECONDS, WATCHDOG_AFTER
from zvault.devices.s3_lease.lease_object import LeaseContent
from zvault.system.process import spawn
from zvault.system.process.spawn import KILL_GRACE
from zvault.system.systemd_units import UNIT_STOP_DEADLINE


@pytest.mark.parametrize("renewed", [False, True])
async def test_a_lease_is_given_back_though_a_renewal_came_in_between(renewed: bool):
    memory = Memory()
    it = LeaseGuard(memory.store, MINE, memory.take(), memory.clock)
    if renewed:
        memory.put(MINE, it.etag)  # its answer did not come before the server ended
    await it._give_back()
    assert memory.lease is not None
    assert not memory.lease.held


async def test_another_hosts_lease_is_left_alone():
    memory = Memory()
    it = LeaseGuard(memory.store, MINE, memory.take(), memory.clock)
    theirs = replace(MINE, host="other", boot="other")
    memory.put(theirs, it.etag)
    await it._give_back()
    assert memory.lease == theirs


@dataclass
class Silent(Memory):
    """A store that does not answer a put any more, for as long as a test may take or until it is ``over``."""

    silent: bool = False
    silence: float = FOR_EVER

    def __init__(self) -> None:
        super().__init__()
        self.over = threading.Event()

    def put(self, lease: LeaseContent, etag: str | None) -> str:
        if self.silent:
            self.over.wait(self.silence)
        return super().put(lease, etag)


async def test_a_silent_store_holds_the_guard_up_no_longer_than_its_watchdog_allows(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(held_lease, "GIVE_BACK_SECONDS", FOR_EVER)
    memory = Silent()
    it = LeaseGuard(memory.store, MINE, memory.take(), memory.clock)
    memory.silent = True
    memory.now += MINE.bound * WATCHDOG_AFTER - 0.2
    try:
        await asyncio.wait_for(it._give_back(), PATIENCE)
    finally:
        memory.over.set()


async def test_nothing_is_begun_once_the_watchdog_is_due():
    memory = Memory()
    it = LeaseGuard(memory.store, MINE, memory.take(), memory.clock)
    memory.now += MINE.bound * WATCHDOG_AFTER
    await it._give_back()
    assert memory.lease == MINE


async def give_back_to_a_silent_store() -> None:
    """What the guard's process does, in one of its own: its server has ended, as it was to."""
    memory = Silent()
    it = LeaseGuard(memory.store, MINE, memory.take(), memory.clock)
    renew = it._renew_once

    def renew_and_fall_silent() -> None:
        renew()
        memory.silent = True

    it._renew_once = renew_and_fall_silent  # type: ignore[method-assign]
    held_lease.GIVE_BACK_SECONDS = 0.5
    # It is told to stop by its server, which ends when it is told to in turn: an end before that might be seen first.
    server = "trap 'exit 0' TERM; kill -TERM $PPID; while :; do sleep 0.05; done"
    await guard._guarded(it, ["sh", "-c", server], None)


def test_its_process_ends_though_a_request_to_the_store_does_not():
    code = f"import asyncio\nfrom {__name__} import *\nasyncio.run(give_back_to_a_silent_store())"
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert done.returncode == 0


async def quiet(argv: list[str], **_: object) -> asyncio.subprocess.Process:
    nothing = asyncio.subprocess.DEVNULL
    return await spawn.spawn_program(argv, stdin=nothing, stdout=nothing, stderr=nothing)


async def told_to_stop(memory: Memory, there: Path) -> asyncio.Task[None]:
    """A guard that is to stop, and whose server does not; it is waited for a tenth of a second only."""
    it = LeaseGuard(memory.store, MINE, memory.take(), memory.clock, patience=0.1)
    deaf = f"trap '' TERM; touch {there}; while :; do sleep 0.05; done"
    running = asyncio.ensure_future(it.run(["sh", "-c", deaf]))
    while not there.exists():
        await asyncio.sleep(0.01)
    it.stop.set()
    return running


async def test_the_lease_of_a_server_that_had_to_be_killed_is_kept_until_the_store_is_done_with_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    memory = Memory()
    killed: list[float] = []

    async def put_down(server: asyncio.subprocess.Process) -> bool:
        dead = await spawn.kill_process(server)
        killed.append(time.monotonic())
        return dead

    monkeypatch.setattr(guard, "SETTLE_SECONDS", 0.5)
    monkeypatch.setattr(guard, "spawn_program", quiet)
    monkeypatch.setattr(guard, "kill_process", put_down)
    running = await told_to_stop(memory, tmp_path / "there")
    await running
    assert memory.lease is not None
    assert not memory.lease.held
    assert time.monotonic() - killed[0] >= 0.5


async def test_the_lease_of_a_server_that_cannot_be_ended_is_not_given_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    memory, left = Memory(), []

    async def put_down(server: asyncio.subprocess.Process) -> bool:
        left.append(server)
        return False

    monkeypatch.setattr(guard, "spawn_program", quiet)
    monkeypatch.setattr(guard, "kill_process", put_down)
    running = await told_to_stop(memory, tmp_path / "there")
    with pytest.raises(DeviceGone, match="cannot be ended"):
        await running
    assert memory.lease == MINE
    await spawn.kill_process(left[0])


async def test_a_store_that_answers_later_than_the_next_renewal_is_due_keeps_the_server_alive(
    monkeypatch: pytest.MonkeyPatch,
):
    awake = Awake()
    ends: list[float] = []
    monkeypatch.setattr(guard, "spawn_program", quiet)
    monkeypatch.setattr(guard.sd_notify, "allow_silence", lambda left: ends.append(awake.now + left))
    clock, began = awake.clock, awake.now
    memory, mine = Silent(), replace(MINE, bound=10.0)
    memory.silence = 1.5
    it = LeaseGuard(memory.store, mine, memory.take(mine), clock)
    assert memory.silence > it.pause
    memory.silent = True
    running = asyncio.ensure_future(it.run(["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done"]))
    while clock.now() < began + 0.75 * mine.bound:
        await asyncio.sleep(0.05)
        assert not running.done(), running
    assert max(ends) > clock.now(), "systemd would end it"
    assert max(ends) < it.renewed + mine.bound * WATCHDOG_AFTER + 0.001, "however late a renewal is seen"
    it.stop.set()
    await running


@pytest.mark.parametrize(
    ("unit", "patience", "gives_up"),
    [
        ("zvault-device@.service", GUARD_STOP_SECONDS, UNIT_STOP_DEADLINE),
        (
            "zvault-blockstore@.service",
            blockstore_server.STORE_STOP_SECONDS,
            blockstore_server.STORE_STOP_DEADLINE,
        ),
    ],
)
def test_a_unit_waits_for_its_guard_and_zvault_for_the_unit(unit: str, patience: float, gives_up: float):
    said = data.find_data_path(f"systemd/{unit}").read_text()
    (allowed,) = [line.partition("=")[2] for line in said.splitlines() if line.startswith("TimeoutStopSec=")]
    seconds = parse_duration(allowed)
    assert patience + KILL_GRACE + SETTLE_SECONDS + GIVE_BACK_SECONDS < seconds < gives_up


@pytest.mark.parametrize(
    ("status", "resume", "kept"),
    [
        ({"error": {"kind": "ObjectDamaged"}, "engine": None}, False, False),
        ({"error": {"kind": "ObjectDamaged"}, "engine": None}, True, True),
        ({"error": {"kind": "ObjectDamaged"}, "engine": {"mode": "strict"}}, False, True),
        ({"error": None, "engine": None}, False, True),
        (None, False, True),
    ],
)
async def test_the_lease_is_given_back_where_the_server_never_attached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: object, resume: bool, kept: bool
):
    monkeypatch.setattr(guard, "spawn_program", quiet)
    memory = Memory()
    if status is not None:
        (tmp_path / "status").write_text(json.dumps(status))
    it = LeaseGuard(memory.store, MINE, memory.take(), memory.clock, resume=resume)
    with pytest.raises(ToolFailed, match="died"):
        await it.run(["sh", "-c", "exit 1", "sh", f"status={tmp_path / 'status'}"])
    assert memory.lease is not None
    assert memory.lease.held == kept
