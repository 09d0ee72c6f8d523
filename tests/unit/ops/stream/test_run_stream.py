"""One stream, with shell scripts that say and do what zfs 2.3.9 and mbuffer 20241007 were seen to."""

import asyncio
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.patience import FOR_EVER, PATIENCE
from zvault.config.profile import StreamTable
from zvault.core.errors import (
    Conflict,
    DeviceGone,
    Stalled,
    TransferFailed,
    ZvaultError,
)
from zvault.ops.stream import run_stream as stream_module
from zvault.ops.stream.run_stream import StreamProgress, StreamResult, run_stream
from zvault.system import tasks
from zvault.system.process.runner import HostRunner
from zvault.zfs.stream_stages import mbuffer_argv

# What the stages say of their progress


def heard(*lines: str) -> StreamProgress:
    progress = StreamProgress(None)
    for line in lines:
        progress.hear(line)
    return progress


def test_with_mbuffer_what_counts_is_what_the_receiver_took() -> None:
    progress = heard(
        "full\ttank@s1\t210090608",
        "size\t210090608",
        "12:04:46\t60833664\ttank@s1",
        "in @ 62.9 MiB/s, out @ 40.0 MiB/s, 28.1 MiB total, buffer  97% full",
    )
    assert (progress.done, progress.sent, progress.marks.range()) == (
        int(28.1 * (1 << 20)),
        60833664,
        (97, 97),
    )


def test_without_mbuffer_what_counts_is_what_the_sender_wrote() -> None:
    progress = heard("size\t210090608", "12:04:46\t60833664\ttank@s1", "12:04:47\t70833664\ttank@s1")
    assert (progress.done, progress.passed, progress.marks.range()) == (70833664, None, None)


def test_without_mbuffer_the_throttle_knows_better_than_the_sender() -> None:
    lines = ["size\t210090608", "12:04:46\t60833664\ttank@s1", "throttle: 59768832"]
    assert heard(*lines).done == 59768832
    assert (
        heard(*lines, "in @ 15.0 MiB/s, out @ 15.0 MiB/s, 9999 MiB total, buffer 5% full").done == 9999 << 20
    )
    buffered = ["in @ 15.0 MiB/s, out @ 15.0 MiB/s, 10.0 MiB total, buffer 5% full", "throttle: 59768832"]
    assert heard(*buffered).done == 10 << 20


def test_the_summary_is_the_last_word_and_progress_never_goes_back() -> None:
    progress = heard(
        "in @ 15.0 MiB/s, out @ 15.0 MiB/s, 9999 MiB total, buffer 100% full",
        "in @ 15.0 MiB/s, out @ 15.0 MiB/s,  9.8 GiB total, buffer  55% full",
        "summary:  9.8 GiByte in  4.1sec - average of 14.8 MiB/s",
    )
    assert progress.done == int(9.8 * (1 << 30))
    assert progress.marks.range() == (55, 100)


def test_trouble_is_no_progress() -> None:
    progress = heard("cannot open 'tank@s2': dataset does not exist", "mbuffer: error: 3 MiB total disaster")
    assert (progress.done, progress.passed) == (0, None)


def test_a_stream_of_many_snapshots_counts_them_all() -> None:
    # zfs counts each snapshot of a -I stream from 0 again; this is what it printed without mbuffer.
    progress = heard(
        "incremental\ts1\ttank/my data@s2\t21016432",
        "incremental\ts2\ttank/my data@s3\t21016432",
        "incremental\ts3\ttank/my data@s4\t21016432",
        "size\t63049296",
        "12:44:15\t21000000\ttank/my data@s2",
        "12:44:16\t15769728\ttank/my data@s3",
        "12:44:17\t16033296\ttank/my data@s4",
    )
    assert progress.done > 50_000_000


# A stream of real processes


def script(folder: Path, name: str, body: str) -> list[str]:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return [str(file)]


async def run(
    send: Sequence[str],
    receive: Sequence[str],
    *,
    trouble: tasks.Look | None = None,
    buffer: StreamTable | None = None,
    total: int | None = None,
    stall: float = 60.0,
    throttle: Sequence[str] = (),
) -> StreamResult:
    runner = HostRunner()
    between = [mbuffer_argv(buffer.buffer, buffer.block)] if buffer is not None else []
    stages = [send, *([throttle] if throttle else []), *between, receive]
    return await run_stream(runner, stages, total=total, report=lambda _: None, trouble=trouble, stall=stall)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "WATCH_EVERY", 0.05)
    monkeypatch.setattr(stream_module, "PROGRESS_EVERY", 0.05)
    monkeypatch.setattr(stream_module, "WINDING_UP", 1.0)


