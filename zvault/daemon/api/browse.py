"""The API's part on looking into the past of a path: its versions, what differs, and sessions that stay open."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

from aiohttp import web

from zvault.api import routes
from zvault.api.browse import DiffDocument, PastDocument, SessionAnswer
from zvault.core.integrity.points import SIDES
from zvault.daemon.api.access import Malformed, json_object, needed_text, text_of
from zvault.daemon.api.handler import Handler, handle
from zvault.daemon.api.streaming import Say, followed
from zvault.daemon.journald import log
from zvault.daemon.monitors.verify_scheduler import VerifyScheduler
from zvault.ops.restore.both_sides import BothSides, LookRequest
from zvault.ops.restore.folder import parse_path
from zvault.ops.restore.look_session import LookSessions
from zvault.ops.restore.past import past_document
from zvault.ops.restore.points_diff import dataset_of, diff_document


class BrowseApi:
    """Routes requests to use cases; decides nothing itself."""

    def __init__(self, verify_scheduler: VerifyScheduler) -> None:
        self.verify_scheduler = verify_scheduler
        self.sessions = LookSessions()

    def handlers(self) -> list[Handler]:
        """Return the handlers of what it answers.

        All of it may bring a vault up and shows files, so all of it is for root.
        """
        return [
            handle(routes.BROWSE, self.post_browse),
            handle(routes.BROWSE_SESSION, self.post_session),
            handle(routes.DIFF, self.post_diff),
        ]

    async def post_browse(self, request: web.Request) -> web.StreamResponse:
        """The versions of a path."""
        body = await json_object(request)
        wanted, session = look_request(body), text_of(body, "session")

        async def whole(say: Say) -> PastDocument:
            async with self._look(wanted, session, say) as (sides, path):
                return await past_document(sides, parse_path(path), say)

        return await followed(request, whole, log.debug)

    async def post_diff(self, request: web.Request) -> web.StreamResponse:
        """Tell what differs between two snapshots."""
        body = await json_object(request)
        backup, old, new = (needed_text(body, key) for key in ("backup", "old", "new"))
        path, session = path_of(body), text_of(body, "session")
        dataset = dataset_of(self.verify_scheduler.context, backup, old, new)
        wanted = LookRequest(backup, path, None if path.startswith("/") else dataset)

        async def whole(say: Say) -> DiffDocument:
            async with self._look(wanted, session, say) as (sides, below):
                if sides.dataset != dataset:
                    raise Malformed(
                        f"'{path}' is not in {dataset}", f"it is in {sides.dataset}", "name snapshots of that"
                    )
                return await diff_document(sides, (old, new), parse_path(below), say)

        return await followed(request, whole, log.debug)

    async def post_session(self, request: web.Request) -> web.StreamResponse:
        """Keep a dataset open for as long as the client waits."""
        body = await json_object(request)
        wanted, name, scheduler = look_request(body), needed_text(body, "session"), self.verify_scheduler

        async def whole(say: Say) -> SessionAnswer:
            await self.sessions.keep(scheduler.context, scheduler.vaults, name, wanted, say)
            return {"session": name, "ended": "it was closed"}

        return await followed(request, whole, log.debug)

    def _look(
        self, wanted: LookRequest, session: str | None, say: Say
    ) -> AbstractAsyncContextManager[tuple[BothSides, str]]:
        scheduler = self.verify_scheduler
        return self.sessions.look(scheduler.context, scheduler.vaults, wanted, session, say)


def look_request(body: Mapping[str, object]) -> LookRequest:
    """A look as the API is asked for it; an empty path is a dataset's root. Raises Refused."""
    side = text_of(body, "side")
    if side is not None and side not in SIDES:
        raise Malformed(f"'{side}' is no side", f"it is one of {', '.join(SIDES)}", "")
    if body.get("path") is None:
        raise Malformed("'path' is missing in the request", "it is needed", "see the API's reference")
    return LookRequest(needed_text(body, "backup"), path_of(body), text_of(body, "dataset"), side)


def path_of(body: Mapping[str, object]) -> str:
    """A path, which may be empty: then it is the root of a dataset, as where there is none. Raises Refused."""
    return "" if body.get("path") == "" else text_of(body, "path") or ""
