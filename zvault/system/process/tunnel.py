"""A program that makes a socket here which leads elsewhere (``ssh -L``), for as long as this process lives."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from zvault.core.errors import HostUnreachable, ToolFailed, ZvaultError
from zvault.system.process.spawn import make_missing_tool_error, make_tool_environment

TUNNEL_DEADLINE = 45.0
"""Seconds until the way has to be there."""
TUNNEL_INTERVAL = 0.02
TUNNEL_END_TIME = 5.0
"""Seconds that it has to end by itself."""


class Tunnel:
    """``path`` is a socket here that leads elsewhere, once ``wait`` returned."""

    def __init__(self, argv: Sequence[str], path: Path, failure: Callable[[str], ZvaultError]) -> None:
        """Starts the program, which makes ``path``. ``failure`` is the error for what it said before it ended.

        It ends with the thread that starts it, also where that is killed. Raises ToolMissing, ToolFailed.
        """
        if shutil.which(argv[0]) is None:
            raise make_missing_tool_error(argv[0])
        self.path, self._failure = path, failure
        self._said: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - close() ends it
        try:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", "--", *argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                env=make_tool_environment(),
            )
        except OSError as error:
            self._said.close()
            if isinstance(error, FileNotFoundError):
                raise make_missing_tool_error("setpriv") from None
            raise ToolFailed(f"{argv[0]} cannot be started", str(error)) from None

    def wait(self) -> None:
        """Until the socket takes connections. Raises HostUnreachable, and what ``failure`` makes of its words."""
        until = time.monotonic() + TUNNEL_DEADLINE
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise self._failure(self.said())
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as link:
                link.connect(str(self.path))
                return
            time.sleep(TUNNEL_INTERVAL)
        raise HostUnreachable(
            "the other end does not answer",
            f"there was no way to it within {TUNNEL_DEADLINE:g} s",
            "see the network",
        )

    def said(self) -> str:
        """Return what it complained of so far."""
        self._said.seek(0)
        return self._said.read()

    def close(self) -> None:
        """End it; one that does not within ``TUNNEL_END_TIME`` is killed."""
        self._process.terminate()
        try:
            self._process.wait(TUNNEL_END_TIME)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.close()
