"""An NBD server that behaves as a script of faults says (fault_script.py), and remembers what its disk was.

As a program it serves FILE on 127.0.0.1:PORT, and takes a command a line on standard input, each of which it answers
with a line: ``script TEXT`` begins a script now, ``sound`` ends it, ``report`` prints figures as JSON. It ends with its
standard input. Only the standard library is used, and one thread a connection: a request that has to wait waits in a
thread of its own, so that others pass it.

The protocol is NBD's doc/proto.md: fixed newstyle, simple replies, NBD_OPT_GO, _INFO, _EXPORT_NAME, _LIST and _ABORT.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from fault_script import (
    BACK,
    FOR_GOOD,
    POWER,
    WRITING,
    Behaviour,
    Fault,
    behave_at,
    list_breaks,
    parse_script,
)

READ, WRITE, DISCONNECT, FLUSH, TRIM, ZERO = 0, 1, 2, 3, 4, 6
COMMANDS = {READ: "read", WRITE: "write", FLUSH: "flush", TRIM: "trim", ZERO: "zero"}
FUA = 1

OPT_EXPORT_NAME, OPT_ABORT, OPT_LIST, OPT_INFO, OPT_GO = 1, 2, 3, 6, 7
REP_MAGIC = 0x3E889045565A9
REP_ACK, REP_SERVER, REP_INFO = 1, 2, 3
REP_ERR_UNSUP, REP_ERR_UNKNOWN = (1 << 31) + 1, (1 << 31) + 6

HAS_FLAGS, IS_READ_ONLY, SEND_FLUSH, SEND_FUA, SEND_TRIM, SEND_ZERO, MULTI = 1, 2, 4, 8, 32, 64, 256
OTHER_NAME = "other"
"""The export's name while it has another than the empty one."""

REMEMBERED = 96 << 20
"""Bytes of overwritten data that are kept; what is older cannot be gone back to."""

LOOK = 0.02
"""Seconds between two looks of what waits for a fault to end."""


@dataclass
class Disk:
    """A file, with what each write put in place of what, the oldest first."""

    path: Path
    size: int = 0
    _undo: list[tuple[float, int, bytes]] = field(default_factory=list)
    _kept: int = 0
    _flushed: int = 0
    """How many entries of ``_undo`` are of writes that were flushed since."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.file = os.open(self.path, os.O_RDWR)
        self.size = self.size or os.fstat(self.file).st_size

    def read(self, offset: int, length: int) -> bytes:
        """What is there; behind the file's end are zeros."""
        with self._lock:
            return os.pread(self.file, length, offset).ljust(length, b"\0")

    def write(self, offset: int, data: bytes) -> None:
        """Write, and remember what was there."""
        with self._lock:
            self._remember(offset, os.pread(self.file, len(data), offset).ljust(len(data), b"\0"))
            os.pwrite(self.file, data, offset)

    def zero(self, offset: int, length: int) -> None:
        """Make zeros of a range, and remember the data in it."""
        with self._lock:
            end = offset + length
            while offset < end:
                try:
                    start = os.lseek(self.file, offset, os.SEEK_DATA)
                except OSError:  # ENXIO: no data from here on
                    return
                stop = min(end, os.lseek(self.file, start, os.SEEK_HOLE), start + (1 << 20))
                if start >= end:
                    return
                self._remember(start, os.pread(self.file, stop - start, start))
                os.pwrite(self.file, bytes(stop - start), start)
                offset = stop

    def flush(self) -> None:
        """From now on a cut of the power loses nothing of what was written before."""
        with self._lock:
            self._flushed = len(self._undo)

    def _remember(self, offset: int, old: bytes) -> None:
        self._undo.append((time.monotonic(), offset, old))
        self._kept += len(old)
        while self._kept > REMEMBERED:
            self._kept -= len(self._undo.pop(0)[2])
            self._flushed = max(0, self._flushed - 1)

    def go_back(self, seconds: float) -> int:
        """Make it what it was so long ago; how many writes are undone."""
        with self._lock:
            since = time.monotonic() - seconds
            return self._undo_to(sum(at <= since for at, _, _ in self._undo))

    def lose_unflushed(self) -> int:
        """Make it what it was when it was last flushed; how many writes are undone."""
        with self._lock:
            return self._undo_to(self._flushed)

    def _undo_to(self, number: int) -> int:
        undone = self._undo[number:]
        for _, offset, old in reversed(undone):
            os.pwrite(self.file, old, offset)
            self._kept -= len(old)
        del self._undo[number:]
        self._flushed = min(self._flushed, number)
        return len(undone)


