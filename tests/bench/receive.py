"""What a receive makes of a slow device: raw, with OpenZFS's defaults, with a published report's parameters, with
zvault's profile for that kind of device, and with what ``profile = "auto"`` finds by itself.

Three models of storage (``devices/slots.py``): an erasure-coded image on disks, one on flash, an object store. Raw is
the better of two sequential fio writes of large requests, with the queue as the profile sets it. The others receive
one stream of 128 KiB records into a pool made for it, brought up by zvault with the profile in question; timed is
``zfs receive`` and ``zpool sync`` after it. Each has a new server and an empty device.

Devices and streams are on /dev/ubda where there is one (``tests/lab/run --disk``), else in the guest's memory, which is
too small for large ones. A stream has MIB MiB, for those that are known to be slow SHORT MiB: compared are seconds for
a GiB.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "lab"))
import world
from report import chosen, finish, race, say
from world import CONFIG, DISK, eventually, ok, sh

MIB = int(os.environ.get("MIB", "2048"))
SHORT = int(os.environ.get("SHORT", "256"))
SOCKET = DISK / "device.sock"
STREAM = DISK / "stream"
SIZE = 100 << 30
"""Bytes of a device. On one of 4 GiB transaction groups have at most 160 MiB, whatever the parameters: OpenZFS takes a
write to need up to 24 times its size (spa_asize_inflation)."""
UBDA = Path("/dev/ubda")
IN_FLIGHT = 64
PLUGIN = Path(__file__).parent / "devices" / "slots.py"


@dataclass(frozen=True)
class Model:
    """A device: so many requests at a time, each ``latency`` seconds and its bytes at ``rate``; zvault's profile."""

    slots: int
    latency: float
    rate: float
    profile: str


MODELS = {
    "hdd": Model(4, 0.035, 60e6, "rbd-hdd"),
    "ssd": Model(16, 0.002, 100e6, "rbd-ssd"),
    "s3": Model(32, 0.030, 10e6, "s3"),
}

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
nbd = "unix:{socket}"
"""


@contextmanager
def device(model: Model) -> Iterator[None]:
    """A server of the model with an empty device behind it."""
    disk = DISK / "device.img"
    SOCKET.unlink(missing_ok=True)
    settings = [f"latency={model.latency}", f"rate={model.rate}"]
    argv = ["nbdkit", "-f", "-t", str(model.slots), "-U", str(SOCKET), "python", str(PLUGIN)]
    server = subprocess.Popen([*argv, f"file={disk}", f"size={SIZE}", *settings])
    try:
        eventually("the device is served", SOCKET.exists, every=0.05)
        yield
    finally:
        server.terminate()
        server.wait()
        disk.unlink()


def raw(model: Model) -> Callable[[int], float]:
    """The seconds the device alone needs for a GiB."""

    def once(size: str) -> float:
        with device(model):
            sh("nbd-client", "-unix", str(SOCKET), "/dev/nbd0", "-timeout", "60")
            try:
                for name, value in (("scheduler", "none"), ("max_sectors_kb", "32768")):
                    Path(f"/sys/block/nbd0/queue/{name}").write_text(value)
                out = sh(
                    *("fio", "--name=raw", "--filename=/dev/nbd0", "--rw=write", "--direct=1"),
                    *(f"--bs={size}", f"--iodepth={IN_FLIGHT}", "--ioengine=libaio", f"--size={MIB}M"),
                    "--output-format=json",
                )
            finally:
                sh("nbd-client", "-d", "/dev/nbd0")
        return float(json.loads(out[out.index("{") :])["jobs"][0]["write"]["runtime"]) / 1000 / MIB * 1024

    return lambda _: min(once("1M"), once("4M"))


def receive(model: Model, profile: str, mib: int = MIB) -> Callable[[int], float]:
    """The seconds for each GiB of a stream until it is in a new pool that zvault has made and brought up."""

    def once(_: int) -> float:
        with device(model):
            CONFIG.write_text(CONFIG_TEXT.format(profile=profile, socket=SOCKET))
            sh("systemctl", "restart", "zvaultd")
            if profile == "auto":
                say(ok("vault", "create", "cold", "--yes", timeout=900).err)
                # What it wrote is the server's to write back now, and not while the receive is timed.
                sh("sync", timeout=600)
            ok("vault", "up", "cold")
            sh("zpool", "sync")
            started = time.monotonic()
            with (STREAM / str(mib)).open("rb") as stream:
                subprocess.run(
                    ["zfs", "receive", "-u", "-o", "compression=off", "cold/data"], stdin=stream, check=True
                )
            sh("zpool", "sync", timeout=600)
            took = time.monotonic() - started
            sh("zfs", "destroy", "-r", "cold/data")
            ok("vault", "down", "cold")
        return took / mib * 1024

    return once


def make_stream(mib: int) -> None:
    """A stream of 128 KiB records that do not compress."""
    disk = DISK / "tank.img"
    sh("truncate", "-s", f"{mib + 512}M", str(disk))
    sh("zpool", "create", "-O", "compression=off", "-O", "mountpoint=/tank", "tank", str(disk))
    chunk = os.urandom(16 << 20)
    with Path("/tank/noise").open("wb") as file:
        for _ in range(mib >> 4):
            file.write(chunk)
    sh("zfs", "snapshot", "tank@a")
    with (STREAM / str(mib)).open("wb") as stream:
        subprocess.run(["zfs", "send", "tank@a"], stdout=stream, check=True)
    sh("zpool", "destroy", "tank")
    disk.unlink()


def main() -> None:
    """Set up, race, report."""
    it = world.World()
    it.clean()
    DISK.mkdir(exist_ok=True)
    if UBDA.exists():
        sh("mkfs.ext4", "-q", "-F", str(UBDA))
        sh("mount", str(UBDA), str(DISK))
    folder = CONFIG.parent / "profiles"
    folder.mkdir(parents=True)
    for name, text in PROFILES.items():
        (folder / f"{name}.toml").write_text(text)
    sh("modprobe", "nbd")
    contenders: dict[str, Callable[[int], float]] = {}
    for name, model in MODELS.items():
        contenders[f"{name}/raw"] = raw(model)
        for profile in PROFILES:
            contenders[f"{name}/{profile}"] = receive(model, profile, SHORT)
        contenders[f"{name}/profile"] = receive(model, model.profile)
        contenders[f"{name}/auto"] = receive(model, "auto")
    picked, rounds = chosen(contenders)
    STREAM.mkdir()
    for mib in {MIB, SHORT}:
        say(f"making a stream of {mib} MiB")
        make_stream(mib)
    seconds = race(picked, rounds)
    if UBDA.exists():
        sh("umount", str(DISK))
    it.clean()
    middle = {name: statistics.median(values) for name, values in seconds.items()}

    def ratio(device: str, ours: str, other: str) -> float | None:
        mine, theirs = middle.get(f"{device}/{ours}"), middle.get(f"{device}/{other}")
        return theirs / mine if mine and theirs else None

    others = {"raw": "raw", "default": "defaults", "a": "report-a", "profile": "profile"}
    ratios = {
        f"{device}_{ours}_of_{name}": ratio(device, ours, other)
        for device in MODELS
        for ours in ("auto", "profile")
        for name, other in others.items()
        if ours != other
    }
    speeds = {name: round(1024 / value, 1) for name, value in middle.items()}
    finish("receive", seconds, ratios, mib=MIB, short=SHORT, mib_per_s=speeds)


if __name__ == "__main__":
    main()
