"""A verification as a job, out of the way of backups."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zvault.api.events import Emit
from zvault.core.integrity.verification import ProofLevel
from zvault.daemon.active_run import ActiveRun
from zvault.daemon.job_runner import JobRunner
from zvault.daemon.known_proofs import KnownProofs
from zvault.ops.context import Context
from zvault.ops.run_outcome import RunOutcome
from zvault.ops.vaults.vault import Vaults

if TYPE_CHECKING:
    from zvault.config.schema import Backup

GIVE_WAY_EVERY = 1.0

VERIFY_TRIGGER = "verify"


@dataclass
class VerifyJob:
    """Verifies the backup ``subject`` at one level."""

    context: Context
    vaults: Vaults
    runner: JobRunner
    proofs: KnownProofs
    subject: str
    level: ProofLevel
    outcome: RunOutcome = field(default_factory=RunOutcome, init=False)
    trigger: str = field(default=VERIFY_TRIGGER, init=False)
    aside: bool = field(default=True, init=False)

    async def execute(self, _run: ActiveRun, emit: Emit) -> None:
        """Verify, and keep what it proved. Raises ZvaultError ("differs") for what is not the same."""
        from zvault.ops.verification.verification import Verification

        way = self.proofs.way(self.subject)
        one = Verification(self.context, self.vaults, self.subject, self.level, emit, self.give_way)
        try:
            await one.execute()
        finally:
            self.outcome.datasets, self.outcome.bytes = one.found.datasets, one.found.bytes
            if one.proofs:
                self.proofs.put(self.context.env.current_name(self.subject), one.proofs, way)
        if one.found.unproven:
            self.outcome.result = "partial"

    async def give_way(self) -> None:
        """Wait while a backup into the same vault runs."""
        vault = self.context.env.backup(self.subject).vault
        while tasks := self._at_work(vault):
            # One that waits to try again does not end, and is not at work either.
            await asyncio.wait(tasks, timeout=GIVE_WAY_EVERY)

    def _at_work(self, vault: str | None) -> set[asyncio.Task[None]]:
        backups = self.context.env.config.backup
        return {
            run.task
            for run in self.runner.current.values()
            if not run.aside and run.waiting is None and find_vault_name(backups, run.backup) == vault
        }


def find_vault_name(backups: dict[str, Backup], name: str) -> str | None:
    """Return the vault that a backup goes into; None where there is no such backup, or it has none."""
    backup = backups.get(name)
    return backup.vault if backup is not None else None
