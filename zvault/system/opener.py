"""Files opened for a process that gave up root's rights: by one that keeps them, and opens what is on its list.

The other end may have been taken over by whoever it talks to. All that it can ask for is a number: which file of the
list to open for reading; or, once, which file of one folder to open for writing, by 16 bytes that become its name.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
import struct
import threading
from collections.abc import Sequence
from pathlib import Path

_ANSWER = struct.Struct("<i")
"""An errno; 0 comes with the descriptor."""
_READ, _WRITE = b"r", b"w"
_INDEX = struct.Struct("<H")
_IDENTITY = 16
"""Bytes that become the name of a file, as hexadecimal digits."""

_PR_SET_PDEATHSIG = 1
_CAPABILITIES = 0x20080522
"""The version of capset(2)'s data that has 64 capabilities."""


class FileOpener:
    """Has another process open files for this one. Safe for threads."""

    def __init__(self, link: socket.socket, paths: Sequence[str]) -> None:
        self._link, self._paths, self._lock = link, list(paths), threading.Lock()

    def read(self, path: str) -> int:
        """A descriptor to read one of the files. Raises OSError, as open(2) does."""
        if path not in self._paths:
            raise PermissionError(errno.EPERM, "it is not one of the files that this process may read", path)
        return self._ask(_READ + _INDEX.pack(self._paths.index(path)), path)

    def write(self, identity: bytes) -> int:
        """A descriptor to read and write the file of that name, which is made if it is not there: once only."""
        return self._ask(_WRITE + identity, identity.hex())

    def _ask(self, request: bytes, name: str) -> int:
        with self._lock:
            self._link.sendall(request)
            answer, fds, _, _ = socket.recv_fds(self._link, _ANSWER.size, 1)
        (code,) = _ANSWER.unpack(answer) if len(answer) == _ANSWER.size else (errno.EPIPE,)
        if not code and not fds:
            code = errno.EMFILE  # the kernel drops a descriptor that this process has no room for: unix(7)
        if code:
            raise OSError(code, os.strerror(code), name)
        os.set_inheritable(fds[0], False)
        return fds[0]


def start_opener(paths: Sequence[str], folder: Path | None) -> FileOpener:
    """Start the process that opens these files, and one in ``folder``. Before this one starts a thread.

    It ends with this one, has no capabilities, and no other file of this one's.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    if os.fork() == 0:
        # Nothing of this process may go on here, whatever happens: it is a copy of another program.
        try:
            _keep_little(theirs, parent)
            _serve(theirs, paths, folder)
        finally:
            os._exit(0)
    theirs.close()
    return FileOpener(ours, paths)


def _keep_little(link: socket.socket, parent: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the other one ends first, and may read its keys until then
    os.closerange(3, link.fileno())
    os.closerange(link.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    libc = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("<Ii", _CAPABILITIES, 0)
    if libc.capset(header, bytes(24)) != 0:
        raise OSError(ctypes.get_errno(), "capabilities cannot be given up")
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def _serve(link: socket.socket, paths: Sequence[str], folder: Path | None) -> None:
    written = False
    while request := link.recv(64):
        try:
            kind, rest = request[:1], request[1:]
            if kind == _READ and len(rest) == _INDEX.size and _INDEX.unpack(rest)[0] < len(paths):
                fd = os.open(paths[_INDEX.unpack(rest)[0]], os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            elif kind == _WRITE and len(rest) == _IDENTITY and folder is not None and not written:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                fd = os.open(folder / rest.hex(), flags, 0o600)
                written = True
            else:
                raise PermissionError(errno.EPERM, "not on the list")
        except OSError as error:
            link.sendall(_ANSWER.pack(error.errno or errno.EIO))
            continue
        socket.send_fds(link, [_ANSWER.pack(0)], [fd])
        os.close(fd)
