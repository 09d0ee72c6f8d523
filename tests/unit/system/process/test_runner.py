"""Real processes, small and short."""

import asyncio
import gc
import os
import signal
import time
import weakref
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from tests.unit.patience import FOR_EVER, PATIENCE, eventually
from tests.unit.system.process.open_files import RUNNER, no_more_fds, python
from zvault.core.errors import DeadlineExceeded, ToolFailed, ToolMissing
from zvault.system.process import output, runner, spawn
from zvault.system.process.json_child import JsonChild
from zvault.system.process.runner import HostRunner, ProcessResult
from zvault.system.process.spawn import kill_process


async def test_what_a_program_says_and_how_it_ends() -> None:
    began = time.monotonic()
    result = await RUNNER.run(["sh", "-c", "echo out; echo first >&2; echo last >&2; exit 3"], check=False)
    assert (result.returncode, result.stdout, result.stderr) == (3, "out\n", "first\nlast\n")
    assert result.complaint() == "last"
    assert result.tool == "sh -c"
    assert 0 < result.seconds <= time.monotonic() - began


async def test_a_failure_is_raised_in_the_programs_own_words() -> None:
    with pytest.raises(ToolFailed) as failure:
        await RUNNER.run(["sh", "-c", "echo it broke >&2; exit 1"])
    assert str(failure.value) == "sh -c failed: it broke"


@pytest.mark.parametrize(
    ("script", "words"), [("exit 4", "exit status 4"), ("kill -9 $$", "killed by signal 9")]
)
async def test_a_program_that_says_nothing_is_spoken_for(script: str, words: str) -> None:
    result = await RUNNER.run(["sh", "-c", script], check=False)
    assert result.complaint() == words


async def test_words_that_are_no_text_do_no_harm() -> None:
    result = await RUNNER.run(["printf", "a\\377b"])
    assert result.stdout == "a\ufffdb"


async def test_standard_input_is_given_or_empty() -> None:
    assert (await RUNNER.run(["cat"], stdin=b"hello")).stdout == "hello"
    assert (await RUNNER.run(["cat"])).stdout == ""
    # A program that does not read what it is given is no error of ours.
    assert (await RUNNER.run(["true"], stdin=b"x" * 1_000_000)).returncode == 0


async def test_what_a_program_did_not_read_is_no_error_that_nobody_looked_at() -> None:
    """CPython 3.11 logs that a pipe broke where nobody waits for its closing: zvaultd would have it in its journal."""
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    await RUNNER.run(["true"], stdin=b"x" * 1_000_000)
    child = await JsonChild.start(["sleep", str(FOR_EVER)])
    with pytest.raises(DeadlineExceeded):
        await child.ask({"names": "x" * 1_000_000}, 0.1)
    closed = [weakref.ref(child._process.stdin), weakref.ref(child._process)]
    del child
    for _ in range(10):  # until asyncio has let go of both
        await asyncio.sleep(0)
    gc.collect()
    assert [one() for one in closed] == [None, None]
    assert told == []


async def test_tools_speak_english_in_the_daemons_own_environment() -> None:
    result = await RUNNER.run(["sh", "-c", "echo $LC_ALL $HOME"])
    assert result.stdout.split() == ["C.UTF-8", os.environ["HOME"]]


async def test_much_output_arrives_whole() -> None:
    result = await RUNNER.run(python("print('x' * 3_000_000)"))
    assert len(result.stdout) == 3_000_001


async def test_a_missing_program_is_named() -> None:
    async with no_more_fds():
        for _ in range(5):
            with pytest.raises(ToolMissing, match="zfs-of-nowhere is not installed"):
                await RUNNER.run(["zfs-of-nowhere", "list"], stdin=b"")


@pytest.mark.parametrize("argv", [["/"], ["true", "x" * 200_000]])
async def test_what_the_kernel_will_not_start_is_a_failure_that_can_be_told(argv: list[str]) -> None:
    with pytest.raises(ToolFailed, match="cannot be started"):
        await RUNNER.run(argv)


