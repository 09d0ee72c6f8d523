"""Who may ask the daemon what, and every error as one that can be told."""

from __future__ import annotations

import asyncio
import grp
import os
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from zvault.api.answers import ErrorAnswer
from zvault.api.routes import RoutePermission
from zvault.core.errors import Busy, ConfigError, NotFound, Refused, SeveralVaults, ZvaultError
from zvault.daemon.connections import read_peer_groups, read_peer_uid
from zvault.daemon.job_runner import make_unexpected_error
from zvault.daemon.journald import log


class MalformedRequest(Refused):
    """A request that is not as the API's reference has it."""


HTTP_STATUS = {
    MalformedRequest: 400,
    NotFound: 404,
    SeveralVaults: 409,
    Busy: 409,
    Refused: 403,
    ConfigError: 400,
}

BODY_SECONDS = 15.0
"""Seconds until the body of a request has arrived."""

OPERATOR_GROUP = "zvault-operator"
"""The group whose members may start runs and scrubs. To reach the socket they have to be in group zvault as well."""

RequestHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def guard_request(request: web.Request, handler: RequestHandler) -> web.StreamResponse:
    """Turn every error into one that can be told."""
    try:
        for text in (*request.match_info.values(), *request.query.keys(), *request.query.values()):
            _refuse_unfit(text)
        return await handler(request)
    except web.HTTPException as error:
        told = ZvaultError(f"{request.method} {request.path}: {error.reason}", "", "see the API's reference")
        return _failed(told, error.status)
    except ZvaultError as error:
        return _failed(error, HTTP_STATUS.get(type(error), 500))
    except Exception as error:
        log.exception("%s %s failed", request.method, request.path)
        return _failed(make_unexpected_error(error), 500)


def _failed(error: ZvaultError, status: int) -> web.Response:
    answer: ErrorAnswer = {"error": error.as_dict()}
    return web.json_response(answer, status=status)


async def refuse_unless_allowed(request: web.Request, may: RoutePermission) -> None:
    """Raise Refused unless the one who asks may do what a route does."""
    if may == "read" or is_allowed_to_act(request):
        return
    who = f"user {_peer_uid(request)} asked"
    if may == "act":
        raise Refused("only root may do that", who, "use sudo; members of group zvault may look")
    if not await _is_operator(request):
        raise Refused(
            f"only root may do that, and members of group {OPERATOR_GROUP}",
            who,
            f"use sudo, or have yourself added with 'adduser USER {OPERATOR_GROUP}' and log in again",
        )


def is_allowed_to_act(request: web.Request) -> bool:
    """Root may act; bringing a vault up to look at it is an act too."""
    return _peer_uid(request) == 0


async def read_json_object(request: web.Request) -> Mapping[str, object]:
    """The request's body. Raises Refused for what is no JSON object."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await request.json()
    except TimeoutError:
        raise MalformedRequest(
            "the request did not arrive",
            f"its body was not there within {BODY_SECONDS:g} s",
            "send it at once",
        ) from None
    except (ValueError, LookupError, RecursionError) as error:
        raise MalformedRequest("the request is no JSON", str(error), "see the API's reference") from None
    if not isinstance(body, dict):
        raise MalformedRequest(
            "the request is no JSON object", f"it is {type(body).__name__}", "see the API's reference"
        )
    _refuse_unfit(body)
    return body


def _refuse_unfit(value: object) -> None:
    """Raise Refused where a text cannot be a name on this host: for NUL, and for what has no bytes."""
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list):
        for one in value:
            _refuse_unfit(one)
    if not isinstance(value, str):
        return
    try:
        fit = b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        fit = False
    if not fit:
        raise MalformedRequest(
            f"{value!a} cannot be a name", "it has a NUL or half of a character", "see the API's reference"
        )


def read_text(body: Mapping[str, object], key: str) -> str | None:
    """A text in the request, None where it has none. Raises Refused for anything else.

    An empty one is refused, too: taken for none it would mean the newest snapshot, or all datasets.
    """
    value = body.get(key)
    if value is not None and not isinstance(value, str):
        raise MalformedRequest(
            f"'{key}' must be a text", f"it is {type(value).__name__}", "see the API's reference"
        )
    if value == "":
        raise MalformedRequest(
            f"'{key}' is empty",
            "an empty text names nothing",
            "give a name, or leave it out; if it came out of a variable, see that that is set",
        )
    return value


def read_needed_text(body: Mapping[str, object], key: str) -> str:
    """A text that the request must have. Raises Refused."""
    found = read_text(body, key)
    if found is None:
        raise MalformedRequest(
            f"'{key}' is missing in the request", "it is needed", "see the API's reference"
        )
    return found


LATEST_TIME = 253_402_300_799.0
"""The last second of the year 9999: a later one is no date."""


def read_moment(body: Mapping[str, object], key: str = "at") -> float | None:
    """A time in the request, in seconds since the epoch; None where it has none. Raises Refused."""
    value = body.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LATEST_TIME:
        raise MalformedRequest(f"'{key}' is no time", "it takes seconds since the epoch", "")
    return float(value)


async def _is_operator(request: web.Request) -> bool:
    """By the groups that the kernel tells of whoever connected. No member: where there is no such group."""
    try:
        # Not in the event loop: who answers may be a server of the network.
        group = await asyncio.to_thread(grp.getgrnam, OPERATOR_GROUP)
    except (KeyError, OSError):
        return False
    return group.gr_gid in _peer_groups(request)


def _peer_groups(request: web.Request) -> frozenset[int]:
    return read_peer_groups(request.transport)


def _peer_uid(request: web.Request) -> int | None:
    return read_peer_uid(request.transport)
