"""What dead-man's switches are told of runs, from the runs' events."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable

from zvault.api.events import RunEvent, RunFinished, RunStarted, VaultUp
from zvault.core.notify.message import PingKind, RunPing, describe_run
from zvault.daemon.history import OTHER_TRIGGERS
from zvault.daemon.journald import format_event

PING_LAST_LINES = 20
"""Lines of a run that are told when it has ended."""


class RunPings:
    """Listens to events; a ``ping`` for each beginning and end of a backup's run.

    ``shared``: whether hosts share the vault of a backup. Then a run may only wait, to find that another host has made
    it: so it begins when it has the vault.
    """

    def __init__(self, shared: Callable[[str], bool]) -> None:
        self._shared = shared
        self._lines: dict[str, deque[str]] = {}
        self._waiting: set[str] = set()
        """Runs whose beginning was not told yet."""

    def hear(self, event: RunEvent) -> RunPing | None:
        """Take in an event. A run that was cut short makes no ping at its end: the next one goes on with it.

        Nor does one that another host of the vault makes in this one's place, at its beginning neither."""
        run = event.run
        if isinstance(event, RunStarted):
            return self._started(event) if event.trigger not in OTHER_TRIGGERS else None
        if run not in self._lines:
            return None
        if isinstance(event, RunFinished):
            self._waiting.discard(run)
            return self._ended(event, list(self._lines.pop(run)))
        if (said := format_event(event)) is not None:
            self._lines[run].append(said[1])
        if isinstance(event, VaultUp) and run in self._waiting:
            self._waiting.remove(run)
            return _ping(event, "start", "")
        return None

    def _started(self, event: RunStarted) -> RunPing | None:
        self._lines[event.run] = deque(maxlen=PING_LAST_LINES)
        if self._shared(event.backup):
            self._waiting.add(event.run)
            return None
        return _ping(event, "start", "")

    def _ended(self, event: RunFinished, lines: list[str]) -> RunPing | None:
        if event.result in ("interrupted", "skipped"):
            return None
        if event.result == "ok":
            said = format_event(event)
            return _ping(event, "success", said[1] if said is not None else "")
        error = event.error
        return _ping(event, "failure", describe_run(error, lines))


def _ping(event: RunEvent, beat: PingKind, text: str) -> RunPing:
    return RunPing(secrets.token_hex(8), event.time, event.backup, beat, event.run, text)
