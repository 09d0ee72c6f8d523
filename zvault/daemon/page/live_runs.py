"""What runs now, stream by stream, from what runs publish."""

from __future__ import annotations

from dataclasses import dataclass, field

from zvault.api.events import (
    DatasetFailed,
    ProgressMade,
    RetryEvent,
    RunEvent,
    RunFinished,
    TransferFinished,
    TransferStarted,
)
from zvault.daemon.active_run import ActiveRun
from zvault.daemon.page.page_model import RunningDocument, StreamDocument

SHOWN_STREAMS = 12
"""Streams of a run that are shown."""


@dataclass(slots=True)
class _Live:
    rate: float | None = None
    streams: dict[str, StreamDocument] = field(default_factory=dict)


class LiveRuns:
    """The streams of the runs under way, and how fast they are."""

    def __init__(self) -> None:
        self._runs: dict[str, _Live] = {}

    def hear(self, event: RunEvent) -> None:
        """Take in an event."""
        if isinstance(event, RunFinished):
            self._runs.pop(event.run, None)
            return
        run = self._runs.setdefault(event.run, _Live())
        match event:
            case TransferStarted():
                name = event.dataset
                run.streams[name] = {"dataset": name, "bytes": 0, "total": event.bytes, "rate": None}
            case ProgressMade():
                name, total = event.dataset, event.total
                run.streams[name] = {
                    "dataset": name,
                    "bytes": event.bytes,
                    "total": total,
                    "rate": event.rate,
                }
                run.rate = event.run_rate if event.run_rate is not None else event.rate
            case TransferFinished() | DatasetFailed():
                run.streams.pop(event.dataset, None)
            case RetryEvent():
                run.rate = None

    def document(self, run: ActiveRun) -> RunningDocument:
        """A run as the page has it."""
        live = self._runs.get(run.id, _Live())
        streams = list(live.streams.values())
        return {
            "id": run.id,
            "backup": run.backup,
            "trigger": run.trigger,
            "started": run.started,
            "bytes_done": run.bytes_done,
            "bytes_total": run.bytes_total,
            "rate": live.rate if streams else None,
            "streams": streams[:SHOWN_STREAMS],
            "more": max(0, len(streams) - SHOWN_STREAMS),
            "waiting": run.waiting,
            "error": run.failed.error if run.failed is not None and run.waiting is not None else None,
        }
