"""A daemon's API with fixed documents on a real unix socket, and zvaultctl run against it in this process."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from aiohttp import web

from tests.unit.api.conforms import wrong, wrong_answer
from tests.unit.cli.api_documents import trouble
from tests.unit.patience import PATIENCE
from zvault.api.answers import ErrorAnswer, LongAnswerLine
from zvault.api.events import RunEvent, make_event_document
from zvault.api.routes import ROUTES, ApiRoute
from zvault.cli import app


@dataclass
class FakeDaemon:
    """Serves ``documents`` by ``METHOD /path``; a run's ``events`` end the stream, finished or not.

    ``lines`` are the long answers, by the same. What is served and what is asked for is checked against the table of
    routes, unless it is wrong on purpose: ``unchecked``. What was wrong fails the test in the end.
    """

    socket: Path
    documents: dict[str, Any] = field(default_factory=dict)
    events: dict[str, list[RunEvent]] = field(default_factory=dict)
    lines: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    hang_events: bool = False
    takes_its_time: bool = False
    """Whether it watches for as many ``seconds`` as a question says before it answers, as zvaultd does."""
    unchecked: bool = False
    wrong: list[str] = field(default_factory=list)

    def refuse(self, asked: str, status: int, /, **error: str) -> None:
        """Answer ``METHOD /path`` with an error."""
        self.documents[asked] = (status, {"error": trouble(**error)})

    async def serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else None
        asked = f"{request.method} {request.path}"
        self.asked.append((asked, dict(request.query), body))
        self._check_request(request, body)
        answered = time.monotonic() + float(request.query.get("seconds", "0"))
        while self.takes_its_time and time.monotonic() < answered:
            await asyncio.sleep(0.02)
        if request.path == "/v1/events":
            return await self._stream(request)
        if asked in self.lines:
            for line in self.lines[asked]:
                self._check(asked, line, LongAnswerLine)
                if "answer" in line:
                    self._check_answer(request, line["answer"])
            return web.Response(text="".join(json.dumps(line) + "\n" for line in self.lines[asked]))
        found = self.documents.get(asked)
        if found is None:
            return web.Response(status=404, text="404: Not Found")
        if isinstance(found, tuple):
            self._check(asked, found[1], ErrorAnswer)
            return web.json_response(found[1], status=found[0])
        self._check_answer(request, found)
        return web.json_response(found)

    def _check_request(self, request: web.Request, body: Any) -> None:
        if (route := route_of(request)) is None:
            self.wrong.append(f"there is no route {request.method} {request.path}")
            return
        if unknown := request.query.keys() - route.query.keys():
            self.wrong.append(f"{request.path} knows no {unknown}")
        if route.body is not None and body is not None:
            self._check(f"the body of {request.path}", body, route.body)
        elif body:
            self.wrong.append(f"{request.path} takes no body: {body}")

    def _check_answer(self, request: web.Request, document: Any) -> None:
        route = route_of(request)
        if route is not None and not self.unchecked:
            self.wrong += [f"{request.path}: {text}" for text in wrong_answer(document, route)]

    def _check(self, what: str, value: Any, kind: Any) -> None:
        self.wrong += [f"{what}: {text}" for text in wrong(value, kind)]

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        events = self.events.get(request.query.get("run", ""))
        if events is None:
            return web.json_response(
                {"error": trouble("not-found", "there is no such run", "", "")}, status=404
            )
        for event in events:
            for one in fields(event):
                hint = get_type_hints(type(event))[one.name]
                self._check(f"event {event.name}: {one.name}", getattr(event, one.name), hint)
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        text = "".join(json.dumps(make_event_document(event)) + "\n" for event in events).encode()
        # Cut where it hurts: a reader must not take a chunk for a line.
        for start in range(0, len(text), 1000):
            await response.write(text[start : start + 1000])
        while self.hang_events:
            await asyncio.sleep(0.02)
        await response.write_eof()
        return response


def route_of(request: web.Request) -> ApiRoute[Any] | None:
    """The route that is asked for."""
    for route in ROUTES:
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(route.path))
        if request.method == route.method and re.fullmatch(pattern, request.raw_path.partition("?")[0]):
            return route
    return None


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
    fake.hang_events = fake.takes_its_time = False
    asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(PATIENCE)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(PATIENCE)
    loop.close()
    assert fake.wrong == []


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
