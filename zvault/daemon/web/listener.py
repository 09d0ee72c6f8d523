"""The process that answers Prometheus and browsers, without any rights: any local user may connect, and others too.

zvaultd starts it with the sockets to listen on. It asks zvaultd for what it tells, over a socket that is its standard
input, and knows nothing itself: where zvaultd is gone, so is it, and where that does not answer, a request fails. Where
nobody connects for a while it ends, and zvaultd starts it again for the next who does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence

if __name__ == "__main__":
    # Nothing here speaks TLS. Without it asyncio and aiohttp need 8 MB less, and no certificates are read.
    sys.modules["ssl"] = None  # type: ignore[assignment]
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)).removesuffix("zvault/daemon/web"))  # noqa: PTH100, PTH120
    from zvault.system import builtin_hashes

    builtin_hashes.use_builtin_hashes()

import asyncio
import math
import socket
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from zvault.daemon.connections import LISTEN_BACKLOG, ClientConnections, ConnectionLimits
from zvault.daemon.page.site import PageSite
from zvault.daemon.page.topics import PageTopic
from zvault.daemon.web.host_names import is_known_host
from zvault.daemon.web.listener_channel import RESTED, OpenQuestions, receive_handover
from zvault.daemon.web.login import LONGEST_HEADER, LoginMistakes, matches_login
from zvault.system.process.unprivileged import give_up_rights

WEB_LIMITS = ConnectionLimits(total=64, idle=5.0, answer=10.0)
"""A request is short, and so is its answer. Whoever only connects loses the place to one who asks."""

ANSWER_PATIENCE = 8.0
"""Seconds that zvaultd may take to tell what it is asked for, before a request fails."""

ACCEPT_SETTLING = 0.2
"""Seconds in which a connection shows that was accepted before nothing was accepted any more."""

LISTENER_FILES = 128
"""Descriptors: for all connections, those that are refused, and a few of its own."""

LIVE_SECONDS = 300.0
"""Seconds for which changes are told over one connection; a browser then connects anew."""

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "Server": "zvault",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Of every answer: nothing of it comes from elsewhere, and nobody else may show it or keep it."""

AskDaemon = Callable[[PageTopic, str], Awaitable[bytes]]
"""What zvaultd tells. Raises TimeoutError, ConnectionError."""

PageAnswer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """``host`` is the configured one to listen on, ``hosts`` are other names that it may be asked under.

    ``metrics`` and ``page`` say what is served, ``files`` whether the page lists those of mounted snapshots. For the
    page: ``zone`` is the time zone of its times; ``login`` the digest of a name and password; ``header`` what a proxy
    at one of the addresses ``proxies`` names the user in. After ``rest`` seconds without a connection it ends.
    """

    host: str
    metrics: bool = True
    page: bool = False
    files: bool = False
    hosts: tuple[str, ...] = ()
    zone: str = "UTC"
    login: Mapping[str, str] | None = None
    header: str | None = None
    proxies: tuple[str, ...] = ()
    rest: float = math.inf

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> ListenerSettings:
        """From what was handed over as JSON."""
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in told.items()
        }
        return cls(**values)


