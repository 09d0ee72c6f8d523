"""The turn of one run on a vault that several hosts share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from zvault.core.sharing.run_decision import DueRun, RunAction
from zvault.ops.vaults.assembly import Say, VaultAssembly
from zvault.ops.vaults.shared_vault import RunRetry, SharedVault, never_retry


@dataclass(frozen=True, slots=True)
class RunPermission:
    """The turn of one run: what is due, and the boot of the host that the vault is taken from, "" for none."""

    shared: SharedVault
    due: DueRun
    of: str
    say: Say
    warn: Say

    async def shut_out(self, assembly: VaultAssembly) -> None:
        """Take the vault from the host that has stopped."""
        if self.of:
            await self.shared.shut_out(assembly, self.of, self.say)

    @asynccontextmanager
    async def taken(
        self, lag: Callable[[], float | None], good: Callable[[], bool], again: RunRetry = never_retry
    ) -> AsyncIterator[str | None]:
        """While a try of the run has the vault; gives why it need not be made after all, None where it is to be."""
        async with self.shared.run(self.due, lag, good, self.warn, again) as decision:
            yield None if decision.action is RunAction.RUN else decision.reason
