"""What a receive makes of a slow device: what ``profile = "auto"`` finds by itself, against the device alone.

On five models of storage and on an image of a real Ceph cluster (``storage.py``). Raw is a sequential fio write, with
the queue as the profile sets it, in requests of 1 MiB or of 4 MiB, whichever is faster on SHORT MiB. The others receive
one stream of 128 KiB records into a pool made for it, brought up by zvault with the profile in question; timed is
``zfs receive`` and ``zpool sync`` after it. Each has an empty device. What is sent compresses to next to nothing at the
source and is written out in full: reading it takes no disk.

Asked for by name are OpenZFS's defaults (``hdd/defaults``), a published report's parameters (``hdd/report-a``) and
zvault's profile for that kind of device (``hdd/profile``). A model's name alone is its raw and its auto; without any
it is "hdd", "array" and "smr" (storage.py): the guest's processor bounds the others more than the device does.

Raw and stream have MIB MiB, half of it where the processor bounds them: most of it is then steady, as a large backup's
first run is. Those that are known to be slow have SHORT MiB. Compared are seconds for a GiB.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "lab"))
import world
from report import chosen, finish, race, say
from requests_seen import told
from storage import ON_REQUEST, REQUESTS, STORAGE, Image, Model, fio, storage
from world import CONFIG, DISK, ok, sh

MIB = int(os.environ.get("MIB", "2048"))
SHORT = int(os.environ.get("SHORT", "256"))
RECEIVE = ("zfs", "receive", "-u", "-o", "compression=off", "cold/data")
PATIENCE = 900.0
"""Seconds for what takes long."""

POOL = """
[pool]
ashift = 12
failmode = "continue"
[dataset]
mountpoint = "none"
atime = "off"
"""

PROFILES = {
    "defaults": POOL,
    # As published, but for zfs_dirty_data_max_percent, which counts only when OpenZFS is loaded.
    "report-a": POOL
    + "[module]\nzfs_vdev_max_active = 512\n"
    + "".join(
        f"zfs_vdev_{way}_max_active = 128\nzfs_vdev_{way}_min_active = 64\n"
        for way in ("sync_read", "sync_write", "async_read", "async_write")
    )
    + 'zfs_vdev_aggregation_limit = "16M"\nzfs_dirty_data_sync_percent = 20\nzfs_txg_timeout = 30\n',
}

CONFIG_TEXT = """
[daemon]
host = "lab"

[vault.cold]
pool = "cold"
profile = "{profile}"
create = true
[[vault.cold.device]]
{device}
"""


def raw(kind: Model | Image, mib: int) -> Callable[[int], float]:
    """The seconds the device alone needs for a GiB."""

    def written(device: str, block: str, mib: int) -> float:
        out = sh(*fio(device, block, mib), timeout=PATIENCE)
        took = float(json.loads(out[out.index("{") :])["jobs"][0]["write"]["runtime"]) / 1000
        say(f"raw, {block}: {mib / took:.1f} MiB/s")
        return took / mib * 1024

    def once(_: int) -> float:
        with kind.raw() as device:
            queue = Path("/sys/block") / Path(device).name / "queue"
            most = (queue / "max_hw_sectors_kb").read_text()
            for name, value in (("scheduler", "none"), ("max_sectors_kb", min(most, "32768", key=int))):
                (queue / name).write_text(value)
            blocks = {block: written(device, block, SHORT) for block in ("1M", "4M")}
            return written(device, min(blocks, key=lambda block: blocks[block]), mib)

    return once


def receive(kind: Model | Image, profile: str, mib: int) -> Callable[[int], float]:
    """The seconds for each GiB of a stream until it is in a new pool that zvault has made and brought up."""

    def once(_: int) -> float:
        source = make_source(mib)
        with kind.served():
            CONFIG.write_text(CONFIG_TEXT.format(profile=profile, device=kind.device))
            sh("systemctl", "restart", "zvaultd")
            ok("vault", "begin-anew", "cold", "--yes")
            started = time.monotonic()
            said = ok("vault", "create", "cold", "--yes", timeout=PATIENCE).err
            if profile == "auto":
                say(f"{said}measuring took {time.monotonic() - started:.0f} s")
            ok("vault", "up", "cold")
            sh("zpool", "sync", timeout=PATIENCE)
            sh("sync", timeout=PATIENCE)
            started = time.monotonic()
            took = timed(source, mib)
            if isinstance(kind, Model):
                say(told(REQUESTS, kind.slots, started, started + took))
            ok("vault", "down", "cold", timeout=PATIENCE)
        return took / mib * 1024

    return once


def timed(source: str, mib: int) -> float:
    """The seconds until a snapshot is in the pool; how busy the guest's processor is with it is said."""
    before, started = idle(), time.monotonic()
    with subprocess.Popen(["zfs", "send", source], stdout=subprocess.PIPE) as send:
        subprocess.run(RECEIVE, stdin=send.stdout, check=True)
    sh("zpool", "sync", timeout=PATIENCE)
    took = time.monotonic() - started
    say(f"{mib / took:.1f} MiB/s, the processor idle for {(idle() - before) / took:.0%} of the time")
    return took


