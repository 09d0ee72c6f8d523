"""Bounds what clients may hold of the daemon: how many connections, for how long, and how many bytes of a request.

aiohttp bounds a request's head and body, but neither the number of connections nor the time until a head has arrived.
So its protocol stands behind one that counts. Nothing is queued: a connection too many takes the place of the one that
has been idle longest, and is refused where none is idle.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

from zvault.api.answers import ErrorAnswer
from zvault.core.errors import Busy

LISTEN_BACKLOG = 16
"""Connections that the kernel keeps until they are accepted; more are turned away by it."""

REQUEST_BYTES = 1 << 20
"""Bytes in the body of a request; a larger one is answered with 413."""

CONNECTION_BYTES = 2 * REQUEST_BYTES
"""Bytes that may arrive on a connection until its request is answered; then it is closed, read or not."""

REFUSED, REFUSED_SECONDS = 16, 1.0
"""Connections that are told at a time that they are too many, and how long each may take to hear it."""

_SO_PEERGROUPS = 59
"""asm-generic/socket.h; Python has no name for it."""

_GROUPS_BYTES = 1024
"""As many as Python reads of a socket option."""

ProtocolFactory = Callable[[], asyncio.Protocol]


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """``total`` connections at a time, of which ``user`` for each user but root, ``users`` for all of these together.

    ``idle`` seconds may pass without a request that is answered. ``answer`` seconds may pass from a request's head
    until its answer is sent; None for as long as it takes.
    """

    total: int
    idle: float
    answer: float | None = None
    user: int | None = None
    users: int | None = None


@dataclass(eq=False, slots=True)
class _Connection:
    transport: asyncio.Transport
    uid: int | None
    since: float
    timer: asyncio.TimerHandle | None = None
    answering: bool = False
    received: int = 0


@dataclass(eq=False)
class ClientConnections:
    """The connections of one server."""

    limits: ConnectionLimits
    _open: dict[asyncio.BaseTransport, _Connection] = field(default_factory=dict)
    _refused: dict[asyncio.BaseTransport, asyncio.TimerHandle] = field(default_factory=dict)
    _moved: float = field(default_factory=time.monotonic)

    def __len__(self) -> int:
        return len(self._open)

    def measure_unused(self) -> float:
        """Seconds since there was a connection; 0 while there is one."""
        return 0.0 if self._open else time.monotonic() - self._moved

    def guarded(self, serve: ProtocolFactory) -> ProtocolFactory:
        """A protocol factory for a server, that passes on to ``serve`` what is within the limits."""
        return lambda: _GuardedProtocol(self, serve)

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[[web.Request], object]
    ) -> web.StreamResponse:
        """Counts a connection as answering while its request is; aiohttp calls it when the head has arrived."""
        one = self._open.get(request.transport) if request.transport is not None else None
        if one is None:
            return await handler(request)  # type: ignore[no-any-return, misc]
        one.answering = True
        self._limit(one, self.limits.answer)
        try:
            return await handler(request)  # type: ignore[no-any-return, misc]
        finally:
            # What is left of the answer has the time that a new request has.
            one.answering, one.received, one.since = False, 0, time.monotonic()
            self._limit(one, self.limits.idle)

    def allow(self, request: web.Request, seconds: float) -> None:
        """Let the answer to a request take longer than others."""
        one = self._open.get(request.transport) if request.transport is not None else None
        if one is not None:
            self._limit(one, seconds)

    def admit(self, transport: asyncio.Transport) -> _Connection | None:
        """A connection's entry; None where there is no room for it."""
        uid = read_peer_uid(transport)
        for wanted, most in self._rules(uid):
            same = [one for one in self._open.values() if wanted(one.uid)]
            if len(same) >= most and not self._drop_idle(same):
                return None
        one = _Connection(transport, uid, time.monotonic())
        self._open[transport] = one
        self._limit(one, self.limits.idle)
        return one

    def _rules(self, uid: int | None) -> list[tuple[Callable[[int | None], bool], int]]:
        limits = self.limits
        found: list[tuple[Callable[[int | None], bool], int]] = []
        if uid != 0 and limits.user is not None:
            found.append((lambda other: other == uid, limits.user))
        if uid != 0 and limits.users is not None:
            found.append((lambda other: other != 0, limits.users))
        return [*found, (lambda _: True, limits.total)]

    def _drop_idle(self, some: list[_Connection]) -> bool:
        """Drop the connection that has been without a request longest; False where each is being answered."""
        idle = [one for one in some if not one.answering]
        if not idle:
            return False
        self._drop(min(idle, key=lambda one: one.since))
        return True

    def _limit(self, one: _Connection, seconds: float | None) -> None:
        if one.timer is not None:
            one.timer.cancel()
        loop = asyncio.get_running_loop()
        one.timer = None if seconds is None else loop.call_later(seconds, self._drop, one)

    def _drop(self, one: _Connection) -> None:
        self.forget(one)
        one.transport.abort()

    def forget(self, one: _Connection) -> None:
        """Note that a connection is closed."""
        if one.timer is not None:
            one.timer.cancel()
            one.timer = None
        self._moved = time.monotonic()
        self._open.pop(one.transport, None)

    def refuse(self, transport: asyncio.Transport) -> None:
        """Say so, and close the connection once its request has come: the kernel drops what is said before, else."""
        if len(self._refused) >= REFUSED:
            transport.abort()
            return
        transport.write(_REFUSAL)
        loop = asyncio.get_running_loop()
        self._refused[transport] = loop.call_later(REFUSED_SECONDS, transport.abort)

    def refused(self, transport: asyncio.Transport | None) -> None:
        """The request of one that was refused has come, or it is closed."""
        if transport is not None and (timer := self._refused.pop(transport, None)) is not None:
            timer.cancel()
            transport.close()

    def arrived(self, one: _Connection, count: int) -> bool:
        """Count bytes; False, and the connection is dropped, where they are more than any request has."""
        one.received += count
        if one.received <= CONNECTION_BYTES:
            return True
        self._drop(one)
        return False


