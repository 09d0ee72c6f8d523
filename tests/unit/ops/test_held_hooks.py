"""Hooks that hold a lock over the snapshot: begun before it, ended after it, whatever happens."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.hooks_world import (
    World,
    locked,
    world_for_test,  # noqa: F401
)
from tests.unit.patience import eventually
from tests.unit.system.process.deadline import Deadline
from zvault.config.tables.hooks import Hook, Hooks
from zvault.core.errors import HookFailed, Refused
from zvault.ops import hooks
from zvault.system.process import user_program


def held(it: World, line: str, **fields: Any) -> Hook:
    """A hook that takes a lock, which is a file, and gives it back when it is ended."""
    lock = it.log.parent / "lock"
    take = f"trap 'rm {lock}; log gave back; exit 0' TERM; touch {lock}; "
    return it.hook(take + line, hold=True, **{"timeout": "60s", **fields})


WAIT = "while :; do sleep 0.02; done"


def alive(it: World) -> bool:
    """Whether the hook that wrote its number runs; a process that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{int((it.log.parent / 'pid').read_text())}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


async def test_a_hook_that_is_held_runs_over_the_snapshot_and_no_longer(it: World) -> None:
    around = Hooks(
        before=[held(it, f"log took; echo ready; {WAIT}"), it.hook("log second")],
        after=[it.hook("log after")],
    )
    async with it.hooks.around("snapshot", around):
        assert locked(it)
        it.log.open("a").write("the snapshot\n")
    assert it.lines == ["took", "second", "the snapshot", "gave back", "after"]
    assert (locked(it), it.blamed) == (False, [])
    assert [text for text in it.said("message") if "held" in text] == [
        "the hook 'sh' before the snapshot (1 of 2) is ready, and held",
        "the hook 'sh' before the snapshot (1 of 2) held, and was ended",
    ]


async def test_several_are_ended_in_the_reverse_order(it: World) -> None:
    first = it.hook(f"trap 'log first; exit' TERM; echo ready; {WAIT}", hold=True, timeout="60s")
    second = it.hook(f"trap 'log second; exit' TERM; echo ready; {WAIT}", hold=True, timeout="60s")
    async with it.hooks.around("snapshot", Hooks(before=[first, second])):
        pass
    assert it.lines == ["second", "first"]


@pytest.mark.parametrize(
    ("line", "timeout", "why"),
    [
        ("echo no; exit 3", "60s", "exit status 3, before it was ended; it said: no"),
        ("exit 0", "60s", "exit status 0, before it was ended, without a word"),
        (f"echo almost ready; {WAIT}", "0.3s", "did not end within 0.3 s"),
    ],
)
async def test_one_that_is_not_ready_is_a_failure_before(
    it: World, line: str, timeout: str, why: str
) -> None:
    with pytest.raises(HookFailed) as failure:
        async with it.hooks.around("snapshot", Hooks(before=[held(it, line, timeout=timeout)])):
            it.log.open("a").write("the snapshot\n")
    assert why in str(failure.value)
    assert "the snapshot" not in it.lines


@pytest.mark.parametrize("on_failure", ["stop", "go-on"])
async def test_one_that_ends_meanwhile_did_not_hold(it: World, on_failure: str) -> None:
    end = it.log.parent / "end"
    hook = held(
        it,
        f"echo $$ >{it.log.parent}/pid; echo ready; until test -e {end}; do sleep 0.02; done; exit 0",
        on_failure=on_failure,
    )
    async with it.hooks.around("snapshot", Hooks(before=[hook])):
        end.touch()
        await eventually(lambda: not alive(it))
    (text,) = it.said("warning")
    assert "did not hold: exit status 0, before it was ended" in text
    assert len(it.blamed) == (on_failure == "stop")


async def test_one_is_killed_at_its_timeout_while_the_snapshot_is_made(
    it: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(hooks, "time", SimpleNamespace(monotonic=lambda: now))
    deadline = Deadline(monkeypatch, 3.0)
    async with it.hooks.around("snapshot", Hooks(before=[held(it, f"echo ready; {WAIT}", timeout="3s")])):
        deadline.over()
        now += 3.0
        await eventually(lambda: not locked(it))
    assert "did not end within 3 s" in str(it.blamed[0])


async def test_one_that_is_just_being_killed_at_its_timeout_did_not_hold(
    it: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(hooks, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(user_program, "KILL_GRACE", 2.0)
    deadline = Deadline(monkeypatch, 2.0)
    # It ends only at SIGKILL, so it is still there when what it is held over ends.
    stubborn = f"trap '' TERM; echo ready; {WAIT}"
    async with it.hooks.around("snapshot", Hooks(before=[held(it, stubborn, timeout="2s")])):
        deadline.over()
        now += 2.0
        await asyncio.sleep(0.2)
    assert "did not end within 2 s" in str(it.blamed[0])


async def test_one_is_ended_also_where_the_snapshot_fails_or_is_stopped(it: World) -> None:
    async def fail(error: BaseException) -> None:
        async with it.hooks.around("snapshot", Hooks(before=[held(it, f"echo ready; {WAIT}")])):
            assert locked(it)
            raise error

    for error in (Refused("no snapshot"), asyncio.CancelledError()):
        with pytest.raises(type(error)):
            await fail(error)
        assert not locked(it)


async def test_one_is_ended_where_the_run_is_stopped_before_it_is_ready(it: World) -> None:
    async def run() -> None:
        async with it.hooks.around("snapshot", Hooks(before=[held(it, WAIT)])):
            raise AssertionError

    task = asyncio.create_task(run())
    await eventually(lambda: locked(it))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not locked(it)


async def test_what_it_started_is_ended_with_it(it: World) -> None:
    pid = it.log.parent / "pid"
    hook = it.hook(f"sleep 1000 & echo $! >{pid}; echo ready; wait", hold=True, timeout="60s")
    async with it.hooks.around("snapshot", Hooks(before=[hook])):
        child = Path(f"/proc/{int(pid.read_text())}/cmdline")
        # Between fork and the end of execve(2) it is the shell, or has no words at all.
        await eventually(lambda: b"sleep" in child.read_bytes())
    assert not child.exists() or b"sleep" not in child.read_bytes()
