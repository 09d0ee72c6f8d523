"""Copy files or trees out of a snapshot into a folder of this host; what is there is overwritten only if so asked."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

from zvault.api.events import (
    Emit,
    MessageEvent,
    PlannedEvent,
    PlannedTransfer,
    ProgressMade,
    RestoredEvent,
    WarningEvent,
)
from zvault.api.restore import FilesPlanDocument
from zvault.core.errors import NotFound, Refused, ToolFailed, ZvaultError
from zvault.core.integrity.verification import escape_path
from zvault.core.model import Dataset, Snapshot
from zvault.ops.context import Context
from zvault.ops.restore.plan_restore import RestoreRequest, find_root, make_no_snapshot_error
from zvault.ops.restore.restore_check import RestoreCheck
from zvault.ops.restore.snapshot_reader import open_snapshot
from zvault.ops.vaults.read_meter import start_read_meter
from zvault.ops.vaults.vault_interface import VaultsByName
from zvault.system.file_trees.tree_worker import TreeWorker, start_tree_worker

NAMED_FILES = 20
"""Files named that are in the way."""


@dataclass(frozen=True, slots=True)
class FilesRequest:
    """Which files: ``request.to`` is a folder, ``paths`` are files or trees below the dataset's root; none is all."""

    request: RestoreRequest
    paths: tuple[str, ...] = ()
    overwrite: bool = False


@dataclass(frozen=True, slots=True)
class FilesPlan:
    """What is copied: ``tops`` with all below them, so many files and bytes.

    ``there`` are those that exist already and are not as in the snapshot; ``same`` and ``same_bytes`` count those that
    are, as far as type, size, owner, mode and time tell, and that are only compared.
    """

    snapshot: Snapshot
    tops: tuple[bytes, ...]
    there: tuple[bytes, ...]
    files: int
    bytes: int
    same: int
    same_bytes: int

    def document(self, wanted: FilesRequest) -> FilesPlanDocument:
        """As the API sends it."""
        return {
            "to": wanted.request.to,
            "snapshot": self.snapshot.name,
            "files": self.files,
            "bytes": self.bytes,
            "same": self.same,
            "there": [escape_path(path) for path in self.there],
            "overwrite": wanted.overwrite,
            "same_bytes": self.same_bytes,
        }


@dataclass(frozen=True, slots=True)
class FilesRestored:
    """The result of a copy. ``error`` says what is not as it was in the snapshot."""

    plan: FilesPlan
    error: ZvaultError | None


async def restore_files(
    context: Context, vaults: VaultsByName, wanted: FilesRequest, emit: Emit
) -> FilesRestored:
    """Copy. Raises Refused where something would be overwritten that must not, before anything is copied."""
    request = wanted.request

    def say(text: str) -> None:
        emit(MessageEvent(text=text))

    await check_target_folder(request.to)
    backup = context.env.backup(request.backup)
    async with vaults[backup.its_vault].use(
        f"restore to {request.to}", say, reads=True, create=False
    ) as vault:
        dataset, snapshot = await _chosen(context, vault, request)
        async with (
            open_snapshot(context, vault.zfs, dataset, snapshot) as opened,
            start_tree_worker(opened.root, request.to) as worker,
        ):
            plan = await _plan(worker, snapshot, wanted)
            row: PlannedTransfer = {
                "dataset": request.to,
                "action": "restore",
                "bytes": plan.bytes,
                "reason": f"from {snapshot.name}",
            }
            emit(PlannedEvent(datasets=[row], bytes_total=plan.bytes))
            if plan.there and not wanted.overwrite:
                raise make_in_the_way_error(plan, request.to)
            for path in plan.there[:NAMED_FILES]:
                say(f"overwriting {escape_path(path)}")
            if len(plan.there) > NAMED_FILES:
                say(f"overwriting {len(plan.there) - NAMED_FILES} files more")
            if plan.same:
                say(f"{plan.same} of {plan.files} files are there already, as in the snapshot: only compared")
            meter, began = await start_read_meter(vault, "files", emit), time.monotonic()
            await _copy(worker, plan, wanted, emit)
            await meter.report_reading(plan.bytes - plan.same_bytes, time.monotonic() - began)
            emit(
                RestoredEvent(
                    dataset=request.to,
                    mountpoint=request.to,
                    why="",
                    snapshot=snapshot.name,
                    files=plan.files,
                )
            )
            check = RestoreCheck(context, request.to, plan.bytes, emit)
            if request.compare:
                say("comparing what was copied with the snapshot")
                await check.files(worker, request.to, plan.tops)
    return FilesRestored(plan, check.finish())