def idle() -> float:
    """Seconds since boot in which the processor had nothing to do or waited for a device: proc_stat(5)."""
    fields = Path("/proc/stat").read_text().split(maxsplit=6)
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")


def make_source(mib: int) -> str:
    """The snapshot of so many MiB in records of 128 KiB, made if it is not there."""
    dataset, noise = f"tank/{mib}", os.urandom(4096)
    if not Path(f"/{dataset}").exists():
        sh("zfs", "create", dataset)
        with Path(f"/{dataset}/file").open("wb") as file:
            for _ in range(mib):
                file.write(noise * 256)
        sh("zfs", "snapshot", f"{dataset}@a")
    return f"{dataset}@a"


def by_default(words: list[str]) -> list[str]:
    """What a storage's name means, or no word at all: raw and auto, one after the other."""
    words = words or [name for name in STORAGE if name not in ON_REQUEST]
    meant = [[f"{word}/raw", f"{word}/auto"] if word in STORAGE else [word] for word in words]
    return [name for names in meant for name in names]


def contenders() -> dict[str, Callable[[int], float]]:
    """All of them, by storage and name."""
    found: dict[str, Callable[[int], float]] = {}
    for name, kind in STORAGE.items():
        mib = MIB // kind.share
        found[f"{name}/raw"] = raw(kind, mib)
        for profile in PROFILES:
            found[f"{name}/{profile}"] = receive(kind, profile, SHORT)
        found[f"{name}/profile"] = receive(kind, kind.profile, mib)
        found[f"{name}/auto"] = receive(kind, "auto", mib)
    return found


def main() -> None:
    """Set up, race, report."""
    picked, rounds = chosen(contenders(), rounds=1, meant=by_default)
    began = time.monotonic()
    it = world.World()
    it.clean()
    folder = CONFIG.parent / "profiles"
    folder.mkdir(parents=True)
    for name, text in PROFILES.items():
        (folder / f"{name}.toml").write_text(text)
    image = DISK / "tank.img"
    DISK.mkdir(exist_ok=True)
    sh("truncate", "-s", "1G", str(image))
    sh("zpool", "create", "-O", "compression=lz4", "-O", "mountpoint=/tank", "tank", str(image))
    with storage(2 * MIB):
        say(f"set up after {time.monotonic() - began:.0f} s")
        seconds = race(picked, rounds)
    it.clean()
    middle = {name: statistics.median(values) for name, values in seconds.items()}

    def ratio(device: str, ours: str, other: str) -> float | None:
        mine, theirs = middle.get(f"{device}/{ours}"), middle.get(f"{device}/{other}")
        return theirs / mine if mine and theirs else None

    others = {"raw": "raw", "default": "defaults", "a": "report-a", "profile": "profile"}
    ratios = {
        f"{device}_{ours}_of_{name}": ratio(device, ours, other)
        for device in STORAGE
        for ours in ("auto", "profile")
        for name, other in others.items()
        if ours != other
    }
    of_raw = {device: ratio(device, "auto", "raw") for device in STORAGE}
    finish(
        "receive",
        seconds,
        ratios,
        auto_of_raw={device: round(value, 3) for device, value in of_raw.items() if value is not None},
        mib=MIB,
        short=SHORT,
        mib_per_s={name: round(1024 / value, 1) for name, value in middle.items()},
        took_s=round(time.monotonic() - began),
    )


if __name__ == "__main__":
    main()
