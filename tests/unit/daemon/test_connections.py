"""No client can take more than its share of the daemon's connections, hold one for nothing, or fill its memory."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.unit.patience import PATIENCE, eventually
from zvault.daemon import connections as module
from zvault.daemon.connections import ClientConnections, ConnectionLimits
from zvault.daemon.page.topics import PageTopic
from zvault.daemon.web import listener as listener_module
from zvault.daemon.web.host_names import is_known_host
from zvault.daemon.web.listener import ListenerSettings, WebListener


async def text(_topic: PageTopic, _subject: str = "") -> bytes:
    return b"zvault_up 1\n"


SHORT = ConnectionLimits(total=4, idle=0.6, answer=0.6)
PATIENT = ConnectionLimits(total=4, idle=PATIENCE, answer=PATIENCE)


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[WebListener, int]]:
    monkeypatch.setattr(listener_module, "WEB_LIMITS", SHORT)
    it = WebListener(ListenerSettings("127.0.0.1"), text)
    listening = socket.create_server(("127.0.0.1", 0))
    await it.serve([listening])
    yield it, listening.getsockname()[1]
    await it.close()


async def ask(port: int, head: bytes = b"Host: localhost\r\n") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\n" + head + b"\r\n")
    try:
        return await asyncio.wait_for(reader.read(), PATIENCE)
    finally:
        writer.close()


async def test_idle_connections_do_not_keep_others_out_and_are_closed(server: tuple[WebListener, int]):
    it, port = server
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
    await eventually(lambda: len(it.connections) == 4)
    it.connections.limits = PATIENT  # for who comes from now on, however long that takes
    assert b"zvault_up 1" in await ask(port)
    assert len(it.connections) <= 4
    for reader, writer in idle:
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
        writer.close()
    await eventually(lambda: len(it.connections) == 0)


async def test_a_head_that_comes_byte_by_byte_is_not_waited_for(server: tuple[WebListener, int]):
    _, port = server
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    ended = asyncio.ensure_future(reader.read())
    for byte in b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 40:
        if ended.done():
            break
        writer.write(bytes([byte]))
        await asyncio.sleep(0.1)
    assert ended.done()
    writer.close()
    with contextlib.suppress(ConnectionError):
        assert await ended == b""


@pytest.mark.parametrize(
    "name", ["evil.example", "evil.example:9712", "localhost.evil.example", "127.0.0.1.evil.example"]
)
async def test_a_foreign_name_is_refused(server: tuple[WebListener, int], name: str):
    it, port = server
    it.connections.limits = PATIENT
    answer = await ask(port, f"Host: {name}\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 403")
    assert b"zvault_up" not in answer


def test_names_that_a_server_on_an_address_answers_to():
    for name in ("127.0.0.1:9712", "LOCALHOST", "localhost:1", "[::1]:9712", "127.0.0.1"):
        assert is_known_host(name, "127.0.0.1")
        assert is_known_host(name, "::1")
    assert not is_known_host("", "127.0.0.1")
    assert not is_known_host("[evil]", "localhost")
    assert not is_known_host("10.0.0.1", "127.0.0.1")
    # Who has it served to the network knows names for it that zvault does not.
    assert is_known_host("filer1.lan:9712", "0.0.0.0")


async def test_a_full_server_refuses_and_each_user_has_a_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    go, users = asyncio.Event(), iter([7, 7, 7, 8, 0, 0, 0])
    monkeypatch.setattr(module, "read_peer_uid", lambda _: next(users))
    connections = ClientConnections(ConnectionLimits(total=4, idle=PATIENCE, user=2, users=3))
    inside = []

    async def slow(request: web.Request) -> web.Response:
        inside.append(request)
        await go.wait()
        return web.Response(text="done")

    app = web.Application(middlewares=[connections.middleware])
    app.router.add_get("/", slow)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    assert runner.server is not None
    path = str(tmp_path / "s")
    listening = await asyncio.get_running_loop().create_unix_server(connections.guarded(runner.server), path)

    async def one() -> bytes:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n")
        try:
            return await reader.read()
        finally:
            writer.close()

    async def begin() -> asyncio.Future[bytes]:
        before, task = len(inside), asyncio.ensure_future(one())
        await eventually(lambda: task.done() or len(inside) > before)
        return task

    tasks = [await begin() for _ in range(7)]
    go.set()
    answers = [answer.split(b" ")[1] for answer in await asyncio.gather(*tasks)]
    # The third of user 7 is one too many; root has the fourth and last place.
    assert answers == [b"200", b"200", b"503", b"200", b"200", b"503", b"503"]
    listening.close()
    await runner.cleanup()


async def test_requests_that_nobody_reads_the_answers_of_do_not_fill_the_memory(tmp_path: Path):
    connections, go = ClientConnections(ConnectionLimits(total=4, idle=5)), asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        await go.wait()
        return web.Response(text="done")

    app = web.Application(middlewares=[connections.middleware])
    app.router.add_get("/", slow)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    assert runner.server is not None
    path = str(tmp_path / "s")
    listening = await asyncio.get_running_loop().create_unix_server(connections.guarded(runner.server), path)
    _, writer = await asyncio.open_unix_connection(path)
    request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 1000
    sent = 0
    # It closes the connection, or reads no more.
    with contextlib.suppress(ConnectionError, TimeoutError):
        while sent < 20 * module.CONNECTION_BYTES:
            writer.write(request)
            await asyncio.wait_for(writer.drain(), 2)
            sent += len(request)
    assert sent < 2 * module.CONNECTION_BYTES
    go.set()
    writer.close()
    listening.close()
    await runner.cleanup()
