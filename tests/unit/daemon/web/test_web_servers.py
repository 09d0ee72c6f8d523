"""What is served as the configuration says, and what is not when its password cannot be read."""

from __future__ import annotations

import base64
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.unit.daemon.page.page_documents import overview
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.daemon.page.page_source import _json
from zvault.daemon.page.topics import PageTopic
from zvault.daemon.web.web_servers import WebServers
from zvault.ops.context import Context
from zvault.ops.state.environment import Environment
from zvault.system.process.runner import HostRunner

Configure = Callable[..., None]


def free_port() -> int:
    """One that is free, and that the kernel gives to nobody who takes just any (ip_local_port_range, ip(7))."""
    while True:
        port = random.randrange(20000, 32000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[tuple[WebServers, dict[str, str], Configure]]:
    paths = Paths(tmp_path, tmp_path, tmp_path, tmp_path)
    context = Context.of(Environment.of(Config.model_validate({}), paths, HostRunner()))
    warnings: dict[str, str] = {}
    it = WebServers(
        context,
        warnings,
        {PageTopic.METRICS: lambda _: b"zvault_up 1\n", PageTopic.OVERVIEW: lambda _: _json(overview())},
    )

    def configure(port: int, **page: Any) -> None:
        daemon = {"metrics": f"127.0.0.1:{port}", "timezone": "Europe/Vienna"}
        context.env.reconfigure(Config.model_validate({"daemon": daemon, "page": page}))

    yield it, warnings, configure
    await it.close()


async def ask(port: int, target: str = "/", password: str = "") -> int:
    known = base64.b64encode(f"admin:{password}".encode()).decode()
    headers = {"Authorization": f"Basic {known}"} if password else {}
    url = f"http://127.0.0.1:{port}{target}"
    async with aiohttp.ClientSession(headers=headers) as session, session.get(url) as answer:
        return answer.status


async def test_a_password_that_cannot_be_read_hides_the_page_but_not_the_metrics(
    made: tuple[WebServers, dict[str, str], Configure], tmp_path: Path
) -> None:
    serving, warnings, configure = made
    port, secret = free_port(), tmp_path / "secret"
    configure(port, user="admin", password=f"file:{secret}")
    await serving.look()
    assert (await ask(port, "/metrics"), await ask(port)) == (200, 404)
    assert "cannot be read" in warnings["page"]
    # It is looked for again.
    secret.write_text("one\n")
    secret.chmod(0o600)
    await serving.look()
    assert warnings == {}
    assert (await ask(port, "/metrics"), await ask(port), await ask(port, "/", "one")) == (200, 401, 200)
    # A reload takes over another one.
    secret.write_text("two\n")
    await serving.reload()
    assert (await ask(port, "/", "one"), await ask(port, "/", "two")) == (401, 200)
    secret.unlink()
    await serving.reload()
    assert (await ask(port, "/metrics"), await ask(port), list(warnings)) == (200, 404, ["page"])
    configure(port, listen="off")
    await serving.reload()
    assert (await ask(port, "/metrics"), await ask(port), warnings) == (200, 404, {})


async def test_a_page_elsewhere_leaves_the_metrics_where_they_are(
    made: tuple[WebServers, dict[str, str], Configure],
) -> None:
    serving, warnings, configure = made
    port, other = free_port(), free_port()
    configure(port, listen=f"127.0.0.1:{other}")
    await serving.look()
    assert [await ask(port, "/metrics"), await ask(port)] == [200, 404]
    assert [await ask(other, "/metrics"), await ask(other)] == [404, 200]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        configure(port, listen=f"127.0.0.1:{taken.getsockname()[1]}")
        await serving.reload()
        assert "the page cannot be served" in warnings["page"]
        assert await ask(port, "/metrics") == 200
    await serving.look()
    assert warnings == {}
