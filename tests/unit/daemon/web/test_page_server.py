"""The page over real sockets, from the real process without rights: many clients, slow ones, and such as cheat."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.unit.daemon.page.page_documents import (
    files_page,
    overview,
)
from tests.unit.daemon.web.clients import asked
from tests.unit.daemon.web.page_served import (
    HEADERS,
    Page,
    ask,
    page_of_module,  # noqa: F401
    page_server,  # noqa: F401
    page_with_files,  # noqa: F401
    status,
    whole,
)
from tests.unit.patience import PATIENCE
from zvault.daemon.page.topics import PageTopic
from zvault.daemon.web.login import seal_login
from zvault.daemon.web.server import WebServer

OF_MODULE = pytest.mark.asyncio(loop_scope="module")
"""As ``lasting`` is."""


async def test_each_page_is_there_with_its_headers(server: Page):
    for target in (
        "/",
        "/backup?name=b1",
        "/dataset?backup=b1&name=tank/a%20b",
        "/run?id=20261121T135202-a001",
        "/runbook?name=ZvaultBackupLate",
    ):
        answer = await ask(server, target)
        assert status(answer) == 200, target
        assert b"<!DOCTYPE html>" in answer
        head = answer.partition(b"\r\n\r\n")[0].decode().lower()
        assert all(one in head for one in HEADERS), head
        assert "aiohttp" not in head
    for target, kind in (
        ("/page.css", b"text/css"),
        ("/page.js", b"text/javascript"),
        ("/icon.svg", b"image/svg+xml"),
    ):
        answer = await ask(server, target)
        assert (status(answer), kind in answer) == (200, True)
    assert status(await ask(server, method="HEAD")) == 200
    assert b"zvault_up 1" in await ask(server, "/metrics")


@OF_MODULE
@pytest.mark.parametrize(
    "target",
    [
        "/..", "/../etc/passwd", "//", "//metrics", "/%2e%2e/metrics", "/%6detrics", "/page.css/",
        "/page.css/../page.js", "/page.css%00", "/./page.css",
        "/metrics/", "/static/../page.css", "/base.html", "/overview.html", "/PAGE.CSS",
        "/runbook?name=../../../etc/passwd", "/runbook?name=", "/backup?name=../b1", "/backup?name=nobody", "/backup",
        "/backup?name=b1&page=-1", "/backup?name=b1&page=1e9", "/backup?name=" + "b" * 3000, "/run?id=../../x", "/run",
        "/dataset", "/dataset?backup=b1&name=none", "/dataset?backup=b1&name=tank%00x",
        "/dataset?backup=b1&name=tank/..",
        "/dataset?backup=b1&name=tank/a%20b&page=-1", "/dataset?backup=b1&name=" + "x" * 300,
        "/files?mount=0a",
        "http://localhost/page.css", "*", "/" + "x" * 4000,
    ],
)  # fmt: skip
async def test_whatever_is_no_page_is_not_found(lasting: Page, target: str):
    answer = await ask(lasting, target)
    assert status(answer) in (400, 404), answer
    assert b"root:" not in answer
    assert b"Traceback" not in answer


@OF_MODULE
@pytest.mark.parametrize(
    "query",
    [
        "", "mount=0b", "mount=../0a", "mount=0a%00", "mount=0a&first=-1", "mount=0a&first=1e9", "mount=0a&path=../..",
        "mount=0a&path=%2e%2e", "mount=0a&path=YQ%3D%3D%3D", "mount=0a&path=" + "Y" * 8500,
    ],
)  # fmt: skip
async def test_files_are_asked_for_by_a_mounts_number_and_a_path_in_base64(with_files: Page, query: str):
    assert status(await ask(with_files, f"/files?{query}")) in (400, 404)
    first = next(with_files.firsts)
    answer = await ask(with_files, f"/files?mount=0a&first={first}&path=Li4_Li4-")
    assert status(answer) == 200
    assert with_files.told.subjects[-1] == f"0a\0{first}\0Li4/Li4+"


async def test_what_takes_long_to_tell_keeps_nobody_else_waiting():
    server, begun, go_on = Page(), asyncio.Event(), asyncio.Event()

    async def slow(_: str) -> bytes:
        begun.set()
        await go_on.wait()
        return json.dumps(files_page()).encode()

    server.answers = {**server.answers, PageTopic.FILES: slow}
    await server.serve(files=True)
    try:
        waiting = asyncio.create_task(ask(server, "/files?mount=0a"))
        await begun.wait()
        assert status(await ask(server)) == 200
        assert not waiting.done()
        go_on.set()
        assert status(await waiting) == 200
    finally:
        await server.close()


async def test_nothing_can_be_changed(server: Page):
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
        assert status(await ask(server, method=method)) == 405, method


@OF_MODULE
@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "evil.example:9712", "10.0.0.1", ""]
)
async def test_a_foreign_name_gets_nothing_and_costs_zvaultd_nothing(lasting: Page, host: str):
    lasting.told.asked.clear()
    for target in ("/", "/live", "/metrics", "/backup?name=b1"):
        assert status(await ask(lasting, target, host=host)) == 403
    assert not lasting.told.asked


async def test_another_sites_page_may_lead_here_but_not_read(server: Page):
    for target in ("/", "/live"):
        answer = await ask(server, target, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors")
        assert status(answer) == 403
    assert status(await ask(server, "/", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate")) == 200


async def test_two_hundred_clients_at_once_are_answered_or_told_and_ask_zvaultd_a_few_times(server: Page):
    async def one() -> str:
        try:
            answer = await ask(server)
        except (ConnectionError, TimeoutError):
            return "turned away"
        if not answer:
            return "turned away"
        assert whole(answer)
        return str(status(answer))

    began = time.monotonic()
    got = Counter(await asyncio.gather(*(one() for _ in range(200))))
    seconds = time.monotonic() - began
    assert set(got) <= {"200", "503", "turned away"}, got
    assert got["200"] >= 100, got
    # One question a second, however many ask.
    assert server.told.asked[PageTopic.OVERVIEW] <= seconds + 2
    assert status(await ask(server)) == 200


async def test_who_reads_slowly_or_says_nothing_keeps_nobody_out(server: Page):
    slow = []
    for number in range(200):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1)
        if number % 2:
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        slow.append((reader, writer))
    try:
        for target in ("/", "/metrics"):
            assert status(await ask(server, target)) == 200
    finally:
        for _, writer in slow:
            writer.transport.abort()
    assert status(await ask(server)) == 200


async def test_live_changes_are_told_to_a_few_and_the_others_still_get_the_page(server: Page):
    listening = []
    for _ in range(12):
        reader, writer = await asked(server.port, b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        listening.append((status(head), reader, writer))
    try:
        assert Counter(code for code, _, _ in listening) == {200: 8, 503: 4}
        assert status(await ask(server)) == 200
        assert status(await ask(server, "/metrics")) == 200
        _, reader, _ = listening[0]
        await until_line(reader, "all is well")
        server.told.document = overview([], [])
        changes = await until_line(reader, "nothing is configured")
        assert set(changes) <= {"state", "needs", "running", "backups", "vaults", "title"}
        # That it is still there is told as well.
        assert await until_line(reader, "{}") == {}
        # Once for all of them, every two seconds.
        before, began = server.told.asked[PageTopic.OVERVIEW], time.monotonic()
        await asyncio.sleep(4)
        assert server.told.asked[PageTopic.OVERVIEW] - before <= (time.monotonic() - began) / 2 + 3
    finally:
        for _, _, writer in listening:
            writer.transport.abort()
    # Places become free again.
    async with asyncio.timeout(PATIENCE):
        while status(await first_line(server)) != 200:
            await asyncio.sleep(0.2)


async def first_line(server: WebServer) -> bytes:
    reader, writer = await asked(server.port, b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
    try:
        return await asyncio.wait_for(reader.readline(), PATIENCE)
    finally:
        writer.transport.abort()


async def until_line(reader: asyncio.StreamReader, text: str) -> dict[str, str]:
    async with asyncio.timeout(PATIENCE):
        while True:
            line = await _long_line(reader)
            if line.startswith("data: ") and text in line:
                found: dict[str, str] = json.loads(line.removeprefix("data: "))
                return found


async def _long_line(reader: asyncio.StreamReader) -> str:
    """A line of a chunked answer, however long."""
    found = b""
    while not found.endswith(b"\n"):
        try:
            found += await reader.readuntil(b"\n")
        except asyncio.LimitOverrunError as error:
            found += await reader.readexactly(error.consumed)
    return found.decode()


async def test_names_that_are_made_up_are_not_asked_of_zvaultd(server: Page):
    await asyncio.gather(*(ask(server, f"/backup?name=x{one}") for one in range(20)))
    assert server.told.asked[PageTopic.BACKUP] == 0
    await ask(server, "/backup?name=b1&page=000007")
    assert server.told.subjects[-1] == "7:b1"


async def test_while_zvaultd_cannot_tell_the_page_says_so(server: Page):
    server.told.document = object()  # it is not to be told as JSON
    assert status(await ask(server)) == 500
    server.told.document = overview()
    assert status(await ask(server)) == 200


async def test_it_has_no_rights_and_its_password_stands_in_no_argument():
    it = Page()
    await it.serve(login=seal_login("admin", "S3CRET"))
    try:
        assert status(await ask(it)) == 401
        assert it.process is not None
        there = Path(f"/proc/{it.process.pid}")
        assert (
            b"S3CRET" not in there.joinpath("cmdline").read_bytes() + there.joinpath("environ").read_bytes()
        )
        told = there.joinpath("status").read_text()
        assert "CapEff:\t0000000000000000" in told
    finally:
        await it.close()


def basic(text: str) -> str:
    return f"Authorization: Basic {base64.b64encode(text.encode()).decode()}"


async def test_who_has_the_password_is_let_in_and_who_guesses_is_shut_out():
    it = Page()
    await it.serve(login=seal_login("admin", "pass:wörd"))
    try:
        assert status(await ask(it, "/", basic("admin:pass:wörd"))) == 200
        answer = await ask(it, "/")
        assert (status(answer), b'WWW-Authenticate: Basic realm="zvault"' in answer) == (401, True)
        for line in (
            "Authorization: Basic ???",
            "Authorization: Bearer x",
            basic("admin"),
            "Authorization: Basic",
        ):
            assert status(await ask(it, "/backup?name=b1", line)) == 401
        for target in ("/page.css", "/live", "/runbook?name=ZvaultBackupLate", "/run?id=x"):
            assert status(await ask(it, target)) == 401
        assert it.told.asked == {PageTopic.OVERVIEW: 1}
        # Metrics are as open as before.
        assert status(await ask(it, "/metrics")) == 200
        codes = [status(await ask(it, "/", basic(f"admin:{guess}"))) for guess in range(10)]
        assert codes[:5] == [401] * 5
        assert codes[-1] == 429
        # Also for the right one, so that nobody finds out by asking on.
        assert status(await ask(it, "/", basic("admin:pass:wörd"))) == 429
    finally:
        await it.close()


async def test_a_proxys_header_is_believed_from_its_address_only():
    for proxies, expected in ((["127.0.0.1"], 200), (["10.0.0.2"], 403)):
        it = Page()
        await it.serve(header="X-Remote-User", proxies=proxies, hosts=["zvault.example.org"])
        try:
            assert status(await ask(it, "/", "X-Remote-User: me", host="zvault.example.org")) == expected
            assert status(await ask(it, "/")) == 403
            assert status(await ask(it, "/", "X-Remote-User: ")) == 403
            assert status(await ask(it, "/", "X-Remote-User: a", "X-Remote-User: b")) == 403
            assert status(await ask(it, "/", "X-Remote-User: me", host="other.example.org")) == 403
        finally:
            await it.close()


async def test_an_address_for_metrics_alone_has_no_page():
    it = Page()
    await it.listen("127.0.0.1", 0, {})
    try:
        assert status(await ask(it)) == 404
        assert status(await ask(it, "/metrics")) == 200
    finally:
        await it.close()
