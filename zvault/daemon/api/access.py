"""Who may ask the daemon what, and every error as one that can be told."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from aiohttp import web

from zvault.api.answers import ErrorAnswer
from zvault.core.errors import Busy, ConfigError, NotFound, Refused, ZvaultError
from zvault.daemon.journald import log
from zvault.daemon.runs import unexpected

HTTP_STATUS = {NotFound: 404, Busy: 409, Refused: 403, ConfigError: 400}
Serve = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def guard(request: web.Request, handler: Serve) -> web.StreamResponse:
    """Turn every error into one that can be told."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        told = ZvaultError(f"{request.method} {request.path}: {error.reason}", "", "see the API's reference")
        return _failed(told, error.status)
    except json.JSONDecodeError as error:
        told = Refused("the request is no JSON", str(error), "")
        return _failed(told, 400)
    except ZvaultError as error:
        return _failed(error, HTTP_STATUS.get(type(error), 500))
    except Exception as error:
        log.exception("%s %s failed", request.method, request.path)
        return _failed(unexpected(error), 500)


def _failed(error: ZvaultError, status: int) -> web.Response:
    answer: ErrorAnswer = {"error": error.as_dict()}
    return web.json_response(answer, status=status)


def refuse_unless_allowed(request: web.Request, may: Literal["read", "act"]) -> None:
    """Raise Refused unless the one who asks may do what a route does: only root may act."""
    if may == "act" and not may_act(request):
        who = f"user {_peer_uid(request)} asked"
        raise Refused("only root may do that", who, "use sudo; members of group zvault may look")


def may_act(request: web.Request) -> bool:
    """Root may act; bringing a vault up to look at it is an act too."""
    return _peer_uid(request) == 0


async def json_object(request: web.Request) -> Mapping[str, object]:
    """The request's body. Raises Refused for what is no JSON object."""
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
