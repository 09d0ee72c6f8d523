"""The turn of one run on a vault that several hosts share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from zvault.core.sharing.decide import Action, Due
from zvault.ops.vaults.assembly import Assembly, Say
from zvault.ops.vaults.shared import Again, SharedVault, never


@dataclass(frozen=True, slots=True)
class RunTurn:
    """The turn of one run: what is due, and the boot of the host that the vault is taken from, "" for none."""

    shared: SharedVault
    due: Due
    of: str
    say: Say
    warn: Say

    async def shut_out(self, assembly: Assembly) -> None:
        """Take the vault from the host that has stopped."""
        if self.of:
            await self.shared.shut_out(assembly, self.of, self.say)

    @asynccontextmanager
    async def taken(
        self, lag: Callable[[], float | None], good: Callable[[], bool], again: Again = never
    ) -> AsyncIterator[str | None]:
        """While a try of the run has the vault; gives why it need not be made after all, None where it is to be."""
        async with self.shared.run(self.due, lag, good, self.warn, again) as decision:
            yield None if decision.action is Action.RUN else decision.reason
