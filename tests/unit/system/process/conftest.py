"""For the tests of processes: only what is said to hang in the kernel hangs."""

from __future__ import annotations

import pytest

from tests.unit.patience import PATIENCE
from zvault.system.process import json_child, line_follower, spawn, user_program


@pytest.fixture(autouse=True)
def slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was killed, or told to end, has the time that it takes where all the machine is slow."""
    for module in (spawn, json_child, line_follower, user_program):
        monkeypatch.setattr(module, "KILL_GRACE", PATIENCE)
    monkeypatch.setattr(spawn, "_abandoned", set())
