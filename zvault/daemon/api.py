"""The daemon's API: HTTP and JSON on a unix socket. Group zvault may read, root may act."""

from __future__ import annotations

import contextlib
import grp
import json
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from zvault.core.errors import Busy, ConfigError, NotFound, Refused, ZvaultError
from zvault.daemon.events import Events
from zvault.daemon.following import Document, Say, followed
from zvault.daemon.history import History
from zvault.daemon.journal import log
from zvault.daemon.runs import Runs, unexpected
from zvault.daemon.status import Status
from zvault.ops.creation import creation_document
from zvault.ops.doctor import doctor_document, watched_for
from zvault.ops.fit import fit_document
from zvault.ops.holds import find_keepsakes
from zvault.ops.measure import measure, refuse_unless_auto
from zvault.ops.preview import prune_document
from zvault.ops.report import list_document, plan_document, vault_document
from zvault.ops.restore import Request
from zvault.ops.tune_show import measured_document, tuning_document
from zvault.ops.vault import Keeper, Vaults

GROUP = "zvault"
HTTP_STATUS = {NotFound: 404, Busy: 409, Refused: 403, ConfigError: 400}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Api:
    """Routes requests to use cases; decides nothing itself."""

    def __init__(self, status: Status, runs: Runs, history: History, events: Events, vaults: Vaults) -> None:
        self.status = status
        self.runs = runs
        self.history = history
        self.events = events
        self.vaults = vaults
        self._runner: web.AppRunner | None = None

    def application(self) -> web.Application:
        """All routes."""
        app = web.Application(middlewares=[_guard])
        app.add_routes(
            [
                web.get("/v1/status", self.get_status),
                web.get("/v1/vaults", self.get_vaults),
                web.get("/v1/list", self.get_list),
                web.get("/v1/plan/{backup}", self.get_plan),
                web.get("/v1/prune/{backup}", self.get_prune),
                web.get("/v1/holds", self.get_holds),
                web.get("/v1/fit/{backup}", self.get_fit),
                web.get("/v1/doctor/{vault}", self.get_doctor),
                web.get("/v1/history", self.get_history),
                web.get("/v1/events", self.get_events),
                web.get("/v1/tuning", self.get_tuning),
                web.post("/v1/run/{backup}", self.post_run),
                web.post("/v1/prune/{backup}", self.post_prune),
                web.post("/v1/vaults/{vault}/{verb:up|down|create}", self.post_vault),
                web.post("/v1/vaults/{vault}/measure", self.post_measure),
                web.get("/v1/vaults/{vault}/creation", self.get_creation),
                web.get("/v1/vaults/{vault}/takeover", self.get_takeover),
                web.post("/v1/vaults/{vault}/take", self.post_take),
                web.post("/v1/holds/reap", self.post_reap),
                web.post("/v1/restore", self.post_restore),
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

    async def get_vaults(self, _: web.Request) -> web.Response:
        """All vaults."""
        return web.json_response({"vaults": await self.status.lookout.documents()})

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
        return web.json_response(await plan_document(context, self.vaults, name, bring_up=_may_act(request)))

    async def get_prune(self, request: web.Request) -> web.Response:
        """What pruning would do now; with ``over_limit=1`` also what prune_limit holds back."""
        name, over_limit = request.match_info["backup"], request.query.get("over_limit") == "1"
        return web.json_response(
            await prune_document(
                self.status.context, self.vaults, name, bring_up=_may_act(request), over_limit=over_limit
            )
        )

    async def get_holds(self, _: web.Request) -> web.Response:
        """zvault's holds and bookmarks on the sources."""
        found = await find_keepsakes(self.status.context, self.vaults)
        return web.json_response({"holds": [one.document() for one in found]})

    async def get_history(self, request: web.Request) -> web.Response:
        """Past runs, the newest first."""
        backup = request.query.get("backup")
        if backup is not None:
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

    async def get_doctor(self, request: web.Request) -> web.Response:
        """What bounds a vault now; it is watched for ``seconds``."""
        name, seconds = request.match_info["vault"], watched_for(request.query.get("seconds"))
        last = self.runs.last_into(name)
        return web.json_response(await doctor_document(self.status.context, self.vaults, name, seconds, last))

    async def get_tuning(self, _: web.Request) -> web.Response:
        """Module parameters: what is wanted, set, and why."""
        return web.json_response(await tuning_document(self.status.context))

    async def post_run(self, request: web.Request) -> web.Response:
        """Start a run; with ``snapshot`` false one that makes none and sends what is there."""
        body = await _object(request) if request.can_read_body else {}
        snapshot = body.get("snapshot") is not False
        run = self.runs.start(request.match_info["backup"], "hand", snapshot=snapshot)
        return web.json_response({"run": run})

    async def post_prune(self, request: web.Request) -> web.Response:
        """Start to prune."""
        body = await _object(request)
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

    async def post_vault(self, request: web.Request) -> web.StreamResponse:
        """Bring a vault up, take it down, or make its pool; with ``follow=1`` told as it goes."""
        keeper = self.vaults[request.match_info["vault"]]
        act = {"up": keeper.up, "down": keeper.down, "create": keeper.create}[request.match_info["verb"]]
        if request.query.get("follow") == "1":

            async def whole(say: Say) -> Document:
                await act(say)
                return {"vault": await vault_document(keeper)}

            return await followed(request, whole, _journal_of(keeper))
        await act(_journal_of(keeper))
        return web.json_response({"vault": await vault_document(keeper)})

    async def post_measure(self, request: web.Request) -> web.StreamResponse:
        """Measure a vault's device and try out what follows, told as it goes; it ends when its client goes away."""
        keeper = self.vaults[request.match_info["vault"]]
        refuse_unless_auto(self.status.context, keeper.name)

        async def whole(say: Say) -> Document:
            async with keeper.use("zvaultctl tune measure", say):
                found = await measure(self.status.context, keeper.name, list(keeper.users), say)
            return {"measured": measured_document(found)}

        return await followed(request, whole, _journal_of(keeper))

    async def get_takeover(self, request: web.Request) -> web.Response:
        """Who has a vault, and what taking it over would do."""
        keeper = self.vaults[request.match_info["vault"]]
        return web.json_response({"takeover": await keeper.takeover()})

    async def post_take(self, request: web.Request) -> web.Response:
        """Take a vault over from the ``holders`` of get_takeover."""
        keeper, body = self.vaults[request.match_info["vault"]], await _object(request)
        by_hand = body.get("fenced_by_hand") is True
        await keeper.take(body.get("holders"), _journal_of(keeper), by_hand=by_hand)
        return web.json_response({"vault": await vault_document(keeper)})

    async def get_creation(self, request: web.Request) -> web.Response:
        """What making a vault's pool would run."""
        keeper = self.vaults[request.match_info["vault"]]
        made = keeper.assembly()
        found = creation_document(keeper.name, keeper.config, made.profile(), made.stack())
        return web.json_response({"creation": found})

    async def post_restore(self, request: web.Request) -> web.Response:
        """Start a restore."""
        body = await _object(request)
        wanted = Request(
            str(body.get("backup", "")),
            str(body.get("dataset", "")),
            str(body["snapshot"]) if body.get("snapshot") else None,
            str(body.get("to", "")),
        )
        return web.json_response({"run": self.runs.restore(wanted)})


def _journal_of(keeper: Keeper) -> Callable[[str], None]:
    def say(text: str) -> None:
        log.info("%s: %s", keeper.name, text, extra={"fields": {"VAULT": keeper.name}})

    return say


@web.middleware
async def _guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let only root act, and turn every error into one that can be told."""
    try:
        if request.method != "GET" and not _may_act(request):
            who = f"user {_peer_uid(request)} asked"
            raise Refused("only root may do that", who, "use sudo; members of group zvault may look")
        return await handler(request)
    except web.HTTPException as error:
        told = ZvaultError(f"{request.method} {request.path}: {error.reason}", "", "see the API's reference")
        return web.json_response({"error": told.as_dict()}, status=error.status)
    except json.JSONDecodeError as error:
        told = Refused("the request is no JSON", str(error), "")
        return web.json_response({"error": told.as_dict()}, status=400)
    except ZvaultError as error:
        return web.json_response({"error": error.as_dict()}, status=HTTP_STATUS.get(type(error), 500))
    except Exception as error:
        log.exception("%s %s failed", request.method, request.path)
        return web.json_response({"error": unexpected(error).as_dict()}, status=500)


def _make_room(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)


def _let_the_group_in(path: Path) -> None:
    """Group zvault may connect, where there is such a group."""
    with contextlib.suppress(KeyError):
        os.chown(path, 0, grp.getgrnam(GROUP).gr_gid)
    path.chmod(0o660)


def _may_act(request: web.Request) -> bool:
    """Root may act; bringing a vault up to look at it is an act too."""
    return _peer_uid(request) == 0


async def _object(request: web.Request) -> dict[str, Any]:
    body = await request.json()
    if not isinstance(body, dict):
        raise Refused(
            "the request is no JSON object", f"it is {type(body).__name__}", "see the API's reference"
        )
    return body


def _peer_uid(request: web.Request) -> int:
    """Who is at the other end of the unix socket (unix(7), SO_PEERCRED); nobody where it cannot be told."""
    peer = request.get_extra_info("socket")
    if peer is None:
        return -1
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])
