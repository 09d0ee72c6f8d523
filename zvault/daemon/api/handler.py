"""A handler of the API: a route, and the function that makes its answer."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from aiohttp import web

from zvault.api.routes import ApiRoute
from zvault.daemon.api.access import RequestHandler, refuse_unless_allowed
from zvault.system.side_threads import LongList, compute_aside

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class RouteHandler:
    """A handler that is registered for a route."""

    route: ApiRoute[Any]
    serve: RequestHandler


def make_handler(
    route: ApiRoute[A], answer: Callable[[web.Request], Awaitable[A | web.StreamResponse]]
) -> RouteHandler:
    """Answer a route with the document that ``answer`` makes, or with a response that it has begun by itself."""

    async def serve(request: web.Request) -> web.StreamResponse:
        await refuse_unless_allowed(request, route.may)
        found = await answer(request)
        if isinstance(found, web.StreamResponse):
            return found
        body, rows = await compute_aside(count_document_rows(found), None, _encode_and_hold, found)
        del found, rows  # in that order: what nobody else has of it dies with its rows, beside the loop
        return web.Response(body=body, content_type="application/json", charset="utf-8")

    return RouteHandler(route, serve)


def count_document_rows(document: object) -> int:
    """How many rows a document has: it is long by its lists."""
    values = document.values() if isinstance(document, dict) else ()
    return sum(len(value) for value in values if isinstance(value, list))


def _encode_and_hold(document: object) -> tuple[bytes, list[Any]]:
    """A document as JSON; and the rows of its lists in a list of their own: somebody may keep the document."""
    values = document.values() if isinstance(document, dict) else ()
    rows = LongList(row for value in values if isinstance(value, list) for row in value)
    return encode_document(document), rows


def encode_document(document: object) -> bytes:
    """A document as JSON, row by row: one call for all of a list of millions would let no other thread go on."""
    if not isinstance(document, dict):
        return json.dumps(document).encode()
    fields = (f"{json.dumps(key)}: {_encode_value(value)}" for key, value in document.items())
    return "".join(("{", ", ".join(fields), "}")).encode()


def _encode_value(value: object) -> str:
    if not isinstance(value, list):
        return json.dumps(value)
    return "".join(("[", ", ".join([json.dumps(row) for row in value]), "]"))
