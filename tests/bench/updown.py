"""How long a vault takes to come up and to go down again, step by step: an RBD image, and a bucket behind a cache.

Both on a real Ceph cluster in the guest: krbd with a data pool of its own; nbdkit's S3 plugin on RGW with bcache in
front. Each time a little is written between the two, so that there is something to write out and back.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "lab"))
import ceph
import s3_proxy
import world
from report import chosen, finish, race, say
from world import CONFIG, DISK, ok, sh

KEY = Path("/etc/s3.key")
CONFIG_TEXT = """
[daemon]
host = "lab"

[vault.rbd]
pool = "rbdpool"
profile = "rbd-ssd"
[[vault.rbd.device]]
rbd = "rbd_meta/cold"
size = "2G"
data_pool = "data"

[vault.s3]
pool = "s3pool"
profile = "s3"
[[vault.s3.device]]
nbd = "nbdkit:S3 bucket=zvault key=cold size=2G object-size=128K endpoint-url={s3.endpoint} \
access-key={s3.access_key} secret-key=+{key}"
cache = {{ bcache = "{cache}", mode = "writeback" }}
"""

Steps = dict[str, dict[str, list[float]]]
"""Seconds of each step, by ``vault verb`` and by what zvault said when it was done."""

steps: Steps = defaultdict(lambda: defaultdict(list))


def act(vault: str, verb: str) -> float:
    """Bring a vault up or down; its seconds, and those of each step into ``steps``."""
    began = time.time()
    started = time.monotonic()
    ok("vault", verb, vault)
    took = time.monotonic() - started
    before = began
    out = sh("journalctl", "-o", "json", "--no-pager", f"--since=@{began:.6f}", f"VAULT={vault}")
    for line in out.splitlines():
        entry = json.loads(line)
        at = int(entry["__REALTIME_TIMESTAMP"]) / 1e6
        steps[f"{vault} {verb}"][entry["MESSAGE"].removeprefix(f"{vault}: ")].append(at - before)
        before = at
    return took


def there_and_back(vault: str) -> Callable[[int], float]:
    """Up, a little written, down."""

    def once(number: int) -> float:
        up = act(vault, "up")
        sh("zfs", "set", f"org.zvault.bench:round={number}", f"{vault}pool")
        return up + act(vault, "down")

    return once


def main() -> None:
    """Set up, race, report."""
    wanted, rounds = chosen({"rbd": there_and_back("rbd"), "s3": there_and_back("s3")})
    world.World().clean()
    DISK.mkdir(exist_ok=True)
    sh("truncate", "-s", "1G", str(DISK / "cache"))
    cache = sh("losetup", "--find", "--show", str(DISK / "cache")).strip()
    with ceph.cluster(rgw=True) as cluster:
        s3 = cluster.s3()
        s3_proxy.make_bucket(s3.endpoint, s3.access_key, s3.secret_key, "zvault")
        KEY.touch(mode=0o600)
        KEY.write_text(s3.secret_key)
        CONFIG.parent.mkdir(exist_ok=True)
        CONFIG.write_text(CONFIG_TEXT.format(s3=s3, key=KEY, cache=cache))
        sh("systemctl", "restart", "zvaultd")
        for vault in wanted:
            say(f"making {vault}")
            ok("vault", "create", "--yes", vault)
        seconds = race(wanted, rounds)
        sh("systemctl", "stop", "zvaultd")
    shown = {
        verb: {text: round(statistics.median(each), 3) for text, each in found.items()}
        for verb, found in steps.items()
    }
    for verb, found in shown.items():
        say(f"\n{verb}: {sum(found.values()):.2f} s")
        for text, median in found.items():
            say(f"  {median:6.2f} s  {text}")
    finish("updown", seconds, {}, steps=shown)


if __name__ == "__main__":
    main()
