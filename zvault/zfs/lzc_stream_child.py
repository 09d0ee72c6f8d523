"""The helper process in which small streams go through libzfs_core: ``lzc_send`` in one thread, a receive in another.

One JSON request a line comes in: the snapshots of one dataset to be sent. While they are, it says how far it is; at the
end, how both calls ended. Any other line meanwhile, or the end of its standard input, stops the stream: the receiver
sees it end, and keeps what it has. A call into the kernel on a hung pool cannot be interrupted: then the daemon leaves
this process to the kernel, and takes another.

Two pipes join the calls, and the kernel moves the bytes between them (splice(2)): so the stream can be counted and
stopped, and none of it comes into this process but its BEGIN, which libzfs_core wants from its caller. That is held
against the order, with the rules of the gate (gate/check.py): of the snapshots, GUIDs, features and flags ordered. What
comes after it this host's own kernel made; and libzfs_core receives one stream, never a package.

Run by its path, it imports nothing of zvault but the rules, and calls the libraries by ctypes: pyzfs, which the changes
go through (lzc_child.py), takes longer to import than a stream takes; and it gives libzfs_core an empty list of
received properties where there is none, which would take away those that are there.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)).removesuffix("zvault/zfs"))  # noqa: PTH100, PTH120

from zvault.zfs.gate.check import StreamCheck, StreamOrder
from zvault.zfs.gate.records import RAW, RECORD, BadStream

LZC_LIBRARIES = ("libzfs_core.so.3", "libnvpair.so.3")
"""As they are called since OpenZFS 2.0."""

HELPER_PIPE_SIZE = 1 << 20

HELPER_SAY_INTERVAL = 0.5
"""Seconds between two reports."""

LZC_SEND_FLAGS = {"embedded_data": 1, "large_blocks": 2, "compress": 4, "raw": 8}
"""``enum lzc_send_flags`` in libzfs_core.h."""


class StreamCalls(Protocol):
    """The two calls of libzfs_core; each returns 0 or an errno."""

    def send(self, snapshot: str, base: str, descriptor: int, flags: int) -> int:
        """Send what a snapshot has more than a base, a snapshot or bookmark, to a file descriptor."""
        ...

    def receive(
        self, snapshot: str, properties: Mapping[str, int | str], raw: bool, descriptor: int, begin: bytes
    ) -> int:
        """Receive a stream, of which ``begin`` was read, resumably; ``properties`` are set on the dataset."""
        ...


class LibzfsCore:
    """Calls into the library. Raises OSError where it cannot be loaded."""

    def __init__(self) -> None:
        self._core, self._pairs = (ctypes.CDLL(name) for name in LZC_LIBRARIES)
        if error := self._core.libzfs_core_init():
            raise OSError(error, os.strerror(error))
        text, whole, place = ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p
        count = ctypes.POINTER(ctypes.c_uint64)
        self._core.lzc_send.argtypes = [text, text, whole, whole]
        self._core.lzc_receive_with_cmdprops.argtypes = [
            *(text, place, place, text, ctypes.c_uint, text, whole, whole, whole),
            *(whole, text, whole, count, count, count, ctypes.POINTER(place)),
        ]
        self._pairs.nvlist_alloc.argtypes = [ctypes.POINTER(place), ctypes.c_uint, whole]
        self._pairs.nvlist_add_string.argtypes = [place, text, text]
        self._pairs.nvlist_add_uint64.argtypes = [place, text, ctypes.c_uint64]
        self._pairs.nvlist_free.argtypes = [place]

    def send(self, snapshot: str, base: str, descriptor: int, flags: int) -> int:
        """See StreamCalls.send."""
        return int(self._core.lzc_send(snapshot.encode(), base.encode(), descriptor, flags))

    def receive(
        self, snapshot: str, properties: Mapping[str, int | str], raw: bool, descriptor: int, begin: bytes
    ) -> int:
        """See StreamCalls.receive. Which properties could not be set is not told: the snapshot is received all the
        same.
        """
        given, failed = self._list(properties) if properties else None, ctypes.c_void_p()
        read, flags = ctypes.c_uint64(), ctypes.c_uint64()
        force, resumable, no_cleanup = 0, 1, -1
        try:
            return int(
                self._core.lzc_receive_with_cmdprops(
                    *(snapshot.encode(), None, given, None, 0, None, force, resumable, int(raw)),
                    *(descriptor, begin, no_cleanup, ctypes.byref(read), ctypes.byref(flags), None),
                    ctypes.byref(failed),
                )
            )
        finally:
            if given:
                self._pairs.nvlist_free(given)
            if failed:
                self._pairs.nvlist_free(failed)

    def _list(self, properties: Mapping[str, int | str]) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        unique_name = 1
        error = self._pairs.nvlist_alloc(ctypes.byref(made), unique_name, 0)
        for key, value in properties.items():
            if isinstance(value, str):
                error = error or self._pairs.nvlist_add_string(made, key.encode(), value.encode())
            else:
                error = error or self._pairs.nvlist_add_uint64(made, key.encode(), value)
        if error:
            raise MemoryError(os.strerror(error))
        return made


class ControlChannel:
    """Requests, a line each, from a file descriptor; ``stop`` once one came while a stream was under way."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.stop = False
        self._ended = False
        self._rest = b""

    def next(self) -> dict[str, Any] | None:
        """Wait for the next request; None at the end."""
        self.stop = False
        while True:
            while b"\n" not in self._rest:
                if self._ended or not self._read():
                    return None
            line, _, self._rest = self._rest.partition(b"\n")
            request: dict[str, Any] = json.loads(line)
            if "parts" in request:  # else it came too late to stop the one before
                return request

    def heard(self) -> None:
        """Take in what came while a stream is under way."""
        self.stop = True
        self._read()

    def _read(self) -> bool:
        some = os.read(self.descriptor, 1 << 20)
        self._rest += some
        self._ended = not some
        return bool(some)


