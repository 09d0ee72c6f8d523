"""The process that serves ``/metrics``, without any rights: any local user may connect to it, and others too.

zvaultd starts it with the sockets to listen on. It asks zvaultd for the figures anew for each scrape, over a socket
that is its standard input, and knows none itself: where zvaultd is gone, so is it, and where that does not answer, a
scrape fails. A question is a number; the answer that number, a length and the text.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import itertools
import os
import socket
import struct
import sys
from collections.abc import Awaitable, Callable, Sequence

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)).removesuffix("zvault/daemon/metrics"))  # noqa: PTH100, PTH120

from aiohttp import web

from zvault.daemon.connections import BACKLOG, ConnectionLimits, Connections
from zvault.system.process.unprivileged import give_up_rights

LIMITS = ConnectionLimits(total=32, idle=5.0, answer=10.0)
"""A scrape is one short request. Whoever only connects loses the place to one who asks."""

ANSWER_SECONDS = 8.0
"""Seconds that zvaultd may take to tell its figures, before a scrape fails."""

FILES = 128
"""Descriptors: for all connections, those that are refused, and a few of its own."""

SOCKETS = 16
"""The most addresses that a name can stand for."""

LOCAL = "localhost"

QUESTION = struct.Struct("!Q")
ANSWER = struct.Struct("!QI")
"""A question's number, and bytes of the text that follows; none where the figures could not be told."""

Ask = Callable[[], Awaitable[bytes]]
"""The exposition, as it is now. Raises TimeoutError, ConnectionError."""


def listener_argv(host: str) -> list[str]:
    """The program; ``host`` is the configured one."""
    return [sys.executable, "-I", __file__, host]


class MetricsListener:
    """Answers scrapes on sockets that are there already."""

    def __init__(self, host: str, ask: Ask) -> None:
        self.connections = Connections(LIMITS)
        self._host, self._ask = host, ask
        self._runner: web.AppRunner | None = None
        self._servers: list[asyncio.Server] = []

    async def serve(self, sockets: Sequence[socket.socket]) -> None:
        """Serve on them from now on."""
        app = web.Application(middlewares=[self.connections.middleware])
        app.router.add_get("/metrics", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
        await self._runner.setup()
        assert self._runner.server is not None  # noqa: S101 - made by setup
        factory = self.connections.guarded(self._runner.server)
        loop = asyncio.get_running_loop()
        for one in sockets:
            self._servers.append(await loop.create_server(factory, sock=one, backlog=BACKLOG))

    async def _answer(self, request: web.Request) -> web.Response:
        for name in request.headers.getall("Host", []):
            if not answers_to(name, self._host):
                raise web.HTTPForbidden(text="zvaultd does not serve metrics under this name\n")
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                text = await self._ask()
        except (TimeoutError, ConnectionError):
            raise web.HTTPServiceUnavailable(text="zvaultd does not answer\n") from None
        if not text:
            raise web.HTTPInternalServerError(text="zvaultd cannot tell its figures: see its journal\n")
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        response = web.Response(body=text, headers=headers)
        response.force_close()
        return response

    async def close(self) -> None:
        """Stop serving."""
        for server in self._servers:
            server.close()
        self._servers = []
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


class Questions:
    """What zvaultd is asked, and is yet to answer. An answer goes to its own question, however late it is."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    async def ask(self) -> bytes:
        """See Ask."""
        number = next(self._numbers)
        waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        try:
            self._writer.write(QUESTION.pack(number))
            await self._writer.drain()
            return await waiting
        finally:
            del self._waiting[number]

    async def hear(self) -> None:
        """Take in answers until zvaultd is gone."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                number, length = ANSWER.unpack(await self._reader.readexactly(ANSWER.size))
                text = await self._reader.readexactly(length)
                waiting = self._waiting.get(number)
                if waiting is not None and not waiting.done():
                    waiting.set_result(text)


def answers_to(name: str, configured: str) -> bool:
    """Whether a request's Host header may mean a server that listens on the host ``configured``.

    Where only this host can connect, a foreign name is that of a web page whose name was made to lead here, to have a
    browser on this host read for it (DNS rebinding). Under which names other hosts reach this one is not known.
    """
    if not is_loopback(configured):
        return True
    name = name.strip().lower()
    host = name.partition("]")[0].removeprefix("[") if name.startswith("[") else name.partition(":")[0]
    return host in {configured.lower(), LOCAL} or is_loopback(host)


def is_loopback(host: str) -> bool:
    """Whether only this host can connect to an address."""
    if host.lower() == LOCAL:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def _run(host: str, channel: socket.socket, sockets: Sequence[socket.socket]) -> None:
    reader, writer = await asyncio.open_unix_connection(sock=channel)
    questions = Questions(reader, writer)
    listener = MetricsListener(host, questions.ask)
    # Nothing of what a client says was read yet.
    give_up_rights(files=FILES)
    await listener.serve(sockets)
    await questions.hear()


def main(argv: Sequence[str]) -> int:
    """Serve until zvaultd is gone; what is being answered then is cut off."""
    try:
        channel = socket.socket(fileno=0)
        _, descriptors, _, _ = socket.recv_fds(channel, 1, SOCKETS)
        sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        asyncio.run(_run(argv[0], channel, sockets))
    except OSError as error:
        print(f"metrics: {error}", file=sys.stderr)  # noqa: T201 - zvaultd reads it
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
