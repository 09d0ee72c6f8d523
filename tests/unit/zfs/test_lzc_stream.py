"""Small streams in helper processes, with files in place of libzfs_core's two calls (lzc_stream_fake.py)."""

import asyncio
import errno
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.patience import PATIENCE, eventually
from tests.unit.zfs.gate.hostile_bytes import begin, record, sub
from zvault.core.errors import (
    Busy,
    Conflict,
    DeviceGone,
    PoolSuspended,
    Stalled,
    StreamRefused,
    ToolMissing,
    TransferFailed,
    VaultFull,
)
from zvault.core.names import DatasetName, SnapshotName
from zvault.ops.stream.run_stream import StreamProgress, StreamResult, StreamWatch, attend_stream
from zvault.system.process.json_child import JsonChild
from zvault.zfs.gate.check import OrderedSnapshot, StreamOrder
from zvault.zfs.gate.records import END, RAW, SA_SPILL, WRITE
from zvault.zfs.lzc_stream import SmallStream, StreamHelpers, StreamPart

TARGET = DatasetName("cold/a")
FAKE = Path(__file__).with_name("lzc_stream_fake.py")
ROOT = Path(__file__).parents[3]


def part(number: int) -> StreamPart:
    order = StreamOrder(
        "tank/a", 2, 10 + number - 1, (OrderedSnapshot(10 + number, f"s{number}"),), may=SA_SPILL
    )
    return StreamPart(SnapshotName(f"tank/a@s{number}"), f"tank/a@s{number - 1}", order)


def small(*numbers: int, properties: dict[str, int | str] | None = None) -> SmallStream:
    parts = tuple(part(number) for number in numbers or (1,))
    return SmallStream(TARGET, parts, ("large_blocks", "compress"), properties or {})


def large(number: int, megabytes: int) -> bytes:
    """A stream in which nothing repeats."""
    body = b"".join(
        record(
            WRITE,
            (1).to_bytes(8, "little") + bytes(16) + (1 << 20).to_bytes(8, "little"),
            os.urandom(1 << 20),
        )
        for _ in range(megabytes)
    )
    return begin(f"tank/a@s{number}", 10 + number, 10 + number - 1) + body + record(END)


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.helpers = StreamHelpers(argv=(sys.executable, str(FAKE), str(folder)))
        self.reports: list[int] = []
        self.pids: list[int] = []
        self.progress: StreamProgress | None = None

    def give(self, number: int, stream: bytes | None = None) -> bytes:
        """Put a stream where the sender finds it."""
        stream = sub(f"tank/a@s{number}", 10 + number, 10 + number - 1) if stream is None else stream
        (self.folder / f"tank_a@s{number}.stream").write_bytes(stream)
        return stream

    def got(self, number: int) -> bytes:
        return (self.folder / f"cold_a@s{number}.got").read_bytes()

    def report(self, progress: StreamProgress) -> None:
        self.progress = progress
        self.reports.append(progress.done)

    async def send(self, stream: SmallStream | None = None, stall: float = 60.0) -> StreamResult:
        progress = StreamProgress(7)
        begun = await self.helpers.start(stream or small(), progress.hear)
        return await attend_stream(begun, StreamWatch(progress, self.report, stall, lambda: False), None)

    def idle(self) -> list[int]:
        return [child.pid for child in self.helpers._idle]


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    found = World(tmp_path)
    yield found
    for name in ("hang", "hold"):
        (tmp_path / name).unlink(missing_ok=True)
    await found.helpers.close()


async def test_what_is_received_is_what_was_sent_with_the_properties(world: World) -> None:
    stream = world.give(1, large(1, 5))
    done = await world.send(small(1, properties={"readonly": 1, "org.zvault:sent": "7:Lc"}))
    assert done.bytes == len(stream)
    assert world.got(1) == stream
    told = json.loads((world.folder / "cold_a@s1.properties").read_text())
    assert told == [{"readonly": 1, "org.zvault:sent": "7:Lc"}, False]
    assert (world.folder / "tank_a@s1.asked").read_text() == "tank/a@s0 6"


async def test_one_helper_serves_one_stream_after_another_and_two_at_once_have_two(world: World) -> None:
    for number in (1, 2):
        world.give(number)
    await world.send()
    first = world.idle()
    await world.send()
    assert world.idle() == first
    await asyncio.gather(world.send(small(1)), world.send(small(2)))
    assert len(world.idle()) == 2
    assert set(first) < set(world.idle())


