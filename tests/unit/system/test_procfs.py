"""Who uses a pool or a device on this host, as /proc and /dev show it."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

from zvault.system.procfs import (
    PoolMount,
    list_device_users,
    list_open_volumes,
    list_pool_mounts,
    list_volume_users,
    measure_running_time,
)

MOUNTS = """\
cold/lab/my\\040files /mnt/my\\040files zfs ro,noatime,xattr,posixacl 0 0
cold /cold zfs rw,relatime 0 0
cold/a@s1 /mnt/s1 zfs ro,nosuid 0 0
cold/a@s2 /cold/a/.zfs/snapshot/s2 zfs ro 0 0
colder/b /b zfs rw 0 0
/dev/zd16p1 /mnt/vol ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
"""


def test_what_is_mounted_of_a_pool_and_how(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mounts").write_text(MOUNTS)
    assert list_pool_mounts("cold", tmp_path) == [
        PoolMount("cold/lab/my files", "/mnt/my files", ("ro", "noatime")),
        PoolMount("cold", "/cold", ("rw", "relatime")),
        PoolMount("cold/a@s1", "/mnt/s1", ("ro", "nosuid")),
    ]
    assert [one.source for one in list_pool_mounts("cold", tmp_path) if one.is_snapshot] == ["cold/a@s1"]
    assert list_pool_mounts("cold", tmp_path / "none") == []


def test_volumes_that_are_open_mounted_or_below_another_device(tmp_path: Path) -> None:
    proc, dev, block = tmp_path / "proc", tmp_path / "dev", tmp_path / "block"
    (proc / "12/fd").mkdir(parents=True)
    (proc / "12/fd/3").symlink_to("/dev/zd0")
    (proc / "self").mkdir()
    (proc / "self/mounts").write_text(MOUNTS)
    (dev / "zvol/cold/lab").mkdir(parents=True)
    volumes = {"open": "zd0", "mounted-part1": "zd16p1", "held": "zd32", "idle": "zd48"}
    for name, node in volumes.items():
        (dev / "zvol/cold/lab" / name).symlink_to(f"../../../{node}")
    (block / "zd32/holders/dm-0").mkdir(parents=True)
    found = list_open_volumes("cold", proc, dev, block)
    assert sorted(Path(path).name for path in found) == ["held", "mounted-part1", "open"]
    assert list_open_volumes("tank", proc, dev, block) == []


def test_who_has_a_device_open_by_its_number(tmp_path: Path) -> None:
    proc, block = tmp_path / "proc", tmp_path / "block"
    for process, name, targets in (
        (7, "blkid", ["/tmp/x", "/dev/null"]),
        (12, "tail", ["/dev/zero", "socket:[1]", "/dev/gone"]),
        (101, "dd", ["/dev/null"]),
    ):
        (proc / f"{process}/fd").mkdir(parents=True)
        (proc / f"{process}/comm").write_text(f"{name}\n")
        for number, target in enumerate(targets):
            (proc / f"{process}/fd/{number}").symlink_to(target)
    (block / "rbd3/holders/dm-0").mkdir(parents=True)
    null = Path("/dev/null").stat().st_rdev
    (block / "rbd3/dev").write_text(f"{os.major(null)}:{os.minor(null)}\n")
    who = getpass.getuser()
    assert list_device_users("rbd3", proc, block) == [
        "dm-0 lies on it",
        f"blkid (process 7, user {who})",
        f"dd (process 101, user {who})",
    ]
    assert list_device_users("rbd4", proc, block) == []


def test_who_has_a_volume_open_or_mounted(tmp_path: Path) -> None:
    proc, dev, block = tmp_path / "proc", tmp_path / "dev", tmp_path / "block"
    (proc / "self").mkdir(parents=True)
    (proc / "self/mounts").write_text(MOUNTS)
    (proc / "12/fd").mkdir(parents=True)
    (proc / "12/comm").write_text("qemu-system-x86\n")
    (proc / "12/fd/3").symlink_to("/dev/null")
    (dev / "zvol/tank").mkdir(parents=True)
    for name, node in {"vm[1]": "zd0", "vm[1]-part1": "zd0p1", "db": "zd16", "db-part1": "zd16p1"}.items():
        (dev / "zvol/tank" / name).symlink_to(f"../../{node}")
    null = Path("/dev/null").stat().st_rdev
    for node, number in {"zd0": f"{os.major(null)}:{os.minor(null)}", "zd0p1": "230:1"}.items():
        (block / node).mkdir(parents=True)
        (block / node / "dev").write_text(f"{number}\n")
    (block / "zd0p1/holders/dm-3").mkdir(parents=True)
    assert list_volume_users("tank/vm[1]", proc, dev, block) == [
        f"qemu-system-x86 (process 12, user {getpass.getuser()})",
        "dm-3 lies on it",
    ]
    assert list_volume_users("tank/db", proc, dev, block) == ["zd16p1 is mounted at /mnt/vol"]
    assert list_volume_users("tank/none", proc, dev, block) == [], "it has no device (volmode=none)"


def test_how_long_a_process_has_been_running() -> None:
    age = measure_running_time(os.getpid())
    assert age is not None
    assert 0 <= age < 7200
    assert measure_running_time(1 << 30) is None
