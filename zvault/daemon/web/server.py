"""Has ``/metrics`` and the status page served: by a process of its own (listener.py), told what is true when it asks.

Of what is said to the port, zvaultd itself reads nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zvault.core.errors import Busy, ToolFailed
from zvault.daemon.connections import BACKLOG
from zvault.daemon.journald import log
from zvault.daemon.page.topics import Topic
from zvault.daemon.web.channel import ANSWER, QUESTION, hand_over
from zvault.daemon.web.listener import listener_argv
from zvault.system.process.output import last_lines, last_words, read_lines
from zvault.system.process.spawn import describe_exit, put_down, spawn
from zvault.system.tasks import cancel

Told = Callable[[str], bytes]
"""What is told of a subject, as it is now."""


class WebServer:
    """Serves on an address; ``address`` is None while it does not. ``answers`` are what it can be asked for."""

    def __init__(self, answers: Mapping[Topic, Told]) -> None:
        self.answers = answers
        self.address: str | None = None
        self.port: int | None = None
        self.process: asyncio.subprocess.Process | None = None
        self._serving: asyncio.Task[None] | None = None

    async def listen(self, host: str, port: int, settings: Mapping[str, Any], key: str = "metrics") -> None:
        """Serve there from now on, as ``settings`` (listener.Settings) say; ``key`` of the configuration has it so.

        Raises Busy when the port is in use, ToolFailed where no process can be started.
        """
        await self.close()
        sockets = await _listening(host, port, key)
        try:
            self.port = int(sockets[0].getsockname()[1])
            await self._start(host, sockets, settings)
        except OSError as error:
            what = "the process that answers web requests cannot be started"
            raise ToolFailed(what, str(error), "it is tried again every 15 s") from error
        finally:
            for one in sockets:
                one.close()
        self.address = f"{host}:{port}"

    async def _start(self, host: str, sockets: Sequence[socket.socket], settings: Mapping[str, Any]) -> None:
        here, there = socket.socketpair()
        process = None
        try:
            with there:
                process = await spawn(
                    listener_argv(host), stdin=there.fileno(), stdout=asyncio.subprocess.DEVNULL, bare=True
                )
            hand_over(here, sockets, {**settings, "host": host})
            reader, writer = await asyncio.open_unix_connection(sock=here)
        except BaseException:
            here.close()
            if process is not None:
                await put_down(process)
            raise
        self.process = process
        self._serving = asyncio.create_task(self._serve(process, reader, writer))

    async def _serve(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        said = last_lines()
        hearing = asyncio.ensure_future(read_lines(process.stderr, said.append))
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    number, topic, length = QUESTION.unpack(await reader.readexactly(QUESTION.size))
                    subject = (await reader.readexactly(length)).decode(errors="replace")
                    text = self._told(topic, subject)
                    writer.write(ANSWER.pack(number, len(text)) + text)
                    await writer.drain()
            await asyncio.wait({hearing}, timeout=1.0)
        finally:
            self.address = None
            writer.close()
            await put_down(process)
            hearing.cancel()
        code = process.returncode
        why = last_words(said) or ("it hangs" if code is None else describe_exit(code))
        log.error("the process that answers web requests ended: %s; it is started again", why)

    def _told(self, topic: int, subject: str) -> bytes:
        answer = next((one for key, one in self.answers.items() if key == topic), None)
        if answer is None:
            return b""
        try:
            return bytes(answer(subject))
        except Exception:
            log.exception("what a web request asks for cannot be told")
            return b""

    async def close(self) -> None:
        """Stop serving."""
        if self._serving is not None:
            await cancel(self._serving)
            self._serving = None


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
            one.listen(BACKLOG)
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
