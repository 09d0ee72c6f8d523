"""Real processes, small and short."""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from zvault.core.errors import DeadlineExceeded, ToolFailed, ToolMissing
from zvault.system.process import json_child, output, runner, spawn
from zvault.system.process.json_child import JsonChild
from zvault.system.process.pipeline import Pipeline
from zvault.system.process.runner import HostRunner, Result
from zvault.system.process.spawn import put_down

RUNNER = HostRunner()


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def fds() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@contextlib.asynccontextmanager
async def no_more_fds() -> AsyncIterator[None]:
    await RUNNER.run(["true"])  # what asyncio opens once and keeps
    before = fds()
    yield
    for _ in range(200):
        if fds() <= before:
            return
        await asyncio.sleep(0.01)
    assert fds() <= before


# One program


async def test_what_a_program_says_and_how_it_ends() -> None:
    result = await RUNNER.run(["sh", "-c", "echo out; echo first >&2; echo last >&2; exit 3"], check=False)
    assert (result.returncode, result.stdout, result.stderr) == (3, "out\n", "first\nlast\n")
    assert result.complaint() == "last"
    assert result.tool == "sh -c"
    assert result.seconds < 5


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


async def test_a_program_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    before = time.monotonic()
    async with no_more_fds():
        with pytest.raises(DeadlineExceeded) as failure:
            await RUNNER.run(["sh", "-c", f"echo $$ > {pid}; exec sleep 60"], deadline=0.3)
    assert time.monotonic() - before < 10
    assert failure.value.what == "sh -c did not end within 0.3 s"
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert len(spawn._abandoned) == 0


@pytest.mark.parametrize(
    "script",
    [
        "sleep 3 & exec sleep 60",  # a grandchild keeps the pipes open
        "head -c 3000000 /dev/zero; exec sleep 60",  # what it wrote was not read to the end
    ],
)
async def test_a_killed_program_is_gone_whatever_became_of_its_pipes(script: str) -> None:
    async with no_more_fds():
        child = await spawn.spawn(["sh", "-c", script], stdin=-3, stdout=asyncio.subprocess.PIPE)
        await asyncio.sleep(0.2)
        before = time.monotonic()
        assert await put_down(child)
        assert time.monotonic() - before < 1
    assert len(spawn._abandoned) == 0


