"""A client that says at once what it wants."""

from __future__ import annotations

import asyncio
import select
import socket


async def asked(port: int | None, request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect, and send a request with it: a server that turns out whoever says nothing for some seconds sees no such
    client, also where this process is held up just then."""
    link = socket.socket()
    link.setblocking(False)
    try:
        link.connect_ex(("127.0.0.1", port))
        select.select([], [link], [], 0.01)  # connected at once, where it listens and has room
        await asyncio.get_running_loop().sock_sendall(link, request)
    except BaseException:
        link.close()
        raise
    return await asyncio.open_connection(sock=link)
