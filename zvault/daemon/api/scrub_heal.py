"""The part of the API that is about the soundness of vaults: scrubs and healing."""

from __future__ import annotations

from aiohttp import web

from zvault.api import routes
from zvault.api.answers import StartedAnswer
from zvault.api.vaults import ScrubAnswer
from zvault.core.errors import Refused
from zvault.daemon.api.access import read_json_object, read_text
from zvault.daemon.api.handler import RouteHandler, make_handler
from zvault.daemon.monitors.scrub_heal_scheduler import ScrubHealScheduler


class ScrubHealApi:
    """Routes requests to the scrub scheduler."""

    def __init__(self, scrub_heal_scheduler: ScrubHealScheduler) -> None:
        self.scrub_heal_scheduler = scrub_heal_scheduler

    def handlers(self) -> list[RouteHandler]:
        """Return the handlers of the routes that scrub and heal."""
        return [make_handler(routes.SCRUB, self.post_scrub), make_handler(routes.HEAL, self.post_heal)]

    async def post_scrub(self, request: web.Request) -> StartedAnswer | ScrubAnswer:
        """``act``: "start" (the default) begins a scrub or goes on with one; "pause" and "stop" end with its state."""
        name = request.match_info["vault"]
        body = await read_json_object(request) if request.can_read_body else {}
        act = read_text(body, "act") or "start"
        if act == "start":
            return {"run": self.scrub_heal_scheduler.scrub(name)}
        if act not in {"pause", "stop"}:
            raise Refused(f"a scrub cannot {act!r}", "it can start, pause and stop", 'act = "start"')
        found = await self.scrub_heal_scheduler.hold(name, stop=act == "stop")
        return {"scrub": found.document()}

    async def post_heal(self, request: web.Request) -> StartedAnswer:
        """Start to heal a vault."""
        body = await read_json_object(request) if request.can_read_body else {}
        trusts = body.get("trusts_hosts") is True
        return {"run": self.scrub_heal_scheduler.heal(request.match_info["vault"], trusts_hosts=trusts)}