async def test_a_cancelled_call_leaves_no_program_running(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    call = asyncio.create_task(RUNNER.run(["sh", "-c", f"echo $$ > {pid}; exec sleep 60"]))
    while not (pid.exists() and pid.read_text().strip()):
        await asyncio.sleep(0.01)
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
    assert not await put_down(hung)  # type: ignore[arg-type]
    assert len(spawn._abandoned) == 1
    assert not Hung._transport.closed
    hung.returncode = -9
    await asyncio.sleep(0.5)
    assert len(spawn._abandoned) == 0
    assert Hung._transport.closed


async def test_one_that_hangs_is_counted_also_when_nobody_waits_for_it_any_more() -> None:
    hung = Hung()
    giving_up = asyncio.create_task(put_down(hung))  # type: ignore[arg-type]
    await asyncio.sleep(0.02)
    giving_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await giving_up
    assert len(spawn._abandoned) == 1
    hung.returncode = -9
    await asyncio.sleep(0.2)
    assert len(spawn._abandoned) == 0


def test_a_result_speaks_of_the_tool_not_of_its_path() -> None:
    assert Result(("/sbin/zfs", "list", "-H"), 0, "", "", 0.0).tool == "zfs list"


# Programs joined by pipes


async def test_megabytes_go_through_without_passing_through_python(tmp_path: Path) -> None:
    out = tmp_path / "out"
    size = 20 << 20
    async with no_more_fds():
        pipeline = await RUNNER.pipeline(
            [["head", "-c", str(size), "/dev/zero"], ["cat"], ["sh", "-c", f"cat > {out}"]]
        )
        ends = await pipeline.wait()
    assert out.stat().st_size == size
    assert [end.ok for end in ends] == [True] * 3
    assert [end.argv[0] for end in ends] == ["head", "cat", "sh"]


async def test_what_only_moves_bytes_has_no_rights() -> None:
    async with no_more_fds():
        pipeline = await RUNNER.pipeline([["sleep", "60"], ["cat"], ["cat"], ["cat"]], nobody={"cat"})
        try:
            told = [await status_of(process.pid, "cat") for process in pipeline.processes[1:3]]
            for one in told:
                assert int(one["CapEff"], 16) == int(one["CapPrm"], 16) == int(one["CapInh"], 16) == 0
                if os.geteuid() == 0:
                    assert one["Uid"].split() == ["65534"] * 4
                    assert one["NoNewPrivs"] == "1"
                    assert one["Groups"].strip() == ""
            if os.geteuid() == 0:
                # One cannot trace the other: for that their groups would have to be the same.
                first, second = (one["Gid"].split()[0] for one in told)
                assert first != second
                assert "0" not in (first, second)
                peer = f"/proc/{pipeline.processes[2].pid}/fd/0"
                spy = ["setpriv", "--reuid=65534", f"--regid={first}", "--clear-groups", "cat", peer]
                assert "Permission denied" in (await RUNNER.run(spy, check=False)).stderr
        finally:
            await pipeline.kill()
        await pipeline.wait()


async def status_of(pid: int, name: str) -> dict[str, str]:
    """What the kernel says of a process, once it has become that program."""
    for _ in range(500):
        text = Path(f"/proc/{pid}/status").read_text()
        if text.startswith(f"Name:\t{name}\n"):
            return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        await asyncio.sleep(0.01)
    raise AssertionError(text)


async def test_one_without_rights_that_is_not_installed_is_told_of_as_any_other() -> None:
    async with no_more_fds():
        with pytest.raises(ToolMissing, match="no-such-tool is not installed"):
            await RUNNER.pipeline([["cat"], ["no-such-tool"], ["cat"]], nobody={"no-such-tool"})


async def test_the_stage_that_failed_first_can_be_told() -> None:
    pipeline = await RUNNER.pipeline(
        [
            ["sh", "-c", "sleep 0.2; exec cat /dev/zero"],
            ["sh", "-c", "echo no memory >&2; exit 5"],
            ["sh", "-c", "cat; sleep 0.1; echo incomplete stream >&2; exit 1"],
        ]
    )
    ends = await pipeline.wait()
    first = min((end for end in ends if not end.ok), key=lambda end: end.ended)
    assert (first.returncode, first.stderr) == (5, "no memory")
    assert ends[0].returncode == -13  # SIGPIPE


async def test_the_last_stage_sees_the_end_when_the_first_one_dies() -> None:
    pipeline = await RUNNER.pipeline([["sh", "-c", "echo a; kill -9 $$"], ["cat"], ["wc", "-c"]])
    ends = await asyncio.wait_for(pipeline.wait(), 5)
    assert [end.returncode for end in ends] == [-9, 0, 0]


async def test_what_a_stage_says_is_heard_while_it_says_it(tmp_path: Path) -> None:
    heard: list[tuple[int, str]] = []
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
    draws = f"printf '\\rin @ 1' >&2; {wait}; printf '\\rin @ 2' >&2; printf '\\nsummary\\n' >&2"
    pipeline = await RUNNER.pipeline(
        [["sh", "-c", f"echo early >&2; {wait}"], ["sh", "-c", draws]],
        lambda stage, line: heard.append((stage, line)),
    )
    # mbuffer ends no line: what it draws has to count before the next one comes.
    for _ in range(1000):
        if sorted(heard) == [(0, "early"), (1, "in @ 1")]:
            break
        await asyncio.sleep(0.01)
    else:
        pytest.fail(f"heard only {heard}")
    (tmp_path / "go").touch()
    ends = await pipeline.wait()
    assert ends[1].stderr == "in @ 1\nin @ 2\nsummary"
    assert heard[-1] == (1, "summary")


async def test_half_a_line_is_not_taken_for_a_line() -> None:
    heard: list[str] = []
    halves = "printf '12:00:00\\t5\\ttank@' >&2; sleep 0.3; printf 's1\\nlast words' >&2"
    pipeline = await RUNNER.pipeline([["sh", "-c", halves]], lambda _, line: heard.append(line))
    await pipeline.wait()
    assert heard == ["12:00:00\t5\ttank@s1", "last words"]


async def test_a_character_cut_in_two_is_put_together_again() -> None:
    heard: list[str] = []
    pipeline = await RUNNER.pipeline(
        [["sh", "-c", "printf 'f\\303' >&2; sleep 0.2; printf '\\274r\\n' >&2"]],
        lambda _, line: heard.append(line),
    )
    ends = await pipeline.wait()
    assert ends[0].stderr == "für"
    assert heard[-1] == "für"


async def test_only_the_end_of_much_talk_is_kept() -> None:
    code = "import sys; [print('line', n, file=sys.stderr) for n in range(10_000)]; sys.stderr.write('x' * 9_000_000)"
    pipeline = await RUNNER.pipeline([python(code)])
    (end,) = await asyncio.wait_for(pipeline.wait(), 20)
    lines = end.stderr.splitlines()
    assert len(lines) == 50
    assert lines[-2] == "line 9999"
    assert len(lines[-1]) == output.LONGEST_LINE


async def test_killing_ends_every_stage() -> None:
    async with no_more_fds():
        pipeline = await RUNNER.pipeline([["sleep", "60"], ["cat"], ["sleep", "60"]])
        before = time.monotonic()
        await pipeline.kill()
        ends = await asyncio.wait_for(pipeline.wait(), 5)
        assert time.monotonic() - before < 10
    assert ends[0].returncode == -9
    assert not ends[2].ok
    await pipeline.kill()


async def test_a_missing_stage_leaves_nothing_running_and_nothing_open(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    async with no_more_fds():
        for missing in range(3):
            stages = [["sh", "-c", f"echo $$ >> {pid}; exec sleep 60"], ["cat"], ["cat"]]
            stages[missing] = ["mbuffer-of-nowhere"]
            with pytest.raises(ToolMissing):
                await Pipeline.start(stages)
    for number in pid.read_text().split() if pid.exists() else ():
        with pytest.raises(ProcessLookupError):
            os.kill(int(number), 0)


async def test_a_stage_that_cannot_be_started_leaves_nothing_open() -> None:
    async with no_more_fds():
        with pytest.raises(ToolFailed):
            await Pipeline.start([["cat"], ["true", "x" * 200_000], ["cat"]])


# A child that is asked

ECHO = """
import json, sys
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    print(json.dumps({"value": json.loads(line)}), flush=True)
"""


async def converse(code: str) -> JsonChild:
    return await JsonChild.start(python(code))


async def test_questions_and_answers() -> None:
    async with no_more_fds():
        child = await converse(ECHO)
        assert await child.read(10) == {"ready": True}
        for number in range(20):
            assert await child.ask({"number": number, "name": "tank/my data"}, 10) == {
                "value": {"number": number, "name": "tank/my data"}
            }
        await child.close()


@pytest.mark.parametrize("size", [70_000, 5_000_000])
async def test_long_questions_and_long_answers(size: int) -> None:
    child = await converse(ECHO)
    await child.read(10)
    answer = await child.ask({"names": "x" * size}, 20)
    assert len(answer["value"]["names"]) == size
    assert await child.ask({"after": 1}, 10) == {"value": {"after": 1}}
    await child.close()


async def test_a_child_that_does_not_answer_is_put_down() -> None:
    child = await converse("import time; time.sleep(60)")
    before = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"did not answer within 0\.3 s"):
        await child.ask({}, 0.3)
    assert time.monotonic() - before < 10
    assert child._process.returncode == -9


async def test_the_deadline_holds_also_while_the_question_is_being_sent() -> None:
    child = await converse("import time; time.sleep(60)")
    with pytest.raises(DeadlineExceeded):
        await asyncio.wait_for(child.ask({"names": "x" * 5_000_000}, 0.3), 10)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sys; print('no such module', file=sys.stderr); sys.exit(1)", "no such module"),
        ("", "without a word"),
        ("raise RuntimeError('it broke')", "RuntimeError: it broke"),
        ("import sys; sys.stdin.readline(); sys.exit('later')", "later"),
        ("import os; os.kill(os.getpid(), 9)", "killed by signal 9"),
    ],
)
async def test_a_child_that_ends_is_asked_for_its_last_words(code: str, words: str) -> None:
    async with no_more_fds():
        child = await converse(code)
        with pytest.raises(ToolFailed) as failure:
            await child.ask({"a": 1}, 10)
        assert failure.value.why == words


