"""What runs, and looks at the pools, have found of each backup: its lag and proofs, and when it last did its work."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from zvault.api.backups import Side
from zvault.config.schema import Backup
from zvault.core.dates import reject_future
from zvault.core.errors import ErrorDocument, ZvaultError
from zvault.core.model import Dataset
from zvault.core.replication.plan_model import SnapshotFilter
from zvault.daemon.history import RunHistory
from zvault.daemon.job_runner import JobRunner
from zvault.daemon.journald import log
from zvault.daemon.lag_readings import LagReadings
from zvault.daemon.per_backup import ValuesByBackup
from zvault.ops.context import Context
from zvault.ops.replication.lag import measure_lags
from zvault.ops.replication.listing import BothListings, list_selected, make_own_filter
from zvault.ops.run import BackupRun
from zvault.ops.state.source_tree import list_source
from zvault.system.side_threads import compute_aside


class BackupFindings:
    """Keeps what was found of each backup, and reads it from the pools while no run of it is at work."""

    def __init__(
        self, context: Context, readings: LagReadings, runner: JobRunner, history: RunHistory
    ) -> None:
        self.context = context
        self.readings = readings
        self.snapshot_troubles: ValuesByBackup[ErrorDocument | None] = ValuesByBackup(context.env)
        """What was wrong with the last snapshot of each backup that makes some apart from its runs."""
        self._runner = runner
        self._history = history
        self._changed_beside: dict[tuple[str, Side], float] = {}
        """When a side of a backup changed last while a run of it was at work (monotonic seconds)."""

    async def refresh_lag(self, backup: Backup) -> None:
        """Read a backup's lag from the pools, unless a run of it is at work."""
        await self.readings.refresh(backup, lambda: self._runner.is_at_work(backup.name))

    def doubt_lag(self, backup: str, *, source: bool = False, vault: bool = False) -> None:
        """Take a backup's lag for unknown until it was read again. A run reads it by itself, as it looks last: what
        changes after that on either side is read again once it has ended.
        """
        if not self._runner.is_at_work(backup):
            self.readings.doubt(backup)
            return
        sides: dict[Side, bool] = {"source": source, "vault": vault}
        now = self.context.env.clock.monotonic()
        for side in (side for side, changed in sides.items() if changed):
            self._changed_beside[backup, side] = now

    def doubt_vault(self, vault: str) -> None:
        """Doubt the lag of each backup into a vault: it came up, and may be older than when it went down."""
        for name, backup in self.context.env.config.backup.items():
            if backup.vault == vault:
                self.doubt_lag(name)

    async def note_looked(self, backup: str, way: str | None, sides: BothListings) -> None:
        """A run has looked at both sides: what was doubted until then is known."""
        if self.readings.is_doubted(backup):
            found = await sides.compute(measure_lags, self.context, self.context.env.backup(backup), sides)
            self.readings.keep(backup, found, way)

    async def keep_found(self, backup: str, way: str | None, run: BackupRun) -> None:
        """Keep what a run has found that has ended, of a backup that went this ``way`` as it began."""
        outcome, readings = run.outcome, self.readings
        if outcome.lags:
            # What is doubted yet came while it waited for a try that did not get so far as to look.
            doubted = readings.is_doubted(backup)
            readings.keep(backup, outcome.lags, way)
            looked = run.looked.items()
            if doubted or any(self._changed_beside.get((backup, side), at) > at for side, at in looked):
                readings.doubt(backup)
        if outcome.made:
            readings.keep_made(backup, outcome.made, way)
        if outcome.proofs:
            readings.proofs.put(backup, outcome.proofs, way)
        if run.listed is not None:
            await readings.note_exposed(backup, run.listed[0], way)
            readings.listings.keep(backup, run.listed[0], way, run.listed[1])

    async def last_run(self, backup: Backup) -> datetime | None:
        """Return when a backup last began to run; never a time to come. None where it never did, or nobody knows.

        Its own record tells that, and what its vault has: the newest snapshot on the source may be another backup's. It
        counts only where a backup makes nothing else. A time from the future is of a clock that was wrong, then or now;
        to wait until it has come could be to wait for years, so it counts for nothing.
        """
        name, readings = backup.name, self.readings
        try:
            await self.refresh_lag(backup)
        except ZvaultError as error:
            log.warning("cannot tell what %s last put on its vault: %s", name, error)
        # Only now: that may have taken minutes, in which it ran.
        known = [self._history.last_begun(name, readings.lags.way(name))]
        now = self.context.env.clock.time()
        known += [lag.covered(now) for lag in readings.lags.get(name, {}).values()]
        known += readings.made.get(name, {}).values()
        if (running := self._runner.running(name)) is not None:
            known.append(min(running.started, now))  # the clock may have been set back since: it has begun
        newest = max((at for one in known if (at := reject_future(one, now)) is not None), default=None)
        return None if newest is None else datetime.fromtimestamp(newest, UTC)

    async def last_snapshot(self, backup: Backup) -> datetime | None:
        """Return when zvault's newest snapshot of a backup's source was made; never a time to come. None where there is
        none, or nobody knows.
        """
        try:
            tree = await list_source(self.context.clients, backup, sizes=False)
            chosen = list_selected(backup, tree)
        except ZvaultError as error:
            log.warning("cannot tell when %s last made a snapshot: %s", backup.name, error)
            return None
        size = sum(1 + len(dataset.snapshots) for dataset in chosen)
        newest = await compute_aside(
            size, None, _find_newest, chosen, make_own_filter(backup), self.context.env.clock.time()
        )
        return None if newest is None else datetime.fromtimestamp(newest, UTC)


def _find_newest(datasets: Sequence[Dataset], ours: SnapshotFilter, now: float) -> float | None:
    """When the newest of some datasets' snapshots was made that are ``ours``; never a time to come."""
    dates = (snap.creation for dataset in datasets for snap in dataset.snapshots if ours(snap))
    return max((at for one in dates if (at := reject_future(one, now)) is not None), default=None)
