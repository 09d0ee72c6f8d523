"""The process that answers web requests, and what it is told: a real one, without rights."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.daemon.web.clients import asked
from tests.unit.patience import PATIENCE, eventually
from zvault.core.errors import Busy
from zvault.daemon.page.topics import PageTopic
from zvault.daemon.web import server as module
from zvault.daemon.web.listener_channel import RESTED
from zvault.daemon.web.server import WebServer

ROOT = Path(__file__).parents[4]


class Figures:
    """What there is to scrape: how often it was asked for."""

    def __init__(self) -> None:
        self.asked = 0
        self.broken = False

    def text(self) -> bytes:
        self.asked += 1
        if self.broken:
            raise ValueError("no figures")
        return f"zvault_asked {self.asked}\n".encode() + b"# much\n" * 100_000


class Metrics(WebServer):
    """Serves figures, and nothing else."""

    def __init__(self, figures: Figures, rest: float = 300.0) -> None:
        super().__init__({PageTopic.METRICS: lambda _: figures.text()}, rest)
        self.metrics = figures

    async def serve(self, port: int = 0) -> None:
        await self.listen("127.0.0.1", port, {})


@pytest.fixture
async def server() -> AsyncIterator[Metrics]:
    it = Metrics(Figures())
    await it.serve()
    yield it
    await it.close()


async def scrape(server: Metrics, host: str = "localhost") -> bytes:
    reader, writer = await asked(server.port, f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    try:
        return await asyncio.wait_for(reader.read(), PATIENCE)
    finally:
        writer.close()


def pid_of(server: Metrics) -> int:
    assert server.process is not None
    return server.process.pid


async def test_each_scrape_is_told_anew(server: Metrics) -> None:
    for number in (1, 2, 3):
        answer = await scrape(server)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"\r\n\r\nzvault_asked %d\n" % number in answer
        assert answer.count(b"# much\n") == 100_000
    assert {
        answer.split(b"\n")[0] for answer in await asyncio.gather(*(scrape(server) for _ in range(9)))
    } == {b"HTTP/1.1 200 OK\r"}


async def test_it_has_no_rights(server: Metrics) -> None:
    await scrape(server)
    there = Path(f"/proc/{pid_of(server)}")
    lines = there.joinpath("status").read_text().splitlines()
    told = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert int(told["CapEff"], 16) == int(told["CapPrm"], 16) == 0
    if os.geteuid() == 0:
        assert told["Uid"].split() == told["Gid"].split() == ["65534"] * 4
        assert told["Groups"].strip() == ""
        assert "fdinfo" in str(there.joinpath("root").readlink())


async def test_what_zvaultd_does_not_tell_is_no_figure(server: Metrics) -> None:
    await scrape(server)
    figures = server.metrics
    assert isinstance(figures, Figures)
    figures.broken = True
    assert (await scrape(server)).startswith(b"HTTP/1.1 500")
    figures.broken = False
    assert (await scrape(server)).startswith(b"HTTP/1.1 200")


async def test_a_foreign_name_costs_zvaultd_nothing(server: Metrics) -> None:
    assert (await scrape(server, "evil.example")).startswith(b"HTTP/1.1 403")
    assert isinstance(server.metrics, Figures)
    assert server.metrics.asked == 0


async def test_one_that_was_killed_is_known_to_be_gone_and_can_be_started_again(
    server: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    await scrape(server)
    port = server.port
    assert port is not None
    os.kill(pid_of(server), signal.SIGKILL)
    await eventually(lambda: server.address is None)
    await eventually(lambda: "killed by signal 9" in caplog.text)
    with pytest.raises(ConnectionRefusedError):
        await scrape(server)
    await server.serve(port)
    assert b"zvault_asked 2" in await scrape(server)


async def test_it_ends_when_nobody_comes_and_is_there_for_the_next_who_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever connects is answered at any moment, also while it ends."""
    it = Metrics(Figures(), rest=0.3)
    await it.serve()
    try:
        assert b"zvault_asked 1\n" in await scrape(it)
        process = it.process
        assert process is not None
        await eventually(lambda: process.returncode is not None)
        assert it.address is not None
        for number in range(2, 14):
            await asyncio.sleep(0.25 + number * 0.025)
            assert b"zvault_asked %d\n" % number in await scrape(it), number
        assert process.returncode == RESTED
        assert process is not it.process
        assert caplog.records == []
    finally:
        await it.close()