async def test_a_child_that_ended_between_two_questions_says_so() -> None:
    child = await converse("import sys; sys.stdin.readline(); print('{}', flush=True); sys.exit('enough')")
    assert await child.ask({}, 10) == {}
    while child._process.returncode is None:
        await asyncio.sleep(0.01)
    for _ in range(2):
        with pytest.raises(ToolFailed) as failure:
            await child.ask({"names": "x" * 1_000_000}, 10)
        assert failure.value.why == "enough"


async def test_a_child_that_closes_its_mouth_but_lives_is_put_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawn, "KILL_GRACE", 0.3)
    child = await converse("import os, time; os.close(1); time.sleep(60)")
    with pytest.raises(ToolFailed):
        await asyncio.wait_for(child.ask({}, 10), 5)
    assert child._process.returncode == -9


@pytest.mark.parametrize("code", ["print('hello?', flush=True)", "print('[1, 2', flush=True)", "print('[]')"])
async def test_an_answer_that_is_none_ends_the_conversation(code: str) -> None:
    child = await converse(code + "\nimport time; time.sleep(0.5)")
    with pytest.raises(ToolFailed):
        await child.read(10)
    assert child._process.returncode is not None


async def test_an_answer_without_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_child, "LONGEST_ANSWER", 1 << 20)
    child = await converse("import sys\nwhile True: sys.stdout.write('x' * 65536)")
    with pytest.raises(ToolFailed, match="cannot be understood"):
        await asyncio.wait_for(child.read(20), 20)
    assert child._process.returncode is not None


async def test_what_a_child_said_before_it_ended_is_read() -> None:
    child = await converse("input(); print('{\"files\": 1}'); print('{\"done\": true}')")
    assert await child.ask({}, 10) == {"files": 1}
    while child.runs:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    assert await child.read(10) == {"done": True}
    with pytest.raises(ToolFailed, match="without a word"):
        await child.read(10)


async def test_a_missing_child_is_named() -> None:
    with pytest.raises(ToolMissing, match="nowhere"):
        await JsonChild.start(["nowhere"])


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
