"""Bodies of requests to the API: each is served or refused, and none is an error that zvault does not know."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import strategies as st

from tests.unit.daemon.api.test_malformed import CONFIG, NoTools, call, well_told
from tests.unit.fuzz.mutation import mutated, seeds
from tests.unit.fuzz.target import MIB, target
from zvault.api import routes
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.daemon.assemble import assemble_daemon

POSTS = [route for route in routes.ROUTES if route.method == "POST"]
HEADS = ("", "Content-Type: application/json\r\n", "Content-Type: text/plain; charset=utf-16\r\n")
BODIES = mutated([*seeds("api_bodies"), b"{}"])
INPUTS = st.tuples(st.integers(0, len(POSTS) - 1), st.integers(0, len(HEADS) - 1), BODIES).map(
    lambda drawn: bytes(drawn[:2]) + drawn[2]
)


@pytest.fixture(autouse=True)
def no_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zvault.daemon.assemble.HostRunner", NoTools)
    monkeypatch.setattr("zvault.daemon.api.access._peer_uid", lambda _: 0)


async def answered(folder: Path, route: routes.ApiRoute, head: str, body: bytes) -> tuple[int, str]:
    daemon = assemble_daemon(Config.model_validate(CONFIG), Paths(folder, folder, folder, folder))
    await daemon.api.listen(folder / "s")
    try:
        path = route.path.replace("{backup}", "b").replace("{vault}", "cold")
        return await call(folder / "s", "POST", path, body, head)
    finally:
        for run in list(daemon.runs.runner.current.values()):
            run.task.cancel()
        await asyncio.sleep(0)
        await daemon.api.close()
        daemon.history.close()


@target(INPUTS, cap=32 * MIB)
def test_bodies(data: bytes) -> None:
    """Every route that takes a body."""
    with TemporaryDirectory() as folder:
        status, answer = asyncio.run(answered(Path(folder), POSTS[data[0]], HEADS[data[1]], data[2:]))
    assert status < 600
    assert well_told(status, answer), (POSTS[data[0]].path, status, answer)
    if status != 200:
        assert json.loads(answer.partition("\r\n\r\n")[2])["error"]["what"]
