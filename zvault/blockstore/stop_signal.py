"""SIGTERM for a server that has clients: nbdkit waits until each has gone, and the kernel's never does by itself.

nbdkit's own handler has it accept nobody any more, and answer what still comes with ESHUTDOWN; but it waits in a read
of each connection. Who stops the unit by hand then waits for the unit's TimeoutStopSec and its SIGKILL. So the plugin
takes the signal: it has nbdkit quit, and hangs up on each client. What is being worked on is still answered. After that
nbdkit lets the plugin put everything into the store, as ever.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
"""What nbdkit(1) ends at."""

HANG_UP_INTERVAL = 0.2
"""Seconds until it looks again for clients: one may have been accepted just then."""


def end_clients_on_stop(quit_serving: Callable[[], None]) -> None:
    """From now on each of STOP_SIGNALS calls ``quit_serving``, and hangs up on all clients until the process ends.

    From the main thread, which is in nbdkit's code until the end and runs no Python: so a thread does it, woken by what
    Python's own handler writes into a pipe (signal.set_wakeup_fd).
    """
    reads, writes = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writes, False)
    signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: None)
    argument = (reads, quit_serving)
    threading.Thread(target=_end_on_signal, args=argument, name="stop", daemon=True).start()


def _end_on_signal(reads: int, quit_serving: Callable[[], None]) -> None:
    while not set(os.read(reads, 64)) & set(STOP_SIGNALS):
        pass
    quit_serving()
    while True:
        with suppress(OSError):  # no descriptor is left to look with; the next look may have one
            hang_up_clients()
        threading.Event().wait(HANG_UP_INTERVAL)


def hang_up_clients() -> int:
    """Have the server read the end of each client of its Unix socket; how many there are.

    It can still write: what it works on is answered. Clients are told from the other sockets of the process, to the
    object store and between its own threads and children, by their name: an accepted one has that of the socket that
    listens.
    """
    count = 0
    for client in _iterate_sockets():
        with closing(client), suppress(OSError):
            listens = client.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if client.family == socket.AF_UNIX and client.getsockname() and not listens:
                client.shutdown(socket.SHUT_RD)
                count += 1
    return count


def _iterate_sockets() -> Iterator[socket.socket]:
    """Each socket of this process, by a descriptor of its own: it may be closed at any time."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - only numbers
        with suppress(OSError):
            copy = os.dup(int(name))
            try:
                found = socket.socket(fileno=copy)
            except OSError:
                # No socket. Left open, these would take all descriptors within seconds, for each look finds those of
                # the looks before; then no key to the store can be opened, and nothing more gets there.
                os.close(copy)
                raise
            yield found
