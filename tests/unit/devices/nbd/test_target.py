"""A server that must run already: what is told of one that does not serve, and how zvault parts from one that does."""

from __future__ import annotations

import asyncio
import contextlib
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from zvault.config.device_specs.nbd import TcpServer
from zvault.core.errors import DeviceGone
from zvault.devices.nbd import target
from zvault.devices.nbd.target import FAREWELL, GREETING, TcpTarget, reach_target

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def reach(serve: Serve) -> TcpTarget:
    """The target of a server of this kind."""
    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        found = await reach_target(TcpServer("127.0.0.1", port, ""), Path())
        assert isinstance(found, TcpTarget)
        assert (found.address, found.port) == ("127.0.0.1", port)
        return found


async def test_one_that_closes_each_connection_has_a_client_already() -> None:
    """nbdkit-limit-filter: beyond its limit it closes without a word."""

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    with pytest.raises(DeviceGone, match="takes no connection") as refused:
        await reach(close)
    assert "it may serve one client only, and have one" in refused.value.why
    assert "end the other client" in refused.value.next


async def test_one_that_speaks_another_language_is_no_server() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-x\r\n")
        writer.close()

    with pytest.raises(DeviceGone, match="is no NBD server"):
        await reach(greet)


async def test_it_is_left_only_when_it_has_let_the_connection_go() -> None:
    """One that takes one client only would refuse nbd-client until then."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GREETING)
        heard.append(await reader.readexactly(len(FAREWELL)))
        await asyncio.sleep(0.2)
        heard.append(b"ended")
        writer.close()

    await reach(serve)
    assert heard == [FAREWELL, b"ended"]


async def test_one_that_keeps_the_connection_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "PART_DEADLINE", 0.1)
    ended = asyncio.Event()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GREETING)
        await ended.wait()
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        async with asyncio.timeout(30):
            await reach_target(TcpServer("127.0.0.1", listener.sockets[0].getsockname()[1]), Path())
        assert not ended.is_set()
    finally:
        ended.set()
        listener.close()


async def test_a_look_leaves_no_connection_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that hangs takes each connection and says nothing; it is looked at again and again."""
    monkeypatch.setattr(target, "REACH_DEADLINE", 0.05)
    ends: list[asyncio.Future[bytes]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends.append(asyncio.ensure_future(reader.read()))
        await ends[-1]
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listener:
        for _ in range(3):
            with pytest.raises(DeviceGone, match="did not answer within"):
                await reach_target(TcpServer("127.0.0.1", listener.sockets[0].getsockname()[1]), Path())
        async with asyncio.timeout(30):
            while len(ends) < 3:
                await asyncio.sleep(0.01)
            await asyncio.gather(*ends)


async def test_what_a_server_goes_on_saying_is_not_kept() -> None:
    sent = 0

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(GREETING)
        with contextlib.suppress(ConnectionError):
            for _number in range(256):
                writer.write(bytes(1 << 20))
                await writer.drain()
                sent += 1
        writer.close()

    tracemalloc.start()
    try:
        await reach(serve)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert sent > 32