async def test_a_program_that_takes_too_long_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[asyncio.subprocess.Process] = []

    async def spawned(*args: Any, **more: Any) -> asyncio.subprocess.Process:
        started.append(await spawn.spawn_program(*args, **more))
        return started[-1]

    monkeypatch.setattr(runner, "spawn_program", spawned)
    async with no_more_fds(), asyncio.timeout(PATIENCE):
        with pytest.raises(DeadlineExceeded) as failure:
            await RUNNER.run(["sleep", str(FOR_EVER)], deadline=0.3)
    assert failure.value.what == f"sleep {FOR_EVER} did not end within 0.3 s"
    with pytest.raises(ProcessLookupError):
        os.kill(started[-1].pid, 0)
    assert len(spawn._abandoned) == 0


async def test_a_killed_program_is_gone_though_what_it_started_keeps_its_pipes_open(tmp_path: Path) -> None:
    pid, sleep = tmp_path / "pid", f"sleep {FOR_EVER}"
    async with no_more_fds():
        child = await spawn.spawn_program(
            ["sh", "-c", f"{sleep} & echo $! > {pid}; exec {sleep}"], stdin=-3, stdout=PIPE
        )
        await eventually(lambda: pid.exists() and pid.read_text().strip())
        assert await kill_process(child)
    os.kill(int(pid.read_text()), signal.SIGKILL)
    assert len(spawn._abandoned) == 0


async def test_a_killed_program_is_gone_though_not_all_that_it_wrote_was_read() -> None:
    async with no_more_fds():
        child = await spawn.spawn_program(["head", "-c", "3000000", "/dev/zero"], stdin=-3, stdout=PIPE)
        await eventually(lambda: child.stdout._paused)  # type: ignore[union-attr]
        assert await kill_process(child)
    assert len(spawn._abandoned) == 0


async def test_a_cancelled_call_leaves_no_program_running(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    call = asyncio.create_task(RUNNER.run(["sh", "-c", f"echo $$ > {pid}; exec sleep {FOR_EVER}"]))
    await eventually(lambda: pid.exists() and pid.read_text().strip())
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


class Hung:
    """A process that hangs in the kernel: killing it does nothing."""

    returncode: int | None = None
    pid = 1 << 30  # more than any process can have

    class _transport:
        closed = False

        @classmethod
        def close(cls) -> None:
            cls.closed = True


async def test_one_that_hangs_in_the_kernel_is_left_behind_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spawn, "KILL_GRACE", 0.1)
    hung = Hung()
    assert not await kill_process(hung)  # type: ignore[arg-type]
    assert len(spawn._abandoned) == 1
    assert not Hung._transport.closed
    hung.returncode = -9
    await eventually(lambda: not spawn._abandoned)
    assert Hung._transport.closed


async def test_one_that_hangs_is_counted_also_when_nobody_waits_for_it_any_more() -> None:
    hung = Hung()
    giving_up = asyncio.create_task(kill_process(hung))  # type: ignore[arg-type]
    await asyncio.sleep(0.02)
    giving_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await giving_up
    assert len(spawn._abandoned) == 1
    hung.returncode = -9
    await eventually(lambda: not spawn._abandoned)


def test_a_result_speaks_of_the_tool_not_of_its_path() -> None:
    assert ProcessResult(("/sbin/zfs", "list", "-H"), 0, "", "", 0.0).tool == "zfs list"


async def test_a_program_that_prints_without_end_is_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(output, "LONGEST_OUTPUT", 8 << 20)
    with pytest.raises(ToolFailed, match="'yes x' prints too much") as caught:
        await HostRunner().run(["yes", "x"], deadline=30)
    assert "8 MiB" in caught.value.why


async def test_of_endless_complaints_the_last_are_kept():
    done = await HostRunner().run(["sh", "-c", "yes complaint | head -c 9000000 >&2; echo last >&2"])
    assert done.complaint() == "last"
    assert len(done.stderr) <= output.LONGEST_COMPLAINT


async def test_a_cancellation_as_a_program_ends_is_not_swallowed(monkeypatch: pytest.MonkeyPatch):
    ended = asyncio.Event()

    async def communicate(*_: object) -> tuple[bytes, bytes]:
        await ended.wait()
        return b"", b""

    monkeypatch.setattr(runner, "_communicate", communicate)
    task = asyncio.create_task(HostRunner().run(["true"], deadline=30))
    await asyncio.sleep(0.3)
    ended.set()
    await asyncio.sleep(0)
    # Either it was over before, or it is cancelled.
    taken = task.cancel()
    await asyncio.wait({task})
    assert task.cancelled() == taken
