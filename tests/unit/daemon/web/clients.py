"""A client that says at once what it wants."""

from __future__ import annotations

import asyncio
import socket


async def asked(port: int | None, request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect, and send a request with it: a server that turns out whoever says nothing for some seconds sees no such
    client, also where this process is held up just then."""
    link = socket.socket()
    link.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(link, ("127.0.0.1", port))
        sent = link.send(request)
    except BaseException:
        link.close()
        raise
    assert sent == len(request)
    return await asyncio.open_connection(sock=link)
