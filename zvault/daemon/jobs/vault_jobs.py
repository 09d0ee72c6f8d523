"""The scrub and the healing of a vault as jobs. What they go by while they run is the scrub scheduler's to decide."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from zvault.api.events import Emit
from zvault.daemon.active_run import ActiveRun
from zvault.daemon.job_runner import JobRunner
from zvault.ops.context import Context
from zvault.ops.healing.scrub import VaultScrubbing
from zvault.ops.run_outcome import RunOutcome
from zvault.ops.state.pool_health import PoolCondition
from zvault.ops.vaults.vault import Vaults


class VaultCare(Protocol):
    """What decides about a vault while it is scrubbed or healed, and is told of the end."""

    def find_scrub_pause(self, vault: str) -> str | None:
        """Why a scrub of the vault may not run at this moment, in words; None where it may."""

    def is_scrub_wanted(self, vault: str, found: PoolCondition) -> bool:
        """True if a scrub of the vault is wanted still, now that it was looked at."""

    def find_busy(self, vault: str) -> str | None:
        """What a healing of the vault waits for between two streams, in words; None where it waits for nothing."""

    def note_scrubbed(self, vault: str, *, failed: bool) -> None:
        """Take in that a scrub of the vault has ended; ``failed`` where it did not come to its end."""

    def note_healed(self, vault: str) -> None:
        """Take in that a healing of the vault has ended, whatever came of it."""


@dataclass
class ScrubJob:
    """Scrubs the vault ``subject``, from its beginning or from where it stopped."""

    context: Context
    vaults: Vaults
    runner: JobRunner
    care: VaultCare
    subject: str
    outcome: RunOutcome = field(default_factory=RunOutcome, init=False)
    trigger: str = field(default="scrub", init=False)
    aside: bool = field(default=True, init=False)

    async def execute(self, _run: ActiveRun, emit: Emit) -> None:
        """Scrub to the end, with pauses."""
        failed = True
        try:
            await VaultScrubbing(
                self.context,
                self.vaults,
                self.subject,
                self.find_obstacle,
                self.find_ending,
                self.is_due,
                emit,
                self.outcome,
            ).run()
            failed = False
        finally:
            self.care.note_scrubbed(self.subject, failed=failed)

    def find_obstacle(self) -> str | None:
        """Why it may not run at this moment, in words; None where it may."""
        return self.care.find_scrub_pause(self.subject)

    def find_ending(self) -> str | None:
        """Why everything is to end, in words; None where nothing is."""
        return self.runner.closed

    def is_due(self, found: PoolCondition) -> bool:
        """True if it is wanted still, now that the vault was looked at."""
        return self.care.is_scrub_wanted(self.subject, found)


@dataclass
class HealJob:
    """Heals the vault ``subject``; ``trusts_hosts`` as VaultHealing has it."""

    context: Context
    vaults: Vaults
    care: VaultCare
    subject: str
    trusts_hosts: bool = False
    outcome: RunOutcome = field(default_factory=RunOutcome, init=False)
    trigger: str = field(default="heal", init=False)
    aside: bool = field(default=True, init=False)

    async def execute(self, _run: ActiveRun, emit: Emit) -> None:
        """Heal what can be healed."""
        from zvault.ops.healing.heal import VaultHealing

        try:
            await VaultHealing(
                self.context,
                self.vaults,
                self.subject,
                self.find_obstacle,
                emit,
                self.outcome,
                self.trusts_hosts,
            ).run()
        finally:
            self.care.note_healed(self.subject)

    def find_obstacle(self) -> str | None:
        """What it waits for between two streams, in words; None where it waits for nothing."""
        return self.care.find_busy(self.subject)
