"""Where a server listens, as nbd-client is told of it, and which connections to it live."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from pathlib import Path

from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.config.device_specs.nbd import NbdkitServer, NbdSpec, TcpServer, UnixServer
from zvault.config.device_specs.s3backer import S3backerServer
from zvault.config.tables.device_parts import Tls
from zvault.core.errors import DeviceGone, NotFound
from zvault.devices.nbd.sockets import list_tcp_links, list_unix_links

REACH_DEADLINE = 10.0
"""Seconds for a server to take a connection and greet."""

PART_DEADLINE = 1.0
"""Seconds for a server to end a connection that was parted from."""

GREETING = b"NBDMAGIC"
FAREWELL = struct.pack(">I8sII", 1, b"IHAVEOPT", 2, 0)
"""NBD_FLAG_C_FIXED_NEWSTYLE, then NBD_OPT_ABORT (the NBD protocol's doc/proto.md)."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files that a server's certificate is checked with, its name, and this host's own (None: it has none to
    show).
    """

    ca: str
    hostname: str
    certificate: str | None = None
    key: str | None = None

    def words(self) -> list[str]:
        """Return the options by which nbd-client is told of it."""
        own = ["-certfile", self.certificate, "-keyfile", self.key] if self.certificate and self.key else []
        return ["-cacertfile", self.ca, "-tlshostname", self.hostname, *own]


@dataclass(frozen=True, slots=True)
class UnixTarget:
    """A server on a unix socket."""

    path: str
    export: str = ""
    tls: None = None

    def words(self) -> list[str]:
        """Return the options by which nbd-client is told of it."""
        return ["-unix", self.path]

    def links(self) -> set[str]:
        """The connections to it that live now."""
        return list_unix_links(self.path)


@dataclass(frozen=True, slots=True)
class TcpTarget:
    """A server at a numeric address."""

    address: str
    port: int
    export: str = ""
    tls: TlsFiles | None = None

    def words(self) -> list[str]:
        """Return the options by which nbd-client is told of it."""
        return [self.address, str(self.port)]

    def links(self) -> set[str]:
        """The connections to it that live now."""
        return list_tcp_links(self.address, self.port)


Target = UnixTarget | TcpTarget


async def reach_target(spec: NbdSpec, socket: Path, tls: Tls | None = None) -> Target:
    """The target of a server. One that must run already is connected to once; raises DeviceGone if it does not."""
    match spec:
        case NbdkitServer() | S3backerServer() | BlockstoreServer():
            return UnixTarget(str(socket))
        case UnixServer(path, export):
            await _answer(asyncio.open_unix_connection(path), spec)
            return UnixTarget(path, export)
        case TcpServer(host, port, export):
            writer = await _answer(asyncio.open_connection(host, port), spec)
            # The address, not the name: a name may mean another host by the time it is looked up again.
            address = str(writer.get_extra_info("peername")[0])
            return TcpTarget(address, port, export, find_tls_files(tls, host) if tls is not None else None)


def find_tls_files(tls: Tls, host: str) -> TlsFiles:
    """The files of a folder, by the names nbdkit's own tools give them. Raises NotFound for what is missing."""
    ca, certificate, key = (
        Path(tls.certs, f"{name}.pem") for name in ("ca-cert", "client-cert", "client-key")
    )
    own = certificate.exists()
    for path in (ca, certificate, key) if own else (ca,):
        if not path.is_file():
            what = f"TLS to {host} needs {path}"
            raise NotFound(what, "there is no such file", "nbdkit-tls(1) tells how to make certificates")
    name = tls.hostname or host
    return TlsFiles(str(ca), name, str(certificate), str(key)) if own else TlsFiles(str(ca), name)


async def _answer(
    connection: Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]], spec: NbdSpec
) -> asyncio.StreamWriter:
    """Exchange a greeting, so that what is there is known to speak NBD, and part as the protocol wants it."""
    try:
        async with asyncio.timeout(REACH_DEADLINE), _parted(connection) as (reader, writer):
            greeting = await reader.read(len(GREETING))
            if greeting == GREETING:
                await _say_farewell(reader, writer)
    except OSError as error:  # TimeoutError is one
        why = str(error) or f"it did not answer within {REACH_DEADLINE:g} s"
        what = f"the server {spec} cannot be reached"
        raise DeviceGone(what, why, "start it, or correct its address") from error
    if not greeting:
        raise DeviceGone(
            f"the server {spec} takes no connection",
            "it closes each at once: it may serve one client only, and have one",
            "end the other client, or have the server take more ('limit' of nbdkit-limit-filter)",
        )
    if greeting != GREETING:
        raise DeviceGone(
            f"the server {spec} is no NBD server", "its greeting is another", "correct its address"
        )
    return writer


@contextlib.asynccontextmanager
async def _parted(
    connection: Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]],
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Have a connection for a block. Left open, the loop would keep it: one for each look at a server that hangs."""
    reader, writer = await connection
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _say_farewell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(FAREWELL)
    # A server that takes one client only would refuse nbd-client as long as it counts this one. What it says is let
    # go: one that went on talking had zvaultd keep half a gigabyte within that second.
    with contextlib.suppress(OSError):
        async with asyncio.timeout(PART_DEADLINE):
            while await reader.read(1 << 16):
                pass
