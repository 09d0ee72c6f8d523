"""What zvaultd costs while nothing is to be done: ten backups whose vaults are down, for five minutes.

Memory: all that its unit's processes have resident, and what of it is its own (Pss: pages that it shares by halves).
Processor: the unit's, as its control group counts it; in a guest that is more than on a host, since each call into the
kernel goes through two processes of the host. A scrape of its metrics, as Prometheus would make one every 15 s.
"""

from __future__ import annotations

import statistics
import sys
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "lab"))
import world
from report import chosen, finish, say
from world import CONFIG, DISK, METRICS, sh

BACKUPS = 10
SETTLE, SECONDS = 60.0, 300.0

HEAD = f"""
[daemon]
metrics = "{METRICS}"
host = "lab"
"""
EACH = """
[vault.v{n}]
pool = "pool{n}"
create = true
[[vault.v{n}.device]]
nbd = "nbdkit:file {disk}/v{n}.img"
size = "256M"

[backup.b{n}]
source = "tank/d{n}"
vault = "v{n}"
schedule = "monthly"
max_lag = "40d"
"""


def cgroup() -> Path:
    """The unit's control group, wherever its slice is."""
    place = sh("systemctl", "show", "-P", "ControlGroup", "zvaultd").strip()
    return Path("/sys/fs/cgroup") / place.lstrip("/")


def processor() -> float:
    """Seconds of processor that the unit has had."""
    words = dict(line.split() for line in (cgroup() / "cpu.stat").read_text().splitlines())
    return int(words["usage_usec"]) / 1e6


def memory() -> dict[str, float]:
    """Mebibytes that the unit's processes have."""
    found = {"rss": 0.0, "pss": 0.0}
    for pid in (cgroup() / "cgroup.procs").read_text().split():
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        sizes = {line.split(":")[0].lower(): int(line.split()[1]) / 1024 for line in rollup}
        found = {kind: found[kind] + sizes[kind] for kind in found}
    return found


def scrape() -> float:
    """Seconds of one."""
    began = time.perf_counter()
    with urllib.request.urlopen(f"http://{METRICS}/metrics", timeout=60) as answer:
        answer.read()
    return time.perf_counter() - began


def at_rest() -> bool:
    """Whether all backups have run and all vaults are down."""
    found = world.status()
    return all(one["last_result"] == "ok" and one["state"] == "idle" for one in found["backups"]) and all(
        one["state"] == "down" for one in found["vaults"]
    )


def watched() -> float:
    """The share of a processor that it takes."""
    before, began = processor(), time.monotonic()
    time.sleep(SECONDS)
    return (processor() - before) / (time.monotonic() - began)


def main() -> None:
    """Set up, look on, report."""
    _, rounds = chosen({"zvaultd": lambda _: 0.0}, rounds=1)
    world.World().clean()
    DISK.mkdir(exist_ok=True)
    sh("truncate", "-s", "1G", str(DISK / "tank.img"))
    sh("zpool", "create", "-O", "mountpoint=none", "tank", str(DISK / "tank.img"))
    CONFIG.parent.mkdir(exist_ok=True)
    CONFIG.write_text(HEAD + "".join(EACH.format(n=n, disk=DISK) for n in range(BACKUPS)))
    for number in range(BACKUPS):
        sh("zfs", "create", f"tank/d{number}")
    sh("systemctl", "restart", "zvaultd")
    world.eventually("each has run, for the first time", at_rest, seconds=600)
    sh("systemctl", "restart", "zvaultd")
    say(f"{BACKUPS} backups have run, their vaults are down; {SETTLE:g} s to settle")
    time.sleep(SETTLE)
    shares, scrapes = [], []
    for _ in range(rounds):
        shares.append(watched())
        scrapes += [scrape() for _ in range(20)]
    scrapes_found = {"scrape": scrapes}
    found = memory()
    finish(
        "rest",
        scrapes_found,
        {},
        cpu_share=round(statistics.median(shares), 5),
        rss_mib=round(found["rss"], 1),
        pss_mib=round(found["pss"], 1),
        processes=len((cgroup() / "cgroup.procs").read_text().split()),
        backups=BACKUPS,
    )


if __name__ == "__main__":
    main()