async def test_several_snapshots_go_one_after_another_and_count_together(world: World) -> None:
    streams = [world.give(number) for number in (1, 2, 3)]
    done = await world.send(small(1, 2, 3))
    assert [world.got(number) for number in (1, 2, 3)] == streams
    assert done.bytes == sum(map(len, streams))
    assert (world.folder / "tank_a@s3.asked").read_text() == "tank/a@s2 6"


async def test_a_receive_that_was_never_made_is_no_success(world: World) -> None:
    """All of the stream is in the pipes by then, and its sender has ended well."""
    for number in (1, 2):
        world.give(number)
    (world.folder / "cold_a@s1.raises").touch()
    with pytest.raises(TransferFailed, match="Bad address"):
        await world.send(small(1, 2))
    assert not (world.folder / "tank_a@s2.asked").exists()


async def test_after_one_that_failed_none_follows(world: World) -> None:
    for number in (1, 2):
        world.give(number)
    (world.folder / "cold_a@s1.refuses").write_text(str(errno.ETXTBSY))
    with pytest.raises(Conflict, match="destination cold/a has been modified"):
        await world.send(small(1, 2))
    assert not (world.folder / "tank_a@s2.asked").exists()


@pytest.mark.parametrize(
    "stream",
    [
        sub("tank/a@s1", 99, 10),
        sub("tank/a@s1", 11, 98),
        sub("tank/b@s1", 11, 10),
        sub("tank/a@s1", 11, 10, features=SA_SPILL | RAW),
        begin("tank/a@s1", 0, header=2, features=0, kind=0, flags=0) + record(END),
    ],
    ids=["another snapshot", "another base", "another dataset", "raw", "a package"],
)
async def test_a_stream_that_is_not_as_ordered_is_not_received(world: World, stream: bytes) -> None:
    world.give(1, stream)
    with pytest.raises(StreamRefused):
        await world.send()
    assert not (world.folder / "cold_a@s1.got").exists()


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EBUSY, Busy),
        (errno.ENOSPC, VaultFull),
        (errno.EDQUOT, VaultFull),
        (errno.EAGAIN, PoolSuspended),
        (errno.EIO, DeviceGone),
        (errno.ENODEV, Conflict),
        (errno.ETXTBSY, Conflict),
        (errno.EEXIST, Conflict),
        (errno.EACCES, Conflict),
        (1035, Conflict),
        (1041, Conflict),
        (errno.EINVAL, TransferFailed),
    ],
)
async def test_what_the_receiver_refuses_is_told_as_zfs_receive_would(
    world: World, number: int, kind: type[Exception]
) -> None:
    world.give(1, large(1, 5))  # more than the pipes hold: the sender fails, too, because it did
    (world.folder / "cold_a@s1.refuses").write_text(str(number))
    with pytest.raises(kind, match="zfs receive failed") as raised:
        await world.send()
    assert type(raised.value) is kind
    assert world.idle(), "the helper is as good as before"


async def test_what_befalls_the_sender_is_not_blamed_on_the_receiver(world: World) -> None:
    world.give(1, sub("tank/a@s1", 11, 10)[:-400])
    (world.folder / "tank_a@s1.fails").write_text(str(errno.EIO))
    with pytest.raises(TransferFailed, match=r"zfs send failed.*tank/a@s1.*Input/output error"):
        await world.send()


async def test_a_sender_that_fails_before_it_began(world: World) -> None:
    world.give(1, b"")
    (world.folder / "tank_a@s1.fails").write_text(str(errno.EXDEV))
    with pytest.raises(TransferFailed, match="not an earlier snapshot"):
        await world.send()


async def begun(world: World) -> asyncio.Task[StreamResult]:
    """A stream of which half is sent."""
    world.give(1, large(1, 4))
    (world.folder / "hold").touch()
    sending = asyncio.ensure_future(world.send())
    while not world.reports or world.reports[-1] < 1 << 20:
        await asyncio.sleep(0.05)
    return sending


async def test_cancelled_the_receiver_sees_the_end_and_keeps_what_it_has(world: World) -> None:
    sending = await begun(world)
    assert world.progress is not None
    (send, sender), (receive, receiver) = world.progress.programs
    assert (send[:2], receive[:2]) == (("zfs", "send"), ("zfs", "receive"))
    assert Path(f"/proc/{sender}/stat").exists()
    assert str(Path(world.progress.inputs()[receiver]).readlink()).startswith("pipe:")
    sending.cancel()
    ended = asyncio.gather(sending, return_exceptions=True)
    while not (world.folder / "cold_a@s1.properties").exists():
        await asyncio.sleep(0.05)
    (world.folder / "hold").unlink()
    assert isinstance((await ended)[0], asyncio.CancelledError)
    got = world.got(1)
    assert 1 << 20 < len(got) < 4 << 20
    assert (world.folder / "tank_a@s1.stream").read_bytes().startswith(got)
    assert world.idle()


