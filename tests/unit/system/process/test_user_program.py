"""Real programs that end, hang, cry and leave others behind."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from zvault.core.errors import DeadlineExceeded, ToolFailed, ToolMissing
from zvault.system.process import user_program
from zvault.system.process.user_program import attend


async def sh(line: str, *, deadline: float = 10.0, **env: str) -> tuple[int, list[str]]:
    said: list[str] = []
    return await attend(["sh", "-c", line], env=env, deadline=deadline, hear=said.append), said


async def gone(file: Path) -> bool:
    """Whether the process that wrote its id there has ended."""
    pid = int(file.read_text())
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        # An orphan's zombie waits for init, which a container may not have.
        if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
            return True
        await asyncio.sleep(0.02)
    return False


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
        await attend(["/nowhere/hook"], env={}, deadline=1, hear=print)
    with pytest.raises(ToolFailed):
        await attend(["/etc/passwd"], env={}, deadline=1, hear=print)


async def test_the_timeout_ends_all_it_started(tmp_path: Path) -> None:
    child = tmp_path / "child"
    said: list[str] = []
    began = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"within 0\.3 s"):
        await attend(
            ["sh", "-c", f"sleep 100 & echo $! >{child}; echo waiting; wait"],
            env={},
            deadline=0.3,
            hear=said.append,
        )
    assert said == ["waiting"]
    assert time.monotonic() - began < 2
    assert await gone(child)


async def test_sigterm_first_so_that_it_can_tidy_up(tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(DeadlineExceeded):
        await attend(
            ["sh", "-c", "trap 'echo tidy; exit' TERM; sleep 100 & wait"],
            env={},
            deadline=0.3,
            hear=said.append,
        )
    assert said == ["tidy"]


async def test_one_that_ignores_sigterm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_program, "KILL_GRACE", 0.2)
    child = tmp_path / "child"
    with pytest.raises(DeadlineExceeded):
        await sh(f"trap '' TERM; echo $$ >{child}; while :; do sleep 0.1; done", deadline=0.3)
    assert await gone(child)


async def test_a_cancellation_ends_it(tmp_path: Path) -> None:
    child = tmp_path / "child"
    task = asyncio.create_task(sh(f"echo $$ >{child}; sleep 100"))
    while not child.exists() or not child.read_text():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await gone(child)


async def test_half_a_line_is_heard_though_what_it_leaves_behind_may_go_on_with_it() -> None:
    assert await sh("sleep 3 & printf half") == (0, ["half"])


async def test_what_it_leaves_behind_on_purpose_is_not_waited_for_and_lives(tmp_path: Path) -> None:
    child = tmp_path / "child"
    began = time.monotonic()
    status, said = await sh(f"sleep 3 & echo $! >{child}; echo done")
    assert (status, said) == (0, ["done"])
    assert time.monotonic() - began < 2
    os.kill(int(child.read_text()), 9)