class WebListener:
    """Answers requests on sockets that are there already: those of a fixed table of paths."""

    def __init__(self, settings: ListenerSettings, ask: AskDaemon) -> None:
        self.connections = ClientConnections(WEB_LIMITS)
        self._settings, self._ask, self._mistakes = settings, ask, LoginMistakes()
        self._runner: web.AppRunner | None = None
        self._sockets: Sequence[socket.socket] = ()
        self._servers: list[asyncio.Server] = []
        # Reads its files, so it has to be made while there are any.
        self._site = (
            PageSite(settings.zone, self._told, self.connections, LIVE_SECONDS, files=settings.files)
            if settings.page
            else None
        )
        self._open: Mapping[str, PageAnswer] = {"/metrics": self._metrics} if settings.metrics else {}
        self._guarded: Mapping[str, PageAnswer] = self._site.routes if self._site is not None else {}

    async def serve(self, sockets: Sequence[socket.socket]) -> None:
        """Serve on them from now on."""
        app = web.Application(middlewares=[self.connections.middleware])
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
        await self._runner.setup()
        self._sockets = sockets
        await self._accept()

    async def _accept(self) -> None:
        assert self._runner is not None  # noqa: S101 - made by serve
        assert self._runner.server is not None  # noqa: S101 - made by its setup
        factory = self.connections.guarded(self._runner.server)
        loop = asyncio.get_running_loop()
        for server in self._servers:
            server.close()
        self._servers = []
        for one in self._sockets:
            self._servers.append(await loop.create_server(factory, sock=one.dup(), backlog=LISTEN_BACKLOG))

    async def wait_for_rest(self) -> None:
        """Wait until nobody has been connected for as long as the settings say; nothing is accepted from then on.

        Who connects then waits in the kernel's queue, which zvaultd has too.
        """
        loop = asyncio.get_running_loop()
        while True:
            left = self._settings.rest - self.connections.measure_unused()
            if left > 0:
                await asyncio.sleep(left)
                continue
            for server in self._servers:
                for one in server.sockets:
                    loop.remove_reader(one.fileno())
            await asyncio.sleep(ACCEPT_SETTLING)
            if self.connections.measure_unused() > ACCEPT_SETTLING:
                return
            await self._accept()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        response: web.StreamResponse
        try:
            response = await self._found(request)(request)
        except web.HTTPException as error:
            response = _plain(error.status, error.text or "")
            for name in ("Allow", "WWW-Authenticate"):
                if name in error.headers:
                    response.headers[name] = error.headers[name]
        except (TimeoutError, ConnectionError):
            response = _plain(503, "zvaultd does not answer\n")
        if not response.prepared:
            response.headers.update(HEADERS)
            response.force_close()
        return response

    def _found(self, request: web.Request) -> PageAnswer:
        """What answers a request. Raises HTTPException for one that is not answered."""
        for name in request.headers.getall("Host", []):
            if not is_known_host(name, self._settings.host, self._settings.hosts):
                raise web.HTTPForbidden(text="zvaultd serves nothing under this name\n")
        if request.method not in ("GET", "HEAD"):
            raise web.HTTPMethodNotAllowed(request.method, ["GET", "HEAD"])
        # As it was sent: a path that would have to be decoded or resolved first is none of these.
        path = request.raw_path.partition("?")[0]
        if path in self._open:
            return self._open[path]
        if path not in self._guarded:
            raise web.HTTPNotFound(text="there is no such page\n")
        if (
            request.headers.get("Sec-Fetch-Site") == "cross-site"
            and request.headers.get("Sec-Fetch-Mode") != "navigate"
        ):
            raise web.HTTPForbidden(text="another site's page may not read this one\n")
        self._admit(request)
        return self._guarded[path]

    def _admit(self, request: web.Request) -> None:
        """Raises HTTPException for whoever may not see the page."""
        settings, peer = self._settings, request.remote or ""
        if settings.header is not None and peer in settings.proxies:
            named = request.headers.getall(settings.header, [])
            if len(named) == 1 and 0 < len(named[0].strip()) <= LONGEST_HEADER:
                return
        if settings.login is None:
            if settings.header is None:
                return
            raise web.HTTPForbidden(text="the page is shown to whom its proxy names only\n")
        if self._mistakes.too_many(peer):
            raise web.HTTPTooManyRequests(text="too many wrong passwords came from there: wait a minute\n")
        given = request.headers.get("Authorization")
        if given is not None:
            if matches_login(settings.login, given):
                return
            self._mistakes.count(peer)
        headers = {"WWW-Authenticate": 'Basic realm="zvault", charset="UTF-8"'}
        raise web.HTTPUnauthorized(text="a name and a password are needed\n", headers=headers)

    async def _told(self, topic: PageTopic, subject: str = "") -> bytes:
        async with asyncio.timeout(ANSWER_PATIENCE):
            return await self._ask(topic, subject)

    async def _metrics(self, _: web.Request) -> web.Response:
        text = await self._told(PageTopic.METRICS)
        if not text:
            return _plain(500, "zvaultd cannot tell its figures: see its journal\n")
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=text, headers=headers)

    async def close(self) -> None:
        """Stop serving."""
        for server in self._servers:
            server.close()
        self._servers = []
        if self._site is not None:
            self._site.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


def _plain(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text)


async def _run(settings: ListenerSettings, channel: socket.socket, sockets: Sequence[socket.socket]) -> int:
    reader, writer = await asyncio.open_unix_connection(sock=channel)
    questions = OpenQuestions(reader, writer)
    listener = WebListener(settings, questions.ask)
    # Nothing of what a client says was read yet.
    give_up_rights(files=LISTENER_FILES)
    await listener.serve(sockets)
    hearing, resting = (
        asyncio.ensure_future(questions.hear()),
        asyncio.ensure_future(listener.wait_for_rest()),
    )
    done, _ = await asyncio.wait({hearing, resting}, return_when=asyncio.FIRST_COMPLETED)
    for one in done:
        one.result()
    return 0 if hearing in done else RESTED


def main() -> int:
    """Serve until zvaultd is gone, when what is being answered is cut off, or nobody has come for a while."""
    try:
        channel = socket.socket(fileno=0)
        sockets, told = receive_handover(channel)
        return asyncio.run(_run(ListenerSettings.of(told), channel, sockets))
    except OSError as error:
        print(f"web: {error}", file=sys.stderr)  # noqa: T201 - zvaultd reads it
        return 1


if __name__ == "__main__":
    sys.exit(main())