async def test_one_that_takes_its_time_to_end_has_not_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever came meanwhile is answered by the next one."""
    slow = tmp_path / "slow.py"
    slow.write_text(f"import os, time\nos.read(0, 1)\nos.close(0)\ntime.sleep(2)\nos._exit({RESTED})\n")
    it = Metrics(Figures())
    with monkeypatch.context() as patch:
        patch.setattr(module, "LISTENER", slow)
        await it.serve()
        waiting = asyncio.ensure_future(scrape(it))
        await eventually(lambda: it.process is not None)
    first = it.process
    assert b"zvault_asked 1\n" in await waiting
    assert first is not None
    assert first.returncode == RESTED
    assert caplog.records == []
    await it.close()


async def test_a_port_that_is_taken_starts_nothing(server: Metrics) -> None:
    other = Metrics(Figures())
    assert server.port is not None
    with pytest.raises(Busy):
        await other.serve(server.port)
    assert other.process is None
    assert other.address is None


async def test_it_is_started_when_somebody_first_connects(server: Metrics) -> None:
    await asyncio.sleep(0.2)
    assert server.address is not None
    assert server.process is None
    assert b"zvault_asked 1" in await scrape(server)
    first = pid_of(server)
    assert b"zvault_asked 2" in await scrape(server)
    assert pid_of(server) == first


async def test_one_that_cannot_be_started_is_told_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    it = Metrics(Figures())
    with monkeypatch.context() as patch:
        patch.setattr("socket.send_fds", refused)
        await it.serve()
        with pytest.raises(ConnectionError):
            await scrape(it)
        await eventually(lambda: it.address is None)
    assert "web requests cannot be started: [Errno 32] Broken pipe; it is tried again" in caplog.text
    assert it.process is None
    assert it.port is not None
    await it.serve(it.port)
    assert (await scrape(it)).startswith(b"HTTP/1.1 200")
    await it.close()


async def test_one_for_which_there_is_no_descriptor_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    it = Metrics(Figures())
    with monkeypatch.context() as patch:
        patch.setattr("asyncio.create_subprocess_exec", refuse)
        await it.serve()
        with pytest.raises(ConnectionError):
            await scrape(it)
        await eventually(lambda: it.address is None)
    gc.collect()  # asyncio tells of an error that nobody looked at then
    assert "Too many open files; it is tried again" in caplog.text
    assert "Traceback" not in caplog.text
    assert "never retrieved" not in caplog.text


FLOOD = """
import socket, struct, time
from zvault.daemon.web.listener_channel import QUESTION, receive_handover
channel = socket.socket(fileno=0)
receive_handover(channel)
subject = b"x" * 60_000
for number in range(20_000):
    channel.sendall(QUESTION.pack(number, 0, len(subject)) + subject)
"""


async def test_one_that_asks_without_end_is_not_answered_without_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever has taken it over: each question that takes a while is a task, and its answer waits to be read."""
    asked = 0

    async def tell(_: str) -> bytes:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.05)
        return bytes(1 << 16)

    program = tmp_path / "flood.py"
    program.write_text(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{FLOOD}")
    monkeypatch.setattr(module, "LISTENER", program)
    it = WebServer({PageTopic.METRICS: tell})
    await it.listen("127.0.0.1", 0, {})
    _, writer = await asyncio.open_connection("127.0.0.1", it.port)
    await eventually(lambda: asked > 0)
    for _ in range(20):
        await asyncio.sleep(0.05)
        assert len(asyncio.all_tasks()) < 2 * module.MOST_QUESTIONS
    assert asked < 2 * module.MOST_QUESTIONS
    writer.close()
    await it.close()


ALONE = """
import asyncio, sys
from zvault.daemon.page.topics import PageTopic
from zvault.daemon.web.listener_channel import RESTED
from zvault.daemon.web.server import WebServer
async def run():
    server = WebServer({PageTopic.METRICS: lambda _: b"x 1\\n"})
    await server.listen("127.0.0.1", 0, {})
    print(server.port, flush=True)
    while server.process is None:
        await asyncio.sleep(0.01)
    print(server.process.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(run())
"""


async def test_it_does_not_outlive_zvaultd() -> None:
    zvaultd = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ALONE, stdout=asyncio.subprocess.PIPE
    )
    assert zvaultd.stdout is not None
    one = Metrics(Figures())
    one.port = int(await zvaultd.stdout.readline())
    assert b"x 1" in await scrape(one)
    pid = int(await zvaultd.stdout.readline())
    # While it does not answer, a scrape fails instead of showing what was told before.
    zvaultd.send_signal(signal.SIGSTOP)
    assert (await scrape(one)).startswith(b"HTTP/1.1 503")
    zvaultd.kill()
    await zvaultd.wait()
    await eventually(lambda: not Path(f"/proc/{pid}").exists())
    with pytest.raises(ConnectionRefusedError):
        await scrape(one)
