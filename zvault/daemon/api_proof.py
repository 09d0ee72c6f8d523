"""The API's part on proof and rescue: verify, find, restore."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from zvault.core.errors import Refused
from zvault.daemon.guard import json_object
from zvault.daemon.proving import Proving
from zvault.ops.find import Wanted, find_document
from zvault.ops.restore import Request, plan_document
from zvault.ops.restore_files import FilesRequest, files_document


class ProofApi:
    """Routes requests to use cases; decides nothing itself."""

    def __init__(self, proving: Proving) -> None:
        self.proving = proving

    def routes(self) -> list[web.RouteDef]:
        """What it answers. All of it may bring a vault up, so all of it is for root."""
        return [
            web.post("/v1/verify/{backup}", self.post_verify),
            web.post("/v1/find", self.post_find),
            web.post("/v1/restore", self.post_restore),
            web.post("/v1/restore/plan", self.post_restore_plan),
        ]

    async def post_verify(self, request: web.Request) -> web.Response:
        """Start a verification; ``rung`` is one of guids, sample, full, drill."""
        body = await json_object(request)
        run = self.proving.verify(request.match_info["backup"], str(body.get("rung", "sample")))
        return web.json_response({"run": run})

    async def post_find(self, request: web.Request) -> web.Response:
        """The versions of files that match a pattern."""
        body = await json_object(request)
        wanted = Wanted(
            str(body.get("backup", "")), str(body.get("pattern", "")), _text(body, "dataset"), _moment(body)
        )
        return web.json_response(await find_document(self.proving.context, self.proving.vaults, wanted))

    async def post_restore(self, request: web.Request) -> web.Response:
        """Start a restore: of datasets, or of files where ``to`` is a folder."""
        body = await json_object(request)
        wanted = restore_request(body)
        if is_folder(wanted):
            return web.json_response({"run": self.proving.restore_files(files_request(body))})
        return web.json_response({"run": self.proving.runs.restore(wanted)})

    async def post_restore_plan(self, request: web.Request) -> web.Response:
        """What such a restore would do."""
        body = await json_object(request)
        wanted, context, vaults = restore_request(body), self.proving.context, self.proving.vaults
        if is_folder(wanted):
            return web.json_response(await files_document(context, vaults, files_request(body)))
        return web.json_response(await plan_document(context, vaults, wanted))


def restore_request(body: dict[str, Any]) -> Request:
    """A restore as the API is asked for it. Raises Refused."""
    return Request(
        str(body.get("backup", "")),
        str(body.get("dataset", "")),
        _text(body, "snapshot"),
        str(body.get("to", "")),
        at=_moment(body),
        recursive=body.get("recursive") is True,
        replace=body.get("replace") is True,
    )


def files_request(body: dict[str, Any]) -> FilesRequest:
    """The same for files. Raises Refused."""
    files = body.get("files") or []
    if not isinstance(files, list):
        raise Refused("'files' must be an array of paths", "", 'as in "files": ["docs/thesis.pdf"]')
    return FilesRequest(
        restore_request(body), tuple(str(one) for one in files), body.get("overwrite") is True
    )


def is_folder(wanted: Request) -> bool:
    """Whether files are to be copied into a folder, and no dataset made."""
    return wanted.to.startswith("/")


def _text(body: dict[str, Any], key: str) -> str | None:
    return str(body[key]) if body.get(key) else None


def _moment(body: dict[str, Any]) -> float | None:
    value = body.get("at")
    if value is None:
        return None
    if not isinstance(value, int | float):
        raise Refused("'at' is no time", "it takes seconds since the epoch", "")
    return float(value)
