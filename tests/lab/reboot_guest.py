"""What a guest does that is shut down in the middle: see what the last shutdown left, then run into the next.

Root shuts it down as a UPS or an update does, past no lock and with Debian's own rules of polkit: it is never refused.

A reboot begins it anew within the same guest, a poweroff ends that.

Its pools lie on the disks that outlive it. Of the host's own files nothing does, so each boot begins with the
configuration alone. ``/share`` keeps what the tests know.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import world
from world import World, answer, ask, ctl, eventually, ok, sh, snapshots, status

SLOW, LATE = 120, 150
"""MiB of what is sent slowly, and of what a pool has to write out before its export, at 6 MB/s."""

BOOTED = "seconds since it booted: "

KNOWN = Path("/share/moment")
"""At what the last boot was when it was shut down."""


class Boot(World):
    """A source on the first disk, a vault on the second, and one on the third, behind a cache on the fourth.

    The third is not served from its very beginning: else udev would find bcache's superblock on the disk itself.
    """

    def config_text(self) -> str:
        return f"""
[daemon]
metrics = "{world.METRICS}"
host = "lab"

[vault.cold]
pool = "cold"
create = true
[[vault.cold.device]]
nbd = "nbdkit:file /dev/ubdb filter=rate rate=48M"
timeout = "20s"

[vault.cool]
pool = "cool"
create = true
[[vault.cool.device]]
nbd = "nbdkit:file /dev/ubdc filter=offset offset=1M filter=rate rate=48M"
timeout = "20s"
cache = {{ bcache = "/dev/ubdd", mode = "writeback", sequential_cutoff = "1G" }}

[backup.slow]
source = "tank/slow"
vault = "cold"
{self.backup_extra}

[backup.fast]
source = "tank/fast"
vault = "cool"
"""


def backup(name: str) -> dict[str, Any]:
    """What status tells of one."""
    return next(one for one in status()["backups"] if one["name"] == name)


def run(name: str) -> dict[str, Any]:
    """Run a backup to its end; the result is its history, with the kinds of its steps."""
    ok("run", name)
    last: dict[str, Any] = next(one for one in ctl("history", "-j").json()["runs"] if one["backup"] == name)
    last["kinds"] = {one["kind"] for one in world.events(last["id"]) if one["event"] == "transfer-started"}
    return last


def same(pool: str, source: str) -> None:
    """What is in a vault's pool is the newest at the source, and a scrub finds no fault."""
    newest = f"{source}@{snapshots(source)[-1]}"
    assert world.snapshot_hashes(f"{pool}/lab/{newest}") == world.snapshot_hashes(newest)
    sh("zpool", "scrub", "-w", pool)
    assert "errors: No known data errors" in sh("zpool", "status", pool)
    assert sh("zpool", "list", "-Ho", "health", pool).strip() == "ONLINE"


def dirty() -> str:
    """What the cache has and the device below it lacks."""
    folder = Path("/sys/block/bcache0/bcache")
    return "" if (folder / "state").read_text() == "clean\n" else (folder / "dirty_data").read_text().strip()


def exported(disk: str) -> bool:
    """Whether the pool on a disk was exported, by its label."""
    found = re.search(r"^ +state: (\d)$", sh("zdb", "-l", disk), re.MULTILINE)
    assert found is not None
    return found[1] == "1"  # POOL_STATE_EXPORTED


def into_receive_and_flush() -> None:
    sh("zpool", "create", "-O", "mountpoint=/tank", "-O", "compression=off", "tank", "/dev/ubda")
    for name, mib in (("slow", SLOW), ("fast", 60)):
        sh("zfs", "create", f"tank/{name}")
        world.noise(Path(f"/tank/{name}/noise"), mib)
    # It takes four minutes: longer than all that follows, and than a daemon that stops alone lets it run.
    Boot(backup_extra='limit = "500K"').start()
    assert answer(ask("POST", "/v1/run/slow"))
    eventually("bytes", lambda: backup("slow")["bytes_done"] > 4_000_000)
    # 10 s to write back.
    assert answer(ask("POST", "/v1/run/fast"))
    eventually("the flush", flushing, every=0.1)
    assert dirty()


def flushing() -> bool:
    """Whether the cache is being written back, for the vault to go down."""
    try:
        return Path("/sys/block/bcache0/bcache/writeback_percent").read_text().strip() == "0"
    except OSError:  # it is not there yet, or not any more
        return False


def after_receive_and_flush() -> None:
    assert exported("/dev/ubdb")
    Boot().start()
    slow = run("slow")
    print("resumed:", slow["kinds"], slow["bytes"])
    assert "resume" in slow["kinds"]
    assert slow["bytes"] < (SLOW - 4) << 20
    ok("vault", "up", "cool")
    print("still in the cache:", dirty() or "nothing")
    same("cool", "tank/fast")
    ok("vault", "up", "cold")
    same("cold", "tank/slow")


def into_export_and_scrub() -> None:
    Path("/sys/module/zfs/parameters/zfs_scan_suspend_progress").write_text("1")
    sh("zpool", "scrub", "cool")
    sh("zfs", "create", "-o", "mountpoint=/late", "cold/late")
    world.noise(Path("/late/noise"), LATE)
    threading.Thread(target=lambda: ctl("vault", "down", "cold"), daemon=True).start()
    eventually("the teardown", lambda: "takes down vault cold" in world.inhibitors())
    assert "scrub in progress" in sh("zpool", "status", "cool")


def after_export_and_scrub() -> None:
    assert exported("/dev/ubdb")
    Boot().start()
    ok("vault", "up", "cool")
    sh("zpool", "wait", "-t", "scrub", "cool")
    same("cool", "tank/fast")
    ok("vault", "up", "cold")
    sh("zfs", "mount", "cold/late")
    assert Path("/late/noise").stat().st_size == LATE << 20
    same("cold", "tank/slow")


INTO: dict[str, tuple[Callable[[], None], str, str]] = {
    "receive and flush": (into_receive_and_flush, "reboot", "systemctl reboot"),
    "export and scrub": (into_export_and_scrub, "poweroff", "shutdown -h now"),
}
"""Moments in their order: how to get there, what the host does then, and what root types for that."""

AFTER = {
    "receive and flush": after_receive_and_flush,
    "export and scrub": after_export_and_scrub,
}


def main() -> None:
    """One boot: see what the last shutdown left, then go down in the next moment, if there is one."""
    moments = list(INTO)
    last = KNOWN.read_text() if KNOWN.exists() else None
    if last is not None:
        print(f"{BOOTED}{Path('/proc/uptime').read_text().split()[0]}", flush=True)
        print(f"up after {last}", flush=True)
        sh("zpool", "import", "-d", "/dev/ubda", "tank")
        AFTER[last]()
        del moments[: moments.index(last) + 1]
    if not moments:
        return
    get_there, shutdown, command = INTO[moments[0]]
    get_there()
    KNOWN.write_text(moments[0])
    sh("sync", "-f", "/share")
    assert world.inhibitors(), "nothing was being written"
    print(f"{shutdown} during {moments[0]}", flush=True)
    sh(*command.split())
    time.sleep(900)


if __name__ == "__main__":
    main()