async def test_one_that_stands_still_is_stalled_and_stopped(world: World) -> None:
    world.give(1, large(1, 4))
    (world.folder / "hold").touch()
    sending = asyncio.ensure_future(world.send(stall=1.5))
    while not (world.folder / "cold_a@s1.properties").exists():
        await asyncio.sleep(0.05)
    (world.folder / "hold").unlink()
    with pytest.raises(Stalled):
        await sending


async def test_a_helper_that_hangs_is_left_and_the_next_stream_has_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zvault.ops.stream.run_stream.WINDING_UP", 0.5)
    world.give(1)
    (world.folder / "hang").touch()
    with pytest.raises(Stalled):
        await world.send(stall=0.6)
    assert not world.idle()
    (world.folder / "hang").unlink()
    await world.send()
    assert len(world.idle()) == 1


async def test_a_helper_that_was_killed_is_told_of_and_replaced(world: World) -> None:
    world.give(1)
    (world.folder / "hang").touch()
    sending = asyncio.ensure_future(world.send())
    while world.progress is None or not world.progress.inputs():
        await asyncio.sleep(0.05)
    (_, receiver) = world.progress.programs[1]
    os.kill(receiver, 9)
    with pytest.raises(TransferFailed, match="killed by signal 9"):
        await sending
    (world.folder / "hang").unlink()
    await world.send()


async def test_one_that_died_while_it_had_no_stream_is_replaced(world: World) -> None:
    world.give(1)
    await world.send()
    (pid,) = world.idle()
    os.kill(pid, 9)
    (child,) = world.helpers._idle
    await eventually(lambda: not child.runs)
    await world.send()
    assert pid not in world.idle()


async def test_without_a_stream_for_some_time_it_is_ended(world: World) -> None:
    world.give(1)
    await world.send()
    assert world.idle()
    world.helpers._patience = 0.2
    await world.send()
    await eventually(lambda: not world.idle())


async def test_it_ends_with_the_daemon_and_the_receiver_in_good_order(world: World) -> None:
    world.give(1, large(1, 4))
    (world.folder / "hold").touch()
    argv = [sys.executable, str(FAKE), str(world.folder)]
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
    assert child.stdin is not None
    child.stdin.write(json.dumps(small().request()).encode() + b"\n")
    while not (world.folder / "cold_a@s1.got").exists():
        await asyncio.sleep(0.05)
    child.stdin.close()
    while not (world.folder / "cold_a@s1.properties").exists():
        await asyncio.sleep(0.05)
    (world.folder / "hold").unlink()
    assert await asyncio.wait_for(child.wait(), PATIENCE) == 0


async def test_without_the_library_it_is_told(tmp_path: Path) -> None:
    missing = StreamHelpers(argv=(sys.executable, "-c", "import sys; sys.exit('no libzfs_core.so.3')"))
    with pytest.raises(ToolMissing, match="no libzfs_core"):
        await missing.start(small(), lambda _: None)


async def test_one_that_ends_whenever_it_is_told_of_a_stream_is_told_and_not_started_for_ever(
    tmp_path: Path,
) -> None:
    started = tmp_path / "started"
    script = f"""if True:
        import os
        with open({str(started)!r}, "a") as file:
            file.write("one\\n")
        os.close(0)
        print("{{}}", flush=True)
        os._exit(1)
    """
    helpers = StreamHelpers(argv=(sys.executable, "-c", script))
    large_request = small(properties={"note": "x" * (1 << 20)})
    with pytest.raises(ToolMissing, match="ended as soon as it was there"):
        await asyncio.wait_for(helpers.start(large_request, lambda _: None), PATIENCE)
    assert started.read_text() == "one\n"


async def test_all_are_ended_although_the_time_of_one_is_over_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        world.give(number)
    await asyncio.gather(*(world.send(small(number)) for number in (1, 2, 3)))
    children = list(world.helpers._idle)
    world.helpers._patience = 0.05
    await world.send()  # that one is idle for so long only

    close = JsonChild.close

    async def close_slowly(child: JsonChild) -> None:
        await asyncio.sleep(0.2)
        await close(child)

    monkeypatch.setattr(JsonChild, "close", close_slowly)
    await world.helpers.close()
    await eventually(lambda: not any(child.runs for child in children))
