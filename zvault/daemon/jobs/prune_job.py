"""The pruning of a backup as a job."""

from __future__ import annotations

from dataclasses import dataclass, field

from zvault.api.events import Emit
from zvault.daemon.active_run import ActiveRun
from zvault.ops.context import Context
from zvault.ops.retention.prune import prune_backup
from zvault.ops.run_outcome import RunOutcome
from zvault.ops.vaults.vault import Vaults


@dataclass
class PruneJob:
    """Prunes the backup ``subject``; ``over_limit``: also what prune_limit holds back."""

    context: Context
    vaults: Vaults
    subject: str
    over_limit: bool
    outcome: RunOutcome = field(default_factory=RunOutcome, init=False)
    trigger: str = field(default="prune", init=False)
    aside: bool = field(default=True, init=False)

    async def execute(self, _run: ActiveRun, emit: Emit) -> None:
        """Prune; what could not go leaves it partial."""
        backup = self.context.env.backup(self.subject)
        self.outcome.pruned, selected = await prune_backup(
            self.context, self.vaults, backup, emit, over_limit=self.over_limit
        )
        self.outcome.result = "ok" if self.outcome.pruned == selected else "partial"
