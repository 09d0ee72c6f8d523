"""The page as its process without rights serves it, what zvaultd tells it, and requests over real sockets."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.unit.daemon.page.page_documents import (
    backup,
    backup_page,
    dataset_page,
    files_page,
    overview,
    run_page,
)
from tests.unit.daemon.web.clients import asked
from tests.unit.patience import PATIENCE
from zvault.daemon.page.topics import PageTopic
from zvault.daemon.web.server import WebServer

HEADERS = (
    "content-security-policy: default-src 'none'",
    "x-content-type-options: nosniff",
    "x-frame-options: deny",
    "cache-control: no-store",
    "referrer-policy: no-referrer",
)


class Told:
    """What zvaultd tells, and how often it was asked."""

    def __init__(self) -> None:
        self.asked: Counter[PageTopic] = Counter()
        self.subjects: list[str] = []
        self.document: Any = overview([backup(f"b{one}") for one in range(200)])

    def answers(self) -> dict[PageTopic, Any]:
        def tell(topic: PageTopic, subject: str) -> bytes:
            self.asked[topic] += 1
            self.subjects.append(subject)
            return self.text(topic, subject)

        return {topic: lambda subject, topic=topic: tell(topic, subject) for topic in PageTopic}

    def text(self, topic: PageTopic, subject: str) -> bytes:
        match topic:
            case PageTopic.METRICS:
                return b"zvault_up 1\n"
            case PageTopic.OVERVIEW:
                return json.dumps(self.document).encode()
            case PageTopic.BACKUP:
                return json.dumps(backup_page() if subject.endswith(":b1") else None).encode()
            case PageTopic.RUN:
                return json.dumps(run_page()).encode()
            case PageTopic.DATASET:
                return json.dumps(dataset_page() if subject == "1\0b1\0tank/a b" else None).encode()
            case PageTopic.FILES:
                return json.dumps(files_page() if subject.startswith("0a\0") else None).encode()


class Page(WebServer):
    def __init__(self) -> None:
        self.told = Told()
        self.firsts = itertools.count(20)
        """Of a folder's entries: what was asked for before is not asked of zvaultd again at once."""
        super().__init__(self.told.answers())

    async def serve(self, **settings: Any) -> None:
        await self.listen("127.0.0.1", 0, {"page": True, "zone": "UTC", **settings})


@pytest.fixture(name="server")
async def page_server() -> AsyncIterator[Page]:
    it = Page()
    await it.serve()
    yield it
    await it.close()


@pytest_asyncio.fixture(name="lasting", scope="module", loop_scope="module")
async def page_of_module() -> AsyncIterator[Page]:
    """One for many requests, each of which leaves it as it was."""
    it = Page()
    await it.serve()
    yield it
    await it.close()


@pytest_asyncio.fixture(name="with_files", scope="module", loop_scope="module")
async def page_with_files() -> AsyncIterator[Page]:
    """One for many requests, which lists files of mounted snapshots too."""
    it = Page()
    await it.serve(files=True)
    yield it
    await it.close()


async def ask(
    server: WebServer, target: str = "/", *lines: str, host: str = "localhost", method: str = "GET"
) -> bytes:
    head = "\r\n".join([f"{method} {target} HTTP/1.1", f"Host: {host}", *lines, "", ""])
    reader, writer = await asked(server.port, head.encode("latin-1"))
    try:
        return await asyncio.wait_for(reader.read(), PATIENCE)
    finally:
        writer.close()


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def whole(answer: bytes) -> bool:
    """Whether an answer has as many bytes as its head says."""
    head, _, body = answer.partition(b"\r\n\r\n")
    (length,) = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return len(body) == int(length.partition(b":")[2])
