"""Pipelines of real processes: bytes that pass, stages that fail, and what each says."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.unit.patience import FOR_EVER, PATIENCE, eventually
from tests.unit.system.process.open_files import RUNNER, no_more_fds, python
from zvault.core.errors import ToolFailed, ToolMissing
from zvault.system.process import output
from zvault.system.process.pipeline import Pipeline


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
    status = Path(f"/proc/{pid}/status")
    await eventually(lambda: status.read_text().startswith(f"Name:\t{name}\n"))
    return dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)


async def test_one_without_rights_that_is_not_installed_is_told_of_as_any_other() -> None:
    async with no_more_fds():
        with pytest.raises(ToolMissing, match="no-such-tool is not installed"):
            await RUNNER.pipeline([["cat"], ["no-such-tool"], ["cat"]], nobody={"no-such-tool"})


async def test_the_stage_that_failed_first_can_be_told(tmp_path: Path) -> None:
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
    pipeline = await RUNNER.pipeline(
        [
            ["sh", "-c", f"{wait}; exec cat /dev/zero"],
            ["sh", "-c", "echo no memory >&2; exit 5"],
            ["sh", "-c", f"cat; {wait}; echo incomplete stream >&2; exit 1"],
        ]
    )
    await eventually(pipeline._ends[1].done)
    (tmp_path / "go").touch()
    ends = await pipeline.wait()
    first = min((end for end in ends if not end.ok), key=lambda end: end.ended)
    assert (first.returncode, first.stderr) == (5, "no memory")
    assert ends[0].returncode == -13  # SIGPIPE


async def test_the_last_stage_sees_the_end_when_the_first_one_dies() -> None:
    pipeline = await RUNNER.pipeline([["sh", "-c", "echo a; kill -9 $$"], ["cat"], ["wc", "-c"]])
    ends = await asyncio.wait_for(pipeline.wait(), PATIENCE)
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
    await eventually(lambda: sorted(heard) == [(0, "early"), (1, "in @ 1")])
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
    (end,) = await asyncio.wait_for(pipeline.wait(), PATIENCE)
    lines = end.stderr.splitlines()
    assert len(lines) == 50
    assert lines[-2] == "line 9999"
    assert len(lines[-1]) == output.LONGEST_LINE


async def test_killing_ends_every_stage() -> None:
    async with no_more_fds():
        sleep = ["sleep", str(FOR_EVER)]
        pipeline = await RUNNER.pipeline([sleep, ["cat"], sleep])
        async with asyncio.timeout(PATIENCE):
            await pipeline.kill()
            ends = await pipeline.wait()
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
