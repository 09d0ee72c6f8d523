"""A backup's snapshot at its own time, apart from its runs: no vault is needed, and nothing is sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from zvault.api.events import Emit, SnapshotMade
from zvault.config.schema import Backup
from zvault.core.errors import ZvaultError
from zvault.ops.context import Context
from zvault.ops.hooks import HookRun, RunHooks
from zvault.ops.replication.listing import (
    count_with_snapname,
    list_both_sides,
    list_selected,
    list_unlisted_errors,
)
from zvault.ops.replication.source_snapshot import RecentSource
from zvault.ops.retention.prune_source import prune_source
from zvault.ops.run_outcome import RunOutcome, make_datasets_failed
from zvault.ops.run_snapshot import RunSnapshot
from zvault.ops.state.source_tree import find_missing_included


@dataclass
class SnapshotRun:
    """Makes one snapshot of all datasets of the backup ``name``, between its hooks, and prunes the source by its rules.

    A run of the backup may be under way meanwhile, for days where it is the first. ``may_prune`` tells whether none is:
    a run prunes in its end, and what it is about to send is not pruned beside it. ``source_pruned`` tells that it did.
    """

    context: Context
    name: str
    emit: Emit
    outcome: RunOutcome = field(default_factory=RunOutcome)
    id: str = ""
    may_prune: Callable[[], bool] = lambda: True
    source_pruned: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """The hooks belong to this snapshot and no other."""
        backup = self._backup
        about = HookRun(self.name, self.id, str(backup.source), backup.vault or "")
        self._source = RecentSource(self.context.clients, self.context.env.clock)
        self._hooks = RunHooks(self.context.records.hooks, about, self.emit, self.outcome.fall_short)
        self.snapshots = RunSnapshot(
            self.context, self.name, self.emit, self._hooks, self._source, own_time=True
        )

    @property
    def _backup(self) -> Backup:
        """The backup's table in the configuration in force. Raises NotFound."""
        return self.context.env.backup(self.name)

    async def execute(self) -> None:
        """Make it. A failure ends up in the outcome; only cancellation is raised."""
        try:
            await self._make()
        except ZvaultError as error:
            self.outcome.blame(error)
            self.outcome.result = "failed"

    async def _make(self) -> None:
        tree = await self._source.tree(self._backup)
        list_selected(self._backup, tree)
        missing = find_missing_included(self._backup, tree.datasets, tree.unlisted.keys())
        made, _ = await self.snapshots.make(None)
        sides = await list_both_sides(self.context, self._backup, None, sizes="none")
        unlisted = list_unlisted_errors(sides)
        self.outcome.datasets = len(sides.pairs) + len(unlisted)
        if made:
            count = await sides.compute(count_with_snapname, made, sides)
            self.emit(SnapshotMade(snapname=made, datasets=count))
        self.outcome.pruned += self.snapshots.pruned or 0
        if not self.snapshots.pruned and self.may_prune():
            # A share each time would leave nothing of a history within hours, where keep is shorter by mistake.
            self.outcome.pruned += await prune_source(
                self.context, self._backup, self.emit, sides, between_runs=True
            )
            self.source_pruned = True
        if refused := {**self.snapshots.refused, **unlisted}:
            self.outcome.blame(make_datasets_failed(refused, self.outcome.datasets))
            self.outcome.result = "partial" if made else "failed"
        elif self.outcome.result == "ok":
            self.outcome.fall_short(missing)
