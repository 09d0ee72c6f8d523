"""What a backup into an object store asks of it, and what that costs: as one would set it up, and as ``fit`` advises.

The store is RGW, a proxy before it counts. The source has 128 KiB records that do not compress, the vault lies in
objects of 1 MiB behind nbdkit's S3 plugin, as OpenZFS writes by default. Then with what zvault says of it: records as
large as the objects, metadata on a device of small objects, and the profile ``s3``.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "lab"))
import ceph
import s3_proxy
import world
from report import chosen, finish, race, say
from world import CONFIG, DISK, ctl, ok, sh

MIB = int(os.environ.get("MIB", "12"))
"""What a run asks besides its data weighs the less the more there is; the lab's one CPU does about 0.3 MiB/s."""
PRICES = {"put": 0.005, "get": 0.0004}
"""Dollars for a thousand requests: S3 Standard's in us-east-1 and most others since 2014."""
KEY = Path("/etc/s3.key")

DEVICE = """
[[vault.{name}.device]]
nbd = "nbdkit:S3 bucket=zvault key={key} size={size} object-size={unit} endpoint-url={endpoint} \
access-key={s3.access_key} secret-key=+{file}"
prices = {{ put = {put}, get = {get} }}
{more}
"""
VAULT = """
[vault.{name}]
pool = "{name}"
profile = "{profile}"
create = true
{more}
"""
BACKUP = """
[backup.{name}]
source = "tank/{name}"
vault = "{name}"
snapshot = {{ prefix = "{name}" }}
"""


@dataclass(frozen=True)
class Way:
    """One way to set it up: the source's records, the vault's profile, and whether metadata has a device of its own."""

    records: str
    profile: str
    special: bool = False


WAYS = {"found": Way("128K", "local"), "fitted": Way("1M", "s3", special=True)}

counted: dict[str, Counter[str]] = {}
expected: dict[str, object] = {}


def tables(name: str, way: Way, s3: ceph.S3, endpoint: str) -> str:
    """The configuration's tables of one way."""

    def device(key: str, size: str, unit: str, more: str = "") -> str:
        words = {"key": f"{name}-{key}", "size": size, "unit": unit, "more": more}
        return DEVICE.format(name=name, endpoint=endpoint, s3=s3, file=KEY, **PRICES, **words)

    text = VAULT.format(
        name=name, profile=way.profile, more='special_small_blocks = "64K"' if way.special else ""
    )
    text += device("data", "1G", "1M")
    text += device("meta", "512M", "16K", 'vdev = "special"') if way.special else ""
    return text + BACKUP.format(name=name)


def write(name: str, proxy: s3_proxy.Proxy) -> Callable[[int], float]:
    """Back up into a vault; the seconds until all of it is in the store, and the requests into ``counted``."""

    def once(number: int) -> float:
        path = Path(f"/tank/{name}/noise")
        path.unlink(missing_ok=True)
        world.noise(path, MIB)
        ok("vault", "up", name)
        sh("zpool", "sync")
        expected[name] = ctl("fit", "-j", name).json()["datasets"]
        before = proxy.requests.copy()
        started = time.monotonic()
        ok("run", name, timeout=1200)
        sh("zpool", "sync", name, timeout=1200)
        took = time.monotonic() - started
        counted[name] = proxy.requests - before
        ok("vault", "down", name, timeout=600)
        return took

    return once


def money(requests: Counter[str]) -> float:
    """Dollars for these requests. What deletes is free."""
    puts = requests["PUT"] + requests["POST"]
    gets = requests["GET"] + requests["HEAD"]
    return (puts * PRICES["put"] + gets * PRICES["get"]) / 1000


def main() -> None:
    """Set up, write, report."""
    world.World().clean()
    DISK.mkdir(exist_ok=True)
    sh("truncate", "-s", "1G", str(DISK / "tank.img"))
    sh("zpool", "create", "-O", "compression=off", "-O", "mountpoint=/tank", "tank", str(DISK / "tank.img"))
    for name, way in WAYS.items():
        sh("zfs", "create", "-o", f"recordsize={way.records}", f"tank/{name}")
    with ceph.cluster(rgw=True) as cluster, s3_proxy.Proxy(cluster.s3().endpoint) as proxy:
        wanted, _ = chosen({name: write(name, proxy) for name in WAYS})
        s3 = cluster.s3()
        s3_proxy.make_bucket(s3.endpoint, s3.access_key, s3.secret_key, "zvault")
        KEY.touch(mode=0o600)
        KEY.write_text(s3.secret_key)
        CONFIG.parent.mkdir(exist_ok=True)
        CONFIG.write_text("".join(tables(name, WAYS[name], s3, proxy.endpoint) for name in wanted))
        sh("systemctl", "restart", "zvaultd")
        seconds = race(wanted, 1)
        sh("systemctl", "stop", "zvaultd")
    per_gib = 1024 / MIB
    requests = {name: round(sum(each.values()) * per_gib) for name, each in counted.items()}
    dollars = {name: round(money(each) * per_gib, 4) for name, each in counted.items()}
    for name, each in counted.items():
        say(f"{name}: {dict(each)} for {MIB} MiB; {requests[name]} requests and ${dollars[name]} for a GiB")
    both = len(requests) == len(WAYS)
    ratios = {
        "requests_found_of_fitted": requests["found"] / requests["fitted"] if both else None,
        "dollars_found_of_fitted": dollars["found"] / dollars["fitted"] if both else None,
    }
    facts = {"mib": MIB, "requests_per_gib": requests, "dollars_per_gib": dollars, "by_method": counted}
    finish("requests", seconds, ratios, **facts, fit=expected)


if __name__ == "__main__":
    main()
