"""zvault's transfer against the bare ``zfs send | mbuffer | zfs receive`` of the same data, in one run in one guest.

Both send the same snapshot with the same flags through an mbuffer of the same size into the same pool on the same
NBD device, each into a dataset that does not exist yet. Timed is the transfer: for zvault the
seconds its ``transfer-finished`` event tells, holds and bookmarks not included; ``ratio_run`` sets its whole
run (snapshot, listings, plan, holds, bookmarks, prune, lag) against the bare pipeline as well.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "lab"))
import world
from report import finish, race, say
from world import World, ok, sh

MIB = 512
FLAGS = ["-L", "-c", "-e", "-p"]


def settle() -> None:
    """Let both pools come to rest, so that nobody pays for another's last writes."""
    sh("zpool", "sync")
    time.sleep(1)


def bare(number: int) -> float:
    """The pipeline as an administrator would type it."""
    settle()
    snapname = world.snapshots("tank/data")[-1]
    command = (
        f"zfs send {' '.join(FLAGS)} tank/data@{snapname} 2>/dev/null | mbuffer -q -s 128k -m 128M"
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
    sh("zfs", "destroy", "-r", "cold/lab")
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


def main() -> None:
    """Set up, race, report."""
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
    seconds = race({"bare": bare, "zvault": zvault})
    ratio = statistics.median(seconds["bare"]) / statistics.median(seconds["zvault"])
    run = statistics.median(seconds["bare"]) / statistics.median(whole)
    it.clean()
    finish("pipeline", seconds, {"ratio_raw": ratio, "ratio_run": run}, mib=MIB)


if __name__ == "__main__":
    main()