@dataclass
class FaultyServer:
    """Serves a disk; ``start_script`` has it behave by one from now on, ``be_sound`` as it should."""

    disk: Disk
    port: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """Requests by kind; ``failed``, ``undone`` (writes that were taken back) and ``connections``."""
    _faults: tuple[Fault, ...] = ()
    _began: float = 0.0
    _connections: dict[int, socket.socket] = field(default_factory=dict)
    _listener: socket.socket | None = None
    _script: threading.Event = field(default_factory=threading.Event)
    """Set where the script that is under way has to end."""
    _driver: threading.Thread | None = None

    def behave(self) -> Behaviour:
        """How it behaves now."""
        return behave_at(self._faults, time.monotonic() - self._began)

    def listen(self) -> None:
        """Take connections, on the port that it had before if it had one."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(64)
        self.port, self._listener = listener.getsockname()[1], listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.counts["connections"] += 1
                number = self.counts["connections"]
                self._connections[number] = client
                threading.Thread(target=self._serve, args=(number, client), daemon=True).start()

    def close(self) -> None:
        """Listen no more, and end every connection."""
        if self._listener is not None:
            # Without it a thread in accept() would go on to listen.
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        self.cut_connections()

    def cut_connections(self) -> None:
        """End every connection, as a server does that dies."""
        for client in list(self._connections.values()):
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def start_script(self, faults: tuple[Fault, ...]) -> None:
        """Behave so from now on, until all of it is over."""
        self.be_sound()
        self._script = threading.Event()
        self._faults, self._began = faults, time.monotonic()
        self._driver = threading.Thread(target=self._drive, args=(faults, self._script), daemon=True)
        self._driver.start()

    def be_sound(self) -> None:
        """Behave as a server should; what was taken back from the disk stays so."""
        self._script.set()
        if self._driver is not None:
            self._driver.join()
            self._driver = None
        self._faults = ()
        if self._listener is None:
            self.listen()

    def _drive(self, faults: tuple[Fault, ...], over: threading.Event) -> None:
        """What happens at moments, and not with requests: ends of connections, and what befalls the disk."""
        changes = {moment for fault in faults for moment in (fault.at, fault.end)}
        breaks = set(list_breaks(faults))
        for moment in sorted(changes):
            if over.wait(max(0.0, self._began + moment - time.monotonic())):
                return
            if not behave_at(faults, moment).listens:
                self.close()
            elif self._listener is None:
                self.listen()
            if moment in breaks:
                self.cut_connections()
            for fault in faults:
                if fault.at == moment and fault.name in FOR_GOOD:
                    self.counts["undone"] += self._befall_disk(fault)

    def _befall_disk(self, fault: Fault) -> int:
        if fault.name == POWER:
            return self.disk.lose_unflushed()
        assert fault.name == BACK
        return self.disk.go_back(fault.amount)

    def _serve(self, number: int, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, EOFError):
            if _negotiate(client, self):
                Connection(self, number, client).serve()
        self._connections.pop(number, None)

    @property
    def size(self) -> int:
        """The size in bytes that a new connection is told."""
        return self.disk.size + (self.behave().grown << 20)


@dataclass
class Connection:
    """One client's requests."""

    server: FaultyServer
    number: int
    client: socket.socket
    _answers: threading.Lock = field(default_factory=threading.Lock)
    _ended: bool = False

    def serve(self) -> None:
        """Take requests until the client leaves. One that is kept from an answer is carried out only after it."""
        try:
            while True:
                magic, flags, kind, cookie, offset, length = struct.unpack(
                    ">IHHQQI", _receive(self.client, 28)
                )
                assert magic == 0x25609513
                data = _receive(self.client, length) if kind == WRITE else b""
                if kind == DISCONNECT:
                    return
                self.server.counts[COMMANDS[kind]] += 1
                request = (flags, kind, cookie, offset, length, data)
                if self._waits(kind) or self.server.behave().delays.get(COMMANDS[kind]):
                    threading.Thread(target=self._answer_late, args=request, daemon=True).start()
                else:
                    self._answer(*request)
        finally:
            self._ended = True

    def _waits(self, kind: int) -> bool:
        now = self.server.behave()
        return COMMANDS[kind] in now.stalled or (now.half and self.number % 2 == 1)

    def _answer_late(self, flags: int, kind: int, cookie: int, offset: int, length: int, data: bytes) -> None:
        time.sleep(self.server.behave().delays.get(COMMANDS[kind], 0.0))
        while self._waits(kind):
            time.sleep(LOOK)
        # A request of a connection that has ended was never carried out: that the kernel gave up may be no news to it.
        if not self._ended:
            with contextlib.suppress(OSError):
                self._answer(flags, kind, cookie, offset, length, data)

    def _answer(self, flags: int, kind: int, cookie: int, offset: int, length: int, data: bytes) -> None:
        server, disk = self.server, self.server.disk
        code = server.behave().errors.get(COMMANDS[kind], 0)
        if not code and kind != FLUSH and offset + length > server.size:
            code = errno.ENOSPC if COMMANDS[kind] in WRITING else errno.EINVAL
        answer = b""
        if code:
            server.counts["failed"] += 1
        elif kind == READ:
            answer = disk.read(offset, length)
        elif kind == WRITE:
            disk.write(offset, data)
        elif kind in {TRIM, ZERO}:
            disk.zero(offset, length)
        if not code and (kind == FLUSH or flags & FUA):
            disk.flush()
        with self._answers:
            self.client.sendall(struct.pack(">IIQ", 0x67446698, code, cookie) + answer)


