"""A handler of the API: a route, and the function that makes its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from aiohttp import web

from zvault.api.routes import Route
from zvault.daemon.api.access import Serve, refuse_unless_allowed

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Handler:
    """What is registered for a route."""

    route: Route[Any]
    serve: Serve


def handle(route: Route[A], answer: Callable[[web.Request], Awaitable[A | web.StreamResponse]]) -> Handler:
    """Answer a route with the document that ``answer`` makes, or with a response that it has begun by itself."""

    async def serve(request: web.Request) -> web.StreamResponse:
        await refuse_unless_allowed(request, route.may)
        found = await answer(request)
        return found if isinstance(found, web.StreamResponse) else web.json_response(found)

    return Handler(route, serve)
