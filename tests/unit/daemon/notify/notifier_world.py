"""A notifier, the health that it reads, and a web server that keeps what is sent."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.ops_world import HOUR, START, context
from zvault.api.events import RunEvent
from zvault.config.schema import Notify
from zvault.daemon.assemble import assemble_runs
from zvault.daemon.event_publisher import EventPublisher
from zvault.daemon.history import RunHistory
from zvault.daemon.notify.notifier import Notifier
from zvault.daemon.status import DaemonStatus
from zvault.ops.vaults.vault import Vaults
from zvault.system.process.runner import HostRunner

FIGURES = {"bytes": 0, "datasets": 1, "sent": 1, "pruned": 0}
ERROR: Any = {"reason": "transfer", "what": "the stream broke", "why": "no space", "next": "make room"}


class Web(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.got: list[tuple[str, str]] = []
        self.status = 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def titles(self) -> list[str]:
        return [json.loads(body)["title"].partition(": ")[2] for _, body in self.got]


class Handler(http.server.BaseHTTPRequestHandler):
    server: Web

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        if self.server.status == 200:
            self.server.got.append((self.path, body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(name="web")
def web_server() -> Iterator[Web]:
    server = Web()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    server.socket.close()
    thread.join()


class World:
    """A daemon's state with one backup; ``down`` and ``up`` are a restart."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.up()

    def up(self) -> None:
        self.where = context(START + 3 * HOUR, folder=self.folder)
        self.where.env.runner = HostRunner()
        self.history = RunHistory(self.folder / "history.sqlite")
        events = EventPublisher()
        self.runs = assemble_runs(self.where, Vaults(self.where), self.history, events)
        monitor: Any = SimpleNamespace(documents=lambda: asyncio.sleep(0, []))
        scheduler: Any = SimpleNamespace(next_run=lambda _: None, behind=lambda: 0.0)
        self.status = DaemonStatus(self.where, monitor, self.runs, self.history, scheduler, started=START)
        self.notifier = Notifier(self.status, list, set)
        events.subscribe(RunEvent, self.notifier.hear)

    async def down(self) -> None:
        await self.notifier.close()
        self.history.close()

    def tell(self, **tables: dict[str, Any]) -> None:
        notify = {name: Notify.model_validate(table).named(name) for name, table in tables.items()}
        self.where.env.config = self.where.env.config.model_copy(update={"notify": notify})

    def later(self, seconds: float) -> None:
        clock: Any = self.where.env.clock
        clock.at += seconds

    def ran(self, run: str, result: Any) -> None:
        env = self.where.env
        self.history.begin(run, "b", "schedule", env.clock.time(), env.way(env.backup("b")))
        self.history.end(run, env.clock.time(), result, FIGURES, ERROR if result != "ok" else None)

    async def look(self) -> None:
        """One look, and all that it sends."""
        self.notifier.consider()
        self.notifier.send_due()
        while self.notifier._sending:
            await asyncio.gather(*self.notifier._sending.values())


@pytest.fixture(name="world")
def world_for_test(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.history.close()
