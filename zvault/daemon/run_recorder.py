"""Writes down of each run that it began and how it ended: in the history, and in the counters of what ran."""

from __future__ import annotations

from zvault.daemon.active_run import ActiveRun
from zvault.daemon.history import RunHistory
from zvault.daemon.journald import log
from zvault.daemon.lag_readings import LagReadings
from zvault.daemon.run_counters import RunCounters
from zvault.ops.run_outcome import RunOutcome

RUN_SIDES = ("source", "vault")


class RunRecorder:
    """The records of runs. What cannot be written stops no run."""

    def __init__(self, history: RunHistory, counters: RunCounters, readings: LagReadings) -> None:
        self._history = history
        self._counters = counters
        self._ways = readings.lags

    def is_recorded(self, id: str) -> bool:
        """True if the history has a run of this id."""
        return self._history.run(id) is not None

    def begin(self, run: ActiveRun, started: float) -> None:
        """Write down that a run has begun."""
        # Snapshots may be made every few minutes: the history has those that tell something new.
        if run.trigger != "snapshot":
            self._write_begun(run, started)

    def end(self, run: ActiveRun, outcome: RunOutcome, started: float, ended: float) -> None:
        """Write down how a run ended, and count it where it was a backup."""
        held_back = self._count_held_back(run, outcome)
        snapshot_is_told = outcome.result not in {"ok", "skipped"}
        if held_back is not None:
            counts = {(run.backup, side): count for side, count in held_back.items()}
            before, self._counters.over_limit = self._counters.over_limit, self._counters.over_limit | counts
            snapshot_is_told |= any(before.get(key, 0) != count for key, count in counts.items())
        if run.trigger == "snapshot" and snapshot_is_told:
            self._write_begun(run, started)
        self._write_ended(run, outcome, ended, held_back)
        if not run.aside:
            self._counters.runs[run.backup, outcome.result] += 1
            if outcome.error is not None and outcome.result != "skipped":
                self._counters.failures[run.backup, outcome.error.reason] += 1

    def _count_held_back(self, ended: ActiveRun, outcome: RunOutcome) -> dict[str, int] | None:
        """Count by side the datasets of which prune_limit holds something back now; None where that is as before.

        A snapshot at its own time may prune the source, and knows nothing of the vault.
        """
        told = ended.over_limit
        if ended.trigger == "snapshot":
            known = {side: self._counters.over_limit.get((ended.backup, side)) for side in RUN_SIDES}
            counts = {**known, **told} if "source" in told else {}
            return {side: count for side, count in counts.items() if count is not None} or None
        prunes = ended.trigger == "prune" or not ended.aside
        if not prunes or outcome.result not in {"ok", "partial"}:
            return None
        return {side: told.get(side, 0) for side in RUN_SIDES}

    def _write_begun(self, run: ActiveRun, started: float) -> None:
        try:
            self._history.begin(run.id, run.backup, run.trigger, started, self._ways.way(run.backup))
        except Exception:
            log.exception("%s: the beginning of run %s is missing in the history", run.backup, run.id)

    def _write_ended(
        self, run: ActiveRun, outcome: RunOutcome, ended: float, held_back: dict[str, int] | None
    ) -> None:
        figures = {
            "bytes": outcome.bytes,
            "datasets": outcome.datasets,
            "sent": outcome.sent,
            "pruned": outcome.pruned,
        }
        error = outcome.error.as_dict() if outcome.error else None
        try:
            self._history.end(run.id, ended, outcome.result, figures, error, run.drift, held_back)
        except Exception:
            log.exception("%s: the end of run %s is missing in the history", run.backup, run.id)
