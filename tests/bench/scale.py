"""A hundred thousand datasets with fifty snapshots each, on both sides: what planning takes of time and memory.

The listing is made up, so this needs no guest: a runner answers what ``zfs`` is asked, and events tell what changed.
All else is zvault's own: clients, caches, plan, retention, lag, status, metrics, pages. The seconds of the answers
are taken off. Half of the datasets have the snapshots that all have, made together; each of the others has its own.

With ``--datasets 5000`` a smaller one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from report import say

from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.names import make_snapname
from zvault.core.replication.base_names import make_mark_name
from zvault.daemon.assemble import assemble_daemon
from zvault.ops.list_documents import DatasetPagePart, make_list_document
from zvault.ops.replication.lag import measure_lags
from zvault.ops.replication.listing import list_both_sides
from zvault.ops.replication.plan_all import plan_all
from zvault.ops.retention.prune_plan import plan_prune
from zvault.ops.retention.vault_holds import note_held, plan_holds
from zvault.system.process.runner import HostRunner, ProcessResult
from zvault.zfs.client import Zfs
from zvault.zfs.parse_listing import SENT
from zvault.zfs.pool.event_reader import ChangedDatasets

HOURS = 400
"""Moments from which those that have snapshots of their own have some."""

START = 1_790_000_000
POOL = 0xC01D
CHANGED = 100
LATER = 5
KEEP = {"hourly": 60, "daily": 30, "weekly": 8, "monthly": 12}

CONFIG = {
    "daemon": {"timezone": "UTC", "host": "lab"},
    "vault": {"cold": {"pool": "cold"}},
    "backup": {"bench": {"source": "tank", "vault": "cold", "keep": {"source": KEEP, "vault": KEEP}}},
}


class MadeUp(HostRunner):
    """One side: answers what ``zfs`` is asked of it. What it remembers is only what came to each dataset since."""

    def __init__(self, root: str, datasets: int, snapshots: int, *, source: bool) -> None:
        self.root, self.datasets, self.snapshots, self.source = root, datasets, snapshots, source
        self.came: Counter[int] = Counter()
        self.took = self.cpu = 0.0

    def name(self, number: int) -> str:
        """Of a dataset: a hundred in each folder, which is one too."""
        if not number:
            return self.root
        folder = f"{self.root}/d{(number - 1) // 100:04}"
        return f"{folder}/x{number % 100:02}" if (number - 1) % 100 else folder

    def _number(self, name: str) -> int:
        parts = name.removeprefix(self.root).strip("/").split("/")
        if not parts[0]:
            return 0
        folder = int(parts[0][1:]) * 100 + 1
        return (
            folder
            if len(parts) == 1
            else next(n for n in range(folder, folder + 100) if self.name(n) == name)
        )

    async def run(
        self,
        argv: Sequence[str],
        *,
        deadline: float = 60.0,
        stdin: bytes | None = None,
        check: bool = True,
    ) -> ProcessResult:
        """The answer of a ``zfs list`` or ``zfs get``."""
        began, cpu = time.perf_counter(), time.process_time()
        names = argv[argv.index("-o") + (3 if argv[1] == "get" else 2) :]
        # What lies above the backup is not told of: nothing of it is encrypted.
        below = [name for name in names if f"{name.partition('@')[0]}/".startswith(f"{self.root}/")]
        numbers = (
            range(self.datasets) if "-r" in argv else [self._number(name.partition("@")[0]) for name in below]
        )
        if argv[1] == "get":
            lines = self._own(numbers)
        elif argv[argv.index("-o") + 1] == "name,used":
            lines = (f"{self.name(number)}\t1048576" for number in numbers)
        elif argv[argv.index("-t") + 1] == "snapshot":
            lines = map(self._named, names)
        elif "snapshot,bookmark" in argv:
            lines = (line for number in numbers for line in self._points(number))
        else:
            lines = map(self._line, numbers)
        text = "".join(f"{line}\n" for line in lines)
        self.took += time.perf_counter() - began
        self.cpu += time.process_time() - cpu
        return ProcessResult(tuple(argv), 0, text, "", 0.0)

    def _line(self, number: int) -> str:
        changed = START + HOURS * 3600 + self.came[number]
        return f"{self.name(number)}\tfilesystem\t{number + 1}\t1048576\t0\t-\toff\t-\t{changed}"

    def _own(self, numbers: Sequence[int]) -> Iterator[str]:
        if self.source:
            return iter(())
        return (f"{self.name(number)}\t{SENT}\t{number + 1:x}:Lce" for number in numbers)

    def _named(self, snapshot: str) -> str:
        """Of one that came later, for only those are asked for by name."""
        name, _, snapname = snapshot.partition("@")
        number = self._number(name)
        return next(
            self._line_of(number, moment) for moment in self._later(number) if _snapname(moment) == snapname
        )

    def _later(self, number: int) -> Sequence[int]:
        return range(HOURS, HOURS + self.came[number])

    def newest(self, number: int) -> str:
        """The snapname of the one that came last."""
        return _snapname(self._later(number)[-1])

    def _line_of(self, number: int, moment: int) -> str:
        # A vault's pool has transaction groups of its own.
        first = 1000 if self.source else 5_000_000 + number * 1000
        return f"{self.name(number)}@{_snapname(moment)}\t{((number + 1) << 32) + moment}\t{first + moment}"

    def _points(self, number: int) -> Iterator[str]:
        moments = [*_moments(number, self.snapshots), *self._later(number)]
        yield from (self._line_of(number, moment) for moment in moments)
        if self.source:
            guid = ((number + 1) << 32) + HOURS - 1
            yield f"{self.name(number)}#{make_mark_name(POOL, guid)}\t{guid}\t{1000 + HOURS - 1}"


@lru_cache(maxsize=1 << 12)
def _snapname(moment: int) -> str:
    return make_snapname("zvault", datetime.fromtimestamp(START + moment * 3600, UTC))


def _moments(number: int, count: int) -> Sequence[int]:
    if number % 2 == 0:
        return range(HOURS - count, HOURS)
    return [*sorted(random.Random(number).sample(range(HOURS - 1), count - 1)), HOURS - 1]


class Events:
    """Tells the caches what changed, in place of the kernel."""

    works = True

    def __init__(self) -> None:
        self.changed = ChangedDatasets(lost=True)
        self._followers: list[Any] = []

    def follow(self, follower: Any) -> None:
        """Have it hear."""
        self._followers.append(follower)

    async def collect(self) -> None:
        """Let all hear what changed since this was last called."""
        changed, self.changed = self.changed, ChangedDatasets()
        for follower in self._followers:
            follower.note(changed)

    async def close(self) -> None:
        """There is nothing to end."""


class Imported:
    """The vault's pool is there."""

    async def state(self, pool: str) -> str:
        """See Zpool.state."""
        return pool


