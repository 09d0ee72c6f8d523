"""A stage of a stream that lets bytes pass only by leave: a program of its own, between two pipes.

The kernel moves the bytes (splice(2)); none of them comes into this program's memory. Leave is taken from a third
pipe that all streams under one limit share: each byte in it lets ``QUANTUM`` bytes pass, whoever takes it. So what
one stream cannot use another one has, and a new rate is in force for all of them at once.

It imports next to nothing but the standard library: run by its path, it starts in some 15 ms. It runs as nobody, once
it has the third pipe: the bytes may be another host's.
"""

from __future__ import annotations

import array
import fcntl
import os
import select
import signal
import sys
import termios
import time

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)).removesuffix("zvault/system/process"))  # noqa: PTH100, PTH120

from zvault.system.process.unprivileged import give_up_rights

QUANTUM = 4096
"""Bytes that one byte of leave lets pass."""

MOST_LEAVE = 64
"""The most leave taken at once, so that streams take turns."""

THROTTLE_SAY_INTERVAL = 0.5
"""Seconds between two reports."""

THROTTLE_PREFIX = "throttle: "


def throttle_argv(leave: str) -> list[str]:
    """The stage; ``leave`` is the path of the pipe that it takes its leave from."""
    return [sys.executable, "-I", "-S", __file__, leave]


def parse_bytes_let_pass(line: str) -> int | None:
    """Bytes so far, from a line that it said: one now and then while it runs, and one at its end."""
    count = line.removeprefix(THROTTLE_PREFIX)
    return int(count) if line.startswith(THROTTLE_PREFIX) and count.isdecimal() else None


def count_unread_bytes(descriptor: int) -> int:
    """Return how many bytes a pipe holds that nobody has read."""
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]


class Throttle:
    """Standard input to standard output, by leave."""

    def __init__(self, leave: int) -> None:
        self.leave = leave
        self.passed = 0
        self.said = time.monotonic()

    def run(self) -> None:
        """Let everything pass. Raises EOFError when there is nobody any more to give leave."""
        incoming = select.poll()
        incoming.register(0, select.POLLIN)
        credit = 0
        while True:
            # No leave is taken for bytes that are not there: another stream may have use for it.
            incoming.poll()
            waiting = count_unread_bytes(0)
            if not waiting:
                _tell(f"{THROTTLE_PREFIX}{self.passed}")
                return  # To splice from an ended pipe into one that nobody reads any more is a SIGPIPE, not an end.
            if not credit:
                credit = QUANTUM * self._take(-(-waiting // QUANTUM))
            moved = os.splice(0, 1, min(credit, waiting))
            credit -= moved
            self.passed += moved
            self._say()

    def _take(self, wanted: int) -> int:
        given = select.poll()
        given.register(self.leave, select.POLLIN)
        while True:
            if given.poll(1000 * THROTTLE_SAY_INTERVAL):
                try:
                    taken = os.read(self.leave, max(1, min(wanted, MOST_LEAVE)))
                except BlockingIOError:
                    continue  # another stream was faster
                if not taken:
                    raise EOFError
                return len(taken)
            self._say()

    def _say(self) -> None:
        now = time.monotonic()
        if now - self.said >= THROTTLE_SAY_INTERVAL:
            self.said = now
            _tell(f"{THROTTLE_PREFIX}{self.passed}")


def _tell(line: str) -> None:
    os.write(2, f"{line}\n".encode())


def main() -> int:
    """Run it on the pipe named by the only argument."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        leave = os.open(sys.argv[1], os.O_RDONLY | os.O_NONBLOCK)
        give_up_rights()
        Throttle(leave).run()
    except (EOFError, OSError) as error:
        _tell(f"throttle: {error if error.args else 'zvaultd is gone, nobody gives leave'}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