async def check_target_folder(folder: str) -> None:
    """See that there is a folder to copy into, or one in which it can be made. Raises NotFound."""
    async with start_tree_worker("/", folder, threads=1) as worker:
        await worker.check_folder()


async def _copy(worker: TreeWorker, plan: FilesPlan, wanted: FilesRequest, emit: Emit) -> None:
    """Copy what can be copied; the comparison finds what was not. Without one, raises ToolFailed for the first."""
    began = time.monotonic()

    def report(files: int, size: int) -> None:
        done = min(plan.bytes, size + plan.same_bytes)
        emit(
            ProgressMade(
                dataset=wanted.request.to,
                bytes=done,
                total=plan.bytes,
                rate=size / max(0.001, time.monotonic() - began),
                buffer=None,
                run_bytes=done,
                run_total=plan.bytes,
            )
        )

    copied = await worker.copy(plan.tops, overwrite=wanted.overwrite, on_progress=report)
    for text in copied.failed[:NAMED_FILES]:
        emit(WarningEvent(text=f"not copied as it was: {text}"))
    if copied.failures > NAMED_FILES:
        emit(WarningEvent(text=f"and {copied.failures - NAMED_FILES} more of these"))
    if copied.failures and not wanted.request.compare:
        raise ToolFailed(
            f"not all could be copied to {wanted.request.to}",
            copied.failed[0],
            "repair that, and restore again with --overwrite",
        )


async def make_files_document(
    context: Context, vaults: VaultsByName, wanted: FilesRequest
) -> FilesPlanDocument:
    """Plan what would be copied, and find what is there already."""
    request = wanted.request
    await check_target_folder(request.to)
    backup = context.env.backup(request.backup)
    use = vaults[backup.its_vault].use(f"plan a restore to {request.to}", lambda _: None, create=False)
    async with use as vault:
        dataset, snapshot = await _chosen(context, vault, request)
        async with (
            open_snapshot(context, vault.zfs, dataset, snapshot) as opened,
            start_tree_worker(opened.root, request.to) as worker,
        ):
            return (await _plan(worker, snapshot, wanted)).document(wanted)


def make_in_the_way_error(plan: FilesPlan, to: str) -> Refused:
    """The error for files that are there already."""
    told = ", ".join(escape_path(path).removeprefix("./") for path in plan.there[:5])
    more = f" and {len(plan.there) - 5} more" if len(plan.there) > 5 else ""
    return Refused(
        f"{len(plan.there)} of {plan.files} files are in {to} already",
        told + more,
        "copy to another folder and compare; --overwrite replaces them, and only them",
    )


async def _chosen(context: Context, vault: Any, request: RestoreRequest) -> tuple[Dataset, Snapshot]:
    if vault.zfs.host.address is not None:
        raise Refused(
            "files cannot be copied from there",
            f"the vault is on {vault.zfs.host.address}",
            "restore the dataset to a new one, and copy from that",
        )
    _, dataset = await find_root(context, vault, request)
    snapshot = request.pick()(dataset)
    if snapshot is None:
        raise make_no_snapshot_error(dataset, request)
    if dataset.type == "volume":
        raise Refused(f"{dataset.name} has no files", "it is a volume", "restore it to a new dataset")
    return dataset, snapshot


def parse_tops(paths: tuple[str, ...]) -> list[bytes]:
    """The trees that are named, relative to the dataset's root. Raises Refused for what is no path below it."""
    tops = []
    for path in paths:
        parts = [part for part in os.fsencode(path).split(b"/") if part not in {b"", b"."}]
        if not parts or b".." in parts or b"\0" in os.fsencode(path):
            raise Refused(
                f"'{escape_path(os.fsencode(path))}' is no path below the dataset",
                "it leads out of it" if b"\0" not in os.fsencode(path) else "a path has no NUL in it",
                "as in docs/thesis.pdf",
            )
        tops.append(b"/".join(parts))
    return tops


async def _plan(worker: TreeWorker, snapshot: Snapshot, wanted: FilesRequest) -> FilesPlan:
    tops = parse_tops(wanted.paths)
    try:
        keep_same = wanted.request.compare and not wanted.overwrite
        found = await worker.plan(tops or None, keep_same=keep_same)
    except NotFound as error:
        raise NotFound(
            f"{snapshot.name} has not all that was named",
            f"{error.what}: {error.why}",
            f"'zvaultctl find {wanted.request.backup} NAME' shows in which snapshots it is",
        ) from None
    return FilesPlan(
        snapshot,
        tuple(found.tops),
        tuple(found.there),
        found.files,
        found.bytes,
        found.same,
        found.same_bytes,
    )
