"""The pages, made in the process without rights from what zvaultd tells it: few questions, whoever asks how often."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import web

from zvault.daemon.page.renderer import LIVE_HEADERS, PageRenderer
from zvault.daemon.page.runbooks import Runbooks
from zvault.daemon.page.topics import PageTopic

ANSWER_LIFETIME = 1.0
"""Seconds for which an answer of zvaultd's is shown to others who ask for the same."""

REMEMBERED_ANSWERS = 64
"""Answers that are remembered for that long."""

ASKED_AT_ONCE = 8
"""Questions to zvaultd that wait for an answer; whoever wants another one then is turned away."""

LIVE_AT_ONCE = 8
"""Browsers that are told of changes at a time; others ask again now and then."""

LIVE_EVERY = 2.0
"""Seconds between changes that are told."""

WRITE_SECONDS = 10.0
"""Seconds in which a browser has to take what it is told; one that does not is cut off."""

LONGEST_NAME = 200

LONGEST_DATASET = 255
"""Bytes of a dataset's name (ZFS_MAX_DATASET_NAME_LEN, less its end)."""

_PAGE = re.compile(r"[0-9]{1,6}")
_MOUNT = re.compile(r"[0-9a-f]{1,32}")
_PATH = re.compile(r"[A-Za-z0-9_-]{0,8192}={0,2}")
_RUN = re.compile(r"[A-Za-z0-9_-]{1,64}")

AskPage = Callable[[PageTopic, str], Awaitable[bytes]]


class HoldsConnections(Protocol):
    """A bound on connections."""

    def allow(self, request: web.Request, seconds: float) -> None:
        """Let an answer take longer than others."""
        ...


@dataclass(slots=True)
class _Kept:
    at: float
    document: Any


class AskedAnswers:
    """The answers that zvaultd gave of late. A question that is under way already is not asked again."""

    def __init__(self, ask: AskPage) -> None:
        self._ask = ask
        self._kept: dict[tuple[PageTopic, str], _Kept] = {}
        self._asking: dict[tuple[PageTopic, str], asyncio.Task[Any]] = {}

    async def get(self, topic: PageTopic, subject: str = "") -> Any:
        """The document; None where there is none. Raises TimeoutError, ConnectionError, HTTPException."""
        key = topic, subject
        kept = self._kept.get(key)
        if kept is not None and time.monotonic() - kept.at < ANSWER_LIFETIME:
            return kept.document
        asking = self._asking.get(key)
        if asking is None:
            if len(self._asking) >= ASKED_AT_ONCE:
                raise web.HTTPServiceUnavailable(text="too much is asked for at this time\n")
            asking = self._asking[key] = asyncio.create_task(self._find(key))
            asking.add_done_callback(lambda task: task.cancelled() or task.exception())
        # Whoever leaves takes the answer from nobody else.
        return await asyncio.shield(asking)

    async def _find(self, key: tuple[PageTopic, str]) -> Any:
        try:
            text = await self._ask(*key)
        finally:
            del self._asking[key]
        if not text:
            raise web.HTTPInternalServerError(text="zvaultd cannot tell how it is: see its journal\n")
        now = time.monotonic()
        self._kept = {one: it for one, it in self._kept.items() if now - it.at < ANSWER_LIFETIME}
        found = _Kept(now, json.loads(text))
        if len(self._kept) < REMEMBERED_ANSWERS:
            self._kept[key] = found
        return found.document