def _receive(client: socket.socket, length: int) -> bytes:
    """So many bytes. Raises EOFError where the client leaves before."""
    parts, left = [], length
    while left:
        part = client.recv(min(left, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _negotiate(client: socket.socket, server: FaultyServer) -> bool:
    """Whether it is agreed what is served; False where the client leaves."""
    client.sendall(b"NBDMAGICIHAVEOPT" + struct.pack(">H", 3))
    (no_zeroes,) = struct.unpack(">I", _receive(client, 4))
    while True:
        _, option, length = struct.unpack(">8sII", _receive(client, 16))
        data = _receive(client, length)

        def reply(kind: int, body: bytes = b"", option: int = option) -> None:
            client.sendall(struct.pack(">QIII", REP_MAGIC, option, kind, len(body)) + body)

        now = server.behave()
        name = OTHER_NAME if now.renamed else ""
        flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_TRIM | SEND_ZERO | MULTI
        flags |= IS_READ_ONLY if now.read_only else 0
        export = struct.pack(">QH", server.size, flags)
        if option == OPT_ABORT:
            reply(REP_ACK)
            return False
        if option == OPT_EXPORT_NAME:
            if data.decode() != name:
                return False
            client.sendall(export + (b"" if no_zeroes & 2 else bytes(124)))
            return True
        if option == OPT_LIST:
            reply(REP_SERVER, struct.pack(">I", len(name)) + name.encode())
            reply(REP_ACK)
        elif option in {OPT_INFO, OPT_GO}:
            (long,) = struct.unpack(">I", data[:4])
            if data[4 : 4 + long].decode() != name:
                reply(REP_ERR_UNKNOWN, b"there is no such export")
                continue
            reply(REP_INFO, struct.pack(">H", 0) + export)
            reply(REP_ACK)
            if option == OPT_GO:
                return True
        else:
            reply(REP_ERR_UNSUP)


@dataclass
class FaultyStorage:
    """The server as a process of its own, so that no thread of a test waits with it."""

    path: Path
    port: int
    process: subprocess.Popen[str] = field(init=False)

    def __enter__(self) -> FaultyStorage:
        argv = [sys.executable, __file__, str(self.path), str(self.port)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.command("report")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def command(self, line: str) -> str:
        """Have it do what a line says; its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def report(self) -> dict[str, int]:
        """Its figures: see FaultyServer.counts."""
        return dict(json.loads(self.command("report")))


def main() -> None:
    """Serve, and do as standard input says."""
    path, port = sys.argv[1:]
    server = FaultyServer(Disk(Path(path)), int(port))
    server.listen()
    for line in sys.stdin:
        verb, _, rest = line.strip().partition(" ")
        if verb == "script":
            server.start_script(parse_script(rest).faults)
        if verb == "sound":
            server.be_sound()
        sys.stdout.write(json.dumps(dict(server.counts)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
