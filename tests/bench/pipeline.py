"""zvault's transfer against the bare pipeline of the same data, with mbuffer and without, in one run in one guest.

All send the same snapshot with the same flags into the same pool on the same NBD device, each into a dataset that does
not exist yet; zvault through an mbuffer of the same size. Timed is the transfer: for zvault the seconds its
``transfer-finished`` event tells, holds and bookmarks not included. ``ratio_raw`` sets it against the pipeline without
mbuffer, ``ratio_mbuffer`` with it, and ``ratio_run`` the whole run (snapshot, listings, plan, holds, bookmarks, prune,
lag) against the former.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "lab"))
import field
import world
from report import chosen, finish, race, say
from world import World, ok, sh

MIB = 512
FLAGS = ["-L", "-c", "-e", "-p"]


def settle() -> None:
    """Let both pools come to rest, so that nobody pays for another's last writes."""
    sh("zpool", "sync")
    time.sleep(1)


def bare(number: int, between: str) -> float:
    """The pipeline as an administrator would type it."""
    settle()
    snapname = world.snapshots("tank/data")[-1]
    command = (
        f"zfs send {' '.join(FLAGS)} tank/data@{snapname} 2>/dev/null {between}"
        f" | zfs receive -s -u -o readonly=on -o canmount=noauto -x mountpoint cold/bare{number}"
    )
    started = time.monotonic()
    subprocess.run(["sh", "-c", command], check=True)
    took = time.monotonic() - started
    sh("zfs", "destroy", "-r", f"cold/bare{number}")
    return took


whole: list[float] = []


def zvault(_: int) -> float:
    """The same through zvault: the history knows the run's seconds, the events the transfer's."""
    settle()
    started = time.monotonic()
    ok("run", "-q", "tank")
    whole.append(time.monotonic() - started)
    took = transfer_seconds()
    field.destroy("cold/lab")
    for snapname in world.snapshots("tank/data"):
        for line in sh("zfs", "holds", "-H", f"tank/data@{snapname}").splitlines():
            sh("zfs", "release", line.split("\t")[1], f"tank/data@{snapname}")
    for mark in sh("zfs", "list", "-Ho", "name", "-t", "bookmark", "tank/data").split():
        sh("zfs", "destroy", mark)
    for snapname in world.snapshots("tank/data")[1:]:
        sh("zfs", "destroy", f"tank/data@{snapname}")
    return took


def transfer_seconds() -> float:
    """Seconds of the full stream in the newest run, as the daemon told them."""
    run = ok("history", "-j").json()["runs"][0]["id"]
    finished = [event for event in world.events(run) if event["event"] == "transfer-finished"]
    return float(finished[0]["seconds"])


CONTENDERS = {
    "bare": lambda number: bare(number, ""),
    "bare, mbuffer": lambda number: bare(number, "| mbuffer -q -s 128k -m 128M"),
    "zvault": zvault,
}


def main() -> None:
    """Set up, race, report."""
    wanted, rounds = chosen(CONTENDERS)
    it = World(size="3G", delay="", source_name="tank/data")
    it.clean()
    world.DISK.mkdir(exist_ok=True)
    sh("truncate", "-s", "2G", str(world.DISK / "tank.img"))
    sh(
        "zpool",
        "create",
        "-O",
        "mountpoint=/tank",
        "-O",
        "compression=off",
        "tank",
        str(world.DISK / "tank.img"),
    )
    sh("zfs", "create", "-o", "recordsize=1M", "tank/data")
    say(f"writing {MIB} MiB")
    world.noise(Path("/tank/data/noise"), MIB)
    it.start()
    ok("vault", "up", "cold")
    sh("zfs", "snapshot", "tank/data@zvault_2026-01-01T00:00:00Z")
    seconds = race(wanted, rounds)
    it.clean()
    ratios = {}
    if len(seconds) == len(CONTENDERS):
        medians = {name: statistics.median(values) for name, values in seconds.items()}
        ratios["ratio_raw"] = medians["bare"] / medians["zvault"]
        ratios["ratio_mbuffer"] = medians["bare, mbuffer"] / medians["zvault"]
        ratios["ratio_run"] = medians["bare"] / statistics.median(whole)
    finish("pipeline", seconds, ratios, mib=MIB)


if __name__ == "__main__":
    main()
