"""What /proc shows: who on this host uses a pool or a device, and for how long a process has been running."""

from __future__ import annotations

import glob
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from zvault.core.names import parse_name
from zvault.system.device_users import list_device_users
from zvault.system.snapshot_users import decode_mount_field

PROC_FOLDER = Path("/proc")
BLOCK_CLASS_FOLDER = Path("/sys/class/block")


@dataclass(frozen=True, slots=True)
class PoolMount:
    """A dataset or snapshot that is mounted; of its ``options`` those that a mount may be given again."""

    source: str
    point: str
    options: tuple[str, ...] = ()

    @property
    def is_snapshot(self) -> bool:
        return "@" in self.source


_KEPT_OPTIONS = {"ro", "rw", "nosuid", "nodev", "noexec", "noatime", "relatime"}


def list_pool_mounts(pool: str, proc: Path = PROC_FOLDER) -> list[PoolMount]:
    """List what is mounted of a pool's datasets and snapshots, but for snapshots that ZFS mounted itself below
    ``.zfs``.
    """
    try:
        lines = (proc / "self" / "mounts").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        source, point, kind, options, *_ = line.split(" ")
        one = PoolMount(
            decode_mount_field(source),
            decode_mount_field(point),
            tuple(word for word in options.split(",") if word in _KEPT_OPTIONS),
        )
        ours = kind == "zfs" and parse_name(one.source).pool == pool
        if ours and not (one.is_snapshot and "/.zfs/snapshot/" in one.point):
            found.append(one)
    return found


def list_open_volumes(
    pool: str, proc: Path = PROC_FOLDER, dev: Path = Path("/dev"), block: Path = BLOCK_CLASS_FOLDER
) -> list[str]:
    """The volumes of a pool that a process has open, is mounted or lies below another device, as paths.

    What the kernel itself has open, as an iSCSI target does, is not seen.
    """
    nodes: dict[str, str] = {}
    for link in sorted((dev / "zvol" / pool).rglob("*")):
        if link.is_symlink():
            nodes[link.readlink().name] = str(link)
    if not nodes:
        return []
    used = {name for name in nodes if any((block / name / "holders").glob("*"))} | _open_devices(proc)
    return [path for name, path in nodes.items() if name in used]


def _open_devices(proc: Path) -> set[str]:
    """The names of the devices that processes have open or that are mounted."""
    found = set()
    for link in proc.glob("[0-9]*/fd/*"):
        try:
            target = str(link.readlink())
        except OSError:
            continue  # it has ended
        if target.startswith("/dev/zd"):
            found.add(Path(target).name)
    return found | _mounted_devices(proc).keys()


def list_volume_users(
    volume: str, proc: Path = PROC_FOLDER, dev: Path = Path("/dev"), block: Path = BLOCK_CLASS_FOLDER
) -> list[str]:
    """List what has a volume, or a partition on it, open or mounted, in words; what the kernel has open is not seen."""
    place = dev / "zvol" / volume
    nodes = []
    for link in [place, *sorted(place.parent.glob(f"{glob.escape(place.name)}-part*"))]:
        with suppress(OSError):  # it has no device (volmode=none), or it goes just now
            nodes.append(link.readlink().name)
    mounted = _mounted_devices(proc)
    found = [f"{node} is mounted at {point}" for node in nodes for point in mounted.get(node, ())]
    return found + [user for node in nodes for user in list_device_users(node, proc, block)]


def _mounted_devices(proc: Path) -> dict[str, list[str]]:
    """Where devices of volumes are mounted, by their names."""
    found: dict[str, list[str]] = {}
    with suppress(OSError):
        for line in (proc / "self" / "mounts").read_text(errors="surrogateescape").splitlines():
            source, point, *_ = line.split(" ")
            if source.startswith("/dev/zd"):
                found.setdefault(Path(source).name, []).append(decode_mount_field(point))
    return found


def measure_running_time(process: int, proc: Path = PROC_FOLDER) -> float | None:
    """Seconds since a process began; None where it has ended, or that cannot be told (proc_pid_stat(5))."""
    try:
        ticks = float(
            (proc / str(process) / "stat").read_text(errors="replace").rpartition(")")[2].split()[19]
        )
        uptime = float((proc / "uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return max(0.0, uptime - ticks / os.sysconf("SC_CLK_TCK"))
