"""The part of the API that is about notifications."""

from __future__ import annotations

from aiohttp import web

from zvault.api import routes
from zvault.api.notify import NotifyAnswer, NotifyTestAnswer, ReportAnswer
from zvault.core.errors import NotFound
from zvault.core.notify import report_text
from zvault.core.notify.report import EVERY
from zvault.daemon.api.access import json_object, text_of
from zvault.daemon.api.handler import Handler, handle
from zvault.daemon.notify.notifier import Notifier


class NotifyApi:
    """Routes requests to the notifier."""

    def __init__(self, notifier: Notifier) -> None:
        self.notifier = notifier

    def handlers(self) -> list[Handler]:
        """Return the handlers of the routes about notifications."""
        return [
            handle(routes.NOTIFY, self.get_notify),
            handle(routes.REPORT, self.get_report),
            handle(routes.NOTIFY_TEST, self.post_test),
        ]

    async def get_notify(self, _: web.Request) -> NotifyAnswer:
        """Tell of all targets of notifications."""
        return {"targets": self.notifier.documents()}

    async def get_report(self, request: web.Request) -> ReportAnswer:
        """Tell what would be reported now."""
        asked = request.match_info["every"]
        every = next((one for one in EVERY if one == asked), None)
        if every is None:
            raise NotFound(
                f"there is no report '{asked}'", f"known: {', '.join(EVERY)}", "ask for one of these"
            )
        report, zone = self.notifier.report(every), self.notifier.env.zone
        return {
            "every": every,
            "begin": report.period.begin,
            "end": report.period.end,
            "title": report_text.title(report),
            "text": report_text.text(report, zone),
            "html": report_text.html(report, zone),
        }

    async def post_test(self, request: web.Request) -> NotifyTestAnswer:
        """Send a test; with ``target`` to that one."""
        body = await json_object(request) if request.can_read_body else {}
        return {"results": await self.notifier.try_out(text_of(body, "target"))}
