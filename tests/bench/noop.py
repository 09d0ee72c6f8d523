"""Nothing to send: 300 datasets with 20 snapshots each, all of them on the target already.

syncoid and zfs-autobackup take minutes for it, and take part only where they are named.
"""

from __future__ import annotations

import resource
import statistics

import field
import peers
from report import chosen, finish, race, ratio, say

DATASETS, SNAPSHOTS = 300, 20
INTO = "copy"
TARGET = f"cold/{INTO}/{field.ROOT}"


def zvault_cold(_: int) -> float:
    """zvault's daemon has just been started and knows nothing of the pools."""
    field.sh("systemctl", "restart", "zvaultd")
    return field.zvault()


def zvault_warm(_: int) -> float:
    """Nothing has changed since the daemon's last run."""
    field.zvault()
    before = client_cpu()
    took = field.zvault()
    CLIENT_CPU.append(client_cpu() - before)
    return took


CLIENT_CPU: list[float] = []
"""Seconds of processor that zvaultctl took of each warm run."""


def client_cpu() -> float:
    """Seconds of processor that programs took which were started here and have ended: of a run, zvaultctl alone."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def bzfs_warm(_: int) -> float:
    """Nothing has changed since the last run that kept its cache."""
    peers.bzfs(field.ROOT, TARGET, "--cache-snapshots")
    return peers.bzfs(field.ROOT, TARGET, "--cache-snapshots")


CONTENDERS = {
    "zvault": zvault_cold,
    "zvault warm": zvault_warm,
    "bzfs": lambda _: peers.bzfs(field.ROOT, TARGET),
    "bzfs warm": bzfs_warm,
    "syncoid": lambda _: peers.syncoid(field.ROOT, TARGET),
    "zfs-autobackup": lambda _: peers.autobackup(field.ROOT, TARGET),
}


def main() -> None:
    """Set up, race, report."""
    wanted, rounds = chosen(CONTENDERS, seldom=("syncoid", "zfs-autobackup"))
    peers.install()
    field.source("1G")
    say(f"making {DATASETS} datasets with {SNAPSHOTS} snapshots each, and their copy")
    field.datasets(DATASETS)
    newest = ""
    for number in range(SNAPSHOTS):
        newest = field.snapshot(number)
    field.copy_to("cold", TARGET)
    field.daemon(INTO)
    field.zvault()  # protects the bases
    field.settle()
    seconds = race(wanted, rounds)
    field.newest_everywhere(TARGET, newest)
    ratios = {
        "ratio_fastest_peer": ratio(seconds, ["bzfs", "syncoid", "zfs-autobackup"], "zvault"),
        "warm_ratio_fastest_peer": ratio(seconds, ["bzfs warm"], "zvault warm"),
    }
    client = round(statistics.median(CLIENT_CPU), 3) if CLIENT_CPU else None
    finish("noop", seconds, ratios, datasets=DATASETS, snapshots=SNAPSHOTS, client_cpu_seconds=client)


if __name__ == "__main__":
    main()
