"""Starts again what was stopped: by a crash, or before the host went to sleep."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from zvault.core.errors import Busy, Refused
from zvault.daemon.backup_runs import BackupRuns
from zvault.daemon.scheduler import BackupScheduler


class RunResumer:
    """Makes up for runs that were stopped, and for the times that passed meanwhile."""

    def __init__(self, runs: BackupRuns, *schedulers: BackupScheduler) -> None:
        self._runs, self._schedulers = runs, schedulers
        self._tasks: set[asyncio.Task[None]] = set()

    def resume_runs(self, stopped: set[str]) -> None:
        """Start the runs of backups again that were stopped."""
        for name in sorted(stopped):
            if self._runs.runner.running(name) is not None:
                continue  # its time had passed, too
            with contextlib.suppress(Busy, Refused):
                self._runs.start(name, "catch-up")

    def wake_up(self, stopped: set[str]) -> None:
        """The host is awake again: start what was stopped, and what was due while it slept."""
        self.resume_runs(stopped)
        for scheduler in self._schedulers:
            self._begin(scheduler.reschedule())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """End what is under way."""
        for task in self._tasks:
            task.cancel()
