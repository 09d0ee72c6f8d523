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
from zvault.daemon import journald
from zvault.daemon.api.access import LATEST, Malformed, json_object, moment_of, needed_text, text_of
from zvault.daemon.api.handler import Handler, handle
from zvault.daemon.api.streaming import Say, followed
from zvault.daemon.monitors.verify_scheduler import VerifyScheduler

if TYPE_CHECKING:
    from zvault.ops.restore.files import FilesRequest
    from zvault.ops.restore.mount import MountRequest
    from zvault.ops.restore.plan import RestoreRequest


class RestoreVerifyApi:
    """Routes requests to use cases; decides nothing itself."""

    def __init__(self, verify_scheduler: VerifyScheduler) -> None:
        self.verify_scheduler = verify_scheduler

    def handlers(self) -> list[Handler]:
        """Return the handlers of what it answers. All of it may bring a vault up, so all of it is for root."""
        return [
            handle(routes.VERIFY, self.post_verify),
            handle(routes.FIND, self.post_find),
            handle(routes.RESTORE, self.post_restore),
            handle(routes.RESTORE_PLAN, self.post_restore_plan),
            handle(routes.MOUNT, self.post_mount),
        ]

    async def post_verify(self, request: web.Request) -> StartedAnswer:
        """Start a verification; ``level`` is one of guids, sample, full, drill."""
        body = await json_object(request)
        run = self.verify_scheduler.verify(request.match_info["backup"], text_of(body, "level") or "sample")
        return {"run": run}

    async def post_find(self, request: web.Request) -> FoundDocument:
        """The versions of files that match a pattern."""
        from zvault.ops.restore.find import FileQuery, find_document

        body = await json_object(request)
        wanted = FileQuery(
            needed_text(body, "backup"),
            needed_text(body, "pattern"),
            text_of(body, "dataset"),
            moment_of(body),
        )
        return await find_document(self.verify_scheduler.context, self.verify_scheduler.vaults, wanted)

    async def post_restore(self, request: web.Request) -> StartedAnswer:
        """Start a restore: of datasets, or of files where ``to`` is a folder."""
        body = await json_object(request)
        wanted = restore_request(body)
        if is_folder(wanted):
            return {"run": self.verify_scheduler.restore_files(files_request(body))}
        return {"run": self.verify_scheduler.runs.restore(wanted)}

    async def post_restore_plan(self, request: web.Request) -> RestorePlanDocument | FilesPlanDocument:
        """Tell what such a restore would do."""
        from zvault.ops.restore.datasets import plan_document
        from zvault.ops.restore.files import files_document

        body = await json_object(request)
        wanted, context = restore_request(body), self.verify_scheduler.context
        name = context.env.backup(wanted.backup).its_vault
        user = f"plan a restore to {wanted.to}"
        seen = self.verify_scheduler.runs.past.seen(name, wanted.vault_at, user, journald.about(name))
        async with seen as (context, vaults):
            if is_folder(wanted):
                return await files_document(context, vaults, files_request(body))
            return await plan_document(context, vaults, wanted)

    async def post_mount(self, request: web.Request) -> web.StreamResponse:
        """Mount a snapshot for as long as its client waits for the end, or until its time is over."""
        from zvault.ops.restore.mount import mount

        wanted = mount_request(await json_object(request))
        name = self.verify_scheduler.context.env.backup(wanted.backup).its_vault
        past = self.verify_scheduler.runs.past

        async def whole(say: Say) -> MountedAnswer:
            seen = past.seen(name, wanted.vault_at, f"mount at {wanted.folder}", say)
            async with seen as (context, vaults):
                return await mount(context, vaults, wanted, say)

        return await followed(request, whole, journald.about(name))


def mount_request(body: Mapping[str, object]) -> MountRequest:
    """A mount as the API is asked for it. Raises Refused."""
    from zvault.ops.restore.mount import MountRequest

    seconds = body.get("seconds")
    if seconds is not None and (
        isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= LATEST
    ):
        raise Malformed(
            "'seconds' is no time", "it takes a number above 0, of some thousand years at most", ""
        )
    return MountRequest(
        needed_text(body, "backup"),
        text_of(body, "dataset"),
        needed_text(body, "folder"),
        moment_of(body),
        None if seconds is None else float(seconds),
        moment_of(body, "vault_at"),
    )


def restore_request(body: Mapping[str, object]) -> RestoreRequest:
    """A restore as the API is asked for it. Raises Refused."""
    from zvault.ops.restore.plan import RestoreRequest

    return RestoreRequest(
        needed_text(body, "backup"),
        needed_text(body, "dataset"),
        text_of(body, "snapshot"),
        needed_text(body, "to"),
        at=moment_of(body),
        recursive=body.get("recursive") is True,
        replace=body.get("replace") is True,
        compare=body.get("compare") is not False,
        vault_at=moment_of(body, "vault_at"),
    )


def files_request(body: Mapping[str, object]) -> FilesRequest:
    """The same for files. Raises Refused."""
    from zvault.ops.restore.files import FilesRequest

    files = body.get("files")
    if files is None:
        files = []
    if not isinstance(files, list) or not all(isinstance(one, str) for one in files):
        raise Malformed("'files' must be an array of paths", "", 'as in "files": ["docs/thesis.pdf"]')
    return FilesRequest(restore_request(body), tuple(files), body.get("overwrite") is True)


def is_folder(wanted: RestoreRequest) -> bool:
    """True if files are to be copied into a folder, and no dataset made."""
    return wanted.to.startswith("/")