class World:
    """A daemon that is not started, on two sides that are made up."""

    def __init__(self, datasets: int, snapshots: int, state: Path) -> None:
        self.source = MadeUp("tank", datasets, snapshots, source=True)
        self.vault = MadeUp("cold/lab/tank", datasets, snapshots, source=False)
        self.daemon = assemble_daemon(Config.model_validate(CONFIG), Paths(state, state, state, state))
        self.context = self.daemon.context
        self.events = Events()
        feed: Any = self.events
        self.context.clients._sources[None] = Zfs(self.source, feed=feed)
        self.context.clients._vaults["cold", None, ""] = Zfs(self.vault, feed=feed)
        zpool: Any = Imported()
        self.context.clients.zpool = zpool
        self.seconds: dict[str, float] = {}
        self.cpu: dict[str, float] = {}

    async def timed(self, what: str, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do it, and note its seconds without those of the made-up answers."""
        sides = self.source, self.vault
        took, answered = sum(side.took for side in sides), sum(side.cpu for side in sides)
        began, cpu = time.perf_counter(), time.process_time()
        found = await work()
        answers = sum(side.took for side in sides) - took
        self.seconds[what] = time.perf_counter() - began - answers
        self.cpu[what] = time.process_time() - cpu - (sum(side.cpu for side in sides) - answered)
        say(
            f"{what:28} {self.seconds[what]:8.2f} s, {self.cpu[what]:7.2f} of a processor (answers"
            f" {answers:.1f} s); {memory('VmRSS'):5.0f} MiB"
        )
        return found

    async def plan(self) -> int:
        """What a run plans, from listing what changed to the holds on the vault; how many datasets it would send."""
        backup, clients = self.context.env.backup("bench"), self.context.clients
        sides = await list_both_sides(self.context, backup, clients.vault_of(backup), sizes="vault")
        plans = await plan_all(self.context, backup, sides)
        self.daemon.runs.readings.keep(
            "bench", measure_lags(self.context, backup, sides), self.context.env.way(backup)
        )
        for plan in plan_prune(self.context, backup, sides):
            assert not plan.over
            assert len(plan.selected) <= CHANGED * LATER
            if plan.side == "vault":
                # What is to be held is taken to be held.
                lapses = clients.vault_of(backup).lapses
                plan_holds(self.context, backup, plan, lapses)
                note_held(plan, frozenset(), lapses)
        return sum(bool(plan.steps) for plan in plans)

    def change(self, numbers: Sequence[int], before: Sequence[int]) -> None:
        """A new snapshot of each of some datasets; what was new ``before`` is on the vault by now."""
        for side, which in ((self.source, numbers), (self.vault, before)):
            side.came.update(which)
            named = {side.name(number): {f"@{side.newest(number)}"} for number in which}
            self.events.changed.datasets |= named


def memory(key: str) -> float:
    """Mebibytes of this process: VmRSS now, VmHWM at most so far."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) / 1024


async def measured(datasets: int, snapshots: int, state: Path) -> dict[str, object]:
    """All figures."""
    world = World(datasets, snapshots, state)
    say(f"an empty daemon: {memory('VmRSS'):.0f} MiB")
    context, clients = world.context, world.context.clients

    async def list_both() -> None:
        await clients.source_of(context.env.backup("bench")).tree("tank")
        await clients.vault_of(context.env.backup("bench")).tree("cold/lab/tank")

    await world.timed("listing", list_both)
    assert await world.timed("first plan", world.plan) == 0
    before: Sequence[int] = ()
    chance = random.Random(1)
    for round_number in range(LATER):
        numbers = chance.sample(range(datasets), CHANGED)
        world.change(numbers, before)
        assert await world.timed(f"later plan {round_number}", world.plan) == CHANGED
        before = numbers

    async def status() -> int:
        return len(json.dumps(world.daemon.status.document_of([])))

    async def metrics() -> int:
        return len(world.daemon.metrics.text())

    async def page(after: str = "") -> str | None:
        found = await make_list_document(
            context, world.daemon.vaults, "bench", page=DatasetPagePart(1000, after)
        )
        assert len(found["datasets"]) == min(1000, datasets)
        return found["next"]

    assert await world.timed("status", status)
    size = await world.timed("metrics", metrics)
    after = await world.timed("first page", page)
    assert await world.timed("second page", lambda: page(after))
    later = [value for name, value in world.seconds.items() if name.startswith("later")]
    later_cpu = [value for name, value in world.cpu.items() if name.startswith("later")]
    return {
        "benchmark": "scale",
        "datasets": datasets,
        "snapshots": snapshots,
        "seconds": {name: round(value, 3) for name, value in world.seconds.items()},
        "processor": {name: round(value, 3) for name, value in world.cpu.items()},
        "later_plan_worst": round(max(later), 3),
        "later_plan_worst_processor": round(max(later_cpu), 3),
        "mib": round(memory("VmRSS")),
        "mib_most": round(memory("VmHWM")),
        "metrics_bytes": size,
    }


def main() -> None:
    """Measure, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=int, default=100_000)
    parser.add_argument("--snapshots", type=int, default=50)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as state:
        print(json.dumps(asyncio.run(measured(wanted.datasets, wanted.snapshots, Path(state)))))


if __name__ == "__main__":
    main()
