"""What the daemon answers on its socket, by the client that zvaultctl uses: each answer is its route's document."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.api.conforms import wrong_answer
from tests.unit.cli.api_documents import daemon, made, vault
from tests.unit.events import make_event
from zvault.api import routes
from zvault.api.events import (
    DatasetFailed,
    HealedEvent,
    MessageEvent,
    RunStarted,
    UnhealedDocument,
)
from zvault.api.routes import ApiRoute
from zvault.cli.daemon_client import HttpClient
from zvault.config.schema import Config
from zvault.config.templates import resolve_templates
from zvault.core.errors import ErrorDocument, NotFound, Refused
from zvault.core.integrity.damage import DamagedFile
from zvault.daemon.api import vaults as vaults_api
from zvault.daemon.api.server import Api
from zvault.daemon.daemon_knowledge import DaemonKnowledge
from zvault.daemon.notify.notifier import Notifier
from zvault.daemon.status import DaemonStatus

Ask = Callable[..., Any]


@contextlib.asynccontextmanager
async def serving(status: DaemonStatus, socket: Path) -> AsyncIterator[HttpClient]:
    parts: list[Any] = [SimpleNamespace(), SimpleNamespace(), Notifier(status, list, set)]
    served = Api(status, status.runs, status.history, status.runs.runner.events, status.runs.vaults, *parts)
    await served.listen(socket)
    yield HttpClient(socket)
    await served.close()


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[HttpClient]:
    async with serving(daemon(), tmp_path / "s") as it:
        yield it


async def get(client: HttpClient, route: ApiRoute[Any], **arguments: object) -> Any:
    """The client blocks; the daemon is in this thread."""
    return await asyncio.to_thread(client.get, route, arguments)


async def test_whom_it_tells(client: HttpClient):
    found = await get(client, routes.NOTIFY)
    assert wrong_answer(found, routes.NOTIFY) == []
    assert found == {"targets": []}
    with pytest.raises(NotFound, match="there is no notification 'phone'"):
        await asyncio.to_thread(client.post, routes.NOTIFY_TEST, {"target": "phone"})
    assert await asyncio.to_thread(client.post, routes.NOTIFY_TEST) == {"results": []}


async def test_the_status(client: HttpClient):
    found = await get(client, routes.STATUS)
    assert wrong_answer(found, routes.STATUS) == []
    assert [backup["name"] for backup in found["backups"]] == ["home"]


async def test_the_history(client: HttpClient):
    found = await get(client, routes.HISTORY, backup="home", limit=5)
    assert wrong_answer(found, routes.HISTORY) == []
    assert [run["id"] for run in found["runs"]] == ["r1"]
    with pytest.raises(NotFound, match="nope"):
        await get(client, routes.HISTORY, backup="nope")
    with pytest.raises(Refused, match="no number of runs"):
        await get(client, routes.HISTORY, limit="many")


async def test_the_history_of_a_name_is_of_the_vault_and_of_all_backups_that_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    vaults = {name: {"pool": name} for name in ("home", "cold")}
    backups = {"home": {"source": "tank", "vaults": ["home", "cold"]}}
    status, asked = made(tmp_path), list[Any]()
    data = resolve_templates({"vault": vaults, "backup": backups}).data
    status.context.env.reconfigure(Config.model_validate(data))
    monkeypatch.setattr(status.history, "runs", lambda names, _: asked.append(names) or [])
    async with serving(status, tmp_path / "s") as client:
        for name in ("home", "cold", "home@cold"):
            await get(client, routes.HISTORY, backup=name)
    assert asked == [["home", "home@home", "home@cold"], ["cold"], ["home@cold"]]


async def test_pages_of_the_list_are_of_one_backup_and_of_some_datasets(client: HttpClient):
    with pytest.raises(Refused, match="pages are of one backup"):
        await get(client, routes.LIST, limit=5)
    for limit in ("0", "many", "1234567", "-1"):
        with pytest.raises(Refused, match="no number of datasets"):
            await get(client, routes.LIST, backup="home", limit=limit)
    with pytest.raises(Refused, match="no number of datasets"):
        await get(client, routes.LIST, backup="home", after="tank")


async def test_the_events_of_a_run(client: HttpClient):
    runs = daemon().runs
    emit = runs.runner.emitter("r9", "home")
    emit(RunStarted(trigger="hand"))
    emit(MessageEvent(text="x" * 100_000))
    figures = {"bytes": 0, "datasets": 0, "sent": 0, "pruned": 0, "seconds": 0.0}
    emit(make_event("run-finished", trigger="hand", result="ok", **figures))
    heard = await asyncio.to_thread(lambda: list(client.events("r9")))
    assert [event.name for event in heard] == ["run-started", "message", "run-finished"]
    with pytest.raises(NotFound, match="no run 'r8'"):
        await asyncio.to_thread(lambda: list(client.events("r8")))


async def test_a_long_answer(client: HttpClient, monkeypatch: pytest.MonkeyPatch):
    """With follow=1 it tells how it goes, and ends with the route's document; without, that is all."""

    async def up(say: Callable[[str], None]) -> None:
        say("connecting")

    keeper = SimpleNamespace(name="cold", up=up)
    monkeypatch.setattr(type(daemon().runs.vaults), "__getitem__", lambda _, name: keeper)

    made = await asyncio.to_thread(vault)

    async def document(_: object) -> dict[str, Any]:
        return made

    monkeypatch.setattr(vaults_api, "make_vault_document", document)
    monkeypatch.setattr("zvault.daemon.api.access._peer_uid", lambda _: 0)

    def follow() -> tuple[list[str], Any]:
        said, telling = [], client.followed(routes.VAULT_UP, vault="cold", follow=1)
        while True:
            try:
                said.append(next(telling))
            except StopIteration as end:
                return said, end.value

    assert await asyncio.to_thread(follow) == (["connecting"], {"vault": made})
    answer = await asyncio.to_thread(lambda: client.post(routes.VAULT_UP, vault="cold"))
    assert answer == {"vault": made}