class PageSite:
    """Answers requests for pages; ``routes`` are all that there are."""

    def __init__(
        self,
        zone: str,
        ask: AskPage,
        connections: HoldsConnections,
        live_seconds: float,
        *,
        files: bool = False,
    ) -> None:
        self._asked = AskedAnswers(ask)
        self._connections, self._live_seconds = connections, live_seconds
        self._runbooks = Runbooks.read()
        self._renderer = PageRenderer(zone, self._runbooks)
        self._live = 0
        self._closing = asyncio.Event()
        self._overview: tuple[Any, str, dict[str, str]] = (None, "", {})
        self.routes: Mapping[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
            "/": self._first,
            "/backup": self._backup,
            "/dataset": self._dataset,
            "/run": self._run,
            "/runbook": self._runbook,
            "/live": self._changes,
            "/page.css": self._file("page.css", "text/css"),
            "/page.js": self._file("page.js", "text/javascript"),
            "/icon.svg": self._file("icon.svg", "image/svg+xml"),
            **({"/files": self._files} if files else {}),
        }

    def _file(self, name: str, kind: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        text = self._renderer.file(name)

        async def answer(_: web.Request) -> web.StreamResponse:
            return web.Response(body=text, headers={"Content-Type": f"{kind}; charset=utf-8"})

        return answer

    async def _rendered(self) -> tuple[str, dict[str, str]]:
        """The first page, and its parts that change, made once for all who ask."""
        document = await self._asked.get(PageTopic.OVERVIEW)
        if self._overview[0] is not document:
            parts = self._renderer.parts(document)
            self._overview = document, self._renderer.overview(document, parts), parts
        return self._overview[1:]

    async def _first(self, _: web.Request) -> web.StreamResponse:
        page, _parts = await self._rendered()
        return _html(page)

    async def _backup(self, request: web.Request) -> web.StreamResponse:
        name, page = request.query.get("name", ""), request.query.get("page", "1")
        if not 0 < len(name.encode()) <= LONGEST_NAME or not _PAGE.fullmatch(page):
            raise web.HTTPNotFound(text="there is no such page\n")
        known = await self._asked.get(PageTopic.OVERVIEW)
        # Of names that anybody can make up zvaultd is not asked.
        if all(one["name"] != name for one in known["status"]["backups"]):
            raise web.HTTPNotFound(text="there is no such backup\n")
        found = await self._asked.get(PageTopic.BACKUP, f"{int(page)}:{name}")
        if found is None:
            raise web.HTTPNotFound(text="there is no such backup\n")
        return _html(self._renderer.backup(found))

    async def _dataset(self, request: web.Request) -> web.StreamResponse:
        query = request.query
        name, dataset, page = query.get("backup", ""), query.get("name", ""), query.get("page", "1")
        fits = all(0 < len(one.encode()) <= LONGEST_DATASET and "\0" not in one for one in (name, dataset))
        if not fits or not _PAGE.fullmatch(page):
            raise web.HTTPNotFound(text="there is no such page\n")
        found = await self._asked.get(PageTopic.DATASET, f"{int(page)}\0{name}\0{dataset}")
        if found is None:
            raise web.HTTPNotFound(
                text="there is no such dataset in a backup of that name, or nobody has listed it yet\n"
            )
        return _html(self._renderer.dataset(found))

    async def _files(self, request: web.Request) -> web.StreamResponse:
        query = request.query
        number, first, path = query.get("mount", ""), query.get("first", "0"), query.get("path", "")
        if not (_MOUNT.fullmatch(number) and _PAGE.fullmatch(first) and _PATH.fullmatch(path)):
            raise web.HTTPNotFound(text="there is no such page\n")
        # The same letters as in a link: no blank stands for a sign there.
        plain = path.replace("-", "+").replace("_", "/")
        found = await self._asked.get(PageTopic.FILES, f"{number}\0{int(first)}\0{plain}")
        if found is None:
            raise web.HTTPNotFound(text="no such snapshot is mounted, or not any more\n")
        return _html(self._renderer.files(found))

    async def _run(self, request: web.Request) -> web.StreamResponse:
        id = request.query.get("id", "")
        if not _RUN.fullmatch(id):
            raise web.HTTPNotFound(text="there is no such run\n")
        found = await self._asked.get(PageTopic.RUN, id)
        if found["run"] is None and found["lines"] is None:
            raise web.HTTPNotFound(text="there is no such run, or it is no longer remembered\n")
        return _html(self._renderer.run(found, id))

    async def _runbook(self, request: web.Request) -> web.StreamResponse:
        name = request.query.get("name", "")
        if name not in self._runbooks.texts:
            raise web.HTTPNotFound(text="there is no such runbook on this host\n")
        return _html(self._renderer.runbook(name))

    async def _changes(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events: what of the first page changed."""
        if self._live >= LIVE_AT_ONCE:
            raise web.HTTPServiceUnavailable(text="too many are told of changes already\n")
        self._live += 1
        try:
            return await self._tell(request)
        finally:
            self._live -= 1

    async def _tell(self, request: web.Request) -> web.StreamResponse:
        _, shown = await self._rendered()
        self._connections.allow(request, self._live_seconds + WRITE_SECONDS)
        response = web.StreamResponse(headers={**LIVE_HEADERS, "Content-Type": "text/event-stream"})
        response.force_close()
        await response.prepare(request)
        until = time.monotonic() + self._live_seconds
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await response.write(b"retry: 3000\n\n")
            changed: dict[str, str] = dict(shown)
            while time.monotonic() < until and not self._closing.is_set():
                # Also where nothing changed: else it would look as if nobody were there.
                async with asyncio.timeout(WRITE_SECONDS):
                    await response.write(f"data: {json.dumps(changed)}\n\n".encode())
                await asyncio.sleep(LIVE_EVERY)
                _, now = await self._rendered()
                changed = {name: text for name, text in now.items() if shown.get(name) != text}
                shown = now
        except (TimeoutError, ConnectionError, web.HTTPException):
            # zvaultd does not answer, or the browser does not read: it finds that it hears nothing.
            if request.transport is not None:
                request.transport.abort()
        return response

    def close(self) -> None:
        """End what is being told."""
        self._closing.set()


def _html(text: str) -> web.Response:
    return web.Response(text=text, content_type="text/html")
