"""Restores as jobs: of datasets, and of files into a folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zvault.api.events import Emit, MessageEvent
from zvault.daemon.active_run import ActiveRun
from zvault.ops.run_outcome import RunOutcome
from zvault.ops.vaults.past_vaults import PastVaults

if TYPE_CHECKING:
    from zvault.ops.restore.plan_restore import RestoreRequest
    from zvault.ops.restore.restore_files import FilesRequest


@dataclass
class RestoreJob:
    """Restores datasets of the backup ``subject`` out of its vault, or out of the vault as it was."""

    past: PastVaults
    vault: str
    request: RestoreRequest
    outcome: RunOutcome = field(default_factory=RunOutcome, init=False)
    trigger: str = field(default="restore", init=False)
    aside: bool = field(default=True, init=False)

    @property
    def subject(self) -> str:
        """The backup that is restored from."""
        return self.request.backup

    async def execute(self, _run: ActiveRun, emit: Emit) -> None:
        """Restore. What was not restored leaves it partial."""
        from zvault.ops.restore.restore_datasets import restore_datasets

        request, user = self.request, f"restore to {self.request.to}"
        seen = self.past.seen(self.vault, request.vault_at, user, lambda text: emit(MessageEvent(text=text)))
        async with seen as (context, vaults):
            done = await restore_datasets(context, vaults, request, emit)
        self.outcome.bytes = done.bytes
        self.outcome.datasets = self.outcome.sent = done.datasets
        self.outcome.fall_short(done.error)


@dataclass
class RestoreFilesJob:
    """Copies files of one snapshot of the backup ``subject`` into a folder."""

    past: PastVaults
    vault: str
    wanted: FilesRequest
    outcome: RunOutcome = field(default_factory=RunOutcome, init=False)
    trigger: str = field(default="restore", init=False)
    aside: bool = field(default=True, init=False)

    @property
    def subject(self) -> str:
        """The backup that is restored from."""
        return self.wanted.request.backup

    async def execute(self, _run: ActiveRun, emit: Emit) -> None:
        """Copy them. What was not copied leaves it partial."""
        from zvault.ops.restore.restore_files import restore_files

        request, user = self.wanted.request, f"restore to {self.wanted.request.to}"
        seen = self.past.seen(self.vault, request.vault_at, user, lambda text: emit(MessageEvent(text=text)))
        async with seen as (context, vaults):
            done = await restore_files(context, vaults, self.wanted, emit)
        self.outcome.datasets, self.outcome.bytes = 1, done.plan.bytes
        self.outcome.fall_short(done.error)