async def test_what_explains_a_dataset(client: HttpClient, monkeypatch: pytest.MonkeyPatch):
    """Its name goes into the path as one part, and comes out of it as it was."""
    asked: list[str] = []

    async def explained(_: object, knowledge: DaemonKnowledge, name: str) -> dict[str, Any]:
        asked.append(name)
        backup = knowledge.status.context.env.backup("home")
        last = knowledge.last_run(backup)
        assert last is not None
        assert (last["id"], knowledge.failed(last["id"], "tank/home"), knowledge.running(backup)) == (
            "r1",
            None,
            False,
        )
        assert [topic for topic, _ in knowledge.verdicts(backup)] == ["backup"]
        assert (knowledge.vault_seen(backup), knowledge.lags(backup)) == (None, None)
        return {"name": name, "at": 1.0, "uncovered": "", "accounts": []}

    monkeypatch.setattr("zvault.ops.explain.document.make_explain_document", explained)
    name = "tank/my files@a:b c%2F"
    found = await get(client, routes.EXPLAIN, name=name)
    assert wrong_answer(found, routes.EXPLAIN) == []
    assert (found["name"], asked) == (name, [name])


async def test_why_a_dataset_failed_and_a_damage_stays_is_in_the_events(client: HttpClient):
    status = daemon()
    emit = status.runs.runner.emitter("r7", "home")
    error: ErrorDocument = {"reason": "x", "what": "a", "why": "b", "next": "c"}
    emit(DatasetFailed(dataset="tank/home", error={**error, "what": "first"}, again=True))
    emit(DatasetFailed(dataset="tank/home", error=error, again=False))
    left: UnhealedDocument = {
        "dataset": "cold/a",
        "snapshot": "s",
        "file": "/f",
        "why": "nobody has it",
        "lost": True,
    }
    emit(HealedEvent(vault="cold", result="failed", found=1, healed=0, left=[left]))
    knowledge = DaemonKnowledge(status, [])
    assert knowledge.failed("r7", "tank/home") == error
    assert knowledge.failed("r7", "tank") is None
    assert knowledge.unhealed("cold", DamagedFile("cold/a", "s", "/f")) == "nobody has it"
    assert knowledge.unhealed("cold", DamagedFile("cold/a", "s", "/g")) == ""
    assert knowledge.unhealed("other", DamagedFile("cold/a", "s", "/f")) == ""
