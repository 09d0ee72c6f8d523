"""An RBD image that behaves as a script of faults says (fault_script.py): its cluster does, its OSD on a dm device.

What a script says of requests is done where the cluster has such a thing: all requests of all clients wait while the
OSD map pauses them, and are slow while the OSD's disk is. ``error`` puts this client on the cluster's blocklist, which
fails each request. "half" kills the monitor, and the OSD goes on; "vanish" kills the OSD. "grow" and "rename"
are the image's own.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import ceph
from fault_script import ERROR, GROW, HALF, RENAME, SLOW, STALL, VANISH, Fault, parse_script
from world import DISK, sh

RBD_FAULTS = (STALL, SLOW, ERROR, GROW, VANISH, RENAME, HALF)
"""What an image can be made to do: a cluster refuses to go back in time, and krbd to shrink below a pool."""

DISK_SIZE = 4 << 30
OSD_DISK = "lab-osd"
MOST_DELAY = 1.0
"""Seconds that the OSD's disk is slow by at most: an OSD that takes too long over a write ends itself."""


@contextmanager
def slow_disk() -> Iterator[Path]:
    """A disk in memory for an OSD, which can be slowed down."""
    DISK.mkdir(exist_ok=True)
    backing = DISK / "osd.img"
    sh("truncate", "-s", str(DISK_SIZE), str(backing))
    loop = sh("losetup", "--find", "--show", str(backing)).strip()
    sh("dmsetup", "create", OSD_DISK, "--table", f"0 {DISK_SIZE >> 9} linear {loop} 0")
    try:
        yield Path("/dev/mapper") / OSD_DISK
    finally:
        sh("dmsetup", "remove", "--retry", OSD_DISK, check=False)
        sh("losetup", "--detach", loop, check=False)


def set_delay(seconds: float) -> None:
    """From now on each request to the OSD's disk takes so much longer."""
    loop = sh("losetup", "--noheadings", "-O", "NAME", "--associated", str(DISK / "osd.img")).strip()
    kind = f"delay {loop} 0 {round(seconds * 1000)}" if seconds else f"linear {loop} 0"
    sh("dmsetup", "reload", OSD_DISK, "--table", f"0 {DISK_SIZE >> 9} {kind}")
    sh("dmsetup", "resume", OSD_DISK)


@dataclass
class FaultyImage:
    """An image of one cluster, which is told by lines as FaultyStorage is."""

    cluster: ceph.Cluster
    image: str
    _over: threading.Event = field(default_factory=threading.Event)
    _driver: threading.Thread | None = None
    _undo: dict[Fault, list[tuple[str, ...]]] = field(default_factory=dict)

    def command(self, line: str) -> str:
        """Have it do what a line says: ``script TEXT`` or ``sound``."""
        verb, _, text = line.partition(" ")
        self._over.set()
        if self._driver is not None:
            self._driver.join()
            self._driver = None
        for fault in list(self._undo):
            self.end(fault)
        if verb == "script":
            self._over = threading.Event()
            faults = tuple(fault for fault in parse_script(text).faults if fault.name in RBD_FAULTS)
            self._driver = threading.Thread(target=self._drive, args=(faults, self._over), daemon=True)
            self._driver.start()
        return "{}"

    def _drive(self, faults: tuple[Fault, ...], over: threading.Event) -> None:
        began = time.monotonic()
        moments = [(fault.at, True, fault) for fault in faults] + [
            (fault.end, False, fault) for fault in faults
        ]
        for moment, begins, fault in sorted(moments, key=lambda one: (one[0], one[1])):
            if over.wait(max(0.0, began + moment - time.monotonic())):
                return
            self.begin(fault) if begins else self.end(fault)

    def begin(self, fault: Fault) -> None:
        """What a fault does, one of a kind at a time; ``end`` undoes it."""
        if any(one.name == fault.name for one in self._undo):
            return
        self._undo[fault] = []
        if fault.name == STALL:
            # Reads and writes alike: the monitor takes 'pause' and neither half of it. It may be away.
            with contextlib.suppress(Exception):
                ceph.ask("osd set", key="pause", timeout=2)
        elif fault.name == SLOW:
            set_delay(min(fault.amount, MOST_DELAY))
        elif fault.name == ERROR:
            self._block()
        elif fault.name == VANISH:
            self.cluster.stop_osd()
        elif fault.name == HALF:
            self.cluster.stop_mon()
        elif fault.name == GROW:
            self._rbd("resize", "--size", f"{1024 + round(fault.amount)}M", self.image)
        elif fault.name == RENAME:
            self._rbd("rename", self.image, f"{self.image}-other")

    def end(self, fault: Fault) -> None:
        """Undo it; what grew stays so."""
        if fault not in self._undo:
            return
        if fault.name == HALF:
            self.cluster.start_mon()
        elif fault.name == VANISH:
            self._with_monitor()
            self.cluster.start_osd()
        elif fault.name == SLOW:
            set_delay(0)
        elif fault.name == STALL:
            self._with_monitor()
            ceph.ask("osd unset", key="pause")
        elif fault.name == ERROR:
            self._with_monitor()
            self._unblock()
        elif fault.name == RENAME:
            self._with_monitor()
            self._rbd("rename", f"{self.image}-other", self.image)
        del self._undo[fault]

    def _with_monitor(self) -> None:
        """Have the monitor back, without which nothing can be undone."""
        for fault in [one for one in self._undo if one.name == HALF]:
            self.end(fault)

    def _rbd(self, *words: str) -> None:
        sh("timeout", "60", "rbd", *words, check=False)

    def _block(self) -> None:
        status = sh("timeout", "5", "rbd", "status", "--format", "json", self.image, check=False)
        self._blocked = [one["address"] for one in json.loads(status or "{}").get("watchers", ())]
        for address in self._blocked:
            sh("timeout", "20", "ceph", "osd", "blocklist", "add", address, check=False)

    def _unblock(self) -> None:
        for address in self._blocked:
            sh("ceph", "osd", "blocklist", "rm", address, check=False)
