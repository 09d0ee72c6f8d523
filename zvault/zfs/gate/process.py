"""The gate: a stage of a stream that lets pass what was ordered, and ends the stream where anything else comes.

It is a program of its own between two pipes, for it reads what another host sends: as nobody, it can open no file,
start no process and take little memory. What it reads of a stream are the records' headers; large blocks between them
are moved by the kernel (splice(2)) and do not come into its memory, but for what was read together with a header.

Run by its path, it imports nothing of zvault but the rules (check.py), and how rights are given up.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)).removesuffix("zvault/zfs/gate"))  # noqa: PTH100, PTH120

from zvault.system.process.unprivileged import give_up_rights
from zvault.zfs.gate.check import StreamCheck, StreamOrder
from zvault.zfs.gate.records import RECORD, BadStream, StreamCutOff

GATE_READ_SIZE = 128 << 10
"""Bytes read at a time: many small records."""

READ_A_LITTLE = 4 << 10
"""Bytes read at a time after a large record: little of the next one."""

MOVE = 32 << 10
"""Bytes from which on the kernel moves what is left of a record."""

REFUSED_STATUS = 3
"""Exit status where the stream is not what was ordered."""

GATE_PREFIX = "gate: "

INCOMPLETE = "incomplete stream"
"""What it says of a stream that ended too soon: the cause is whoever ended it."""


def gate_argv(order: StreamOrder) -> list[str]:
    """Return the argv of the gate's stage in a pipeline."""
    return [sys.executable, "-I", "-S", __file__, *order.words()]


def is_gate(argv: Sequence[str]) -> bool:
    """True if a stage is one."""
    return __file__ in argv[:4]


class StreamGate:
    """One file descriptor to another, as long as what comes is what was ordered."""

    def __init__(self, order: StreamOrder, source: int = 0, sink: int = 1) -> None:
        self.check = StreamCheck(order)
        self.source, self.sink = source, sink
        self.data = b""
        self._read = GATE_READ_SIZE

    def run(self) -> None:
        """Pass everything on. Raises BadStream, having passed on nothing of the record that is not as ordered."""
        at = 0
        while True:
            if len(self.data) - at < RECORD:
                at = self._more(at, RECORD)
            if at == len(self.data):
                self.check.ended()
                return
            record = self.data[at : at + RECORD]
            if len(record) < RECORD:
                raise StreamCutOff
            begins, size = self.check.record(record)
            end = at + RECORD + size
            left = end - len(self.data)
            if begins or 0 < left < MOVE:
                at = self._more(at, RECORD + size) if left > 0 else at
                end = at + RECORD + size
                if end > len(self.data):
                    raise StreamCutOff
                if begins:
                    self.check.begin(record, self.data[at + RECORD : end])
            elif left > 0:
                self._write(len(self.data))
                self._move(left)
                self.data, end, self._read = b"", 0, READ_A_LITTLE
            at = end

    def _more(self, at: int, size: int) -> int:
        """Pass on all up to there, and read until there are so many bytes, or the end; where they begin now."""
        self._write(at)
        parts = [self.data[at:]]
        have = len(parts[0])
        while have < size and (some := os.read(self.source, max(self._read, size - have))):
            parts.append(some)
            have += len(some)
        self._read = GATE_READ_SIZE
        self.data = b"".join(parts)
        return 0

    def _write(self, upto: int) -> None:
        view = memoryview(self.data)[:upto]
        while view:
            view = view[os.write(self.sink, view) :]

    def _move(self, count: int) -> None:
        while count:
            moved = os.splice(self.source, self.sink, count)
            if not moved:
                raise StreamCutOff
            count -= moved


def main(argv: Sequence[str]) -> int:
    """Be the gate for the order in the words of the command line."""
    # Who reads what it lets pass says why that ended, if it did.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        order = StreamOrder.of_words(argv)
        give_up_rights()
        StreamGate(order).run()
    except StreamCutOff:
        _say(INCOMPLETE)
        return 1
    except BadStream as error:
        _say(str(error))
        return REFUSED_STATUS
    except (OSError, ValueError, MemoryError, RecursionError) as error:
        _say(f"{type(error).__name__}: {error}")
        return 1
    return 0


def _say(text: str) -> None:
    safe = "".join(char if char.isprintable() else "?" for char in text)[:1000]
    os.write(2, f"{GATE_PREFIX}{safe}\n".encode(errors="replace"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
