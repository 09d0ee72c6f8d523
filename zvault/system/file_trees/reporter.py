"""What the child process says to the daemon: JSON, a line an answer, from whichever of its threads."""

from __future__ import annotations

import json
import threading
import time

REPORT_INTERVAL = 1.0
"""Seconds between two reports of progress."""


class TreeReporter:
    """Says how many files and bytes are done, each second, and whatever else there is."""

    def __init__(self) -> None:
        self.files = 0
        self.bytes = 0
        self._said = time.monotonic()
        self._lock = threading.Lock()

    def say(self, answer: dict[str, object]) -> None:
        """Answer."""
        line = json.dumps(answer)
        with self._lock:
            print(line, flush=True)  # noqa: T201 - the answer channel

    def add(self, *, files: int = 0, size: int = 0) -> None:
        """Count what was done."""
        with self._lock:
            self.files += files
            self.bytes += size
            due = time.monotonic() - self._said >= REPORT_INTERVAL
            if due:
                self._said = time.monotonic()
        if due:
            self.say({"files": self.files, "bytes": self.bytes})
