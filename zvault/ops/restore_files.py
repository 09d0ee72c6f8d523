"""Copy files or trees out of a snapshot into a folder of this host; what is there is overwritten only if so asked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from zvault.core.errors import NotFound, Refused, ToolFailed
from zvault.core.model import Dataset, Snapshot
from zvault.core.verify import shown
from zvault.ops.context import Context, Emit
from zvault.ops.reading import Reading, reading
from zvault.ops.restore_plan import Request, find_root, no_snapshot
from zvault.ops.vault import Vaults
from zvault.system import copy

NAMED = 20
"""Files named that are in the way."""


@dataclass(frozen=True, slots=True)
class FilesRequest:
    """Which files: ``request.to`` is a folder, ``paths`` are files or trees below the dataset's root; none is all."""

    request: Request
    paths: tuple[str, ...] = ()
    overwrite: bool = False


@dataclass(frozen=True, slots=True)
class FilesPlan:
    """What is copied: ``tops`` with all below them, so many files and bytes; ``there`` are those that exist already."""

    snapshot: Snapshot
    tops: tuple[bytes, ...]
    there: tuple[bytes, ...]
    files: int
    bytes: int

    def document(self, wanted: FilesRequest) -> dict[str, Any]:
        """As the API tells it."""
        return {
            "to": wanted.request.to,
            "snapshot": self.snapshot.name,
            "files": self.files,
            "bytes": self.bytes,
            "there": [shown(path) for path in self.there],
            "overwrite": wanted.overwrite,
        }


async def restore_files(context: Context, vaults: Vaults, wanted: FilesRequest, emit: Emit) -> FilesPlan:
    """Copy. Raises Refused where something would be overwritten that must not, before anything is copied."""
    request = wanted.request

    def say(text: str) -> None:
        emit("message", text=text)

    async with vaults[context.backup(request.backup).vault].use(f"restore to {request.to}", say) as vault:
        dataset, snapshot = await _chosen(context, vault, request)
        async with reading(context, vault.zfs, dataset, snapshot) as opened:
            plan = await _plan(context, opened, snapshot, wanted)
            row = {
                "dataset": request.to,
                "action": "restore",
                "bytes": plan.bytes,
                "reason": f"from {snapshot.name}",
            }
            emit("plan", datasets=[row], bytes_total=plan.bytes)
            if plan.there and not wanted.overwrite:
                raise in_the_way(plan, request.to)
            for path in plan.there[:NAMED]:
                say(f"overwriting {shown(path)}")
            if len(plan.there) > NAMED:
                say(f"overwriting {len(plan.there) - NAMED} files more")
            await context.runner.run(
                copy.copy_argv(opened.root, request.to, overwrite=wanted.overwrite),
                stdin=copy.ended(plan.tops),
                deadline=copy.DEADLINE,
            )
    emit("restored", dataset=request.to, mountpoint=request.to, snapshot=snapshot.name, files=plan.files)
    return plan


async def files_document(context: Context, vaults: Vaults, wanted: FilesRequest) -> dict[str, Any]:
    """What it would copy, and what is there already."""
    backup = context.backup(wanted.request.backup)
    async with vaults[backup.vault].use(f"plan a restore to {wanted.request.to}", lambda _: None) as vault:
        dataset, snapshot = await _chosen(context, vault, wanted.request)
        async with reading(context, vault.zfs, dataset, snapshot) as opened:
            return (await _plan(context, opened, snapshot, wanted)).document(wanted)


def in_the_way(plan: FilesPlan, to: str) -> Refused:
    """The error for files that are there already."""
    told = ", ".join(shown(path).removeprefix("./") for path in plan.there[:5])
    more = f" and {len(plan.there) - 5} more" if len(plan.there) > 5 else ""
    return Refused(
        f"{len(plan.there)} of {plan.files} files are in {to} already",
        told + more,
        "copy to another folder and compare; --overwrite replaces them, and only them",
    )


async def _chosen(context: Context, vault: Any, request: Request) -> tuple[Dataset, Snapshot]:
    if vault.zfs.host.address is not None:
        raise Refused(
            "files cannot be copied from there",
            f"the vault is on {vault.zfs.host.address}",
            "restore the dataset to a new one, and copy from that",
        )
    _, dataset = await find_root(context, vault, request)
    snapshot = request.pick()(dataset)
    if snapshot is None:
        raise no_snapshot(dataset, request)
    if dataset.type == "volume":
        raise Refused(f"{dataset.name} has no files", "it is a volume", "restore it to a new dataset")
    return dataset, snapshot


async def _plan(context: Context, opened: Reading, snapshot: Snapshot, wanted: FilesRequest) -> FilesPlan:
    runner, to = context.runner, wanted.request.to
    tops = [os.fsencode(path).strip(b"/") for path in wanted.paths]
    for top in tops:
        if not top or b".." in top.split(b"/"):
            raise Refused(
                f"'{shown(top)}' is no path below the dataset", "it leads out of it", "as in docs/thesis.pdf"
            )
    if not tops:
        found = await runner.run(copy.tops_argv(opened.root), deadline=copy.LIST_DEADLINE)
        tops = copy.parse_names(found.stdout)
    listed = await runner.run(
        copy.list_argv(opened.root), stdin=copy.ended(tops), deadline=copy.LIST_DEADLINE, check=False
    )
    if "No such file" in listed.stderr:
        raise NotFound(
            f"{snapshot.name} has not all that was named",
            listed.stderr.strip().splitlines()[0],
            f"'zvaultctl find {wanted.request.backup} NAME' shows in which snapshots it is",
        )
    if listed.returncode != 0 or listed.stderr:
        raise ToolFailed(f"cannot read {snapshot.name}", listed.complaint())
    files = copy.parse_list(listed.stdout)
    there = await runner.run(
        copy.there_argv(to),
        stdin=copy.ended([path for path, _ in files]),
        deadline=copy.LIST_DEADLINE,
        check=False,
    )
    if there.returncode != 0:
        raise NotFound(f"there is no folder '{to}'", there.complaint(), f"'mkdir -p {to}' first")
    size = sum(size for _, size in files)
    return FilesPlan(snapshot, tuple(tops), tuple(copy.parse_names(there.stdout)), len(files), size)
