"""The part of the API that is about vaults: up, down, made, taken over, measured, examined."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from aiohttp import web

from zvault.daemon import journal
from zvault.daemon.following import Document, Say, followed
from zvault.daemon.guard import json_object
from zvault.daemon.runs import Runs
from zvault.daemon.status import Status
from zvault.ops.create import create
from zvault.ops.creation import creation_document
from zvault.ops.doctor import doctor_document, watched_for
from zvault.ops.measure import measure, refuse_unless_auto
from zvault.ops.report import vault_document
from zvault.ops.takeover import take_over, takeover
from zvault.ops.tune_show import measured_document, tuning_document
from zvault.ops.vault import Vaults


class VaultsApi:
    """Routes requests about vaults to use cases."""

    def __init__(self, status: Status, runs: Runs, vaults: Vaults) -> None:
        self.status = status
        self.runs = runs
        self.vaults = vaults

    def routes(self) -> list[web.RouteDef]:
        """All of them."""
        return [
            web.get("/v1/vaults", self.get_vaults),
            web.get("/v1/doctor/{vault}", self.get_doctor),
            web.get("/v1/tuning", self.get_tuning),
            web.post("/v1/vaults/{vault}/{verb:up|down|create}", self.post_vault),
            web.post("/v1/vaults/{vault}/measure", self.post_measure),
            web.get("/v1/vaults/{vault}/creation", self.get_creation),
            web.get("/v1/vaults/{vault}/takeover", self.get_takeover),
            web.post("/v1/vaults/{vault}/take", self.post_take),
        ]

    async def get_vaults(self, _: web.Request) -> web.Response:
        """All vaults."""
        return web.json_response({"vaults": await self.status.lookout.documents()})

    async def get_doctor(self, request: web.Request) -> web.Response:
        """What bounds a vault now; it is watched for ``seconds``."""
        name, seconds = request.match_info["vault"], watched_for(request.query.get("seconds"))
        last = self.runs.last_into(name)
        return web.json_response(await doctor_document(self.status.context, self.vaults, name, seconds, last))

    async def get_tuning(self, _: web.Request) -> web.Response:
        """Module parameters: what is wanted, set, and why."""
        return web.json_response(await tuning_document(self.status.context))

    async def post_vault(self, request: web.Request) -> web.StreamResponse:
        """Bring a vault up, take it down, or make its pool; with ``follow=1`` told as it goes."""
        keeper = self.vaults[request.match_info["vault"]]
        verbs: dict[str, Callable[[Say], Awaitable[None]]] = {
            "up": keeper.up,
            "down": keeper.down,
            "create": partial(create, keeper),
        }
        act = verbs[request.match_info["verb"]]
        if request.query.get("follow") == "1":

            async def whole(say: Say) -> Document:
                await act(say)
                return {"vault": await vault_document(keeper)}

            return await followed(request, whole, journal.about(keeper.name))
        await act(journal.about(keeper.name))
        return web.json_response({"vault": await vault_document(keeper)})

    async def post_measure(self, request: web.Request) -> web.StreamResponse:
        """Measure a vault's device and try out what follows, told as it goes; it ends when its client goes away."""
        keeper = self.vaults[request.match_info["vault"]]
        refuse_unless_auto(self.status.context, keeper.name)

        async def whole(say: Say) -> Document:
            async with keeper.use("zvaultctl tune measure", say):
                found = await measure(self.status.context, keeper.name, list(keeper.users), say)
            return {"measured": measured_document(found)}

        return await followed(request, whole, journal.about(keeper.name))

    async def get_takeover(self, request: web.Request) -> web.Response:
        """Who has a vault, and what taking it over would do."""
        keeper = self.vaults[request.match_info["vault"]]
        return web.json_response({"takeover": await takeover(keeper)})

    async def post_take(self, request: web.Request) -> web.Response:
        """Take a vault over from the ``holders`` of get_takeover."""
        keeper, body = self.vaults[request.match_info["vault"]], await json_object(request)
        by_hand = body.get("fenced_by_hand") is True
        await take_over(keeper, body.get("holders"), journal.about(keeper.name), by_hand=by_hand)
        return web.json_response({"vault": await vault_document(keeper)})

    async def get_creation(self, request: web.Request) -> web.Response:
        """What making a vault's pool would run."""
        keeper = self.vaults[request.match_info["vault"]]
        made = keeper.assembly()
        found = creation_document(keeper.name, keeper.config, made.profile(), made.stack())
        return web.json_response({"creation": found})
