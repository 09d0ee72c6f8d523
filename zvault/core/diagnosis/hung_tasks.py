"""Finds signs of hung storage in the kernel's log. Pure.

A report of a hung task (Linux, kernel/hung_task.c) spans many lines: the first names the task, the others print its
stack. Of the stack only the lines that show where the task hangs are used. A report has no end marker: it ends when
the next report begins, or when the log is silent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from zvault.core.diagnosis.stalls import StallSign
from zvault.core.units import format_duration

MOST_HUNG_TASK_LINES = 200
"""Maximum number of lines read of one report."""

_HUNG = re.compile(
    r"INFO: task (?P<name>.+):(?P<pid>\d+) blocked (?:in I/O wait )?for more than (?P<s>\d+) seconds"
)
_STUCK = re.compile(
    r"block (?P<device>nbd\d+): (?:Possible stuck request .*Runtime (?P<s>\d+) |Connection timed out)"
)
_DEVICE = re.compile(r"\b(?:nbd|rbd|bcache)\d+\b")
_MODULE = re.compile(r"\[(zfs|spl)\]")
_LAYER = re.compile(r"\[(nbd|rbd|bcache|libceph)\]")

OPENZFS_THREADS = re.compile(
    r"txg_(sync|quiesce)|z_|dp_|spa_|zvol|arc_|dbuf?_|l2arc_feed|mmp$|vdev_|receive_writer|send_|redact_"
)
"""Names of OpenZFS's own threads (module/zfs, the names given to thread_create and taskq_create)."""


@dataclass
class _Report:
    name: str
    pid: int
    seconds: int
    zfs: bool
    layer: str | None = None
    devices: list[str] = field(default_factory=list)
    lines: int = 0

    def look_at(self, line: str) -> None:
        """Look in one line for the place where the task hangs."""
        self.lines += 1
        self.zfs = self.zfs or _MODULE.search(line) is not None
        if found := _LAYER.search(line):
            self.layer = self.layer or found[1]
        self.devices += [device for device in _DEVICE.findall(line) if device not in self.devices]

    def sign(self) -> StallSign | None:
        """The sign; None if the task hangs in neither OpenZFS nor a device that zvault uses."""
        if not (self.zfs or self.layer or self.devices):
            return None
        where = "OpenZFS" if self.zfs else self.layer or self.devices[0]
        text = f"{self.name} (process {self.pid}) has hung in {where} for more than {format_duration(self.seconds)}"
        return StallSign("hung_task", text, devices=tuple(self.devices), pid=self.pid, zfs=self.zfs)


@dataclass
class HungTaskReader:
    """Reads the kernel's log line by line and yields the signs in it."""

    _report: _Report | None = None

    def feed(self, line: str) -> Iterator[StallSign]:
        """Read one line. The sign of a hung task comes only at the end of its report."""
        if found := _HUNG.search(line):
            yield from self.flush()
            name = found["name"]
            zfs = OPENZFS_THREADS.match(name) is not None
            self._report = _Report(name, int(found["pid"]), int(found["s"]), zfs)
            self._report.look_at(name)
        elif found := _STUCK.search(line):
            since = f" for {format_duration(int(found['s']))}" if found["s"] else " in time"
            yield StallSign(
                "stuck_request", f"{found['device']} has not answered{since}", devices=(found["device"],)
            )
        elif self._report is not None:
            self._report.look_at(line)
            if self._report.lines >= MOST_HUNG_TASK_LINES:
                yield from self.flush()

    def flush(self) -> Iterator[StallSign]:
        """End the current report, because the log has been silent for a while."""
        report, self._report = self._report, None
        if report is not None and (sign := report.sign()) is not None:
            yield sign
