"""The part of the API that is about notifications."""

from __future__ import annotations

from aiohttp import web

from zvault.api import routes
from zvault.api.notify import NotifyAnswer, NotifyTestAnswer
from zvault.daemon.api.access import json_object, text_of
from zvault.daemon.api.handler import Handler, handle
from zvault.daemon.notify.notifier import Notifier


class NotifyApi:
    """Routes requests to the notifier."""

    def __init__(self, notifier: Notifier) -> None:
        self.notifier = notifier

    def handlers(self) -> list[Handler]:
        """All of them."""
        return [handle(routes.NOTIFY, self.get_notify), handle(routes.NOTIFY_TEST, self.post_test)]

    async def get_notify(self, _: web.Request) -> NotifyAnswer:
        """All targets."""
        return {"targets": self.notifier.documents()}

    async def post_test(self, request: web.Request) -> NotifyTestAnswer:
        """Send a test; with ``target`` to that one."""
        body = await json_object(request) if request.can_read_body else {}
        return {"results": await self.notifier.try_out(text_of(body, "target"))}
