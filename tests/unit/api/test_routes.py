"""The table of routes: each has one handler, nobody but root acts, and a call is the path that the daemon serves."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from zvault.api import routes
from zvault.api.routes import ROUTES, ApiRoute
from zvault.core.errors import Refused
from zvault.daemon.api import access
from zvault.daemon.api.server import Api
from zvault.daemon.connections import read_peer_groups


def api() -> Api:
    """It needs nothing to say what it serves."""
    parts: list[Any] = [SimpleNamespace() for _ in range(8)]
    return Api(*parts)


def test_each_route_has_one_handler_and_each_handler_a_route():
    served = [handler.route for handler in api().handlers()]
    names = {route: name for name, route in vars(routes).items() if isinstance(route, ApiRoute)}
    assert [names[route] for route in ROUTES if served.count(route) != 1] == []
    assert set(served) <= set(ROUTES)


def test_no_two_routes_are_one():
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES) == 42


def test_who_posts_acts():
    assert {(route.method, route.may) for route in ROUTES} == {
        ("GET", "read"),
        ("POST", "operate"),
        ("POST", "act"),
    }


def test_an_operator_starts_runs_and_scrubs_and_nothing_else():
    assert [route for route in ROUTES if route.may == "operate"] == [routes.RUN, routes.SCRUB]


def test_what_has_a_body_is_posted():
    assert [route.path for route in ROUTES if route.body is not None and route.method != "POST"] == []


def test_arguments_go_into_path_and_query():
    assert routes.STATUS.target({}) == "/v1/status"
    assert routes.DOCTOR.target({"vault": "a/b c", "seconds": 2.5}) == "/v1/doctor/a%2Fb%20c?seconds=2.5"
    assert routes.LIST.target({"backup": None, "snapshots": 1}) == "/v1/list?snapshots=1"


def test_a_name_of_any_bytes_can_be_asked_for():
    assert routes.PLAN.target({"backup": os.fsdecode(b"caf\xe9")}) == "/v1/plan/caf%E9"
    assert routes.LIST.target({"backup": os.fsdecode(b"caf\xe9")}) == "/v1/list?backup=caf%E9"


def test_an_empty_name_is_refused_and_asks_for_nothing_else():
    with pytest.raises(Refused, match="the name of the backup is empty"):
        routes.PLAN.target({"backup": ""})


@pytest.mark.parametrize("arguments", [{}, {"backup": "x"}, {"vault": "x", "second": 1}])
def test_a_call_with_other_arguments_is_a_defect(arguments: dict[str, object]):
    with pytest.raises(TypeError, match="/v1/doctor"):
        routes.DOCTOR.target(arguments)


async def asked(socket: Path, route: ApiRoute[Any]) -> tuple[int, dict[str, Any]]:
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session,
        session.request(
            route.method, f"http://zvaultd{route.path.format(backup='b', vault='v')}", json={}
        ) as answer,
    ):
        return answer.status, await answer.json()


OPERATORS, OTHERS = 7001, 7002


@pytest.mark.parametrize(
    ("group", "groups", "operates"),
    [
        (OPERATORS, {OPERATORS, OTHERS}, True),
        (OPERATORS, {OTHERS}, False),
        (OPERATORS, set(), False),
        (None, {OPERATORS, OTHERS}, False),
    ],
)
async def test_who_is_in_the_group_operates_and_does_not_act(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, group: int | None, groups: set[int], operates: bool
):
    def getgrnam(name: str) -> SimpleNamespace:
        assert name == "zvault-operator"
        if group is None:
            raise KeyError(name)
        return SimpleNamespace(gr_gid=group)

    monkeypatch.setattr(access, "_peer_uid", lambda _: 1000)
    monkeypatch.setattr(access, "_peer_groups", lambda _: frozenset(groups))
    monkeypatch.setattr(access, "grp", SimpleNamespace(getgrnam=getgrnam))
    served = api()
    await served.listen(tmp_path / "s")
    try:
        for route in ROUTES:
            status, answer = await asked(tmp_path / "s", route) if route.may != "read" else (0, {})
            if route.may == "act" or (route.may == "operate" and not operates):
                assert (status, answer["error"]["reason"]) == (403, "refused"), route.path
                assert "only root may do that" in answer["error"]["what"]
            elif route.may == "operate":
                assert status == 500, f"{route.path}: there is nothing behind this API that could do it"
    finally:
        await served.close()


async def test_the_kernel_tells_the_groups_of_who_connected(tmp_path: Path):
    told: list[frozenset[int]] = []

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told.append(read_peer_groups(writer.transport))
        writer.close()

    server = await asyncio.start_unix_server(serve, tmp_path / "s")
    async with server:
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        await reader.read()
        writer.close()
    assert told == [frozenset({os.getgid(), *os.getgroups()})]
    assert read_peer_groups(None) == frozenset()


async def test_only_root_acts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(access, "_peer_uid", lambda _: 1000)
    served = api()
    await served.listen(tmp_path / "s")
    try:
        for route in ROUTES:
            if route.may == "act":
                status, answer = await asked(tmp_path / "s", route)
                assert (status, answer["error"]["reason"]) == (403, "refused"), route.path
                assert "user 1000 asked" in answer["error"]["why"]
    finally:
        await served.close()


async def test_what_is_no_route_is_told_as_such(tmp_path: Path):
    served = api()
    await served.listen(tmp_path / "s")
    try:
        nowhere: ApiRoute[Any] = ApiRoute("POST", "/v1/nothing", dict, "", "act")
        status, answer = await asked(tmp_path / "s", nowhere)
        assert (status, answer["error"]["what"]) == (404, "POST /v1/nothing: Not Found")
    finally:
        await served.close()
