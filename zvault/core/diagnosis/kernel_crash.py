"""Finds in the kernel's log that the kernel crashed in a process. Pure.

After an Oops the kernel goes on without that process, and with every lock that the process held: whoever needs one of
them waits until the host is started anew. OpenZFS's own assertions (``PANIC at``) halt their thread in the same way. A
report spans many lines (Linux, arch/x86/kernel/dumpstack.c, arch/arm64/kernel/traps.c; spl-err.c): a line that says
what happened, one with the process, one with the place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from zvault.core.diagnosis.hung_tasks import OPENZFS_THREADS

MOST_CRASH_LINES = 60
"""Lines of a report in which the process and the place are looked for: a stack may come first."""

MOST_CRASHES = 10
"""Crashes that are told at once: a kernel that has crashed once may do so again and again."""

_CRASH = re.compile(r"\[#\d+\]|Kernel mode fault")
"""``Oops: 0000 [#1] PREEMPT SMP``, ``invalid opcode: 0000 [#1]``, ``Internal error: Oops: 96000004 [#1]``."""

_END = "---[ end "

_ASSERTION = re.compile(r"PANIC at (?P<place>\S+?):\d+:(?P<function>\w+)\(\)")

_PROCESS = re.compile(r"\bPID: (?P<pid>\d+) Comm: (?P<name>.+?)(?: Tainted:| Not tainted|$)")

_PLACE = re.compile(r"(?:RIP: \w+:|pc : )(?P<function>[\w.]+)\+\S+(?: \[(?P<module>\w+)\])?")


@dataclass(frozen=True, slots=True)
class KernelCrash:
    """The kernel crashed in a process; ``place`` is the function, where that is told, ``zfs``: OpenZFS's it is."""

    pid: int
    name: str
    place: str = ""
    zfs: bool = False

    def describe(self, command: str = "") -> str:
        """In words; ``command`` is what zvault started the process as, where it did."""
        what = (
            f"'{command}' (process {self.pid}), which zvault started"
            if command
            else f"{self.name} (process {self.pid})"
        )
        return f"the kernel crashed (Oops) in {what}" + (f", in {self.place}" if self.place else "")


class CrashReader:
    """Reads the kernel's log line by line."""

    def __init__(self) -> None:
        self._lines = 0
        self._found: KernelCrash | None = None
        self._place = ""
        self._zfs = False

    def feed(self, line: str) -> Iterator[KernelCrash]:
        """Read one line. A crash comes once its process and its place are known, or its report is over."""
        assertion = _ASSERTION.search(line)
        if assertion is not None or _CRASH.search(line):
            yield from self.flush()
            self._lines = MOST_CRASH_LINES
            self._place, self._zfs = (assertion["function"], True) if assertion is not None else ("", False)
        if not self._lines:
            return
        self._lines -= 1
        if (process := _PROCESS.search(line)) is not None and self._found is None:
            self._found = KernelCrash(int(process["pid"]), process["name"])
        if (place := _PLACE.search(line)) is not None and not self._place:
            self._place, self._zfs = place["function"], place["module"] in {"zfs", "spl"}
        if not self._lines or _END in line or (self._found is not None and self._place):
            yield from self.flush()

    def flush(self) -> Iterator[KernelCrash]:
        """End the report, because the log has been silent for a while."""
        found, self._found, self._lines = self._found, None, 0
        if found is not None:
            zfs = self._zfs or OPENZFS_THREADS.match(found.name) is not None
            yield KernelCrash(found.pid, found.name, self._place, zfs)
        self._place, self._zfs = "", False
