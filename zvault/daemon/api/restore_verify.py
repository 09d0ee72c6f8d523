"""The API's part on proof and rescue: verify, find, restore.

What does it is imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiohttp import web

from zvault.api import routes
from zvault.api.answers import StartedAnswer
from zvault.api.restore import FilesPlanDocument, FoundDocument, MountedAnswer, RestorePlanDocument
from zvault.core.integrity.restore_time import FILE_KINDS
from zvault.daemon import journald
from zvault.daemon.api.access import (
    LATEST_TIME,
    MalformedRequest,
    read_json_object,
    read_moment,
    read_needed_text,
    read_text,
)
from zvault.daemon.api.handler import RouteHandler, make_handler
from zvault.daemon.api.streaming import Say, answer_with_progress
from zvault.daemon.monitors.verify_scheduler import VerifyScheduler
from zvault.daemon.restore_times import make_restore_time

if TYPE_CHECKING:
    from zvault.ops.restore.mount_snapshot import MountRequest
    from zvault.ops.restore.plan_restore import RestoreRequest
    from zvault.ops.restore.restore_files import FilesRequest


class RestoreVerifyApi:
    """Routes requests to use cases; decides nothing itself."""

    def __init__(self, verify_scheduler: VerifyScheduler) -> None:
        self.verify_scheduler = verify_scheduler

    def handlers(self) -> list[RouteHandler]:
        """Return the handlers of what it answers. All of it may bring a vault up, so all of it is for root."""
        return [
            make_handler(routes.VERIFY, self.post_verify),
            make_handler(routes.FIND, self.post_find),
            make_handler(routes.RESTORE, self.post_restore),
            make_handler(routes.RESTORE_PLAN, self.post_restore_plan),
            make_handler(routes.MOUNT, self.post_mount),
        ]

    async def post_verify(self, request: web.Request) -> StartedAnswer:
        """Start a verification; ``level`` is one of guids, sample, full, drill."""
        body = await read_json_object(request)
        run = self.verify_scheduler.verify(request.match_info["backup"], read_text(body, "level") or "sample")
        return {"run": run}

    async def post_find(self, request: web.Request) -> FoundDocument:
        """The versions of files that match a pattern."""
        from zvault.ops.restore.find_files import FileQuery, make_find_document

        body = await read_json_object(request)
        wanted = FileQuery(
            read_needed_text(body, "backup"),
            read_needed_text(body, "pattern"),
            read_text(body, "dataset"),
            read_moment(body),
        )
        return await make_find_document(self.verify_scheduler.context, self.verify_scheduler.vaults, wanted)

    async def post_restore(self, request: web.Request) -> StartedAnswer:
        """Start a restore: of datasets, or of files where ``to`` is a folder."""
        body = await read_json_object(request)
        wanted = parse_restore_request(body)
        if is_folder(wanted):
            return {"run": self.verify_scheduler.runs.restore_files(parse_files_request(body))}
        return {"run": self.verify_scheduler.runs.restore(wanted)}

    async def post_restore_plan(self, request: web.Request) -> RestorePlanDocument | FilesPlanDocument:
        """Tell what such a restore would do."""
        from zvault.ops.restore.restore_datasets import make_restore_plan_document
        from zvault.ops.restore.restore_files import make_files_document

        body = await read_json_object(request)
        wanted, context = parse_restore_request(body), self.verify_scheduler.context
        times, backup = self.verify_scheduler.runs.restore_times, context.env.backup(wanted.backup)
        name = backup.its_vault
        user = f"plan a restore to {wanted.to}"
        seen = self.verify_scheduler.runs.past.seen(
            name, wanted.vault_at, user, journald.make_vault_logger(name)
        )
        async with seen as (context, vaults):
            if is_folder(wanted):
                files = await make_files_document(context, vaults, parse_files_request(body))
                left = files["bytes"] - files["same_bytes"]
                files["time"] = make_restore_time(times.estimate_restore(backup, left, FILE_KINDS))
                return files
            plan = await make_restore_plan_document(context, vaults, wanted)
            plan["time"] = make_restore_time(times.estimate_restore(backup, plan["bytes"]))
            return plan

    async def post_mount(self, request: web.Request) -> web.StreamResponse:
        """Mount a snapshot for as long as its client waits for the end, or until its time is over."""
        from zvault.ops.restore.mount_snapshot import mount_snapshot

        wanted = parse_mount_request(await read_json_object(request))
        name = self.verify_scheduler.context.env.backup(wanted.backup).its_vault
        past = self.verify_scheduler.runs.past

        async def whole(say: Say) -> MountedAnswer:
            seen = past.seen(name, wanted.vault_at, f"mount at {wanted.folder}", say)
            async with seen as (context, vaults):
                return await mount_snapshot(context, vaults, wanted, say)

        return await answer_with_progress(request, whole, journald.make_vault_logger(name))


def parse_mount_request(body: Mapping[str, object]) -> MountRequest:
    """A mount as the API is asked for it. Raises Refused."""
    from zvault.ops.restore.mount_snapshot import MountRequest

    seconds = body.get("seconds")
    if seconds is not None and (
        isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= LATEST_TIME
    ):
        raise MalformedRequest(
            "'seconds' is no time", "it takes a number above 0, of some thousand years at most", ""
        )
    return MountRequest(
        read_needed_text(body, "backup"),
        read_text(body, "dataset"),
        read_needed_text(body, "folder"),
        read_moment(body),
        None if seconds is None else float(seconds),
        read_moment(body, "vault_at"),
    )


def parse_restore_request(body: Mapping[str, object]) -> RestoreRequest:
    """A restore as the API is asked for it. Raises Refused."""
    from zvault.ops.restore.plan_restore import RestoreRequest

    return RestoreRequest(
        read_needed_text(body, "backup"),
        read_needed_text(body, "dataset"),
        read_text(body, "snapshot"),
        read_needed_text(body, "to"),
        at=read_moment(body),
        recursive=body.get("recursive") is True,
        replace=body.get("replace") is True,
        compare=body.get("compare") is not False,
        vault_at=read_moment(body, "vault_at"),
    )


def parse_files_request(body: Mapping[str, object]) -> FilesRequest:
    """The same for files. Raises Refused."""
    from zvault.ops.restore.restore_files import FilesRequest

    files = body.get("files")
    if files is None:
        files = []
    if not isinstance(files, list) or not all(isinstance(one, str) for one in files):
        raise MalformedRequest("'files' must be an array of paths", "", 'as in "files": ["docs/thesis.pdf"]')
    return FilesRequest(parse_restore_request(body), tuple(files), body.get("overwrite") is True)


def is_folder(wanted: RestoreRequest) -> bool:
    """True if files are to be copied into a folder, and no dataset made."""
    return wanted.to.startswith("/")
