"""Whether a pool is being exported, by whoever: what asks the kernel for it then waits for that export."""

from __future__ import annotations

import time
from pathlib import Path

PROCESS_SETTLED = 2.0
"""Seconds after which a process that was not ``zpool`` will not become it: a shell's child does at once."""


class ExportWatch:
    """Looks for processes that export a pool, again and again, for one host.

    Each look reads the command lines of those only that are new: to read all of them is five calls into the kernel
    for each process of the host, on every look at every vault. A program that becomes ``zpool export`` later than
    SETTLED is not seen by ``find_exporter``; ``everywhere`` sees it.
    """

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        self._others: dict[str, float] = {}
        """Processes that are not zpool, and when each was first seen (monotonic seconds)."""

    def find_exporter(self, pool: str) -> int | None:
        """The id of the process that is exporting a pool; None if there is none."""
        now = time.monotonic()
        there = [name for name in _names(self.proc) if name.isdecimal()]
        known, self._others = self._others, {}
        found = None
        for name in there:
            first = known.get(name)
            if first is None or now - first < PROCESS_SETTLED:
                words = _words(self.proc / name)
                if words[:1] == [b"zpool"]:
                    found = int(name) if _exports(words, pool) else found
                    continue
            self._others[name] = now if first is None else first
        return found

    def everywhere(self, pool: str) -> int | None:
        """The same, whatever is known of any process."""
        self._others.clear()
        return self.find_exporter(pool)


def _names(proc: Path) -> list[str]:
    try:
        return [entry.name for entry in proc.iterdir()]
    except OSError:
        return []


def _words(process: Path) -> list[bytes]:
    try:
        return (process / "cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return []


def _exports(words: list[bytes], pool: str) -> bool:
    return words[:2] == [b"zpool", b"export"] and pool.encode() in words[2:]
