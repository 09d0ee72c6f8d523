"""Who may ask the daemon what, and every error as one that can be told."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from zvault.core.errors import Busy, ConfigError, NotFound, Refused, ZvaultError
from zvault.daemon.journal import log
from zvault.daemon.runs import unexpected

HTTP_STATUS = {NotFound: 404, Busy: 409, Refused: 403, ConfigError: 400}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let only root act, and turn every error into one that can be told."""
    try:
        if request.method != "GET" and not may_act(request):
            who = f"user {_peer_uid(request)} asked"
            raise Refused("only root may do that", who, "use sudo; members of group zvault may look")
        return await handler(request)
    except web.HTTPException as error:
        told = ZvaultError(f"{request.method} {request.path}: {error.reason}", "", "see the API's reference")
        return web.json_response({"error": told.as_dict()}, status=error.status)
    except json.JSONDecodeError as error:
        told = Refused("the request is no JSON", str(error), "")
        return web.json_response({"error": told.as_dict()}, status=400)
    except ZvaultError as error:
        return web.json_response({"error": error.as_dict()}, status=HTTP_STATUS.get(type(error), 500))
    except Exception as error:
        log.exception("%s %s failed", request.method, request.path)
        return web.json_response({"error": unexpected(error).as_dict()}, status=500)


def may_act(request: web.Request) -> bool:
    """Root may act; bringing a vault up to look at it is an act too."""
    return _peer_uid(request) == 0


async def json_object(request: web.Request) -> dict[str, Any]:
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
