"""Much to send: one full stream of 2 GiB that does not compress, into a dataset that is not there yet."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import field
import peers
from field import ROOT, sh
from report import chosen, finish, race, ratio, say

MIB = 2048
INTO = "copy"
TARGET = f"cold/{INTO}/{ROOT}"
FLAGS = ["-L", "-c", "-e", "-p"]
"""What zvault sends with."""

streams: list[float] = []
"""The seconds of zvault's streams alone, without what comes before and after them."""


def contender(send: Callable[[], float]) -> Callable[[int], float]:
    """One that finds no target, and whose target goes afterwards."""

    def run(_: int) -> float:
        sh("zfs", "create", "-p", TARGET.rpartition("/")[0])
        field.settle()
        took = send()
        field.newest_everywhere(TARGET, field.snapname(0))
        field.destroy(f"cold/{INTO}")
        return took

    return run


def bare(between: str = "") -> float:
    """The pipeline as an administrator would type it."""
    line = (
        f"zfs send {' '.join(FLAGS)} {ROOT}@{field.snapname(0)} {between}"
        f" | zfs receive -s -u -o readonly=on -o canmount=noauto -x mountpoint {TARGET}"
    )
    started = time.monotonic()
    subprocess.run(["sh", "-c", line], check=True)
    return time.monotonic() - started


def zvault() -> float:
    """A whole run; afterwards the source forgets that there was one."""
    took = field.zvault()
    streams.append(field.stream_seconds())
    for line in sh("zfs", "holds", "-H", f"{ROOT}@{field.snapname(0)}").splitlines():
        sh("zfs", "release", line.split("\t")[1], f"{ROOT}@{field.snapname(0)}")
    for mark in sh("zfs", "list", "-Ho", "name", "-t", "bookmark", ROOT).split():
        sh("zfs", "destroy", mark)
    sh("systemctl", "restart", "zvaultd")  # what was changed behind its back it need not know
    return took


CONTENDERS = {
    "bare": contender(bare),
    "bare, mbuffer": contender(lambda: bare("| mbuffer -q -s 128k -m 128M")),
    "zvault": contender(zvault),
    "bzfs": contender(lambda: peers.bzfs(ROOT, TARGET, "--create-bookmarks=none")),
    "syncoid": contender(lambda: peers.syncoid(ROOT, TARGET)),
    "zfs-autobackup": contender(lambda: peers.autobackup(ROOT, TARGET, "--no-holds")),
}


def main() -> None:
    """Set up, race, report."""
    wanted, rounds = chosen(CONTENDERS)
    peers.install()
    field.source(f"{MIB + MIB // 4}M", "/tank")
    sh("truncate", "-s", f"{MIB + MIB // 4}M", str(field.DISK / "cold.img"))
    sh(
        "zpool",
        "create",
        "-O",
        "compression=off",
        "-O",
        "mountpoint=none",
        "cold",
        str(field.DISK / "cold.img"),
    )
    field.datasets(1)
    say(f"writing {MIB} MiB")
    field.world.noise(Path("/") / ROOT / "noise", MIB)
    field.snapshot(0)
    field.daemon(INTO)
    seconds = race(wanted, rounds)
    ratios = {"ratio_fastest_peer": ratio(seconds, ["bzfs", "syncoid", "zfs-autobackup"], "zvault")}
    if streams and "bare" in seconds:
        medians = {name: statistics.median(values) for name, values in seconds.items()}
        ratios["ratio_raw"] = medians["bare"] / statistics.median(streams)
        ratios["ratio_raw_run"] = medians["bare"] / medians["zvault"]
    finish("bulk", seconds, ratios, mib=MIB)


if __name__ == "__main__":
    main()