class CallThread(threading.Thread):
    """One of the two calls, in a thread: how it ended, and when (seconds, monotonic); then its pipe is closed."""

    def __init__(self, call: Callable[[], int], descriptor: int) -> None:
        super().__init__(daemon=True)
        self._call = call
        self._descriptor = descriptor
        self.error = errno.EFAULT  # of one that raises, as where there is no memory for its arguments
        self.ended = 0.0

    def run(self) -> None:
        """Make the call; ``error`` is its end. Closes the descriptor, so that the other side ends too."""
        try:
            self.error = self._call()
        finally:
            self.ended = time.monotonic()
            os.close(self._descriptor)

    def told(self) -> list[float]:
        """Return the error of the call and when it ended (monotonic seconds)."""
        return [self.error, self.ended]


class PartTransfer:
    """One snapshot on its way. ``say`` tells the daemon; ``passed`` are bytes, with those of the parts before."""

    def __init__(
        self, calls: StreamCalls, control: ControlChannel, say: Callable[[dict[str, Any]], None]
    ) -> None:
        self.calls, self.control, self.say = calls, control, say
        self.passed = 0
        self._told = 0
        self._told_at = time.monotonic()

    def run(self, request: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
        """Send and receive it: how both ended; ``receive`` is None where it was not begun."""
        (source, into), (out, sink) = _pipe(), _pipe()
        flags = sum(LZC_SEND_FLAGS[flag] for flag in request["flags"])
        sender = CallThread(lambda: self.calls.send(part["snapshot"], part["base"], into, flags), into)
        sender.start()
        receiver: CallThread | None = None
        refused = ""
        try:
            begin = self._begin(source, sink)
            if begin is not None:
                try:
                    raw = _is_raw(begin, StreamOrder.of_words(part["order"]))
                except BadStream as error:
                    refused = str(error)
                else:
                    to = part["into"]
                    receiver = CallThread(
                        lambda: self.calls.receive(to, request["properties"], raw, out, begin), out
                    )
                    receiver.start()
                    self._tell_threads(sender, receiver, out)
                    self._pass_on(source, sink)
        finally:
            # The receiver sees the end of its stream, and the sender that nobody reads any more.
            os.close(sink)
            os.close(source)
            if receiver is None:
                os.close(out)
        sender.join()
        if receiver is not None:
            receiver.join()
        return {
            "ok": receiver is not None and not sender.error and not receiver.error,
            "passed": self.passed,
            "refused": refused,
            "send": sender.told(),
            "receive": receiver.told() if receiver is not None else None,
        }

    def _begin(self, source: int, sink: int) -> bytes | None:
        """The stream's first record; None where it does not come."""
        begin = b""
        while len(begin) < RECORD:
            if not self._ready(source, select.POLLIN, sink):
                return None
            some = os.read(source, RECORD - len(begin))
            if not some:
                return None
            begin += some
        self.passed += len(begin)
        return begin

    def _pass_on(self, source: int, sink: int) -> None:
        """Have the kernel move the stream from pipe to pipe, until it ends, or nobody takes it, or it is stopped."""
        while self._ready(source, select.POLLIN, sink):
            try:
                moved = os.splice(source, sink, HELPER_PIPE_SIZE, flags=os.SPLICE_F_NONBLOCK)
            except BlockingIOError:
                if not self._ready(sink, select.POLLOUT, sink):
                    return
                continue
            except BrokenPipeError:
                return
            if not moved:
                return
            self.passed += moved
            self._tell()

    def _ready(self, descriptor: int, event: int, sink: int) -> bool:
        """Wait until a pipe is ready; False when the stream is to be stopped, or the receiver is gone."""
        waiting = select.poll()
        waiting.register(self.control.descriptor, select.POLLIN)
        waiting.register(sink, 0)
        waiting.register(descriptor, event)
        while True:
            found = dict(waiting.poll(HELPER_SAY_INTERVAL * 1000))
            if self.control.descriptor in found:
                self.control.heard()
                return False
            if found.get(sink, 0) & select.POLLERR:
                return False
            if descriptor in found:
                return True
            self._tell()

    def _tell(self) -> None:
        now = time.monotonic()
        if self.passed != self._told and now - self._told_at >= HELPER_SAY_INTERVAL:
            self._told, self._told_at = self.passed, now
            self.say({"passed": self.passed})

    def _tell_threads(self, sender: CallThread, receiver: CallThread, out: int) -> None:
        path = f"/proc/{os.getpid()}/fd/{out}"
        self.say({"sender": sender.native_id, "receiver": receiver.native_id, "input": path})


def _is_raw(begin: bytes, order: StreamOrder) -> bool:
    """True if a stream that begins so is raw. Raises BadStream where it is not as ordered."""
    check = StreamCheck(order)
    check.record(begin)
    check.begin(begin, b"")
    assert check.layout is not None  # noqa: S101 - it has read the record
    return bool(check.layout.begin(begin).features & RAW)


def _pipe() -> tuple[int, int]:
    read, write = os.pipe()
    with contextlib.suppress(OSError):
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, HELPER_PIPE_SIZE)
    return read, write


def serve_streams(calls: StreamCalls, control: ControlChannel, say: Callable[[dict[str, Any]], None]) -> None:
    """Carry out requests until there are no more."""
    while (request := control.next()) is not None:
        part = PartTransfer(calls, control, say)
        for number, wanted in enumerate(request["parts"]):
            end = part.run(request, wanted)
            if not end["ok"] or control.stop or number == len(request["parts"]) - 1:
                say({"part": number, "end": end})
                break


def main() -> int:
    """Serve the daemon at the other ends of standard input and output."""

    def say(line: dict[str, Any]) -> None:
        # Without a daemon the stream is stopped, and ends in good order.
        with contextlib.suppress(BrokenPipeError):
            os.write(1, json.dumps(line).encode() + b"\n")

    try:
        calls = LibzfsCore()
    except (OSError, AttributeError) as error:
        os.write(2, f"{error}\n".encode())
        return 1
    say({"ready": True})
    serve_streams(calls, ControlChannel(0), say)
    return 0


if __name__ == "__main__":
    # A thread that hangs in the kernel must not keep this one from its end.
    os._exit(main())
