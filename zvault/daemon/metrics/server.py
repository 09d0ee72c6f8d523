"""Has ``/metrics`` served: by a process of its own (listener.py), which is told the figures when it asks for them.

Of what is said to the port, zvaultd itself reads nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from typing import Protocol

from zvault.core.errors import Busy, ToolFailed
from zvault.daemon.connections import BACKLOG
from zvault.daemon.journald import log
from zvault.daemon.metrics.listener import ANSWER, QUESTION, listener_argv
from zvault.system.process.output import last_lines, last_words, read_lines
from zvault.system.process.spawn import describe_exit, put_down, spawn
from zvault.system.tasks import cancel


class Figures(Protocol):
    """What there is to scrape."""

    def text(self) -> bytes:
        """The exposition, as it is now."""
        ...


class MetricsServer:
    """Serves ``/metrics`` on the configured address; ``address`` is None while it does not."""

    def __init__(self, metrics: Figures) -> None:
        self.metrics = metrics
        self.address: str | None = None
        self.port: int | None = None
        self.process: asyncio.subprocess.Process | None = None
        self._serving: asyncio.Task[None] | None = None

    async def listen(self, host: str, port: int) -> None:
        """Serve there from now on. Raises Busy when the port is in use, ToolFailed where no process can be started."""
        await self.close()
        sockets = await _listening(host, port)
        try:
            self.port = int(sockets[0].getsockname()[1])
            await self._start(host, sockets)
        except OSError as error:
            what = "the process that serves metrics cannot be started"
            raise ToolFailed(what, str(error), "it is tried again every 15 s") from error
        finally:
            for one in sockets:
                one.close()
        self.address = f"{host}:{port}"

    async def _start(self, host: str, sockets: Sequence[socket.socket]) -> None:
        here, there = socket.socketpair()
        process = None
        try:
            with there:
                process = await spawn(
                    listener_argv(host), stdin=there.fileno(), stdout=asyncio.subprocess.DEVNULL, bare=True
                )
            socket.send_fds(here, [b"\0"], [one.fileno() for one in sockets])
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
                    question = await reader.readexactly(QUESTION.size)
                    text = self._told()
                    writer.write(ANSWER.pack(*QUESTION.unpack(question), len(text)) + text)
                    await writer.drain()
            await asyncio.wait({hearing}, timeout=1.0)
        finally:
            self.address = None
            writer.close()
            await put_down(process)
            hearing.cancel()
        code = process.returncode
        why = last_words(said) or ("it hangs" if code is None else describe_exit(code))
        log.error("the process that serves metrics ended: %s; it is started again", why)

    def _told(self) -> bytes:
        try:
            return self.metrics.text()
        except Exception:
            log.exception("the figures cannot be told")
            return b""

    async def close(self) -> None:
        """Stop serving."""
        if self._serving is not None:
            await cancel(self._serving)
            self._serving = None


async def _listening(host: str, port: int) -> list[socket.socket]:
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
        raise Busy(
            f"metrics cannot be served on {host}:{port}",
            error.strerror or str(error),
            f"'ss -ltnp sport = :{port}' shows who listens there; set 'metrics' in [daemon] to a free port",
        ) from None
    return found
