"""Looks whether what zvault keeps can be written: a state directory that is full or read-only loses it silently."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

from zvault.daemon.history import RunHistory
from zvault.daemon.journald import log

STATE_INTERVAL = 30.0
"""Seconds between looks."""

PROBE_FILE = ".writable"
PROBE_BYTES = 64 << 10
"""More than one record takes: what is all but full shall be told before one is lost."""


class StateMonitor:
    """Tries to write below the state directory, again and again; ``trouble`` is what is wrong, in words.

    ``looked``: whether it ever did. ``space``: bytes free there, None where that is not known.
    """

    def __init__(self, folder: Path, history: RunHistory) -> None:
        self.folder = folder
        self.history = history
        self.trouble: str | None = None
        self.looked = False
        self.space: int | None = None

    async def look(self) -> None:
        """Look once; tell the journal what changed."""
        why = await asyncio.to_thread(find_write_trouble, self.folder)
        self.space = await asyncio.to_thread(measure_free_bytes, self.folder)
        if why is None:
            self.history.return_to_file()
            why = self.history.trouble
        trouble = describe_state_trouble(self.folder, why) if why is not None else None
        if trouble is not None and trouble != self.trouble:
            log.error("%s", trouble)
        elif trouble is None and self.trouble is not None:
            log.info("what is kept in %s can be written again", self.folder)
        self.trouble, self.looked = trouble, True


def measure_free_bytes(folder: Path) -> int | None:
    """Bytes free where a folder is; None where that cannot be asked."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def find_write_trouble(folder: Path) -> str | None:
    """Why nothing can be written there; None where it can."""
    file = folder / PROBE_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with file.open("wb") as opened:
                opened.write(os.urandom(PROBE_BYTES))
                opened.flush()
                os.fsync(opened.fileno())
        finally:
            file.unlink(missing_ok=True)
    except OSError as error:
        return error.strerror or str(error)
    return None


def describe_state_trouble(folder: Path, why: str) -> str:
    """Say what it means and what to do."""
    return (
        f"nothing can be written in {folder}: {why}. Runs go on, but zvaultd will have forgotten how they went once it "
        "is restarted, and the lag of a vault that is down will be unknown then. Make room there, or mount it "
        f"read-write: 'df -h {folder}', 'findmnt -T {folder}'"
    )
