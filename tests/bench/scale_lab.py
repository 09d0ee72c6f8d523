"""A thousand datasets with ten snapshots each on both sides, in a guest: what a real ZFS adds to scale.py's figures.

The vault begins as a copy of the source's pool (field.copy_to), so the first run finds all there, and holds and
bookmarks every base. Of each step: seconds, and the seconds of a processor that zvaultd and its children had; what the
kernel did for them counts, what a pool's own threads did does not.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "lab"))
import field
import rest
import world
from report import finish, say
from world import CONFIG, METRICS, answer, ask, ok, sh

from zvault.core.replication.source_properties import SOURCE_RECORD_PROPERTY

DATASETS, SNAPSHOTS, CHANGED = 1000, 10, 30
FOLDER = 100
AT_ONCE = 8
"""Datasets that are made at once, so that some share a transaction group."""

TARGET = f"cold/copy/{field.ROOT}"
CONFIG_TEXT = field.CONFIG_TEXT.replace("[daemon]\n", f'[daemon]\nmetrics = "{METRICS}"\n')


def names(count: int) -> list[str]:
    """The source's datasets: a hundred in each folder, which is one too."""
    found = [field.ROOT]
    for number in range(count - 1):
        folder = f"{field.ROOT}/d{number // FOLDER:04}"
        found.append(f"{folder}/x{number % FOLDER:02}" if number % FOLDER else folder)
    return found


def make(datasets: list[str]) -> None:
    """Make them, without a program for each."""
    from libzfs_core import lzc_create

    # The copy has what a stream would have brought; else the first run sets it, with a program for each.
    brought = {SOURCE_RECORD_PROPERTY.encode(): b"none"}
    with ThreadPoolExecutor(AT_ONCE) as some:
        for depth in sorted({name.count("/") for name in datasets}):
            level = [name.encode() for name in datasets if name.count("/") == depth]
            list(some.map(lambda name: lzc_create(name, "zfs", brought), level))


class Steps:
    """The seconds of each step, and zvaultd's of a processor."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.cpu: dict[str, list[float]] = {}

    def timed(self, what: str, work: Callable[[], Any], *, restarts: bool = False) -> Any:
        """Do it, and note what it took; where it ``restarts`` the unit, that counts its processor from then on."""
        before, began = 0.0 if restarts else rest.processor(), time.monotonic()
        found = work()
        took, cpu = time.monotonic() - began, rest.processor() - before
        self.seconds.setdefault(what, []).append(took)
        self.cpu.setdefault(what, []).append(cpu)
        say(f"{what:24} {took:8.2f} s, {cpu:7.2f} of a processor; {memory('VmRSS'):4.0f} MiB")
        return found


def memory(key: str) -> float:
    """Mebibytes of zvaultd: VmRSS now, VmHWM at most so far."""
    lines = Path(f"/proc/{world.main_pid()}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))


def scrape() -> None:
    """One, as Prometheus makes it."""
    with urllib.request.urlopen(f"http://{METRICS}/metrics", timeout=120) as told:
        assert b"zvault_" in told.read()


def page(limit: int, after: str = "") -> str:
    """A page of so many datasets; after which the next begins."""
    found = answer(ask("GET", f"/v1/list?backup=bench&limit={limit}{after and f'&after={after}'}"))
    assert found is not None
    assert len(found["datasets"]) == limit
    return found["next"] or ""


def restart() -> None:
    """A zvaultd that knows nothing, until it tells the lag: it has listed both sides then."""
    sh("systemctl", "restart", "zvaultd")
    world.eventually("it has listed both sides", listed, seconds=1200)


def listed() -> bool:
    """Whether the lag of the backup is known."""
    return world.status()["backups"][0]["lag_seconds"] is not None


def main() -> None:
    """Set up, measure, report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--datasets", type=int, default=DATASETS)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    field.source("8G")
    datasets, newest = names(asked.datasets), ""
    began = time.monotonic()
    make(datasets)
    for number in range(SNAPSHOTS):
        newest = field.snapshot(number)
    field.copy_to("cold", TARGET)
    say(
        f"{len(datasets)} datasets with {SNAPSHOTS} snapshots, and their copy: {time.monotonic() - began:.0f} s"
    )
    CONFIG.parent.mkdir(exist_ok=True)
    CONFIG.write_text(CONFIG_TEXT.format(root=field.ROOT, into="copy"))
    steps = Steps()
    steps.timed("first listing", restart, restarts=True)
    steps.timed("first run", field.zvault)
    field.newest_everywhere(TARGET, newest)
    # The first run's holds and bookmarks changed every dataset, so the next one lists all once more.
    field.settle()
    steps.timed("run after the first", field.zvault)
    for number in range(asked.rounds):
        field.settle()
        steps.timed("run of nothing", field.zvault)
        some = datasets[1 + number :: len(datasets) // CHANGED][:CHANGED]
        sh("zfs", "snapshot", *(f"{name}@{field.snapname(SNAPSHOTS + number)}" for name in some))
        steps.timed(f"run with {CHANGED} changed", field.zvault)
    for _ in range(asked.rounds):
        steps.timed("status", lambda: ok("status"))
        steps.timed("scrape", scrape)
        limit = min(1000, len(datasets) // 2)
        after = steps.timed("first page", lambda limit=limit: page(limit))
        steps.timed("second page", lambda limit=limit, after=after: page(limit, after))
    finish(
        "scale in the lab",
        steps.seconds,
        {},
        processor={what: round(statistics.median(cpu), 3) for what, cpu in steps.cpu.items()},
        mib=round(memory("VmRSS")),
        mib_most=round(memory("VmHWM")),
        datasets=len(datasets),
        snapshots=SNAPSHOTS,
        changed=CHANGED,
    )


if __name__ == "__main__":
    main()
