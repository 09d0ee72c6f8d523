"""Has ``/metrics`` and the status page served: by a process of its own (listener.py), told what is true when it asks.

Of what is said to the port, zvaultd itself reads nothing. The process is started when somebody connects, and ends when
nobody has for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from zvault.core.errors import Busy, ZvaultError
from zvault.daemon.connections import LISTEN_BACKLOG
from zvault.daemon.journald import log
from zvault.daemon.page.topics import PageTopic
from zvault.daemon.web.listener_channel import ANSWER, QUESTION, RESTED, hand_over
from zvault.system.process.output import find_last_line, make_line_tail, read_lines
from zvault.system.process.spawn import describe_exit, kill_process, spawn_program
from zvault.system.tasks import cancel_tasks

Told = Callable[[str], bytes | Awaitable[bytes]]
"""What is told of a subject, as it is now; what takes a while keeps no other question waiting."""

IDLE_LIFETIME = 300.0
"""Seconds without a connection after which the process ends: longer than any interval at which Prometheus asks, as what
is asked less often than each five minutes is stale to it."""

ENDING_PATIENCE = 10.0
"""Seconds that the process may take to end once it asks no more: on a busy host Python alone needs a few."""

MOST_QUESTIONS = 256
"""Questions that it may have open at once; more of them wait unread. It has at most 64 connections, but nobody's
rights, because whoever connects may take it over: then it asks without end, and does not read what it is told."""

LISTENER = Path(__file__).with_name("listener.py")
"""The program. It is not imported here: zvaultd has no use for what it needs."""


class WebServer:
    """Serves on an address; ``address`` is None while it does not. ``answers`` are what it can be asked for."""

    def __init__(self, answers: Mapping[PageTopic, Told], rest: float = IDLE_LIFETIME) -> None:
        self.answers, self.rest = answers, rest
        self.address: str | None = None
        self.port: int | None = None
        self.process: asyncio.subprocess.Process | None = None
        self._serving: asyncio.Task[None] | None = None

    async def listen(self, host: str, port: int, settings: Mapping[str, Any], key: str = "metrics") -> None:
        """Serve there from now on, as ``settings`` (listener.Settings) say; ``key`` of the configuration has it so.

        Raises Busy when the port is in use.
        """
        await self.close()
        sockets = await _listening(host, port, key)
        self.port = int(sockets[0].getsockname()[1])
        self.address = f"{host}:{port}"
        self._serving = asyncio.create_task(self._serve_when_asked(host, sockets, settings))

    async def _serve_when_asked(
        self, host: str, sockets: Sequence[socket.socket], settings: Mapping[str, Any]
    ) -> None:
        try:
            rests = True
            while rests:
                await _somebody(sockets)
                rests = await self._serve(*await self._start(host, sockets, settings))
        except (OSError, ZvaultError) as error:
            log.error("the process that answers web requests cannot be started: %s; it is tried again", error)
        finally:
            # Kept until then: who connects just as the process ends waits here for the next.
            for one in sockets:
                one.close()
            self.address = None

    async def _start(
        self, host: str, sockets: Sequence[socket.socket], settings: Mapping[str, Any]
    ) -> tuple[asyncio.subprocess.Process, asyncio.StreamReader, asyncio.StreamWriter]:
        here, there = socket.socketpair()
        process = None
        try:
            with there:
                # The host is there for whoever lists processes.
                argv = [sys.executable, "-I", str(LISTENER), host]
                process = await spawn_program(
                    argv, stdin=there.fileno(), stdout=asyncio.subprocess.DEVNULL, bare=True
                )
            hand_over(here, sockets, {**settings, "host": host, "rest": self.rest})
            reader, writer = await asyncio.open_unix_connection(sock=here)
        except BaseException:
            here.close()
            if process is not None:
                await kill_process(process)
            raise
        self.process = process
        return process, reader, writer

    async def _serve(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Tell it what it asks for until it ends: True where it does because nobody came for a while."""
        said = make_line_tail()
        hearing = asyncio.ensure_future(read_lines(process.stderr, said.append))
        later: set[asyncio.Task[None]] = set()
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    if len(later) >= MOST_QUESTIONS:
                        await asyncio.wait(later, return_when=asyncio.FIRST_COMPLETED)
                    number, topic, length = QUESTION.unpack(await reader.readexactly(QUESTION.size))
                    subject = (await reader.readexactly(length)).decode(errors="replace")
                    text = self._told(topic, subject)
                    if isinstance(text, bytes):
                        writer.write(ANSWER.pack(number, len(text)) + text)
                        await writer.drain()
                    else:
                        task = asyncio.create_task(_tell_later(writer, number, text))
                        later.add(task)
                        task.add_done_callback(later.discard)
            await asyncio.wait({hearing}, timeout=ENDING_PATIENCE)
        finally:
            for task in later:
                task.cancel()
            writer.close()
            await kill_process(process)
            hearing.cancel()
        code = process.returncode
        if code == RESTED:
            return True
        why = find_last_line(said) or ("it hangs" if code is None else describe_exit(code))
        log.error("the process that answers web requests ended: %s; it is started again", why)
        return False

    def _told(self, topic: int, subject: str) -> bytes | Awaitable[bytes]:
        answer = next((one for key, one in self.answers.items() if key == topic), None)
        if answer is None:
            return b""
        try:
            text = answer(subject)
            return text if inspect.isawaitable(text) else bytes(text)
        except Exception:
            log.exception("what a web request asks for cannot be told")
            return b""

    async def close(self) -> None:
        """Stop serving."""
        if self._serving is not None:
            await cancel_tasks(self._serving)
            self._serving = None


async def _tell_later(writer: asyncio.StreamWriter, number: int, text: Awaitable[bytes]) -> None:
    try:
        found = await text
    except Exception:
        log.exception("what a web request asks for cannot be told")
        found = b""
    with contextlib.suppress(ConnectionError):
        writer.write(ANSWER.pack(number, len(found)) + found)
        await writer.drain()


async def _somebody(sockets: Sequence[socket.socket]) -> None:
    """Wait until somebody connects to one of them."""
    loop, came = asyncio.get_running_loop(), asyncio.Event()
    for one in sockets:
        loop.add_reader(one, came.set)
    try:
        await came.wait()
    finally:
        for one in sockets:
            loop.remove_reader(one)


async def _listening(host: str, port: int, key: str) -> list[socket.socket]:
    """Sockets for all addresses of a host. Raises Busy."""
    loop = asyncio.get_running_loop()
    found: list[socket.socket] = []
    try:
        server = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
        try:
            found += [one.dup() for one in server.sockets]
        finally:
            server.close()
        for one in found:
            one.listen(LISTEN_BACKLOG)
    except OSError as error:
        for one in found:
            one.close()
        what, where = (
            ("metrics", "'metrics' in [daemon]") if key == "metrics" else ("the page", "'listen' in [page]")
        )
        raise Busy(
            f"{what} cannot be served on {host}:{port}",
            error.strerror or str(error),
            f"'ss -ltnp sport = :{port}' shows who listens there; set {where} to a free port",
        ) from None
    return found
