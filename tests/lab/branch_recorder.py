"""In a guest, in each Python process of zvault: notes which branches of zvault ran, as they run.

A process that ends by kill -9, or with its guest, loses nothing: each branch is appended to a file in memory the
first time it is taken. coverage.py writes at the end of a process, and half of what the lab starts never gets there. A
file in dist-packages (branch_recorder.pth, laid by guest/boot where a run is recorded) imports this as Python starts.

A line of a file is a time (seconds since 1970) and path:function:branch, where the branch is the line of the jump > the
line that followed, and empty where the function began. A process that lives through many tests notes all of it again
for each: the guest's pytest touches MARK as a test begins (report_to_host.py); the next turn of the event loop sees it.
"""

from __future__ import annotations

import os
import sys
import time
from types import CodeType
from typing import Any

FOLDER = "/dev/shm/zvault-branches"
MARK = f"{FOLDER}/test"
SOURCES = "/usr/lib/python3/dist-packages/zvault/"
LOOK_EVERY = 0.1
"""Seconds between two looks at MARK: each is a system call, and a loop turns a thousand times a second."""
AGAIN = 300
"""How often a jump goes the same way before it is no more asked about for this test: a block store's loops took twice
their time otherwise.
"""


class BranchRecorder:
    """Appends each function's start and each branch to a file, once for each test."""

    def __init__(self, output: int) -> None:
        self.output = output
        self.seen: set[tuple[int, int, int]] = set()
        self.again: dict[tuple[int, int, int], int] = {}
        self.lines: dict[int, dict[int, int]] = {}
        self.looked_at, self.mark = 0.0, self._mark()

    def start(self) -> None:
        """Follow this process, and what it forks. Raises ValueError where another tool has the place."""
        self.monitoring = monitoring = sys.monitoring  # type: ignore[attr-defined]  # Python 3.12; the guest has 3.13
        self.tool, events = monitoring.COVERAGE_ID, monitoring.events
        monitoring.use_tool_id(self.tool, "zvault-branches")
        monitoring.register_callback(self.tool, events.PY_START, self.note_start)
        monitoring.register_callback(self.tool, events.BRANCH, self.note_branch)
        monitoring.set_events(self.tool, events.PY_START | events.BRANCH)

    def note_start(self, code: CodeType, offset: int) -> Any:
        """Called as a function begins."""
        if code.co_filename.startswith(SOURCES):
            self._note(code, "")
        elif code.co_name == "_run_once" and code.co_filename.endswith("asyncio/base_events.py"):
            self._look_for_another_test()
            return None
        return self.monitoring.DISABLE

    def note_branch(self, code: CodeType, offset: int, following: int) -> Any:
        """Called at each jump that has a condition, until both ways were taken."""
        if not code.co_filename.startswith(SOURCES):
            return self.monitoring.DISABLE
        taken = (id(code), offset, following)
        if taken in self.seen:
            self.again[taken] = self.again.get(taken, 0) + 1
            return self.monitoring.DISABLE if self.again[taken] > AGAIN else None
        self.seen.add(taken)
        lines = self._lines_of(code)
        self._note(code, f"{lines.get(offset)}>{lines.get(following)}")
        # Once both ways of a jump were taken no more is asked. That one was taken stands as (code, offset, -1).
        first = (id(code), offset, -1)
        if first in self.seen:
            return self.monitoring.DISABLE
        self.seen.add(first)
        return None

    def _note(self, code: CodeType, branch: str) -> None:
        line = f"{time.time():.2f} {code.co_filename[len(SOURCES) :]}:{code.co_qualname}:{branch}\n"
        try:
            os.write(self.output, line.encode())
        except OSError:
            # A child that closes what it inherited, or may write no file. An error here would be one of zvault's code.
            self.monitoring.set_events(self.tool, 0)

    def _lines_of(self, code: CodeType) -> dict[int, int]:
        if id(code) not in self.lines:
            positions = enumerate(code.co_positions())
            self.lines[id(code)] = {2 * number: where[0] or 0 for number, where in positions}
        return self.lines[id(code)]

    def _look_for_another_test(self) -> None:
        if (now := time.monotonic()) - self.looked_at < LOOK_EVERY:
            return
        self.looked_at = now
        if (mark := self._mark()) != self.mark:
            self.mark = mark
            self.seen.clear()
            self.again.clear()
            self.monitoring.restart_events()

    @staticmethod
    def _mark() -> int:
        try:
            return os.stat(MARK).st_mtime_ns
        except OSError:
            return 0


def record_this_process() -> None:
    """Begin, where this process may run zvault's code; one that cannot be recorded goes on without."""
    if not any("zvault" in word or "pytest" in word for word in sys.orig_argv):
        return
    try:
        os.makedirs(FOLDER, mode=0o777, exist_ok=True)
        if os.geteuid() == 0:
            os.chmod(FOLDER, 0o777)  # a user of a test's, too
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        output = os.open(f"{FOLDER}/{os.getpid()}-{time.monotonic_ns()}", flags, 0o644)
    except OSError:
        return
    # Out of the way of what a process passes on by number.
    recorder = BranchRecorder(_moved_up(output))
    recorder.start()


def _moved_up(descriptor: int) -> int:
    import fcntl  # a third of a millisecond, for the processes that are recorded

    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 900)
    os.close(descriptor)
    return high


record_this_process()
