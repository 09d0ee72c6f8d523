"""What a dead-man's switch is told of runs: a beginning only of what has an end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.events import make_event
from zvault.api.events import RunEvent, VaultUp
from zvault.core.notify.message import PingKind
from zvault.daemon.notify.run_pings import RunPings

UP = VaultUp(run="1", backup="b", time=1.0, vault="cold", message="pool cold is up")
ERROR = {"reason": "transfer", "what": "the stream broke", "why": "no space", "next": "make room"}


def started(trigger: str = "schedule") -> RunEvent:
    return make_event("run-started", "1", time=1.0, trigger=trigger)


def finished(result: str) -> RunEvent:
    figures = {"bytes": 0, "datasets": 1, "sent": 1, "pruned": 0, "seconds": 1.0}
    error = ERROR if result in ("failed", "partial") else None
    more: dict[str, Any] = {"trigger": "schedule", "result": result, "error": error}
    return make_event("run-finished", "1", time=1.0, **figures, **more)


def beats(*events: RunEvent, shared: bool) -> list[PingKind]:
    pings = RunPings(lambda backup: shared and backup == "b")
    heard = [pings.hear(event) for event in events]
    return [ping.beat for ping in heard if ping is not None]


def test_a_run_that_another_host_makes_is_not_told_at_all():
    assert beats(started(), finished("skipped"), shared=True) == []


@pytest.mark.parametrize(
    ("result", "end"), [("ok", "success"), ("failed", "failure"), ("partial", "failure")]
)
@pytest.mark.parametrize("shared", [True, False])
def test_one_that_is_made_is_told_from_its_beginning_to_its_end(result: str, end: PingKind, shared: bool):
    assert beats(started(), UP, UP, finished(result), shared=shared) == ["start", end]


def test_one_that_fails_before_its_vault_is_up_is_told_as_failed():
    assert beats(started(), finished("failed"), shared=True) == ["failure"]


def test_a_vault_of_one_host_is_not_waited_for():
    assert beats(started(), shared=False) == ["start"]


@pytest.mark.parametrize("shared", [True, False])
def test_what_is_no_backup_is_not_told(shared: bool):
    assert beats(started("restore"), UP, finished("ok"), shared=shared) == []