async def test_a_stream_is_reported_while_it_runs_and_once_more_at_its_end(tmp_path: Path) -> None:
    seen: list[int] = []
    go = tmp_path / "go"

    def report(progress: StreamProgress) -> None:
        seen.append(progress.done)
        if progress.done == 5:
            go.touch()

    waits = f"while [ ! -e {go} ]; do sleep 0.02; done"
    send = script(
        tmp_path,
        "send",
        f"printf '12:00:00\\t5\\ttank@s\\n' >&2; echo data; {waits}; printf '12:00:01\\t9\\ttank@s\\n' >&2; sleep 0.4",
    )
    done = await run_stream(HostRunner(), [send, ["cat"]], total=None, report=report)
    assert done.bytes == seen[-1] == 9
    assert done.seconds >= 0.4


async def test_a_stream_too_short_to_say_a_word_counts_as_estimated(tmp_path: Path) -> None:
    assert (await run(["true"], ["cat"], total=624)).bytes == 624
    assert (await run(["true"], ["cat"])).bytes == 0


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder in which who has no rights may run and write things."""
    with tempfile.TemporaryDirectory(prefix="zvault-test-") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


async def test_mbuffer_stands_between_where_it_is_wanted(
    tmp_path: Path, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(
        public,
        "mbuffer",
        "echo \"$@\" > $0.argv; printf '\\rin @ 1 MiB/s, out @ 1 MiB/s, 2.0 MiB total, buffer 7%% full' >&2; cat",
    )
    (public / "mbuffer").chmod(0o755)
    monkeypatch.setenv("PATH", f"{public}:{os.environ['PATH']}")
    out = tmp_path / "out"
    receive = script(tmp_path, "receive", f"cat > {out}")
    done = await run(["echo", "data"], receive, buffer=StreamTable())
    assert out.read_text() == "data\n"
    assert done.bytes == 2 << 20
    assert (public / "mbuffer.argv").read_text().split() == ["-s", "1048576", "-m", "131072k"]


def pids(folder: Path) -> list[int]:
    return [int(file.read_text()) for file in folder.glob("*.pid") if file.read_text().strip()]


def endless(folder: Path) -> tuple[list[str], list[str]]:
    body = "ulimit -t 10; echo $$ > $0.pid; exec"  # so that a failed test leaves nothing running for long
    return script(folder, "send", f"{body} cat /dev/zero"), script(folder, "receive", f"{body} cat")


async def until_running(folder: Path) -> None:
    while len(pids(folder)) < 2:
        await asyncio.sleep(0.01)


def assert_all_gone(numbers: list[int]) -> None:
    assert len(numbers) == 2
    for number in numbers:
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)


async def test_a_vault_that_falls_away_ends_the_stream_and_is_its_reason(tmp_path: Path) -> None:
    gone = DeviceGone("the device is gone")

    async def look() -> ZvaultError | None:
        return gone if len(pids(tmp_path)) == 2 else None

    with pytest.raises(DeviceGone) as failure:
        async with asyncio.timeout(PATIENCE), tasks.watch_block(look):
            await run(*endless(tmp_path), trouble=look)
    assert failure.value is gone
    assert_all_gone(pids(tmp_path))


async def test_a_look_that_breaks_leaves_nothing_running(tmp_path: Path) -> None:
    async def look() -> ZvaultError | None:
        if len(pids(tmp_path)) == 2:
            raise RuntimeError("a bug in a probe")
        return None

    with pytest.raises(RuntimeError, match="a bug"):
        async with asyncio.timeout(PATIENCE), tasks.watch_block(look):
            await run(*endless(tmp_path), trouble=look)
    assert_all_gone(pids(tmp_path))


async def test_a_look_that_fails_for_the_moment_does_not_end_the_stream(tmp_path: Path) -> None:
    async def look() -> ZvaultError | None:
        raise DeviceGone("cannot look")

    send = script(tmp_path, "send", "sleep 0.3; echo data")
    async with tasks.watch_block(look):
        await run(send, ["cat"], trouble=look)


async def test_a_cancelled_stream_leaves_nothing_running(tmp_path: Path) -> None:
    streaming = asyncio.create_task(run(*endless(tmp_path)))
    await until_running(tmp_path)
    streaming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(streaming, PATIENCE)
    assert_all_gone(pids(tmp_path))


SAYS = "printf '12:00:00\\t%s\\ttank@s\\n'"


async def test_a_stream_that_stands_still_is_put_down_and_says_how_far_it_was(tmp_path: Path) -> None:
    send = script(tmp_path, "send", f"echo $$ > $0.pid; {SAYS} 1048576 >&2; exec sleep {FOR_EVER}")
    receive = script(tmp_path, "receive", "echo $$ > $0.pid; exec cat")

    def report(progress: StreamProgress) -> None:
        if progress.done and len(pids(tmp_path)) == 2:
            progress.stirred -= FOR_EVER  # so long ago was that

    with pytest.raises(Stalled) as failure:
        await run_stream(HostRunner(), [send, receive], total=4 << 20, report=report, stall=FOR_EVER)
    assert "for 10m, after 1M of 4M" in failure.value.why
    assert failure.value.retryable
    assert failure.value.next
    assert_all_gone(pids(tmp_path))


async def test_one_that_says_nothing_at_all_stands_still(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(Stalled):
        await asyncio.wait_for(run(["sleep", str(FOR_EVER)], ["cat"], stall=0.3), PATIENCE)
    assert time.monotonic() - began >= 0.3


@pytest.fixture
def words_take_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes with each word of a stage, and not otherwise: a fifth of a second."""
    now, hear = time.monotonic(), StreamProgress.hear

    def later(progress: StreamProgress, line: str) -> None:
        nonlocal now
        hear(progress, line)
        now += 0.2

    monkeypatch.setattr(StreamProgress, "hear", later)
    monkeypatch.setattr(stream_module, "time", SimpleNamespace(monotonic=lambda: now))


