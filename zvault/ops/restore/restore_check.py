"""Compares what a restore wrote with the snapshot that it came from, and tells what differs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from zvault.api.events import ComparedEvent, DiffersEvent, Emit, ProgressMade, RunEvent
from zvault.api.restore import DifferenceDocument
from zvault.core.errors import ZvaultError
from zvault.core.integrity.restore_comparison import (
    RestoreComparison,
    RestoreMismatch,
    make_incomplete_error,
    make_uncompared_error,
)
from zvault.core.integrity.verification import VerificationFindings
from zvault.core.model import Dataset, Snapshot
from zvault.core.names import DatasetName
from zvault.ops.context import Context
from zvault.ops.restore.compare import SnapshotComparison
from zvault.ops.restore.snapshot_reader import KeyNotLoaded, OpenSnapshot, open_snapshot
from zvault.system.file_trees.tree_worker import TreeWorker, start_tree_worker
from zvault.zfs.client import Zfs

DIFFERENCES_PER_EVENT = 100
"""Differences told in one event."""


@dataclass
class RestoreCheck:
    """The comparison of one restore to ``to``, of about ``total`` bytes."""

    context: Context
    to: str
    total: int
    emit: Emit
    compared: RestoreComparison = field(default_factory=RestoreComparison)
    _started: float = field(default_factory=time.monotonic)
    _waiting: list[RestoreMismatch] = field(default_factory=list)

    def tell(self, found: Sequence[RestoreMismatch]) -> None:
        """Note differences, and tell them in events of many."""
        self._waiting += self.compared.add(found)
        while len(self._waiting) >= DIFFERENCES_PER_EVENT:
            self._flush()

    def _flush(self) -> None:
        if some := self._waiting[:DIFFERENCES_PER_EVENT]:
            del self._waiting[:DIFFERENCES_PER_EVENT]
            self.emit(DiffersEvent(differences=[_document(one) for one in some]))

    async def files(self, worker: TreeWorker, folder: str, names: Sequence[bytes]) -> None:
        """Compare the trees that a worker copied into a folder. Raises what keeps them from being compared."""
        await self._trees(folder, worker, names)

    async def dataset(
        self,
        vault: Zfs,
        its: tuple[Dataset, Snapshot],
        target: Zfs,
        back: tuple[Dataset, Snapshot],
        name: str,
    ) -> None:
        """Compare a dataset's snapshot on the vault with what was restored of it, as ``name``.

        What cannot be read is noted, with the reason.
        """
        try:
            guid = (await target.get(back[1].name, "guid"))["guid"]
            if guid != str(its[1].guid):
                self.tell([RestoreMismatch(name, "", "snapshot GUID", str(its[1].guid), guid)])
                return
            async with AsyncExitStack() as both:
                here = await both.enter_async_context(open_snapshot(self.context, vault, *its))
                there = await both.enter_async_context(
                    open_snapshot(self.context, target, *back, theirs=True)
                )
                await self._contents(name, its[1].guid, here, there)
        except KeyNotLoaded as error:
            self.compared.unread[name] = error.why
        except ZvaultError as error:
            self.compared.unread[name] = error.why or str(error)
            # A mount that failed, or an I/O error, counted like a key that is not loaded, and the restore ended ok.
            self.compared.failed.add(name)
        else:
            self.compared.datasets += 1

    async def _contents(self, name: str, key: int, vault: OpenSnapshot, back: OpenSnapshot) -> None:
        local = vault.host.address is None and back.host.address is None
        if local and vault.size is None:
            async with start_tree_worker(vault.root, back.root) as worker:
                await self._trees(name, worker, None)
            return
        found = VerificationFindings()
        await SnapshotComparison(name, key, vault, back, found, self._progress_only).compare(
            0, 1.0, None, everything=True
        )
        self.compared.files += found.files
        self.compared.bytes += found.bytes
        self.tell(
            [
                RestoreMismatch(name, one.path, "content", one.source or "", one.vault or "cannot be read")
                for one in found.differences
            ]
        )
        self.compared.more += found.more

    def _progress_only(self, event: RunEvent) -> None:
        """What a Comparison tells but for the differences, which are told once, here."""
        if isinstance(event, ProgressMade):
            self.emit(event)

    async def _trees(self, name: str, worker: TreeWorker, names: Sequence[bytes] | None) -> None:
        files, bytes_ = self.compared.files, self.compared.bytes
        async for said in worker.compare(names):
            if said.unlike is not None:
                path, what, wanted, found = said.unlike
                self.tell([RestoreMismatch(name, path, what, wanted, found)])
                continue
            self.compared.files, self.compared.bytes = files + said.files, bytes_ + said.bytes
            self.compared.more += said.more
            done = self.compared.bytes
            rate = done / max(0.001, time.monotonic() - self._started)
            self.emit(
                ProgressMade(
                    dataset=name,
                    bytes=said.bytes,
                    total=max(self.total, done),
                    rate=rate,
                    buffer=None,
                    run_bytes=done,
                    run_total=max(self.total, done),
                )
            )

    def finish(self) -> ZvaultError | None:
        """Tell what came of it; returns the error for what is not, or may not be, as in the snapshot; None if all is.

        What has no key here is told only: its GUIDs are the same, and nobody can read it.
        """
        self._flush()
        compared = self.compared
        self.emit(
            ComparedEvent(
                result=compared.result,
                datasets=compared.datasets,
                files=compared.files,
                bytes=compared.bytes,
                differences=len(compared.differences) + compared.more,
                unread=compared.unread,
                commands=compared.commands,
            )
        )
        if compared.result == "differs":
            return make_incomplete_error(self.to, compared)
        return make_uncompared_error(self.to, compared) if compared.failed else None


def _document(one: RestoreMismatch) -> DifferenceDocument:
    return {
        "dataset": one.dataset,
        "path": one.path,
        "what": one.what,
        "wanted": one.wanted,
        "found": one.found,
    }


def rename_as_restored(dataset: Dataset, snapshot: Snapshot, target: DatasetName) -> tuple[Dataset, Snapshot]:
    """A vault's dataset and snapshot as they are called where they were restored to."""
    return replace(dataset, name=target), replace(snapshot, dataset=target)
