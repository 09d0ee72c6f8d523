"""No call, however malformed, is answered with an error that zvault does not know, and none starts a run by mistake."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.examples import cases
from zvault.api import routes
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.errors import ToolMissing
from zvault.daemon.app import ZvaultDaemon
from zvault.daemon.assemble import assemble_daemon
from zvault.system.process.runner import HostRunner

CONFIG = {
    "vault": {"cold": {"pool": "cold"}},
    "backup": {"b": {"source": "tank", "vault": "cold"}},
}

ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(), max_size=8),
    st.sampled_from(
        [
            "\0",
            "a\0b",
            "\ud800",
            "\udc80",
            "/",
            "/tmp",
            "..",
            "b",
            "cold",
            "tank",
            "tank@",
            "@",
            "#",
            "x" * 9000,
            "full",
        ]
    ),
)
ANYTHING = st.recursive(
    ODD, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner)
)
KEYS = (
    *(
        "backup",
        "dataset",
        "snapshot",
        "to",
        "at",
        "recursive",
        "replace",
        "files",
        "overwrite",
        "compare",
        "vault_at",
        "level",
    ),
    *("pattern", "act", "over_limit", "vault_guid", "holders", "fenced_by_hand", "snapshot"),
)
BODY = st.one_of(
    ANYTHING.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(st.sampled_from(KEYS), ANYTHING).map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=40),
    st.sampled_from([b"", b"[" * 100_000, b'{"a":' * 50_000, b"9" * 10_000, b'"\xff"', b"{"]),
)
VALUE = st.one_of(
    st.sampled_from(
        ["", "b", "cold", "%00", "%ff", "%ed%a0%80", "1", "-1", "nan", "inf", "9" * 400, "9" * 5000, "²", "٣"]
    ),
    st.text("abc%0129.-_", max_size=6),
)


class NoTools(HostRunner):
    """A host on which nothing is installed."""

    async def run(self, argv: Any, **_: Any) -> Any:
        assert all("\0" not in word for word in argv)
        raise ToolMissing(f"{argv[0]} is not installed", "it was not found on PATH", "install it")

    async def pipeline(self, stages: Any, hear: Any = None, *, nobody: Any = ()) -> Any:
        raise ToolMissing(f"{stages[0][0]} is not installed", "it was not found on PATH", "install it")


@pytest.fixture
async def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[ZvaultDaemon, Path]]:
    monkeypatch.setattr("zvault.daemon.assemble.HostRunner", NoTools)
    monkeypatch.setattr("zvault.daemon.api.access._peer_uid", lambda _: 0)
    folder = tmp_path
    it = assemble_daemon(Config.model_validate(CONFIG), Paths(folder, folder, folder, folder))
    await it.api.listen(tmp_path / "s")
    yield it, tmp_path / "s"
    for run in list(it.runs.runner.current.values()):
        run.task.cancel()
    await asyncio.sleep(0)
    await it.api.close()
    it.history.close()


async def call(path: Path, method: str, target: str, body: bytes, head: str = "") -> tuple[int, str]:
    reader, writer = await asyncio.open_unix_connection(str(path))
    request = f"{method} {target} HTTP/1.0\r\nHost: x\r\nContent-Length: {len(body)}\r\n{head}\r\n"
    writer.write(request.encode("utf-8", "surrogateescape") + body)
    line = await asyncio.wait_for(reader.readline(), 20)
    try:
        rest = await asyncio.wait_for(reader.read(1 << 20), 20) if b" 200 " not in line else b""
    finally:
        writer.close()
    return int(line.split()[1]), rest.decode(errors="replace")


def well_told(status: int, answer: str) -> bool:
    return (
        "error it does not know" not in answer
        and "Traceback" not in answer
        and "Internal Server" not in answer
    )


QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@settings(max_examples=cases(150), deadline=None, suppress_health_check=QUIET)
@given(data=st.data())
async def test_no_call_meets_an_unknown_error(daemon: tuple[ZvaultDaemon, Path], data: st.DataObject):
    _, path = daemon
    route = data.draw(st.sampled_from([one for one in routes.ROUTES if one is not routes.EVENTS]))
    target = route.path
    for name in ("backup", "vault"):
        target = target.replace(
            f"{{{name}}}", data.draw(st.sampled_from(["b", "cold", "x", "%00", "%ed%a0%80", "a%2fb"]))
        )
    query = (
        {name: data.draw(VALUE) for name in data.draw(st.sets(st.sampled_from(sorted(route.query))))}
        if route.query
        else {}
    )
    if route is routes.DOCTOR:
        query["seconds"] = data.draw(st.sampled_from(["0", "nan", "x", "-1", "9" * 400]))
    target += "?" + "&".join(f"{name}={value}" for name, value in query.items()) if query else ""
    kind = data.draw(
        st.sampled_from(["", "Content-Type: application/json\r\n", "Content-Type: a/b; charset=nope\r\n"])
    )
    status, answer = await call(path, route.method, target, data.draw(BODY), kind)
    assert well_told(status, answer), (route.path, status, answer)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"backup": "b"},
        {"backup": "b", "dataset": "tank"},
        {"backup": "b", "to": "tank/x"},
        {"backup": "b", "dataset": "", "to": ""},
        {"backup": "b", "dataset": "tank", "to": "tank/x", "snapshot": ""},
    ],
)
async def test_a_restore_of_nothing_starts_no_run(daemon: tuple[ZvaultDaemon, Path], body: dict[str, str]):
    it, path = daemon
    status, answer = await call(path, "POST", "/v1/restore", json.dumps(body).encode())
    assert status == 400
    assert "is missing in the request" in answer or "is empty" in answer
    assert not it.runs.runner.current


@pytest.mark.parametrize(
    ("method", "target", "body", "expected"),
    [
        ("GET", "/v1/history?limit=" + "9" * 30, b"", 400),
        ("POST", "/v1/vaults/cold/scrub", b'{"act": []}', 400),
        (
            "POST",
            "/v1/restore/plan",
            b'{"backup":"b","dataset":"tank","to":"/tmp","files":["a\\u0000b"]}',
            400,
        ),
        ("POST", "/v1/restore/plan", b'{"backup":"b","dataset":"tank","to":"/tmp","files":[{}]}', 400),
        ("POST", "/v1/restore/plan", b'{"backup":"b","dataset":"tank","to":"x","at":NaN}', 400),
        ("POST", "/v1/restore/plan", b'{"backup":"b","dataset":"tank","to":"x","vault_at":"then"}', 400),
        ("POST", "/v1/vaults/cold/past/open", b"{}", 400),
        ("POST", "/v1/vaults/cold/past/open", b'{"at":1e300}', 400),
        ("POST", "/v1/vaults/cold/past/close", b'{"at":true}', 400),
        ("POST", "/v1/find", b'{"backup":"b","pattern":"\\ud800"}', 400),
        ("POST", "/v1/holds/reap", b'{"vault_guid":"-1"}', 400),
        ("POST", "/v1/restore", b"[" * 100_000, 400),
        ("POST", "/v1/restore", b"\xff", 400),
    ],
)
async def test_malformed_calls(
    daemon: tuple[ZvaultDaemon, Path], method: str, target: str, body: bytes, expected: int
):
    status, answer = await call(daemon[1], method, target, body)
    assert (status, well_told(status, answer)) == (expected, True), answer


async def test_a_body_that_is_too_large_is_not_taken(daemon: tuple[ZvaultDaemon, Path]):
    body = json.dumps({"backup": "b" * (3 << 19)}).encode()
    status, _ = await call(daemon[1], "POST", "/v1/find", body)
    assert status == 413
