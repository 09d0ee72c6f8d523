"""The daemon's API: HTTP and JSON on a unix socket. Group zvault may read, root may act.

What makes an answer that is seldom asked for is imported when it is: most daemons never need it.
"""

from __future__ import annotations

import asyncio
import contextlib
import grp
import json
import os
import re
from pathlib import Path

from aiohttp import web

from zvault.api import routes
from zvault.api.answers import StartedAnswer
from zvault.api.backups import ForecastDocument, HoldsAnswer, ListAnswer, PlanDocument, PruneDocument
from zvault.api.diagnosis import FitDocument
from zvault.api.events import make_event_document
from zvault.api.explain import ExplainDocument
from zvault.api.runs import HistoryAnswer
from zvault.api.status import StatusDocument
from zvault.core.errors import NotFound
from zvault.daemon.api.access import (
    MalformedRequest,
    guard_request,
    is_allowed_to_act,
    read_json_object,
    read_text,
)
from zvault.daemon.api.browse import BrowseApi
from zvault.daemon.api.handler import RouteHandler, make_handler
from zvault.daemon.api.notify import NotifyApi
from zvault.daemon.api.restore_verify import RestoreVerifyApi
from zvault.daemon.api.scrub_heal import ScrubHealApi
from zvault.daemon.api.vaults import VaultsApi
from zvault.daemon.backup_runs import BackupRuns
from zvault.daemon.connections import LISTEN_BACKLOG, REQUEST_BYTES, ClientConnections, ConnectionLimits
from zvault.daemon.event_publisher import EventPublisher
from zvault.daemon.history import RunHistory
from zvault.daemon.journald import log
from zvault.daemon.monitors.scrub_heal_scheduler import ScrubHealScheduler
from zvault.daemon.monitors.verify_scheduler import VerifyScheduler
from zvault.daemon.notify.notifier import Notifier
from zvault.daemon.status import DaemonStatus
from zvault.ops.list_documents import DatasetPagePart, make_list_document
from zvault.ops.plan_documents import make_plan_document
from zvault.ops.vaults.vault import Vaults

READER_GROUP = "zvault"

MOST_DIGITS = 6
"""Digits of the number of runs, or datasets, that are asked for."""

GUID_PATTERN = re.compile(r"[0-9a-fA-F]{1,16}")

API_LIMITS = ConnectionLimits(total=256, idle=15.0, user=32, users=128)
"""Whatever members of group zvault do, root gets in."""


