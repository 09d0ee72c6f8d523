"""HTTP over the daemon's unix socket: one request a connection.

http.client is not used: it imports email and ssl, which takes as long as all other imports of a verb together.
To an HTTP/1.0 request the daemon answers without chunks and closes the connection at the end (RFC 9112, section 6.3).
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

SOCKET_CONNECT_DEADLINE = 10.0
"""Seconds within which the daemon must accept a connection."""

LONGEST_HEAD_LINE = 65536
"""Maximum number of bytes in a line of the head."""


class TruncatedAnswer(Exception):
    """The answer ended early, or is not HTTP."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer: its status, and its body as it arrives. ``length``: None without a Content-Length."""

    status: int
    body: BinaryIO
    length: int | None

    def read(self) -> bytes:
        """The whole body. Raises TruncatedAnswer."""
        found = self.body.read()
        if self.length is not None and len(found) < self.length:
            raise TruncatedAnswer(f"{self.length} bytes were announced, but only {len(found)} arrived")
        return found


@contextlib.contextmanager
def send_http(
    path: Path, method: str, target: str, body: bytes | None, deadline: float | None
) -> Iterator[HttpAnswer]:
    """Send a request; the daemon may be silent for ``deadline`` seconds. Raises OSError, TruncatedAnswer."""
    head = [f"{method} {target} HTTP/1.0", "Host: zvaultd"]
    if body is not None:
        head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    with socket.socket(socket.AF_UNIX) as link:
        connect_socket(link, path)
        link.settimeout(deadline)
        link.sendall("\r\n".join([*head, "", ""]).encode("ascii") + (body or b""))
        with link.makefile("rb") as answer:
            yield HttpAnswer(_status(answer), answer, _length(answer))


def connect_socket(link: socket.socket, path: Path) -> None:
    """Connect to the daemon. Raises OSError."""
    link.settimeout(SOCKET_CONNECT_DEADLINE)
    link.connect(str(path))


def _status(answer: BinaryIO) -> int:
    line = answer.readline(LONGEST_HEAD_LINE)
    words = line.split(maxsplit=2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise TruncatedAnswer("the answer is empty" if not line else f"it answered {line[:40]!r}")
    return int(words[1])


def _length(answer: BinaryIO) -> int | None:
    """Read the rest of the head; returns the Content-Length in bytes, None without one."""
    length = None
    while (line := answer.readline(LONGEST_HEAD_LINE)) not in (b"\r\n", b"\n"):
        if not line:
            raise TruncatedAnswer("the answer ended within its head")
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            length = int(value)
    return length
