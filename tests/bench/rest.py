"""What zvaultd costs while nothing is to be done: ten backups whose vaults are down, for five minutes.

Memory: all that its unit's processes have resident, by process, and what of it is its own (Pss: pages that it shares by
halves); before anybody asked for its metrics, and after that, when one process more answers.

Processor: the unit's, as its control group counts it, also for a start; in a guest that is more than on a host, since
each call into the kernel goes through two processes of the host. A scrape of its metrics, as Prometheus would make one
every 15 s.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "lab"))
import world
from report import chosen, finish, say
from world import CONFIG, DISK, METRICS, sh

BACKUPS, STARTS = 10, 5
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


@dataclass(frozen=True)
class Process:
    """One of the unit's: what it runs, mebibytes, and seconds of processor since it began."""

    program: str
    rss: float
    pss: float
    cpu: float

    @classmethod
    def of(cls, pid: str) -> Process:
        """As it is now."""
        words = Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
        program = next((word for word in words[1:] if not word.startswith("-")), words[0])
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        sizes = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in rollup}
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        cpu = sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
        return cls(Path(program).name, sizes["Rss"], sizes["Pss"], cpu)


def processes() -> list[Process]:
    """The unit's."""
    return [Process.of(pid) for pid in (cgroup() / "cgroup.procs").read_text().split()]


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
    earlier = {one.program: one.cpu for one in processes()}
    before, began = processor(), time.monotonic()
    time.sleep(SECONDS)
    share = (processor() - before) / (time.monotonic() - began)
    for one in processes():
        say(f"  {one.program}: {(one.cpu - earlier.get(one.program, 0.0)) / SECONDS:.2%} of a processor")
    return share


def start() -> float:
    """Seconds of processor until it is ready, its children's too."""
    sh("systemctl", "restart", "zvaultd")
    return processor()


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
    starts = [start() for _ in range(STARTS)]
    say(f"{STARTS} starts took {', '.join(f'{one:.2f}' for one in starts)} s of processor each")
    say(f"{BACKUPS} backups have run, their vaults are down; {SETTLE:g} s to settle")
    time.sleep(SETTLE)
    shares, scrapes, unasked = [], [], processes()
    for _ in range(rounds):
        shares.append(watched())
        unasked = processes()
        scrapes += [scrape() for _ in range(20)]
    scrapes_found = {"scrape": scrapes}
    found = processes()
    for one in found:
        say(f"  {one.program}: {one.rss:.1f} MiB resident, {one.pss:.1f} its own")
    finish(
        "rest",
        scrapes_found,
        {},
        cpu_share=round(statistics.median(shares), 5),
        start_cpu_seconds=round(statistics.median(starts), 2),
        rss_mib_unasked=round(sum(one.rss for one in unasked), 1),
        rss_mib=round(sum(one.rss for one in found), 1),
        pss_mib=round(sum(one.pss for one in found), 1),
        by_process={one.program: [round(one.rss, 1), round(one.pss, 1)] for one in found},
        backups=BACKUPS,
    )


if __name__ == "__main__":
    main()
