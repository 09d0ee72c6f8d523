"""What dead-man's switches are told of runs, from the runs' events."""

from __future__ import annotations

import secrets
from collections import deque

from zvault.api.events import Event, RunFinished
from zvault.core.notify.message import Beat, Ping, run_text
from zvault.daemon.history import ASIDE
from zvault.daemon.journald import line

LAST_LINES = 20
"""Lines of a run that are told when it has ended."""


class RunPings:
    """Listens to events; a ``ping`` for each beginning and end of a backup's run."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[str]] = {}

    def hear(self, event: Event) -> Ping | None:
        """Take in an event. A run that was cut short makes no ping: the next one goes on with it.

        Nor does one that another host of the vault makes in this one's place."""
        run = event["run"]
        if event["event"] == "run-started":
            if event["trigger"] in ASIDE:
                return None
            self._lines[run] = deque(maxlen=LAST_LINES)
            return _ping(event, "start", "")
        if run not in self._lines:
            return None
        if event["event"] != "run-finished":
            if (said := line(event)) is not None:
                self._lines[run].append(said[1])
            return None
        return self._ended(event, list(self._lines.pop(run)))

    def _ended(self, event: RunFinished, lines: list[str]) -> Ping | None:
        if event["result"] in ("interrupted", "skipped"):
            return None
        if event["result"] == "ok":
            said = line(event)
            return _ping(event, "success", said[1] if said is not None else "")
        error = event["error"]
        return _ping(event, "failure", run_text(error, lines))


def _ping(event: Event, beat: Beat, text: str) -> Ping:
    return Ping(secrets.token_hex(8), event["time"], event["backup"], beat, event["run"], text)