@pytest.mark.usefixtures("words_take_time")
async def test_as_long_as_any_stage_tells_of_new_bytes_it_does_not_stand_still(tmp_path: Path) -> None:
    turns = f"for i in 1 2 3 4 5 6 7; do {SAYS} $i >&2; sleep 0.1; done"
    await run(script(tmp_path, "send", turns), ["cat"], stall=0.9)
    # What is drawn is heard as it stands, and once more as its line ends.
    told = "for i in 1 2 3 4 5; do printf '\\rin @ 1 MiB/s, out @ 1 MiB/s, %s MiB total' $i >&2; sleep 0.1; done; cat"
    await run(["true"], script(tmp_path, "receive", told), stall=0.9)
    waits = "for i in 1 2 3 4 5 6 7; do echo 'throttle: 7' >&2; sleep 0.1; done; cat"
    await run(["true"], ["cat"], throttle=script(tmp_path, "throttle", waits), stall=0.9)


@pytest.mark.usefixtures("words_take_time")
@pytest.mark.parametrize(
    ("crowded", "step", "stops"), [(True, 5, True), (True, 5000, False), (False, 5, False)]
)
async def test_a_trickle_is_put_down_where_others_wait_for_its_place(
    tmp_path: Path, crowded: bool, step: int, stops: bool
) -> None:
    """Each word moves ``step`` bytes in a fifth of a second, so silence never lasts."""
    turns = f"for i in $(seq 1 40); do {SAYS} $((i * {step})) >&2; sleep 0.1; done"
    going = run_stream(
        HostRunner(),
        [script(tmp_path, "send", turns), ["cat"]],
        total=None,
        report=lambda _: None,
        stall=2.0,
        crowded=lambda: crowded,
    )
    if not stops:
        await asyncio.wait_for(going, PATIENCE)
        return
    with pytest.raises(Stalled) as failure:
        await asyncio.wait_for(going, PATIENCE)
    assert "since others wait for its place" in failure.value.what
    assert failure.value.retryable


async def test_the_same_count_again_and_again_is_no_progress(tmp_path: Path) -> None:
    send = script(tmp_path, "send", f"while {SAYS} 5 >&2; do sleep 0.1; done")
    with pytest.raises(Stalled):
        await asyncio.wait_for(run(send, ["cat"], stall=0.6), PATIENCE)


async def test_what_the_throttle_says_is_nobodys_complaint(tmp_path: Path) -> None:
    dies = script(
        tmp_path, "throttle", "echo 'throttle: 5' >&2; echo 'throttle: zvaultd is gone' >&2; exit 1"
    )
    with pytest.raises(TransferFailed) as failure:
        await run(["true"], ["cat"], throttle=dies)
    assert failure.value.why == "throttle: zvaultd is gone"


async def test_a_receiver_that_refuses_gives_the_reason(tmp_path: Path) -> None:
    (tmp_path / "zfs").write_text(
        '#!/bin/sh\n[ "$1" = send ] && exec cat /dev/zero\n'
        "echo 'cannot receive incremental stream: destination cold/tank has been modified' >&2; exit 1\n"
    )
    (tmp_path / "zfs").chmod(0o755)
    with pytest.raises(Conflict, match="has been modified"):
        await run([str(tmp_path / "zfs"), "send"], [str(tmp_path / "zfs"), "receive"])


async def test_where_its_progress_cannot_be_read_a_stream_is_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(_: StreamProgress, line: str) -> None:
        raise ValueError(line)

    monkeypatch.setattr(StreamProgress, "hear", broken)
    pids = tmp_path / "pids"
    stages = [["sh", "-c", f"echo $$ >> {pids}; echo said >&2; exec sleep 600"]] * 2
    with pytest.raises(ValueError, match="said"):
        await asyncio.wait_for(run_stream(HostRunner(), stages, total=None, report=lambda _: None), PATIENCE)
    for pid in pids.read_text().split():
        assert not Path(f"/proc/{pid}").exists()


def test_names_that_a_sender_makes_up_fill_no_memory() -> None:
    progress = heard(*(f"12:04:46\t10\ttank@{number}" for number in range(1000)))
    assert progress.sent == 10_000
    assert not any(isinstance(value, dict) for value in vars(progress).values())
