"""What a backup into an object store asks of it, and what that costs: as one would set it up, and as ``fit`` advises.

The store is RGW, a proxy before it counts. The source has 128 KiB records that do not compress, the vault lies in
objects of 1 MiB behind nbdkit's S3 plugin, and OpenZFS writes as it does by default. Then everything is done that
``zvaultctl fit`` says of it, until it says no more. What it expected of both is held against what was counted.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "lab"))
import ceph
import s3_proxy
import world
from report import chosen, finish, race, say
from world import CONFIG, DISK, ctl, ok, sh

MIB = int(os.environ.get("MIB", "128"))
"""What a run asks besides its data weighs the less the more there is. The lab takes a second for a MiB as found."""
LITTLE = 200_000
"""Bytes that are new for the second run."""
FACTOR = 1.5
"""How far what is counted may be from what was expected, either way."""
PRICES = {"put": 0.005, "get": 0.0004}
"""Dollars for a thousand requests: S3 Standard's in us-east-1 and most others since 2014."""
KEY = Path("/etc/s3.key")

DEVICE = """
[[vault.{name}.device]]
nbd = "nbdkit:S3 bucket=zvault key={name}-{key} size=1G object-size={unit} endpoint-url={endpoint} \
access-key={s3.access_key} secret-key=+{file}"
prices = {{ put = {put}, get = {get} }}
{more}
"""
VAULT = """
[vault.{name}]
pool = "{name}"
profile = "{name}"
create = true
{more}
"""
BACKUP = """
[backup.{name}]
source = "tank/{name}"
vault = "{name}"
snapshot = {{ prefix = "{name}" }}
"""
PROFILE = """
[pool]
ashift = 12
failmode = "continue"
[dataset]
canmount = "off"
mountpoint = "none"
"""


@dataclass(frozen=True)
class Way:
    """One way to set it up: what its profile has besides, and the objects of a device for metadata."""

    profile: str = ""
    metadata: str | None = None


@dataclass
class Counted:
    """What one way came to, by phase; and what ``fit`` had to say of it before."""

    fit: dict[str, Any] = field(default_factory=dict)
    phases: dict[str, Counter[tuple[str, str]]] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)

    def requests(self, phase: str) -> int:
        """All that cost something: to delete is free."""
        return sum(count for (method, _), count in self.phases[phase].items() if method != "DELETE")

    def dollars(self, phase: str) -> float:
        """What these cost."""
        puts = sum(count for (method, _), count in self.phases[phase].items() if method in {"PUT", "POST"})
        return (puts * PRICES["put"] + (self.requests(phase) - puts) * PRICES["get"]) / 1000

    def expected(self, phase: str, mib: float) -> float:
        """The requests that ``fit`` had in mind for a run."""
        (of_each,) = self.fit["datasets"]
        groups = self.fit["first" if phase == "run" else "run"]
        return float((of_each["puts"] + of_each["gets"]) * mib / 1024 + groups["puts"] + groups["gets"])


MERGING = """
[queue]
max_sectors_kb = 32768
[module]
zfs_vdev_aggregation_limit_non_rotating = "4M"
zfs_vdev_async_write_min_active = 4
zfs_vdev_async_write_max_active = 4
zio_dva_throttle_enabled = false
"""

WAYS = {
    "found": Way(),
    "fitted": Way(MERGING, metadata="128K"),
}

counted = {name: Counted() for name in WAYS}


def tables(name: str, way: Way, s3: ceph.S3, endpoint: str) -> str:
    """The configuration's tables of one way."""

    def device(key: str, unit: str, more: str = "") -> str:
        words = {"key": key, "unit": unit, "more": more}
        return DEVICE.format(name=name, endpoint=endpoint, s3=s3, file=KEY, **PRICES, **words)

    small = 'special_small_blocks = "32K"' if way.metadata else ""
    text = VAULT.format(name=name, more=small) + device("data", "1M")
    if way.metadata is not None:
        text += device("meta", way.metadata, 'vdev = "special"')
    return text + BACKUP.format(name=name)


def groups(pool: str) -> int:
    """Transaction groups that were written out, of those that had anything to write; none once the pool is gone."""
    try:
        rows = [line.split() for line in Path(f"/proc/spl/kstat/zfs/{pool}/txgs").read_text().splitlines()]
    except FileNotFoundError:
        return 0
    return sum(row[0].isdecimal() and row[2] == "C" and int(row[7]) > 0 for row in rows)


