"""Where a server listens, as nbd-client is told of it, and which connections to it live."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path

from zvault.config.nbd import NbdkitServer, NbdSpec, TcpServer, UnixServer
from zvault.core.errors import DeviceGone
from zvault.devices.sockets import tcp_links, unix_links

REACH_DEADLINE = 10.0
"""Seconds for a server to take a connection and greet."""

GREETING = b"NBDMAGIC"
FAREWELL = struct.pack(">I8sII", 1, b"IHAVEOPT", 2, 0)
"""NBD_FLAG_C_FIXED_NEWSTYLE, then NBD_OPT_ABORT (the NBD protocol's doc/proto.md)."""


@dataclass(frozen=True, slots=True)
class UnixTarget:
    """A server on a unix socket."""

    path: str
    export: str = ""

    def words(self) -> list[str]:
        """How nbd-client is told of it."""
        return ["-unix", self.path]

    def links(self) -> set[str]:
        """The connections to it that live now."""
        return unix_links(self.path)


@dataclass(frozen=True, slots=True)
class TcpTarget:
    """A server at a numeric address."""

    address: str
    port: int
    export: str = ""

    def words(self) -> list[str]:
        """How nbd-client is told of it."""
        return [self.address, str(self.port)]

    def links(self) -> set[str]:
        """The connections to it that live now."""
        return tcp_links(self.address, self.port)


Target = UnixTarget | TcpTarget


async def reach(spec: NbdSpec, socket: Path) -> Target:
    """The target of a server. One that must run already is connected to once; raises DeviceGone if it does not."""
    match spec:
        case NbdkitServer():
            return UnixTarget(str(socket))
        case UnixServer(path, export):
            await _answer(asyncio.open_unix_connection(path), spec)
            return UnixTarget(path, export)
        case TcpServer(host, port, export):
            writer = await _answer(asyncio.open_connection(host, port), spec)
            # The address, not the name: a name may mean another host by the time it is looked up again.
            return TcpTarget(str(writer.get_extra_info("peername")[0]), port, export)


async def _answer(
    connection: Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]], spec: NbdSpec
) -> asyncio.StreamWriter:
    """Exchange a greeting, so that what is there is known to speak NBD, and part as the protocol wants it."""
    try:
        async with asyncio.timeout(REACH_DEADLINE):
            reader, writer = await connection
            greeting = await reader.read(len(GREETING))
    except OSError as error:  # TimeoutError is one
        why = str(error) or f"it did not answer within {REACH_DEADLINE:g} s"
        what = f"the server {spec} cannot be reached"
        raise DeviceGone(what, why, "start it, or correct its address") from error
    if greeting == GREETING:
        writer.write(FAREWELL)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    if greeting != GREETING:
        raise DeviceGone(
            f"the server {spec} is no NBD server", "its greeting is another", "correct its address"
        )
    return writer
