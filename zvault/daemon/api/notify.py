"""The part of the API that is about notifications."""

from __future__ import annotations

from aiohttp import web

from zvault.api import routes
from zvault.api.notify import NotifyAnswer, NotifyTestAnswer, ReportAnswer
from zvault.core.errors import NotFound
from zvault.core.notify import report_text
from zvault.core.notify.report import REPORT_PERIODS
from zvault.daemon.api.access import read_json_object, read_text
from zvault.daemon.api.handler import RouteHandler, make_handler
from zvault.daemon.notify.notifier import Notifier


class NotifyApi:
    """Routes requests to the notifier."""

    def __init__(self, notifier: Notifier) -> None:
        self.notifier = notifier

    def handlers(self) -> list[RouteHandler]:
        """Return the handlers of the routes about notifications."""
        return [
            make_handler(routes.NOTIFY, self.get_notify),
            make_handler(routes.REPORT, self.get_report),
            make_handler(routes.NOTIFY_TEST, self.post_test),
        ]

    async def get_notify(self, _: web.Request) -> NotifyAnswer:
        """Tell of all targets of notifications."""
        return {"targets": self.notifier.documents()}

    async def get_report(self, request: web.Request) -> ReportAnswer:
        """Tell what would be reported now."""
        asked = request.match_info["every"]
        every = next((one for one in REPORT_PERIODS if one == asked), None)
        if every is None:
            raise NotFound(
                f"there is no report '{asked}'", f"known: {', '.join(REPORT_PERIODS)}", "ask for one of these"
            )
        report, zone = self.notifier.report(every), self.notifier.env.zone
        return {
            "every": every,
            "begin": report.period.begin,
            "end": report.period.end,
            "title": report_text.write_report_title(report),
            "text": report_text.write_report_text(report, zone),
            "html": report_text.write_report_html(report, zone),
        }

    async def post_test(self, request: web.Request) -> NotifyTestAnswer:
        """Send a test; with ``target`` to that one."""
        body = await read_json_object(request) if request.can_read_body else {}
        return {"results": await self.notifier.try_out(read_text(body, "target"))}
