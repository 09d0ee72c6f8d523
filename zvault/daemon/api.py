"""The daemon's API: HTTP and JSON on a unix socket. Group zvault may read, root may act."""

from __future__ import annotations

import contextlib
import grp
import json
import os
from pathlib import Path
from typing import Any

from aiohttp import web

from zvault.core.errors import NotFound, Refused
from zvault.daemon.api_care import CareApi
from zvault.daemon.api_proof import ProofApi
from zvault.daemon.api_vaults import VaultsApi
from zvault.daemon.caretaker import Caretaker
from zvault.daemon.events import Events
from zvault.daemon.guard import guard, json_object, may_act
from zvault.daemon.history import History
from zvault.daemon.journal import log
from zvault.daemon.proving import Proving
from zvault.daemon.runs import Runs
from zvault.daemon.status import Status
from zvault.ops.fit import fit_document
from zvault.ops.holds import find_keepsakes
from zvault.ops.preview import prune_document
from zvault.ops.report import list_document, plan_document
from zvault.ops.vault import Vaults

GROUP = "zvault"


class Api:
    """Routes requests to use cases; decides nothing itself."""

    def __init__(
        self,
        status: Status,
        runs: Runs,
        history: History,
        events: Events,
        vaults: Vaults,
        caretaker: Caretaker,
        proving: Proving,
    ) -> None:
        self.status = status
        self.runs = runs
        self.history = history
        self.events = events
        self.vaults = vaults
        self.caretaker = caretaker
        self.proving = proving
        self._runner: web.AppRunner | None = None

    def application(self) -> web.Application:
        """All routes."""
        app = web.Application(middlewares=[guard])
        app.add_routes(
            [
                *CareApi(self.caretaker).routes(),
                *ProofApi(self.proving).routes(),
                *VaultsApi(self.status, self.runs, self.vaults).routes(),
                web.get("/v1/status", self.get_status),
                web.get("/v1/list", self.get_list),
                web.get("/v1/plan/{backup}", self.get_plan),
                web.get("/v1/prune/{backup}", self.get_prune),
                web.get("/v1/holds", self.get_holds),
                web.get("/v1/fit/{backup}", self.get_fit),
                web.get("/v1/history", self.get_history),
                web.get("/v1/events", self.get_events),
                web.post("/v1/run/{backup}", self.post_run),
                web.post("/v1/prune/{backup}", self.post_prune),
                web.post("/v1/holds/reap", self.post_reap),
            ]
        )
        return app

    async def listen(self, path: Path) -> None:
        """Serve on the socket; one left by a daemon that died is replaced (the lock file keeps a second one out)."""
        _make_room(path)
        runner = web.AppRunner(self.application(), access_log=None, shutdown_timeout=2.0)
        await runner.setup()
        before = os.umask(0o177)
        try:
            await web.UnixSite(runner, str(path)).start()
        finally:
            os.umask(before)
        _let_the_group_in(path)
        self._runner = runner

    async def close(self) -> None:
        """Stop serving."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def get_status(self, _: web.Request) -> web.Response:
        """Everything at a glance."""
        return web.json_response(await self.status.document())

    async def get_list(self, request: web.Request) -> web.Response:
        """Datasets, and with ``snapshots=1`` their snapshots."""
        only = request.query.get("backup")
        snapshots = request.query.get("snapshots", "0") == "1"
        return web.json_response(
            await list_document(self.status.context, self.vaults, only, snapshots=snapshots)
        )

    async def get_plan(self, request: web.Request) -> web.Response:
        """What a run would do now."""
        name = request.match_info["backup"]
        context = self.status.context
        return web.json_response(await plan_document(context, self.vaults, name, bring_up=may_act(request)))

    async def get_prune(self, request: web.Request) -> web.Response:
        """What pruning would do now; with ``over_limit=1`` also what prune_limit holds back."""
        name, over_limit = request.match_info["backup"], request.query.get("over_limit") == "1"
        return web.json_response(
            await prune_document(
                self.status.context, self.vaults, name, bring_up=may_act(request), over_limit=over_limit
            )
        )

    async def get_holds(self, _: web.Request) -> web.Response:
        """zvault's holds and bookmarks on the sources."""
        found = await find_keepsakes(self.status.context, self.vaults)
        return web.json_response({"holds": [one.document() for one in found]})

    async def get_history(self, request: web.Request) -> web.Response:
        """Past runs, the newest first."""
        backup = request.query.get("backup")
        if backup is not None and backup not in self.status.context.config.vault:
            self.status.context.backup(backup)
        limit = request.query.get("limit", "20")
        if not limit.isdecimal():
            raise Refused(f"'{limit}' is no number of runs", "limit takes a whole number", "limit=20")
        return web.json_response({"runs": self.history.runs(backup, int(limit))})

    async def get_events(self, request: web.Request) -> web.StreamResponse:
        """Events as they happen, a JSON object a line."""
        run = request.query.get("run")
        if run is not None and not self.events.knows(run):
            raise NotFound(f"there is no run '{run}'", "it is not among the newest runs", "zvaultctl history")
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            async for event in self.events.follow(run):
                await response.write(json.dumps(event).encode() + b"\n")
            await response.write_eof()
        return response

    async def get_fit(self, request: web.Request) -> web.Response:
        """How a backup fits its vault's storage."""
        context = self.status.context
        return web.json_response(await fit_document(context, self.vaults, request.match_info["backup"]))

    async def post_run(self, request: web.Request) -> web.Response:
        """Start a run; with ``snapshot`` false one that makes none and sends what is there."""
        body = await json_object(request) if request.can_read_body else {}
        snapshot = body.get("snapshot") is not False
        run = self.runs.start(request.match_info["backup"], "hand", snapshot=snapshot)
        return web.json_response({"run": run})

    async def post_prune(self, request: web.Request) -> web.Response:
        """Start to prune."""
        body = await json_object(request)
        over_limit = body.get("over_limit") is True
        return web.json_response(
            {"run": self.runs.prune(request.match_info["backup"], over_limit=over_limit)}
        )

    async def post_reap(self, request: web.Request) -> web.Response:
        """Let go of orphans; with ``vault_guid`` of those made for that pool."""
        body: dict[str, Any] = await request.json()
        text = body.get("vault_guid")
        try:
            guid = None if text is None else int(str(text), 16)
        except ValueError:
            raise Refused(f"'{text}' is no GUID", "it takes hexadecimal digits", "zvaultctl holds") from None
        reaped = await self.runs.reap(guid)
        for one in reaped:
            log.info("reaped %s %s: %s", one.kind, one.name, one.reason)
        return web.json_response({"holds": [one.document() for one in reaped]})


def _make_room(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)


def _let_the_group_in(path: Path) -> None:
    """Group zvault may connect, where there is such a group."""
    with contextlib.suppress(KeyError):
        os.chown(path, 0, grp.getgrnam(GROUP).gr_gid)
    path.chmod(0o660)
