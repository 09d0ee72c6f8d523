"""Serves ``/metrics``. Any local user may connect, so what they can take of the daemon is bounded."""

from __future__ import annotations

import asyncio
import ipaddress

from aiohttp import web

from zvault.core.errors import Busy
from zvault.daemon.connections import BACKLOG, ConnectionLimits, Connections
from zvault.daemon.metrics.exporter import Metrics

LIMITS = ConnectionLimits(total=32, idle=5.0, answer=10.0)
"""A scrape is one short request. Whoever only connects loses the place to one who asks."""

LOCAL = "localhost"


class MetricsServer:
    """Serves ``/metrics`` on the configured address."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.address: str | None = None
        self.connections = Connections(LIMITS)
        self._host = ""
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> None:
        """Serve there from now on. Raises Busy when the port is in use."""
        app = web.Application(middlewares=[self.connections.middleware])
        app.router.add_get("/metrics", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
        await runner.setup()
        assert runner.server is not None  # noqa: S101 - made by setup
        factory = self.connections.guarded(runner.server)
        try:
            self._server = await asyncio.get_running_loop().create_server(
                factory, host, port, backlog=BACKLOG
            )
        except OSError as error:
            await runner.cleanup()
            raise Busy(
                f"metrics cannot be served on {host}:{port}",
                error.strerror or str(error),
                f"'ss -ltnp sport = :{port}' shows who listens there; set 'metrics' in [daemon] to a free port",
            ) from None
        self._runner, self._host = runner, host
        self.address = f"{host}:{port}"

    async def _answer(self, request: web.Request) -> web.Response:
        for name in request.headers.getall("Host", []):
            if not answers_to(name, self._host):
                raise web.HTTPForbidden(text="zvaultd does not serve metrics under this name\n")
        response = web.Response(
            body=self.metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )
        response.force_close()
        return response

    async def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
            self.address = None


def answers_to(name: str, configured: str) -> bool:
    """Whether a request's Host header may mean a server that listens on the host ``configured``.

    Where only this host can connect, a foreign name is that of a web page whose name was made to lead here, to have a
    browser on this host read for it (DNS rebinding). Under which names other hosts reach this one is not known.
    """
    if not is_loopback(configured):
        return True
    name = name.strip().lower()
    host = name.partition("]")[0].removeprefix("[") if name.startswith("[") else name.partition(":")[0]
    return host in {configured.lower(), LOCAL} or is_loopback(host)


def is_loopback(host: str) -> bool:
    """Whether only this host can connect to an address."""
    if host.lower() == LOCAL:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
