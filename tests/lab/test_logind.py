"""Inhibitor locks as logind has them, and what happens where there is no logind."""

import asyncio
import contextlib
import gc
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import world
from harmless_reboot import harmless_reboot
from world import shell as sh

from zvault.core.errors import ToolMissing
from zvault.core.policy.sleep import InhibitMode
from zvault.system.logind import (
    MODE_BEFORE_257,
    SleepAnnouncement,
    hear_announcements,
    hold_inhibitor,
    read_longest_delay,
)

PATIENT = 60.0
"""Seconds for one conversation with logind where nothing is proven by how long it takes."""
DBUS_WAITS = 25.0
"""Seconds that a client of D-Bus waits for an answer by itself: DBUS_TIMEOUT_USE_DEFAULT, and systemd's."""


def listed() -> list[str]:
    return world.inhibitors().splitlines()


async def soon(look: Callable[[], object], what: Callable[[], object]) -> None:
    """Wait for what comes a little later, and let this loop go on meanwhile."""
    for _ in range(1200):
        if look():
            return
        await asyncio.sleep(0.1)
    raise AssertionError(what())


async def none_listed() -> None:
    """logind hears of a lock's end a little later."""
    await soon(lambda: not listed(), listed)


async def answers() -> None:
    """logind is on the bus."""
    words = "busctl status org.freedesktop.login1"
    await soon(
        lambda: sh(f"{words} >/dev/null 2>&1 && echo yes", check=False),
        lambda: sh(f"{words} 2>&1", check=False),
    )


def open_files() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


@contextlib.asynccontextmanager
async def stopped(*units: str) -> AsyncIterator[None]:
    """Without these units, and without what would start them again."""
    names = " ".join(units)
    sh(f"systemctl mask --runtime --now --quiet {names}")
    try:
        yield
    finally:
        sh(f"systemctl unmask --runtime --quiet {names} && systemctl start {names}")
        # logind does not find its way back to a bus that was restarted.
        sh("systemctl restart systemd-logind")
        await answers()


async def test_a_lock_is_there_while_it_is_held_and_not_after():
    await none_listed()
    began = time.monotonic()
    async with hold_inhibitor(why="backup of tank „Köln“", deadline=PATIENT) as lock:
        print(f"had in {time.monotonic() - began:.3f} s")
        assert lock.held
        assert lock.problem is None
        (line,) = listed()
        for word in ("zvault", " sleep ", "backup of tank „Köln“", "block"):
            assert word in line
        assert "root" in line
    assert not lock.held
    await none_listed()


async def test_a_lock_refuses_suspend():
    async with hold_inhibitor(why="lab", deadline=PATIENT):
        done = subprocess.run(
            ["systemctl", "suspend", "--check-inhibitors=yes"], capture_output=True, text=True, timeout=60
        )
        assert done.returncode != 0
        assert "lab" in done.stderr or "inhibit" in done.stderr.lower()


@pytest.fixture
def harmless() -> Iterator[None]:
    with harmless_reboot():
        yield


async def reboot() -> int:
    """As root on a terminal, an update and a UPS have it: the exit status."""
    done = await asyncio.create_subprocess_exec("systemctl", "reboot")
    return await done.wait()


async def hear(heard: asyncio.Queue[SleepAnnouncement | None]) -> SleepAnnouncement | None:
    async with asyncio.timeout(PATIENT):
        return await heard.get()


@pytest.mark.parametrize("mode", ["block", "block-weak"])
async def test_a_shutdown_is_refused_to_root_by_block_alone(harmless: None, mode: InhibitMode):
    async with (
        hear_announcements() as heard,
        hold_inhibitor(why="lab", what="shutdown", mode=mode, deadline=PATIENT) as lock,
    ):
        assert lock.held
        assert (await reboot() == 0) == (mode == "block-weak")
        if mode == "block-weak":
            assert await hear(heard) == SleepAnnouncement("shutdown", coming=True)
            assert await hear(heard) == SleepAnnouncement("shutdown", coming=False)
        assert heard.empty()