class Api:
    """Routes requests to use cases; decides nothing itself."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of the daemon
        self,
        status: DaemonStatus,
        runs: BackupRuns,
        history: RunHistory,
        events: EventPublisher,
        vaults: Vaults,
        scrub_heal_scheduler: ScrubHealScheduler,
        verify_scheduler: VerifyScheduler,
        notifier: Notifier,
    ) -> None:
        self.status = status
        self.runs = runs
        self.history = history
        self.events = events
        self.vaults = vaults
        self.scrub_heal_scheduler = scrub_heal_scheduler
        self.verify_scheduler = verify_scheduler
        self.notifier = notifier
        self.browse = BrowseApi(verify_scheduler)
        self.connections = ClientConnections(API_LIMITS)
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None

    def application(self) -> web.Application:
        """Make the application with all routes."""
        app = web.Application(
            middlewares=[self.connections.middleware, guard_request], client_max_size=REQUEST_BYTES
        )
        for handler in self.handlers():
            app.router.add_route(handler.route.method, handler.route.path, handler.serve)
        return app

    def handlers(self) -> list[RouteHandler]:
        """A handler for each route of zvault/api/routes.py."""
        return [
            *ScrubHealApi(self.scrub_heal_scheduler).handlers(),
            *NotifyApi(self.notifier).handlers(),
            *RestoreVerifyApi(self.verify_scheduler).handlers(),
            *self.browse.handlers(),
            *VaultsApi(self.status, self.runs, self.vaults).handlers(),
            make_handler(routes.STATUS, self.get_status),
            make_handler(routes.LIST, self.get_list),
            make_handler(routes.PLAN, self.get_plan),
            make_handler(routes.FORECAST, self.get_forecast),
            make_handler(routes.PRUNE_PLAN, self.get_prune),
            make_handler(routes.HOLDS, self.get_holds),
            make_handler(routes.EXPLAIN, self.get_explain),
            make_handler(routes.FIT, self.get_fit),
            make_handler(routes.HISTORY, self.get_history),
            make_handler(routes.EVENTS, self.get_events),
            make_handler(routes.RUN, self.post_run),
            make_handler(routes.PRUNE, self.post_prune),
            make_handler(routes.REAP, self.post_reap),
        ]

    async def listen(self, path: Path) -> None:
        """Serve on the socket; one left by a daemon that died is replaced (the lock file keeps a second one out)."""
        _make_room(path)
        runner = web.AppRunner(self.application(), access_log=None, shutdown_timeout=2.0)
        await runner.setup()
        assert runner.server is not None  # noqa: S101 - made by setup
        factory = self.connections.guarded(runner.server)
        before = os.umask(0o177)
        try:
            self._server = await asyncio.get_running_loop().create_unix_server(
                factory, str(path), backlog=LISTEN_BACKLOG
            )
        finally:
            os.umask(before)
        _let_the_group_in(path)
        self._runner = runner

    async def close(self) -> None:
        """Stop serving and remove what listens."""
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def get_status(self, _: web.Request) -> StatusDocument:
        """Everything at a glance."""
        return await self.status.document()

    async def get_list(self, request: web.Request) -> ListAnswer:
        """Datasets, and with ``snapshots=1`` their snapshots."""
        only = request.query.get("backup")
        snapshots = request.query.get("snapshots", "0") == "1"
        page = _page(request.query.get("limit"), request.query.get("after"), only)
        from zvault.daemon.daemon_knowledge import DaemonKnowledge

        knowledge = DaemonKnowledge(self.status, ())
        return await make_list_document(
            self.status.context, self.vaults, only, snapshots=snapshots, page=page, lags_before=knowledge.lags
        )

    async def get_plan(self, request: web.Request) -> PlanDocument:
        """Tell what a run would do now."""
        context = self.status.context
        backup = context.env.backup(request.match_info["backup"])
        return await make_plan_document(context, self.vaults, backup, bring_up=is_allowed_to_act(request))

    async def get_forecast(self, request: web.Request) -> ForecastDocument:
        """Tell what a run that began now would do; with ``snapshot=0`` one that makes none."""
        from zvault.ops.forecast import make_forecast_document

        context = self.status.context
        backup = context.env.backup(request.match_info["backup"])
        snapshot = request.query.get("snapshot") != "0"
        refused = self.runs.refusal(backup.name)
        return await make_forecast_document(context, backup, snapshot=snapshot, refused=refused)

    async def get_prune(self, request: web.Request) -> PruneDocument:
        """Tell what pruning would do now; with ``over_limit=1`` also what prune_limit holds back."""
        from zvault.ops.retention.prune_report import make_prune_document

        context, over_limit = self.status.context, request.query.get("over_limit") == "1"
        backup = context.env.backup(request.match_info["backup"])
        return await make_prune_document(
            context, self.vaults, backup, bring_up=is_allowed_to_act(request), over_limit=over_limit
        )

    async def get_holds(self, _: web.Request) -> HoldsAnswer:
        """zvault's holds and bookmarks on the sources."""
        from zvault.ops.retention.holds import find_keepsakes

        found, unknown = await find_keepsakes(self.status.context, self.vaults)
        return {"holds": [one.document() for one in found], "unknown": unknown}

    async def get_history(self, request: web.Request) -> HistoryAnswer:
        """Past runs, the newest first."""
        backup, env = request.query.get("backup"), self.status.context.env
        names = None
        if backup in env.config.vault:
            names = [backup, *env.config.list_names_of(backup)]  # a vault and a backup may have one name
        elif backup is not None:
            names = [one.name for one in env.list_backups_of(backup)]
        limit = request.query.get("limit", "20")
        if not (limit.isdecimal() and len(limit) <= MOST_DIGITS):
            raise MalformedRequest(
                f"'{limit}' is no number of runs", "limit takes a whole number", "limit=20"
            )
        return {"runs": self.history.runs(names, int(limit))}

    async def get_events(self, request: web.Request) -> web.StreamResponse:
        """Events as they happen, a JSON object a line."""
        run = request.query.get("run")
        if run is not None and not self.events.knows(run):
            raise NotFound(f"there is no run '{run}'", "it is not among the newest runs", "zvaultctl history")
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            async for event in self.events.follow(run):
                await response.write(json.dumps(make_event_document(event)).encode() + b"\n")
            await response.write_eof()
        return response

    async def get_explain(self, request: web.Request) -> ExplainDocument:
        """Why a dataset or snapshot is as it is."""
        from zvault.daemon.daemon_knowledge import DaemonKnowledge
        from zvault.ops.explain.document import make_explain_document

        knowledge = DaemonKnowledge(self.status, await self.status.vault_monitor.documents())
        return await make_explain_document(self.status.context, knowledge, request.match_info["name"])

    async def get_fit(self, request: web.Request) -> FitDocument:
        """Tell how a backup fits its vault's storage."""
        from zvault.ops.diagnosis.fit import make_fit_document

        context = self.status.context
        backup = context.env.backup(request.match_info["backup"])
        return await make_fit_document(context, self.vaults, backup)

    async def post_run(self, request: web.Request) -> StartedAnswer:
        """Start a run; with ``snapshot`` false one that makes none and sends what is there. With ``all_vaults`` one
        into each vault of a backup.
        """
        body = await read_json_object(request) if request.can_read_body else {}
        backup, snapshot = request.match_info["backup"], body.get("snapshot") is not False
        if body.get("all_vaults") is True:
            return self.runs.start_all(backup, snapshot=snapshot)
        return {"run": self.runs.start(backup, "hand", snapshot=snapshot)}

    async def post_prune(self, request: web.Request) -> StartedAnswer:
        """Start to prune a backup; the answer is the run's id."""
        body = await read_json_object(request)
        over_limit = body.get("over_limit") is True
        return {"run": self.runs.prune(request.match_info["backup"], over_limit=over_limit)}

    async def post_reap(self, request: web.Request) -> HoldsAnswer:
        """Release orphans; with ``vault_guid`` of those made for that pool."""
        body = await read_json_object(request)
        text = read_text(body, "vault_guid")
        if text is not None and not GUID_PATTERN.fullmatch(text):
            raise MalformedRequest(f"'{text}' is no GUID", "it takes hexadecimal digits", "zvaultctl holds")
        guid = None if text is None else int(text, 16)
        reaped = await self.runs.reap(guid)
        for one in reaped:
            log.info("reaped %s %s: %s", one.kind, one.name, one.reason)
        return {"holds": [one.document() for one in reaped]}


def _page(limit: str | None, after: str | None, backup: str | None) -> DatasetPagePart | None:
    """The page that is asked for, None for all. Raises MalformedRequest."""
    if limit is None and after is None:
        return None
    if backup is None:
        raise MalformedRequest("pages are of one backup", "there is no backup=NAME", "backup=NAME&limit=1000")
    if limit is None or not (limit.isdecimal() and 0 < len(limit) <= MOST_DIGITS and int(limit)):
        raise MalformedRequest(
            f"'{limit or ''}' is no number of datasets", "limit takes a whole number above 0", "limit=1000"
        )
    return DatasetPagePart(int(limit), after or "")


def _make_room(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)


def _let_the_group_in(path: Path) -> None:
    """Group zvault may connect, where there is such a group."""
    with contextlib.suppress(KeyError):
        os.chown(path, 0, grp.getgrnam(READER_GROUP).gr_gid)
    path.chmod(0o660)
