"""A run in progress, and what its events tell of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from zvault.api.events import (
    DatasetFailed,
    PlannedEvent,
    ProgressMade,
    RetryEvent,
    RunEvent,
    TransferFinished,
    TransferStarted,
    WarningEvent,
)


@dataclass
class ActiveRun:
    """A run in progress. ``streams`` are the datasets being sent; ``over_limit`` counts by side those of which
    prune_limit held something back; ``drift`` is what was told of the vault's writes.

    ``started`` is when it began, ``waiting`` when it tries again what failed (seconds since the epoch). While it waits
    another run of its backup may take over: then it is ``superseded``, and ends. ``missed`` is the trigger of one that
    was due earlier. ``failed`` is what was told of the last try that failed. ``turn``: for
    what it waits until it is this host's turn, where hosts share the vault. One that is ``aside`` is no backup.
    """

    id: str
    backup: str
    trigger: str
    task: asyncio.Task[None]
    bytes_done: int = 0
    bytes_total: int | None = None
    streams: set[str] = field(default_factory=set)
    over_limit: dict[str, int] = field(default_factory=dict)
    drift: str | None = None
    waiting: float | None = None
    missed: str | None = None
    failed: RetryEvent | None = None
    turn: str | None = None
    superseded: asyncio.Event = field(default_factory=asyncio.Event)
    started: float = 0.0
    aside: bool = False

    def note(self, event: RunEvent) -> None:
        """Keep the live figures."""
        match event:
            case PlannedEvent():
                self.bytes_total = self.bytes_done + event.bytes_total
            case TransferStarted():
                self.streams.add(event.dataset)
            case ProgressMade():
                self.bytes_done, self.bytes_total = event.run_bytes, event.run_total
            case TransferFinished():
                self.streams.discard(event.dataset)
                self.bytes_done, self.bytes_total = event.run_bytes, event.run_total
            case DatasetFailed():
                self.streams.discard(event.dataset)
            case RetryEvent():
                self.failed = event
            case WarningEvent() if event.drift is not None:
                self.drift = event.text
            case WarningEvent(side=str(side), over_limit=int(over_limit)):
                self.over_limit[side] = over_limit
