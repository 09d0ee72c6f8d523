"""Counters since the daemon started, for the metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from zvault.api.events import (
    DatasetFailed,
    PrunedEvent,
    ResumeAborted,
    RetryEvent,
    RunEvent,
    RunFinished,
    RunStarted,
    TransferFinished,
    VerifiedEvent,
    WarningEvent,
)
from zvault.daemon.history import OTHER_TRIGGERS


@dataclass
class RunCounters:
    """The counters of runs since zvaultd started; keys begin with the backup's name.

    ``conflicts``: the datasets that the last run of each backup left out because they are in conflict.
    """

    runs: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    pruned: Counter[tuple[str, str]] = field(default_factory=Counter)
    aborted: Counter[tuple[str, str]] = field(default_factory=Counter)
    drifts: Counter[tuple[str, str]] = field(default_factory=Counter)
    heals: Counter[tuple[str, str]] = field(default_factory=Counter)
    differing: Counter[tuple[str, str]] = field(default_factory=Counter)
    over_limit: dict[tuple[str, str], int] = field(default_factory=dict)
    conflicts: dict[str, set[str]] = field(default_factory=dict)
    _conflicting: dict[str, set[str]] = field(default_factory=dict)
    """The same of runs under way, by run."""

    def move_findings(self, before: str, name: str) -> None:
        """Have what was found of a backup by its last run be of its new name. What is only counted stays."""
        for side in ("source", "vault"):
            self.over_limit.pop((name, side), None)
            if (count := self.over_limit.pop((before, side), None)) is not None:
                self.over_limit[name, side] = count
        self.conflicts.pop(name, None)
        if (left_out := self.conflicts.pop(before, None)) is not None:
            self.conflicts[name] = left_out

    def count(self, event: RunEvent) -> None:
        """Take an event of a run in."""
        backup = event.backup
        if isinstance(event, RunFinished):
            found = self._conflicting.pop(event.run, set())
            if event.trigger not in OTHER_TRIGGERS:
                self.conflicts[backup] = found
        match event:
            case RunStarted():
                self._conflicting[event.run] = set()
            case DatasetFailed() if event.error["reason"] == "conflict":
                self._conflicting.setdefault(event.run, set()).add(event.dataset)
            case TransferFinished():
                self.bytes[backup] += event.bytes
                self.seconds[backup] = self.seconds.get(backup, 0.0) + event.seconds
            case ResumeAborted():
                self.aborted[backup, event.reason] += 1
            case WarningEvent(vault=str(vault), drift=str(drift)):
                self.drifts[vault, drift] += 1
            case VerifiedEvent() if event.result == "differs":
                self.differing[backup, event.level] += 1
            case RetryEvent():
                self.retries[backup] += 1
            case RunFinished() if event.trigger == "heal" and (event.datasets or event.error):
                ended = {"ok": "healed", "partial": "partial"}
                self.heals[backup, ended.get(event.result, "failed")] += 1
            case PrunedEvent():
                self.pruned[backup, event.side] += event.count
