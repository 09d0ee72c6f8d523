"""The part of the API that is about the soundness of vaults: scrubs and healing."""

from __future__ import annotations

from aiohttp import web

from zvault.core.errors import Refused
from zvault.daemon.caretaker import Caretaker
from zvault.daemon.guard import json_object


class CareApi:
    """Routes requests to the caretaker."""

    def __init__(self, caretaker: Caretaker) -> None:
        self.caretaker = caretaker

    def routes(self) -> list[web.RouteDef]:
        """All of them."""
        return [
            web.post("/v1/vaults/{vault}/scrub", self.post_scrub),
            web.post("/v1/vaults/{vault}/heal", self.post_heal),
        ]

    async def post_scrub(self, request: web.Request) -> web.Response:
        """``act``: "start" (the default) begins a scrub or goes on with one; "pause" and "stop" end with its state."""
        name = request.match_info["vault"]
        body = await json_object(request) if request.can_read_body else {}
        act = body.get("act", "start")
        if act == "start":
            return web.json_response({"run": self.caretaker.scrub(name)})
        if act not in {"pause", "stop"}:
            raise Refused(f"a scrub cannot {act!r}", "it can start, pause and stop", 'act = "start"')
        found = await self.caretaker.hold(name, stop=act == "stop")
        return web.json_response({"scrub": found.document()})

    async def post_heal(self, request: web.Request) -> web.Response:
        """Start to heal a vault."""
        return web.json_response({"run": self.caretaker.heal(request.match_info["vault"])})
