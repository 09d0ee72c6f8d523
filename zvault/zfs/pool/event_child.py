"""The child process that reads OpenZFS's events through libzfs: a line in asks, one JSON answer a line out.

A question tells how many datasets are followed: by that the kernel is told how many events to keep. Its argument is the
file in which it writes how many those were.

``zpool events`` cannot seek, and without that nothing proves that no event was missed (event_reader.py). Between
questions it reads what comes, so that a burst is not dropped; a thread waits for that in the kernel, so that nothing is
done while nothing happens. It keeps /dev/zfs open: event numbers begin anew when the module is loaded, and it cannot be
unloaded meanwhile.
"""

from __future__ import annotations

import _thread  # threading imports much that is not needed here
import contextlib
import ctypes
import json
import os
import select
import sys
import time
from collections.abc import Callable
from typing import Protocol

if __name__ == "__main__":
    # Started without site-packages, which it does not need: zvault is found by where this file is.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)).removesuffix("zvault/zfs/pool"))  # noqa: PTH100, PTH120

from zvault.zfs.pool.event_reader import ChangeReader, KernelEvent, choose_event_room

RING_LIBRARIES = [f"libzfs.so.{number}" for number in range(9, 3, -1)]
"""OpenZFS 2.0 has 4, 2.3 has 6; that of the newest is taken."""

GATHERED = 0.1
"""Seconds from an event until it is read, with all that came in between. A small stream has some fifteen events, and
the kernel keeps 512 if it is told nothing else."""

ROOM = "/sys/module/zfs/parameters/zfs_zevent_len_max"
BOOT = "/proc/sys/kernel/random/boot_id"
SNAPSHOTS_TOO = "/sys/module/zfs/parameters/zfs_snapshot_history_enabled"

NONBLOCK = 1
"""ZEVENT_NONBLOCK (sys/fm/util.h)."""

SEEK_END = 2**64 - 1
"""ZEVENT_SEEK_END: behind the newest event."""

FAILURES = "/proc/spl/kstat/zfs/fm"
COUNTED_EVENTS = ("erpt-dropped", "erpt-set-failed")


class LibzfsRing:
    """The events as libzfs reads them. Raises OSError where it cannot be used."""

    def __init__(self) -> None:
        self._lib = _library()
        pointer, text = ctypes.c_void_p, ctypes.c_char_p
        self._lib.libzfs_init.restype = pointer
        self._lib.zpool_events_seek.argtypes = [pointer, ctypes.c_uint64, ctypes.c_int]
        self._lib.zpool_events_next.argtypes = [
            pointer,
            ctypes.POINTER(pointer),
            ctypes.POINTER(ctypes.c_int),
            ctypes.c_uint,
            ctypes.c_int,
        ]
        self._lib.nvlist_lookup_string.argtypes = [pointer, text, ctypes.POINTER(text)]
        self._lib.nvlist_lookup_uint64.argtypes = [pointer, text, ctypes.POINTER(ctypes.c_uint64)]
        self._lib.nvlist_free.argtypes = [pointer]
        self._lib.nvlist_free.restype = None
        self._handle = self._lib.libzfs_init()
        if not self._handle:
            raise OSError(ctypes.get_errno(), "libzfs cannot be used")
        self._device = os.open("/dev/zfs", os.O_RDWR | os.O_CLOEXEC)

    def seek(self, number: int) -> bool:
        return bool(self._lib.zpool_events_seek(self._handle, number, self._device) == 0)

    def next(self) -> tuple[KernelEvent, int] | None:
        event, dropped = self._next(NONBLOCK)
        if not event:
            return None
        try:
            return self._event(event), dropped
        finally:
            self._lib.nvlist_free(event)

    def wait(self) -> None:
        """Wait for an event that is newer than the one read last. Raises OSError, also where a signal came."""
        event, _ = self._next(0)
        self._lib.nvlist_free(event)

    def _next(self, flags: int) -> tuple[ctypes.c_void_p, int]:
        event, dropped = ctypes.c_void_p(), ctypes.c_int()
        status = self._lib.zpool_events_next(
            self._handle, ctypes.byref(event), ctypes.byref(dropped), flags, self._device
        )
        if status != 0:
            raise OSError(ctypes.get_errno(), "the events cannot be read")
        return event, dropped.value

    def _event(self, event: ctypes.c_void_p) -> KernelEvent:
        number = ctypes.c_uint64()
        if self._lib.nvlist_lookup_uint64(event, b"eid", ctypes.byref(number)) != 0:
            raise OSError(0, "an event has no number")
        names = ("class", "pool", "history_dsname", "history_internal_name", "history_internal_str")
        return KernelEvent(number.value, *(self._text(event, name) for name in names))

    def _text(self, event: ctypes.c_void_p, name: str) -> str:
        value = ctypes.c_char_p()
        if self._lib.nvlist_lookup_string(event, name.encode(), ctypes.byref(value)) != 0:
            return ""
        return (value.value or b"").decode(errors="replace")

    def failures(self) -> int:
        lines = [line.split() for line in _read(FAILURES).splitlines()]
        found = [int(words[2]) for words in lines if len(words) == 3 and words[0] in COUNTED_EVENTS]
        if len(found) != len(COUNTED_EVENTS):
            raise OSError(0, f"{FAILURES} does not tell what the kernel could not post")
        return sum(found)

    def complete(self) -> bool:
        try:
            return _read(SNAPSHOTS_TOO).strip() != "0"
        except FileNotFoundError:
            return True  # an OpenZFS that does not have the parameter


