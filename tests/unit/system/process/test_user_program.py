"""Real programs that end, hang, cry and leave others behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.unit.patience import FOR_EVER, PATIENCE, eventually
from tests.unit.system.process.deadline import Deadline
from zvault.core.errors import DeadlineExceeded, ToolFailed, ToolMissing
from zvault.system.process import user_program
from zvault.system.process.spawn import spawn_session
from zvault.system.process.user_program import run_user_program


async def sh(line: str, *, deadline: float = PATIENCE, **env: str) -> tuple[int, list[str]]:
    said: list[str] = []
    return await run_user_program(["sh", "-c", line], env=env, deadline=deadline, hear=said.append), said


def ended(file: Path) -> bool:
    """Whether the process that wrote its id there has ended."""
    pid = int(file.read_text())
    try:
        os.kill(pid, 0)
        # An orphan's zombie waits for init, which a container may not have.
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True


@pytest.fixture
def deadline(monkeypatch: pytest.MonkeyPatch) -> Deadline:
    # Who waits for more than the program's own end after SIGTERM is found to.
    monkeypatch.setattr(user_program, "KILL_GRACE", FOR_EVER)
    return Deadline(monkeypatch, DEADLINE)


DEADLINE = 0.3


async def test_lines_of_both_outputs_and_the_status() -> None:
    assert await sh("echo out; echo $MORE >&2; echo; printf last; exit 3", MORE="err") == (
        3,
        ["out", "err", "last"],
    )


async def test_a_signal() -> None:
    assert await sh("kill -9 $$") == (-9, [])


async def test_bytes_that_are_no_text_and_a_line_without_end() -> None:
    status, said = await sh("printf '\\377x\\n'; head -c 100000 /dev/zero | tr '\\0' y")
    assert status == 0
    assert said[0] == "�x"
    assert said[1] == "y" * 4096


async def test_stdin_is_empty() -> None:
    assert await sh("cat; echo end") == (0, ["end"])


async def test_what_is_not_there() -> None:
    with pytest.raises(ToolMissing):
        await run_user_program(["/nowhere/hook"], env={}, deadline=PATIENCE, hear=print)
    with pytest.raises(ToolFailed):
        await run_user_program(["/etc/passwd"], env={}, deadline=PATIENCE, hear=print)


async def test_one_that_takes_too_long() -> None:
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(DeadlineExceeded, match=r"within 0\.3 s"):
            await sh(f"exec sleep {FOR_EVER}", deadline=DEADLINE)


async def late(line: str, deadline: Deadline) -> list[str]:
    """All that a program says whose time is over when it says the first of it."""
    said: list[str] = []

    def hear(line: str) -> None:
        said.append(line)
        deadline.over()

    with pytest.raises(DeadlineExceeded):
        await asyncio.wait_for(
            run_user_program(["sh", "-c", line], env={}, deadline=DEADLINE, hear=hear), PATIENCE
        )
    return said


async def test_the_timeout_ends_all_it_started(tmp_path: Path, deadline: Deadline) -> None:
    child = tmp_path / "child"
    assert await late(f"sleep {FOR_EVER} & echo $! >{child}; echo waiting; wait", deadline) == ["waiting"]
    await eventually(lambda: ended(child))


async def test_sigterm_first_so_that_it_can_tidy_up(deadline: Deadline) -> None:
    # What dash starts in the background can lose a signal, between its fork and its exec.
    tidies = "trap 'echo tidy; exit' TERM; echo ready; while :; do sleep 0.05; done"
    said = await late(tidies, deadline)  # with a word of dash's where that was just waiting
    assert (said[0], said[-1]) == ("ready", "tidy")


async def test_one_that_ignores_sigterm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deadline: Deadline
) -> None:
    monkeypatch.setattr(user_program, "KILL_GRACE", 0.2)
    child = tmp_path / "child"
    await late(f"trap '' TERM; echo $$ >{child}; echo ready; while :; do sleep 0.1; done", deadline)
    await eventually(lambda: ended(child))


async def test_a_cancellation_ends_it(tmp_path: Path) -> None:
    child = tmp_path / "child"
    task = asyncio.create_task(sh(f"echo $$ >{child}; sleep {FOR_EVER}"))
    await eventually(lambda: child.exists() and child.read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: ended(child))


async def test_a_cancellation_while_it_is_being_started_ends_it_in_good_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs some time before asyncio has made its transport, longer where the machine is busy."""
    there, said = tmp_path / "there", list[str]()

    async def slowly(argv: Sequence[str], env: Mapping[str, str]) -> asyncio.subprocess.Process:
        process = await spawn_session(argv, env)
        await eventually(there.exists)
        await asyncio.sleep(0.1)
        return process

    monkeypatch.setattr(user_program, "spawn_session", slowly)
    tidies = f"trap 'echo tidy; exit' TERM; touch {there}; while :; do sleep 0.05; done"
    task = asyncio.create_task(
        run_user_program(["sh", "-c", tidies], env={}, deadline=PATIENCE, hear=said.append)
    )
    await eventually(there.exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert said[-1:] == ["tidy"]


async def test_half_a_line_is_heard_though_what_it_leaves_behind_may_go_on_with_it() -> None:
    assert await sh("sleep 3 & printf half") == (0, ["half"])


async def test_what_it_leaves_behind_on_purpose_is_not_waited_for_and_lives(tmp_path: Path) -> None:
    child = tmp_path / "child"
    try:
        async with asyncio.timeout(PATIENCE):
            assert await sh(f"sleep {FOR_EVER} & echo $! >{child}; echo done") == (0, ["done"])
        assert not ended(child)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(child.read_text()), 9)