async def test_a_shutdown_that_is_delayed_waits_for_the_lock_and_comes(harmless: None):
    async with hear_announcements() as heard:
        async with hold_inhibitor(why="lab", what="sleep:shutdown", mode="delay", deadline=PATIENT) as lock:
            assert lock.held
            assert await reboot() == 0
            assert await hear(heard) == SleepAnnouncement("shutdown", coming=True)
            assert sh("systemctl is-active reboot.target", check=False) == "inactive"
        assert await hear(heard) == SleepAnnouncement("shutdown", coming=False)
        assert sh("systemctl is-active reboot.target", check=False) == "active"


async def test_a_logind_that_does_not_know_a_mode_is_asked_for_what_it_called_that(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setitem(MODE_BEFORE_257, "block-weaker", "block")
    async with hold_inhibitor(why="lab", mode="block-weaker", deadline=PATIENT) as lock:  # type: ignore[arg-type]
        assert lock.held
        (line,) = listed()
        assert line.split()[-1] == "block"
    async with hold_inhibitor(why="lab", mode="blocker", deadline=PATIENT) as lock:  # type: ignore[arg-type]
        assert lock.problem is not None
        assert "blocker" in lock.problem.why


async def test_a_lock_ends_with_an_exception_and_with_a_cancelled_task():
    with pytest.raises(RuntimeError):
        async with hold_inhibitor(why="lab"):
            raise RuntimeError

    async def hold() -> None:
        async with hold_inhibitor(why="lab"):
            await asyncio.sleep(60)

    open_before = open_files()
    for step in range(60):
        task = asyncio.ensure_future(hold())
        await asyncio.sleep(step * 0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await none_listed()
    await soon(lambda: open_files() == open_before, lambda: (open_files(), open_before))


async def test_several_locks_and_the_list_of_them():
    one = hold_inhibitor(why="one", what="sleep:shutdown", deadline=PATIENT)
    two = hold_inhibitor(why="two", what="sleep", mode="delay", deadline=PATIENT)
    async with one, two:
        lines = sh("systemd-inhibit --list --no-legend --no-pager").splitlines()
    held = {(why, what, mode) for who, *_, what, why, mode in map(str.split, lines) if who == "zvault"}
    assert held == {("one", "shutdown:sleep", "block"), ("two", "sleep", "delay")}


async def test_a_lock_outlives_a_restart_of_logind():
    async with hold_inhibitor(why="lab", deadline=PATIENT) as lock:
        sh("systemctl restart systemd-logind")
        await answers()
        assert lock.held
        assert len(listed()) == 1
    await none_listed()


async def test_without_logind_work_goes_on_and_says_so():
    async with stopped("systemd-logind.service"), hold_inhibitor(why="lab") as lock:
        assert not lock.held
        assert isinstance(lock.problem, ToolMissing)
        print(lock.problem)
        assert "systemd-logind" in lock.problem.next
    async with hold_inhibitor(why="lab", deadline=PATIENT) as lock:
        assert lock.held


async def test_without_a_bus_work_goes_on_and_says_so():
    async with stopped("dbus.socket", "dbus.service"):
        async with hold_inhibitor(why="lab", deadline=PATIENT) as lock:
            assert not lock.held
            assert lock.problem is not None
            print(lock.problem)
            assert "did not answer" not in lock.problem.why, "it was waited for"
        with pytest.raises(ToolMissing):
            await read_longest_delay()


async def test_a_logind_that_does_not_answer_is_not_waited_for():
    sh("systemctl kill -s STOP systemd-logind")
    try:
        began = time.monotonic()
        async with hold_inhibitor(why="lab", deadline=1.0) as lock:
            assert not lock.held
            assert lock.problem is not None
            assert "within 1 s" in lock.problem.why
        # It stands still all the time: without a deadline it would be as long as D-Bus itself has patience.
        assert 0.9 < time.monotonic() - began < DBUS_WAITS
    finally:
        await asyncio.sleep(0.1)
        sh("systemctl kill -s CONT systemd-logind")
    # It grants the lock now, to a caller that has gone: it was asked for that before it is asked for the list.
    await none_listed()


async def test_an_address_that_is_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "nonsense")
    async with hold_inhibitor(why="lab") as lock:
        assert lock.problem is not None
        print(lock.problem)
