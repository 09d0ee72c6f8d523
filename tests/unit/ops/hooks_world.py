"""Hooks as real processes around something that works, fails or is stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.events import split_event
from tests.unit.patience import PATIENCE
from zvault.api.events import HookOutput, RunEvent
from zvault.config.tables.hooks import Hook
from zvault.core.errors import ZvaultError
from zvault.ops.hooks import HookRun, RunHooks
from zvault.system.process import user_program
from zvault.system.record_store import RecordStore


class World:
    """A context with a folder, the events, what was blamed, and a log the hooks write to."""

    def __init__(self, folder: Path) -> None:
        self.store = RecordStore(folder / "state" / "lease")
        self.log = folder / "log"
        self.log.touch()
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.blamed: list[ZvaultError] = []
        self.heard: Callable[[], None] = lambda: None
        """What happens when a hook says something."""
        self.hooks = RunHooks(
            self.store, HookRun("b", "run-1", "tank", "cold"), self.emit, self.blamed.append
        )

    def emit(self, event: RunEvent) -> None:
        self.events.append(split_event(event))
        if isinstance(event, HookOutput):
            self.heard()

    def hook(self, line: str, **fields: Any) -> Hook:
        """A hook that runs a line of shell, in which ``log WORDS`` writes to the log."""
        text = f'log() {{ echo "$*" >>{self.log}; }}; {line}'
        return Hook.model_validate({"run": ["sh", "-c", text], **fields})

    def said(self, event: str) -> list[str]:
        return [fields["text"] for name, fields in self.events if name == event]

    @property
    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    @property
    def leases(self) -> list[str]:
        return self.store.names()


@pytest.fixture(name="it")
def world_for_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    # A hook that is told to end has the time that it takes where all the machine is slow.
    monkeypatch.setattr(user_program, "KILL_GRACE", PATIENCE)
    return World(tmp_path)


def locked(it: World) -> bool:
    return (it.log.parent / "lock").exists()