class _GuardedProtocol(asyncio.Protocol):
    """Passes everything on to the protocol behind it, which is made only for a connection that is let in."""

    def __init__(self, connections: ClientConnections, serve: ProtocolFactory) -> None:
        self._connections, self._serve = connections, serve
        self._behind: asyncio.Protocol | None = None
        self._one: _Connection | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream's
        self._transport = transport
        self._one = self._connections.admit(transport)
        if self._one is None:
            self._connections.refuse(transport)
            return
        self._behind = self._serve()
        self._behind.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._one is None:
            self._connections.refused(self._transport)
        elif self._behind and self._connections.arrived(self._one, len(data)):
            self._behind.data_received(data)

    def eof_received(self) -> bool | None:
        return self._behind.eof_received() if self._behind else None

    def pause_writing(self) -> None:
        if self._behind:
            self._behind.pause_writing()

    def resume_writing(self) -> None:
        if self._behind:
            self._behind.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._one:
            self._connections.forget(self._one)
        else:
            self._connections.refused(self._transport)
        if self._behind:
            self._behind.connection_lost(exc)


def read_peer_uid(transport: asyncio.BaseTransport | None) -> int | None:
    """Return the user at the other end of a unix socket (unix(7), SO_PEERCRED); None where it cannot be told."""
    peer = None if transport is None else transport.get_extra_info("socket")
    if peer is None or peer.family != socket.AF_UNIX:
        return None
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])


def read_peer_groups(transport: asyncio.BaseTransport | None) -> frozenset[int]:
    """The groups of who is at the other end, as they were when it connected (unix(7), SO_PEERGROUPS).

    Empty where they cannot be told: of a process with more than 256 groups, for which Python has no room.
    """
    peer = None if transport is None else transport.get_extra_info("socket")
    if peer is None or peer.family != socket.AF_UNIX:
        return frozenset()
    try:
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        told = peer.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES)
    except OSError:
        return frozenset()
    own = struct.unpack("3i", credentials)[2]
    return frozenset({own, *struct.unpack(f"{len(told) // 4}I", told)})


def _refusal() -> bytes:
    told = Busy("zvaultd has too many connections", "each of them is being answered", "close some, or wait")
    answer: ErrorAnswer = {"error": told.as_dict()}
    body = json.dumps(answer).encode()
    head = (
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


_REFUSAL = _refusal()
