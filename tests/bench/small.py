"""Little to send: 200 datasets, each with one new snapshot of 16 KiB. Every contender has a target pool of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import field
import peers
from report import chosen, finish, race, ratio, say

DATASETS, SNAPSHOTS = 200, 2
INTO = "copy"
WRITTEN = 16 << 10
BZFS_THREADS = 4


def target(pool: str) -> str:
    """Where a pool has its copy."""
    return f"{pool}/{INTO}/{field.ROOT}"


@cache
def increment(number: int) -> str:
    """Once a round: write to every dataset and make a snapshot of all, not on anybody's time. Its name."""
    for name in datasets():
        (Path("/") / name / "file").write_bytes(os.urandom(WRITTEN))
    return field.snapshot(SNAPSHOTS + number)


@cache
def datasets() -> list[str]:
    """The source's datasets."""
    return field.datasets(DATASETS)


def contender(pool: str, send: Callable[[], float]) -> Callable[[int], float]:
    """One that is given the round's snapshot, and whose copy is looked at afterwards."""

    def run(number: int) -> float:
        newest = increment(number)
        field.settle()
        took = send()
        field.newest_everywhere(target(pool), newest)
        return took

    return run


CONTENDERS = {
    "zvault": contender("cold", field.zvault),
    "bzfs": contender("cold1", lambda: peers.bzfs(field.ROOT, target("cold1"))),
    f"bzfs --threads={BZFS_THREADS}": contender(
        "cold2", lambda: peers.bzfs(field.ROOT, target("cold2"), f"--threads={BZFS_THREADS}")
    ),
    "syncoid": contender("cold3", lambda: peers.syncoid(field.ROOT, target("cold3"))),
    "zfs-autobackup": contender("cold4", lambda: peers.autobackup(field.ROOT, target("cold4"))),
}
POOLS = ("cold", "cold1", "cold2", "cold3", "cold4")


def main() -> None:
    """Set up, race, report."""
    wanted, rounds = chosen(CONTENDERS)
    peers.install()
    field.source("800M", "/tank")
    say(f"making {DATASETS} datasets, and a copy of them for each contender")
    datasets()
    for number in range(SNAPSHOTS):
        field.snapshot(number)
    for pool, name in zip(POOLS, CONTENDERS, strict=True):
        if name in wanted:
            field.copy_to(pool, target(pool))
    if "zvault" in wanted:
        field.daemon(INTO)
        field.zvault()  # protects the bases, as every run leaves them
    seconds = race(wanted, rounds)
    others = [name for name in seconds if name != "zvault"]
    ratios = {"ratio_fastest_peer": ratio(seconds, others, "zvault")}
    finish("small", seconds, ratios, datasets=DATASETS, bytes_each=WRITTEN)


if __name__ == "__main__":
    main()
