"""Talks to the daemon: HTTP and JSON over its unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
from collections.abc import AsyncGenerator, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

from zvault.cli.documents import Document, Event, RunId
from zvault.core.errors import HostUnreachable, ZvaultError

if TYPE_CHECKING:
    import aiohttp

READ_DEADLINE = 120.0
"""Seconds: a plan lists both sides and sizes every stream."""
ACT_DEADLINE = 900.0
"""Seconds: bringing a vault up starts servers, connects devices and imports a pool."""

CONNECT_DEADLINE = 10.0
"""Seconds until the daemon has to take a connection."""

_LOOK = "see 'systemctl status zvaultd' and 'journalctl -u zvaultd'"
_REASONS = {cls.reason: cls for cls in ZvaultError.__subclasses__()}


def socket_path() -> Path:
    """The daemon's socket; ZVAULT_SOCKET names another."""
    if named := os.environ.get("ZVAULT_SOCKET"):
        return Path(named)
    from zvault.config.paths import Paths

    return Paths().socket


class Source(Protocol):
    """Where the verbs that only read find their documents."""

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Document:
        """The API's document at ``path``. Raises ZvaultError."""
        ...


def read(path: str, **query: object) -> Document:
    """One document, for a verb that only reads: from the daemon or, where none runs, from the pools themselves.

    Arguments that are None are left out of the query.
    """
    wanted = {key: str(value) for key, value in query.items() if value is not None}

    async def ask() -> Document:
        async with Client(socket_path()) as source:
            return await source.get(path, wanted)

    try:
        return asyncio.run(ask())
    except NotRunning as error:
        if "ZVAULT_SOCKET" in os.environ:
            raise  # asked of that daemon, not of this host's pools
        from zvault.cli.offline import Offline

        source: Source = Offline(error)
        return asyncio.run(source.get(path, wanted))


def act(path: str, body: Mapping[str, Any] | None = None) -> Document:
    """Have the daemon do one thing, and return what it answers."""

    async def ask() -> Document:
        async with Client(socket_path()) as daemon:
            return await daemon.post(path, body)

    return asyncio.run(ask())


class Client:
    """A connection to the daemon, as an async context manager."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        import aiohttp

        self._session = aiohttp.ClientSession(
            "http://zvaultd", connector=aiohttp.UnixConnector(str(self.socket))
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Document:
        """See Source.get."""
        return await self._ask("GET", path, READ_DEADLINE, params=query or {})

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> Document:
        """POST and return the answer. Raises ZvaultError."""
        return await self._ask("POST", path, ACT_DEADLINE, json=body or {})

    async def events(self, run: RunId) -> AsyncGenerator[Event, None]:
        """A run's events from its beginning, to its ``run-finished``.

        Raises HostUnreachable when the stream ends before that.
        """
        import aiohttp

        # No deadline on reading: a run may wait for hours. Whoever follows can leave with Ctrl-C.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_DEADLINE)
        with _explained(self.socket, CONNECT_DEADLINE):
            async with self._open.get("/v1/events", params={"run": str(run)}, timeout=timeout) as response:
                await _check(response)
                rest = b""
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in filter(None, map(bytes.strip, lines)):
                        event = cast(Event, json.loads(line))
                        yield event
                        if event["event"] == "run-finished":
                            return
        raise _broken_off(f"the daemon ended the stream before run {run} did")

    @property
    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("Client is used outside its 'async with'")
        return self._session

    async def _ask(self, method: str, path: str, deadline: float, **arguments: Any) -> Document:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=deadline, sock_connect=CONNECT_DEADLINE)
        with _explained(self.socket, deadline):
            async with self._open.request(method, path, timeout=timeout, **arguments) as response:
                await _check(response)
                return cast(Document, await response.json())


async def _check(response: aiohttp.ClientResponse) -> None:
    """Raise what the daemon answered as the error it was, by its ``reason``."""
    if response.status < 400:
        return
    text = await response.text()
    try:
        sent = json.loads(text)["error"]
        error = _REASONS.get(sent["reason"], ZvaultError)(
            sent["what"], sent.get("why", ""), sent.get("next", "")
        )
    except (ValueError, KeyError, TypeError):
        error = ZvaultError(
            f"zvaultd answered {response.status} to {response.method} {response.url.path}",
            (text.strip().splitlines() or [""])[0],
            f"zvaultctl and zvaultd may be of different versions; {_LOOK}",
        )
    raise error


def _broken_off(why: str) -> HostUnreachable:
    return HostUnreachable("the connection to zvaultd broke off", why, _LOOK)


@contextlib.contextmanager
def _explained(socket: Path, deadline: float) -> Iterator[None]:
    """Turn what a connection can die of into words."""
    import aiohttp

    try:
        yield
    except aiohttp.ClientConnectorError as error:
        raise _no_daemon(socket, error.os_error) from error
    except TimeoutError as error:
        raise HostUnreachable(
            "zvaultd does not answer", f"it was silent for {deadline:g} s", _LOOK
        ) from error
    except (aiohttp.ClientError, ConnectionError, json.JSONDecodeError) as error:
        raise _broken_off(str(error) or type(error).__name__) from error


class NotRunning(HostUnreachable):
    """Nobody listens on the socket: no daemon, rather than one that does not answer."""


def _no_daemon(socket: Path, error: OSError) -> HostUnreachable:
    """Why nobody answers at the socket, and what to do."""
    start = "start it with 'systemctl start zvaultd'; if it does not stay up, see 'journalctl -u zvaultd'"
    match error.errno:
        case errno.ENOENT:
            return NotRunning("zvaultd is not running", f"there is no socket {socket}", start)
        case errno.ECONNREFUSED:
            return NotRunning("zvaultd is not running", f"nobody listens on {socket}", start)
        case errno.EACCES | errno.EPERM:
            return HostUnreachable(
                "you may not talk to zvaultd",
                f"{socket} is open to root and to the group zvault only",
                "run this as root, or have yourself added with 'adduser USER zvault' and log in again",
            )
    return HostUnreachable("zvaultd cannot be reached", f"{socket}: {error.strerror or error}", _LOOK)