def _library() -> ctypes.CDLL:
    for name in RING_LIBRARIES:
        try:
            return ctypes.CDLL(name, use_errno=True)
        except OSError:
            continue
    raise OSError(0, "there is no libzfs")


class EventRoom:
    """The room that the kernel has for events: more while zvaultd is there, if many datasets are followed.

    What it was before, and what is written in its place, is in ``note`` first, so that also who comes after one that
    was killed puts it back. After a boot the note counts for nothing: the same number may be the administrator's then.
    """

    def __init__(self, note: str, path: str = ROOM, memory: int | None = None, boot: str = BOOT) -> None:
        self._note = note
        self._path = path
        self._memory = memory or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._before: int | None = None
        self._ours: list[int] = []
        self._fits = 0
        self._boot = ""
        with contextlib.suppress(OSError, ValueError):
            self._boot = _read(boot).strip()
            noted, *numbers = _read(note).split()
            before, *ours = map(int, numbers)
            if noted == self._boot and int(_read(path)) in ours:
                self._before, self._ours = before, ours

    def fit(self, datasets: int) -> None:
        """Have it keep enough for so many. Where that may not be said, some may be dropped, which is noticed."""
        wanted = choose_event_room(datasets, self._memory)
        if wanted <= self._fits:
            return
        self._fits = wanted
        with contextlib.suppress(OSError, ValueError):
            now = int(_read(self._path))
            if now < wanted:
                if now not in self._ours:
                    self._before, self._ours = now, []
                self._ours.append(wanted)
                beside = f"{self._note}.new"  # what was noted stays if the room for this ends in the middle
                _write(beside, " ".join(map(str, (self._boot, self._before, *self._ours))))
                os.rename(beside, self._note)  # noqa: PTH104 - importing pathlib takes a megabyte
                _write(self._path, str(wanted))

    def put_back(self) -> None:
        """As it was, unless somebody else changed it meanwhile."""
        with contextlib.suppress(OSError, ValueError):
            if self._before is not None and int(_read(self._path)) in self._ours:
                _write(self._path, str(self._before))
            os.unlink(self._note)  # noqa: PTH108 - as above


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:  # noqa: PTH123 - as above
        return file.read()


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123 - as above
        file.write(text)


class WaitingReader(Protocol):
    """One reader's place among the kernel's events, who waits for the next one. Both raise OSError."""

    def seek(self, number: int) -> bool:
        """Go to behind an event."""
        ...

    def wait(self) -> None:
        """Wait until there is a newer one."""
        ...


def announce_events(
    waiting: WaitingReader, told: Callable[[], object], pause: Callable[[float], None] = time.sleep
) -> None:
    """Call ``told`` for ever, soon after there are new events.

    It is behind the newest event before it calls: what came until then is read by whoever is told, and what comes
    later ends the next wait. Where nothing can be waited for, it is told as often as it may be.
    """
    while True:
        with contextlib.suppress(OSError):
            waiting.wait()
        pause(GATHERED)
        with contextlib.suppress(OSError):
            waiting.seek(SEEK_END)
        told()


def main() -> None:
    """Answer until the parent closes the pipe. A failure ends it: what it knew is then lost."""
    # A handle and a descriptor of its own for the thread: each descriptor has its place, and libzfs knows no threads.
    reader, waiting = ChangeReader(LibzfsRing()), LibzfsRing()
    room = EventRoom(sys.argv[1])
    told, tells = os.pipe()
    waiting.seek(SEEK_END)
    _thread.start_new_thread(announce_events, (waiting, lambda: os.write(tells, b"!")))
    print(json.dumps({"ready": True}), flush=True)  # noqa: T201 - the answer channel
    while True:
        ready, _, _ = select.select([sys.stdin.fileno(), told], [], [])
        if told in ready:
            os.read(told, 4096)
            reader.read()
        if sys.stdin.fileno() not in ready:
            continue
        # One question at a time, of a few bytes: whoever asks waits for the answer.
        line = os.read(sys.stdin.fileno(), 4096)
        question = json.loads(line) if line else None
        if question is None or "end" in question:
            room.put_back()
            if question is not None:
                print(json.dumps({"ended": True}), flush=True)  # noqa: T201
            return
        room.fit(int(question["datasets"]))
        print(json.dumps(reader.take().document()), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
