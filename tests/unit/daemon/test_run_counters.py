"""Which datasets the last run left out because they are in conflict."""

from __future__ import annotations

from typing import Any

from tests.unit.events import make_event
from zvault.daemon.run_counters import RunCounters


def told(counters: RunCounters, run: str, event: str, **fields: Any) -> None:
    counters.count(make_event(event, run, **fields))


def ran(counters: RunCounters, run: str, *failed: tuple[str, str], trigger: str = "schedule") -> None:
    told(counters, run, "run-started", trigger=trigger)
    for dataset, reason in failed:
        told(counters, run, "dataset-failed", dataset=dataset, again=False, error={"reason": reason})
    figures = {"result": "partial", "datasets": 1, "error": None}
    told(counters, run, "run-finished", trigger=trigger, **figures)


def test_the_conflicts_are_those_of_the_last_run():
    counters = RunCounters()
    ran(counters, "1", ("tank/a", "conflict"), ("tank/b", "transfer"))
    assert counters.conflicts == {"b": {"tank/a"}}
    told(counters, "2", "run-started", trigger="schedule")
    assert counters.conflicts == {"b": {"tank/a"}}, "as long as the next one has not ended"
    ran(counters, "2")
    assert counters.conflicts == {"b": set()}


def test_what_is_no_backup_says_nothing_of_conflicts():
    counters = RunCounters()
    ran(counters, "1", ("tank/a", "conflict"))
    ran(counters, "2", trigger="verify")
    assert counters.conflicts == {"b": {"tank/a"}}
