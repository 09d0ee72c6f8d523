"""zvaultd's parts on two sides that are large, listed by real processes: they print files of what ``zfs`` would."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.names import make_snapname
from zvault.core.replication.base_names import make_mark_name
from zvault.daemon.assemble import assemble_daemon
from zvault.system.process.runner import HostRunner, ProcessResult
from zvault.zfs.client import Zfs
from zvault.zfs.parse_listing import SENT, SNAPSHOT_FACTS
from zvault.zfs.tree_listing import MOST_AT_ONCE

START = 1_700_000_000
POOL = 0xC01D
KEEP = {"hourly": 24, "daily": 30, "weekly": 8, "monthly": 12, "yearly": 3}
CONFIG: dict[str, Any] = {
    "daemon": {"timezone": "Europe/Berlin", "host": "host", "metrics": "off"},
    "vault": {"cold": {"pool": "cold"}},
    "backup": {"large": {"source": "tank", "vault": "cold", "keep": {"source": KEEP, "vault": KEEP}}},
}


def snapname(number: int) -> str:
    """One each 15 minutes; every fifth is another tool's."""
    made = datetime.fromtimestamp(START + 900 * number, UTC)
    return make_snapname("zvault" if number % 5 else "other", made)


class ListedSide(HostRunner):
    """One side: ``zfs list`` is a process that prints a file. Each dataset has these ``snapshots``, by number."""

    def __init__(self, folder: Path, root: str, datasets: int, snapshots: range) -> None:
        self.root, self.datasets, self.snapshots = root, datasets, snapshots
        self.names = [root, *(f"{root}/d{number:05}" for number in range(1, datasets))]
        self.points, self.lines = folder / f"{root[:4]}-points", folder / f"{root[:4]}-datasets"
        source = root == "tank"
        snapnames = [snapname(number) for number in snapshots]
        self.of_each: dict[str, str] = {}
        with self.points.open("w") as file:
            for place, name in enumerate(self.names):
                first = place * 10_000_000 + (0 if source else 5)
                lines = [
                    f"{name}@{short}\t{((place + 1) << 24) + number}\t{first + number}\n"
                    for number, short in zip(snapshots, snapnames, strict=True)
                ]
                if source:
                    guid = ((place + 1) << 24) + 1
                    lines.append(f"{name}#{make_mark_name(POOL, guid)}\t{guid}\t{first + 1}\n")
                text = "".join(lines)
                file.write(text)
                if datasets > MOST_AT_ONCE:
                    self.of_each[name] = text
        with self.lines.open("w") as file:
            for place, name in enumerate(self.names):
                file.write(f"{name}\tfilesystem\t{place + 1}\t1048576\t0\t-\toff\t-\t{START}\n")

    async def run(
        self,
        argv: Sequence[str],
        *,
        deadline: float = 60.0,
        stdin: bytes | None = None,
        check: bool = True,
    ) -> ProcessResult:
        if argv[1] == "get":
            own = (
                ""
                if self.root == "tank"
                else "".join(f"{name}\t{SENT}\t{place + 1:x}:Lce\n" for place, name in enumerate(self.names))
            )
            return ProcessResult(tuple(argv), 0, own, "", 0.0)
        if argv[1] != "list":
            return ProcessResult(tuple(argv), 0, "", "", 0.0)
        columns = argv[argv.index("-o") + 1]
        if columns in {"name,used", "name"}:  # name: whether they are there
            used = "".join(f"{name}\t1\n" for name in self.names) if columns == "name,used" else ""
            return ProcessResult(tuple(argv), 0, used, "", 0.0)
        if columns == ",".join(SNAPSHOT_FACTS):
            facts = "\t".join(["0", "-", *["0"] * (len(SNAPSHOT_FACTS) - 4)])
            asked = argv[argv.index("-o") + 2 :]
            return ProcessResult(
                tuple(argv), 0, "".join(f"{name}\tfilesystem\t{facts}\n" for name in asked), "", 0.0
            )
        if "-d1" in argv:  # some datasets, by name
            asked = argv[argv.index("-o") + 2 :]
            return ProcessResult(tuple(argv), 0, "".join(self.of_each[name] for name in asked), "", 0.0)
        return await super().run(["cat", str(self.points if "createtxg" in columns else self.lines)])


class SilentFeed:
    """Tells that nothing changed."""

    works = True

    def follow(self, _: object) -> None: ...
    async def collect(self) -> None: ...
    async def close(self) -> None: ...


async def answered(*_: object) -> None:
    """As the child in which libzfs_core is: whoever asks waits for it."""
    await asyncio.sleep(0)


class NoChanges:
    """In place of libzfs_core: nobody holds anything, and nothing is freed."""

    async def tagged(self, *_: object) -> set[str]:
        await answered()
        return set()

    async def range_space(self, ranges: Sequence[object]) -> list[int]:
        await answered()
        return [0 for _ in ranges]

    async def send_space(self, *_: object) -> int:
        await answered()
        return 0

    snapshot = hold = release = bookmark = destroy = destroy_bookmarks = close = staticmethod(answered)


class Imported:
    """Both pools are there, and nothing is being freed in them."""

    async def state(self, _: str) -> SimpleNamespace:
        return SimpleNamespace(guid=POOL)

    async def read_freeing(self, _: str) -> int:
        return 0

    async def sync(self, _: str) -> None: ...


class LargeWorld:
    """A daemon that is not started, on these sides."""

    def __init__(self, folder: Path, source: ListedSide, vault: ListedSide) -> None:
        self.source, self.vault = source, vault
        self.daemon = assemble_daemon(Config.model_validate(CONFIG), Paths(folder, folder, folder, folder))
        self.context = self.daemon.context
        self.backup = self.context.env.backup("large")
        clients, feed = self.context.clients, SilentFeed()
        held: Any = feed
        for side, where in ((self.source, clients._sources), (self.vault, clients._vaults)):
            zfs: Any = Zfs(side, feed=held)
            zfs.lzc = NoChanges()
            key: Any = None if side is self.source else ("cold", None, "")
            where[key] = zfs
        zpool: Any = Imported()
        clients.zpool = zpool


class CpuLag:
    """How much the whole process computes while a timer of the loop is due: that is what keeps the loop waiting.

    By the processor's time: so a machine that stands still is no fault of the loop's, and one that is busy otherwise
    gives the whole process little of it. Nor is it the loop's fault that the scheduler let another thread of the
    process run and its own wait for a processor: that wait is taken off, where the kernel counts it.
    """

    EVERY = 0.02

    def __init__(self) -> None:
        self.worst = 0.0
        self.when = ""
        self.doing = ""
        self.where: list[str] = []

    async def watch(self) -> None:
        while True:
            began, waited = time.process_time(), _waited_for_a_processor()
            await asyncio.sleep(self.EVERY)
            late = time.process_time() - began - self.EVERY - (_waited_for_a_processor() - waited)
            if late > self.worst:
                self.worst, self.when, self.where = late, self.doing, _computing()


def _waited_for_a_processor() -> float:
    """Seconds that this thread was ready and did not run (proc_pid_schedstat: the second number, ns); 0 if unknown."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def _computing() -> list[str]:
    """Where the thread that computes is at this moment: right after what kept the loop from its turn."""
    frames = sys._current_frames()
    threads = [one for one in threading.enumerate() if one.name.startswith("compute")]
    return [line for one in threads for line in traceback.format_stack(frames[one.ident or 0])[-4:]]
