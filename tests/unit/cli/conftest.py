"""A daemon's API with fixed documents on a real unix socket, and zvaultctl run against it in this process."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from api_documents import trouble

from zvault.cli import app


@dataclass
class FakeDaemon:
    """Serves ``documents`` by ``METHOD /path``; a run's ``events`` end the stream, finished or not."""

    socket: Path
    documents: dict[str, Any] = field(default_factory=dict)
    events: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    hang_events: bool = False

    def refuse(self, asked: str, status: int, /, **error: str) -> None:
        """Answer ``METHOD /path`` with an error."""
        self.documents[asked] = (status, {"error": trouble(**error)})

    async def serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else None
        self.asked.append((f"{request.method} {request.path}", dict(request.query), body))
        if request.path == "/v1/events":
            return await self._stream(request)
        found = self.documents.get(f"{request.method} {request.path}")
        if found is None:
            return web.Response(status=404, text="404: Not Found")
        code, document = found if isinstance(found, tuple) else (200, found)
        return web.json_response(document, status=code)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        events = self.events.get(request.query["run"])
        if events is None:
            return web.json_response(
                {"error": trouble("not-found", "there is no such run", "", "")}, status=404
            )
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        text = "".join(json.dumps(event) + "\n" for event in events).encode()
        # Cut where it hurts: a reader must not take a chunk for a line.
        for start in range(0, len(text), 1000):
            await response.write(text[start : start + 1000])
        while self.hang_events:
            await asyncio.sleep(0.02)
        await response.write_eof()
        return response


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(tmp_path / "s")
    monkeypatch.setenv("ZVAULT_SOCKET", str(fake.socket))
    loop = asyncio.new_event_loop()
    web_app = web.Application()
    web_app.router.add_route("*", "/{path:.*}", fake.serve)
    runner = web.AppRunner(web_app, shutdown_timeout=0.1)

    async def start() -> None:
        await runner.setup()
        await web.UnixSite(runner, str(fake.socket)).start()

    loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield fake
    fake.hang_events = False
    asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@dataclass(frozen=True)
class Said:
    """What zvaultctl left: exit status and both outputs."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def cells(self) -> list[list[str]]:
        return [line.split("\t") for line in self.lines]


Ctl = Callable[..., Said]


@pytest.fixture
def ctl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ctl:
    """Run zvaultctl with these arguments through its entry point."""
    monkeypatch.setenv("TZ", "UTC")

    def call(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["zvaultctl", *arguments])
        with pytest.raises(SystemExit) as left:
            app.main()
        captured = capsys.readouterr()
        return Said(int(left.value.code or 0), captured.out, captured.err)

    return call
