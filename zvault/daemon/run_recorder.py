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
        if (
            run.trigger != "snapshot"
        ):  # made every few minutes, perhaps: the history has those that went wrong
            self._write_begun(run, started)

    def end(self, run: ActiveRun, outcome: RunOutcome, started: float, ended: float) -> None:
        """Write down how a run ended, and count it where it was a backup."""
        held_back: dict[str, int] | None = None
        if (run.trigger == "prune" or not run.aside) and outcome.result in {"ok", "partial"}:
            held_back = {side: run.over_limit.get(side, 0) for side in RUN_SIDES}
            self._counters.over_limit |= {(run.backup, side): count for side, count in held_back.items()}
        if run.trigger == "snapshot" and outcome.result not in {"ok", "skipped"}:
            self._write_begun(run, started)
        self._write_ended(run, outcome, ended, held_back)
        if not run.aside:
            self._counters.runs[run.backup, outcome.result] += 1
            if outcome.error is not None:
                self._counters.failures[run.backup, outcome.error.reason] += 1

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