def write(name: str, proxy: s3_proxy.Proxy) -> Callable[[int], float]:
    """Back up into a vault, and again with little that is new; the seconds of the first, and all requests."""
    it = counted[name]

    def phase(what: str, *words: str) -> None:
        before, had = proxy.of_key.copy(), groups(name)
        ok(*words, timeout=1800)
        if words[0] == "run":
            sh("zpool", "sync", name, timeout=1800)
        it.phases[what], it.groups[what] = proxy.of_key - before, max(0, groups(name) - had)

    def once(_: int) -> float:
        world.noise(Path(f"/tank/{name}/noise"), MIB)
        it.fit = ctl("fit", "-j", name).json()
        say(ctl("fit", name).out)
        phase("create", "vault", "up", name)
        started = time.monotonic()
        phase("run", "run", name)
        took = time.monotonic() - started
        Path(f"/tank/{name}/little").write_bytes(os.urandom(LITTLE))
        phase("later", "run", name)
        phase("down", "vault", "down", name)
        return took

    return once


def by_method(name: str) -> dict[str, dict[str, int]]:
    """Requests of each phase, by method and device."""
    return {
        phase: {
            f"{method} {key.rpartition('/')[2] or 'lease'}": count
            for (method, key), count in sorted(rows.items())
        }
        for phase, rows in counted[name].phases.items()
    }


def facts(name: str) -> dict[str, object]:
    """What is told of one way."""
    it = counted[name]
    of_run, of_later = it.requests("run"), it.requests("later")
    of_groups = of_later * it.fit["first"]["groups"] / it.fit["run"]["groups"]
    return {
        "requests_per_gib": round(of_run * 1024 / MIB),
        "dollars_per_gib": round(it.dollars("run") * 1024 / MIB, 4),
        "requests_per_gib_of_data": round((of_run - of_groups) * 1024 / MIB),
        "requests_later": of_later,
        "dollars_later": round(it.dollars("later"), 5),
        "expected_run": round(it.expected("run", MIB)),
        "counted_of_expected_run": round(of_run / it.expected("run", MIB), 2),
        "expected_later": round(it.expected("later", LITTLE / (1 << 20))),
        "counted_of_expected_later": round(of_later / it.expected("later", LITTLE / (1 << 20)), 2),
        "groups": it.groups,
        "advice": [one["what"] for one in it.fit["advice"]],
        "counted": by_method(name),
    }


def main() -> None:
    """Set up, write, report."""
    world.World().clean()
    DISK.mkdir(exist_ok=True)
    sh("truncate", "-s", "2G", str(DISK / "tank.img"))
    sh("zpool", "create", "-O", "compression=off", "-O", "mountpoint=/tank", "tank", str(DISK / "tank.img"))
    profiles = CONFIG.parent / "profiles"
    profiles.mkdir(parents=True)
    for name, way in WAYS.items():
        sh("zfs", "create", f"tank/{name}")
        (profiles / f"{name}.toml").write_text(PROFILE + way.profile)
    with ceph.cluster(rgw=True) as cluster, s3_proxy.Proxy(cluster.s3().endpoint) as proxy:
        wanted, _ = chosen({name: write(name, proxy) for name in WAYS})
        s3 = cluster.s3()
        s3_proxy.make_bucket(s3.endpoint, s3.access_key, s3.secret_key, "zvault")
        KEY.touch(mode=0o600)
        KEY.write_text(s3.secret_key)
        CONFIG.write_text("".join(tables(name, WAYS[name], s3, proxy.endpoint) for name in wanted))
        sh("systemctl", "restart", "zvaultd")
        seconds = race(wanted, 1)
        sh("systemctl", "stop", "zvaultd")
    told = {name: facts(name) for name in wanted}
    for name, each in told.items():
        say(f"{name}: {each}")
    found, fitted = counted["found"], counted["fitted"]
    both = len(wanted) == len(WAYS)
    ratios = {
        "requests_found_of_fitted": found.requests("run") / fitted.requests("run") if both else None,
        "dollars_found_of_fitted": found.dollars("run") / fitted.dollars("run") if both else None,
        "expected_found_of_fitted": found.expected("run", MIB) / fitted.expected("run", MIB)
        if both
        else None,
        "requests_later_found_of_fitted": found.requests("later") / fitted.requests("later")
        if both
        else None,
    }
    finish("requests", seconds, ratios, mib=MIB, ways=told)
    assert not both or not fitted.fit["advice"], "what fit says of the second is not all done"
    for name in wanted:
        it = counted[name]
        for phase, mib in (("run", MIB), ("later", LITTLE / (1 << 20))):
            share = it.requests(phase) / it.expected(phase, mib)
            assert 1 / FACTOR <= share <= FACTOR, f"{name}: {phase}: {share:.2f} times what fit expected"


if __name__ == "__main__":
    main()
