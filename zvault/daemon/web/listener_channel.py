"""What zvaultd and its process that answers web requests say to each other, over a socket that both hold.

First zvaultd hands over the sockets to listen on and the settings, as JSON. From then on it is asked: a question is a
number, a topic and a subject; the answer is that number, a length and so many bytes, none where it cannot be told.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from zvault.daemon.page.topics import PageTopic

SOCKETS = 16
"""The most addresses that a name can stand for."""

QUESTION = struct.Struct("!QBH")
"""A question's number, its topic, and bytes of the subject that follows."""

ANSWER = struct.Struct("!QI")

RESTED = 64
"""Exit status of the process where nobody has come for a while."""

LONGEST_SUBJECT = 16384
"""Bytes: a path within a snapshot, and what it is in."""

_LENGTH = struct.Struct("!I")


def hand_over(channel: socket.socket, sockets: Sequence[socket.socket], settings: Mapping[str, Any]) -> None:
    """Give the other end what it serves on, and how. Raises OSError."""
    socket.send_fds(channel, [b"\0"], [one.fileno() for one in sockets])
    text = json.dumps(settings).encode()
    channel.sendall(_LENGTH.pack(len(text)) + text)


def receive_handover(channel: socket.socket) -> tuple[list[socket.socket], dict[str, Any]]:
    """Receive what was handed over. Raises OSError where zvaultd is gone already."""
    _, descriptors, _, _ = socket.recv_fds(channel, 1, SOCKETS)
    sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    (length,) = _LENGTH.unpack(_exactly(channel, _LENGTH.size))
    return sockets, json.loads(_exactly(channel, length))


def _exactly(channel: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = channel.recv(count - len(found))
        if not part:
            raise ConnectionResetError("zvaultd is gone")
        found += part
    return found


class OpenQuestions:
    """The questions that zvaultd is asked, and is yet to answer.

    An answer goes to its own question, however late it is.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    async def ask(self, topic: PageTopic, subject: str = "") -> bytes:
        """Ask zvaultd and return its answer; empty where it cannot tell it.

        Raises ConnectionError, ValueError for a long subject.
        """
        about = subject.encode()
        if len(about) > LONGEST_SUBJECT:
            raise ValueError("the subject is too long")
        number = next(self._numbers)
        waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        try:
            self._writer.write(QUESTION.pack(number, topic, len(about)) + about)
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
