"""The API's part on looking into the past of a path: its versions, what differs, and sessions that stay open."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

from aiohttp import web

from zvault.api import routes
from zvault.api.browse import DiffDocument, PathPastDocument, SessionAnswer
from zvault.core.integrity.points import SIDE_NAMES
from zvault.daemon.api.access import MalformedRequest, read_json_object, read_needed_text, read_text
from zvault.daemon.api.handler import RouteHandler, make_handler
from zvault.daemon.api.streaming import Say, answer_with_progress
from zvault.daemon.journald import log
from zvault.daemon.monitors.verify_scheduler import VerifyScheduler
from zvault.ops.restore.browse_session import BrowseSessions
from zvault.ops.restore.list_path import parse_path
from zvault.ops.restore.open_both_sides import BothSides, LookRequest
from zvault.ops.restore.path_past import make_past_document
from zvault.ops.restore.snapshot_diff import find_common_dataset, make_diff_document


class BrowseApi:
    """Routes requests to use cases; decides nothing itself."""

    def __init__(self, verify_scheduler: VerifyScheduler) -> None:
        self.verify_scheduler = verify_scheduler
        self.sessions = BrowseSessions()

    def handlers(self) -> list[RouteHandler]:
        """Return the handlers of what it answers.

        All of it may bring a vault up and shows files, so all of it is for root.
        """
        return [
            make_handler(routes.BROWSE, self.post_browse),
            make_handler(routes.BROWSE_SESSION, self.post_session),
            make_handler(routes.DIFF, self.post_diff),
        ]

    async def post_browse(self, request: web.Request) -> web.StreamResponse:
        """The versions of a path."""
        body = await read_json_object(request)
        wanted, session = parse_look_request(body), read_text(body, "session")

        async def whole(say: Say) -> PathPastDocument:
            async with self._look(wanted, session, say) as (sides, path):
                return await make_past_document(sides, parse_path(path), say)

        return await answer_with_progress(request, whole, log.debug)

    async def post_diff(self, request: web.Request) -> web.StreamResponse:
        """Tell what differs between two snapshots."""
        body = await read_json_object(request)
        backup, old, new = (read_needed_text(body, key) for key in ("backup", "old", "new"))
        path, session = read_path(body), read_text(body, "session")
        dataset = find_common_dataset(self.verify_scheduler.context, backup, old, new)
        wanted = LookRequest(backup, path, None if path.startswith("/") else dataset)

        async def whole(say: Say) -> DiffDocument:
            async with self._look(wanted, session, say) as (sides, below):
                if sides.dataset != dataset:
                    raise MalformedRequest(
                        f"'{path}' is not in {dataset}", f"it is in {sides.dataset}", "name snapshots of that"
                    )
                return await make_diff_document(sides, (old, new), parse_path(below), say)

        return await answer_with_progress(request, whole, log.debug)

    async def post_session(self, request: web.Request) -> web.StreamResponse:
        """Keep a dataset open for as long as the client waits."""
        body = await read_json_object(request)
        wanted, name, scheduler = (
            parse_look_request(body),
            read_needed_text(body, "session"),
            self.verify_scheduler,
        )

        async def whole(say: Say) -> SessionAnswer:
            await self.sessions.keep(scheduler.context, scheduler.vaults, name, wanted, say)
            return {"session": name, "ended": "it was closed"}

        return await answer_with_progress(request, whole, log.debug)

    def _look(
        self, wanted: LookRequest, session: str | None, say: Say
    ) -> AbstractAsyncContextManager[tuple[BothSides, str]]:
        scheduler = self.verify_scheduler
        return self.sessions.look(scheduler.context, scheduler.vaults, wanted, session, say)


def parse_look_request(body: Mapping[str, object]) -> LookRequest:
    """A look as the API is asked for it; an empty path is a dataset's root. Raises Refused."""
    side = read_text(body, "side")
    if side is not None and side not in SIDE_NAMES:
        raise MalformedRequest(f"'{side}' is no side", f"it is one of {', '.join(SIDE_NAMES)}", "")
    if body.get("path") is None:
        raise MalformedRequest("'path' is missing in the request", "it is needed", "see the API's reference")
    return LookRequest(read_needed_text(body, "backup"), read_path(body), read_text(body, "dataset"), side)


def read_path(body: Mapping[str, object]) -> str:
    """A path, which may be empty: then it is the root of a dataset, as where there is none. Raises Refused."""
    return "" if body.get("path") == "" else read_text(body, "path") or ""
