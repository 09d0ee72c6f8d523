"""What a restore gives back is what the snapshot had, or it says by path what is not, and which commands repair it."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from snapshot_mounts import mounted
from world import DISK, World, ctl, get, left, noise, ok, sh, shell, snapshots

LAB = {"mem": "4G", "timeout": 2000}

HOME = Path("/tank/home")
RESCUE = Path("/rescue")

ACL = "system.posix_acl_access"
READABLE_BY_1234 = struct.pack(
    "<I" + "HHI" * 5, 2, 1, 6, 0xFFFFFFFF, 2, 4, 1234, 4, 4, 0xFFFFFFFF, 16, 4, 0xFFFFFFFF, 32, 0, 0xFFFFFFFF
)
"""A POSIX ACL as the kernel takes it: the owner reads and writes, user 1234 and the group read."""


@pytest.fixture
def tank() -> Iterator[World]:
    it = World(keep="{ source = { last = 9 }, vault = { last = 9 } }")
    it.clean()
    it.source()
    yield it
    sh("umount", str(RESCUE), check=False)
    it.clean()
    sh("rm", "-rf", str(RESCUE))


def run() -> str:
    """Run the backup; the snapname of its snapshot."""
    time.sleep(1.1)  # names hold whole seconds
    ok("run", "tank")
    return snapshots("tank/home")[-1]


def make_everything(top: Path) -> None:
    """All kinds of files, with every trait that a copy can lose."""
    sh("zfs", "set", "acltype=posix", "xattr=sa", "tank/home")
    shared = top / "shared"
    shared.mkdir()
    os.chown(shared, 0, 1000)
    (shared / "below").mkdir()
    (shared / "below" / "report").write_text("of the group")
    shared.chmod(0o2775)
    tool = top / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o4755)
    tool.with_name("sgid").write_text("x")
    tool.with_name("sgid").chmod(0o2711)
    (top / "sticky").mkdir()
    (top / "sticky").chmod(0o1777)
    acl = top / "acl"
    acl.write_text("shared with one")
    os.setxattr(acl, ACL, READABLE_BY_1234)
    os.setxattr(acl, "user.note", b"mine\0and binary\xff")
    os.setxattr(acl, "trusted.note", b"root's")
    (top / "linked").write_text("one file, two names")
    os.link(top / "linked", shared / "second name")
    with (top / "sparse").open("wb") as file:
        file.truncate(20 << 20)
        file.seek(10 << 20)
        file.write(os.urandom(4096))
    os.mkfifo(top / "fifo", 0o620)
    os.mknod(top / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    os.mknod(top / "disk", 0o600 | stat.S_IFBLK, os.makedev(259, 77))
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(top / "socket"))
    (top / "dangling").symlink_to("/nowhere\nat all")
    os.chown(top / "dangling", 7, 8, follow_symlinks=False)
    os.utime(shared / "below" / "report", ns=(1, 1_234_567_890_123_456_789))
    os.utime(shared, ns=(1, 987_654_321_000_000_001))


def facts(root: Path, names: list[str] | None = None) -> dict[str, Any]:
    """What can be seen of everything below a folder, by path: an own look, with nothing of zvault's."""
    found: dict[str, Any] = {}
    groups: dict[tuple[int, int], set[str]] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if names is not None and name.split("/", maxsplit=1)[0] not in names:
            continue
        seen = path.lstat()
        if seen.st_nlink > 1 and not path.is_dir():
            groups.setdefault((seen.st_dev, seen.st_ino), set()).add(name)
        found[name] = [
            oct(seen.st_mode),
            seen.st_uid,
            seen.st_gid,
            seen.st_mtime_ns,
            0 if stat.S_ISDIR(seen.st_mode) else seen.st_size,
            seen.st_rdev,
            {
                key: os.getxattr(path, key, follow_symlinks=False)
                for key in os.listxattr(path, follow_symlinks=False)
            },
            str(path.readlink()) if path.is_symlink() else "",
            hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(seen.st_mode) else "",
        ]
    found["links"] = sorted(map(sorted, groups.values()))
    return found


def test_files_come_back_with_every_trait(tank: World) -> None:
    make_everything(HOME)
    tank.start()
    snapname = run()
    RESCUE.mkdir()
    done = ok("restore", "tank", "tank/home", str(RESCUE))
    with mounted(f"tank/home@{snapname}") as root:
        wanted = facts(root)
    assert facts(RESCUE) == wanted
    assert (RESCUE / "sparse").stat().st_blocks < 1000
    assert "mounted at" not in done.out
    assert "in /rescue" in done.out
    assert "the same as in the snapshot" in done.out


def test_what_cannot_be_put_back_is_named(tank: World) -> None:
    make_everything(HOME)
    tank.start()
    run()
    RESCUE.mkdir()
    sh(
        "zfs",
        "create",
        "-o",
        "acltype=off",
        "-o",
        "xattr=sa",
        "-o",
        "mountpoint=/rescue",
        "tank/scratch/rescue",
    )
    done = ctl("restore", "tank", "tank/home", str(RESCUE))
    assert done.code == 1
    assert "partial" in done.err
    assert "acl" in done.err
    assert ACL in done.err
    sh("zfs", "destroy", "tank/scratch/rescue")
    sh("mount", "-t", "tmpfs", "-o", "size=2M", "none", str(RESCUE))
    names = ["tool", "plain", "shared", "acl"]
    files = [word for name in names for word in ("--file", name)]
    done = ctl("restore", "tank", "tank/home", str(RESCUE), *files, "-j")
    assert done.code == 1
    document = done.json()
    assert document["run"]["result"] == "partial"
    named = {one["path"] for one in document["differences"]}
    with mounted(f"tank/home@{snapshots('tank/home')[-1]}") as root:
        wanted, have = facts(root, names), facts(RESCUE, names)
    wrong = {path for path in wanted if path != "links" and have.get(path) != wanted[path]}
    assert wrong, "there is no room for all of it"
    assert named >= {path for path in wrong if not any(path.startswith(f"{one}/") for one in named)}
    assert "No space left on device" in done.err
    sh("umount", str(RESCUE))


def test_a_copy_that_its_disk_lost_is_not_restored(tank: World) -> None:
    """A file system on an image that gets no more room: writes are answered from memory, and lost afterwards."""
    noise(HOME / "film", 24)
    tank.start()
    run()
    full = Path("/full")
    full.mkdir()
    RESCUE.mkdir()
    sh("mount", "-t", "tmpfs", "-o", "size=12M", "none", str(full))
    shell(f"truncate -s 64M {full}/image; mkfs.ext4 -q {full}/image; mount -o loop {full}/image {RESCUE}")
    try:
        done = ctl("restore", "tank", "tank/home", str(RESCUE), "--file", "film")
        assert done.code == 1, done.out
        assert "could not be written to disk" in done.err
        assert "the same as in the snapshot" not in done.out
    finally:
        sh("umount", str(RESCUE))
        sh("umount", str(full))
        full.rmdir()


def test_nothing_is_brought_up_for_a_target_that_cannot_be(tank: World) -> None:
    tank.start()
    for target in (["/nowhere"], ["tank/no/parent"], ["tank/home"], ["nopool/back"], ["/etc/passwd"]):
        for extra in ([], ["-n"]):
            refused = ctl("restore", "tank", "tank/home", *target, *extra)
            assert refused.code in {1, 2}, target
    assert not tank.image.exists()
    assert not left()
    # The vault that never was is not made by somebody who wants something back.
    refused = ctl("restore", "tank", "tank/nothing", "tank/back")
    assert refused.code == 1
    assert ctl("find", "tank", "thesis").code != 0
    assert not tank.image.exists()
    assert not left()


LIMITS = ("quota", "refquota", "reservation", "refreservation")


def limits(dataset: str) -> list[str]:
    return [get(dataset, name) for name in LIMITS]


def test_limits_and_properties_come_back(tank: World) -> None:
    sh("zfs", "set", "quota=200M", "refquota=150M", "reservation=30M", "refreservation=20M", "tank/home")
    sh("zfs", "create", "-s", "-V", "32M", "tank/thin")
    tank.start()
    run()
    # What changed since without a new stream counts from the next run on.
    sh("zfs", "set", "quota=201M", "tank/home")
    sh("zfs", "set", "quota=300M", "tank/my files")
    run()
    sh("truncate", "-s", "1G", str(DISK / "new.img"))
    sh("zpool", "create", "-O", "mountpoint=/new", "new", str(DISK / "new.img"))
    done = ok("restore", "tank", "tank", "new/tank", "-r")
    for name in ("home", "my files", "big", "vol", "thin"):
        assert limits(f"new/tank/{name}") == limits(f"tank/{name}"), name
    assert int(get("new/tank/vol", "refreservation")) >= 16 << 20
    assert limits("new/tank/thin")[3] == "0"
    assert "the same as in the snapshot" in done.out
    # Where there is no room for a reservation it is said, with the command.
    sh("zfs", "destroy", "-r", "new/tank")
    sh("zfs", "create", "-o", "quota=25M", "new/small")
    done = ctl("restore", "tank", "tank/home", "new/small/home", "-j")
    assert done.code == 1
    document = done.json()
    assert document["run"]["result"] == "partial"
    assert {"reservation"} <= {one["what"].removeprefix("property ") for one in document["differences"]}
    assert any("zfs set" in one and "reservation=31457280" in one for one in document["commands"])


def test_an_encrypted_tree_inherits_its_keys_again(tank: World) -> None:
    key, raw = Path("/root/key"), Path("/root/raw")
    key.write_text("correcthorse\n")
    raw.write_bytes(os.urandom(32))
    made = ["-o", "encryption=on", "-o", "keyformat=passphrase", "-o", f"keylocation=file://{key}"]
    sh("zfs", "create", *made, "-o", "quota=100M", "tank/secret")
    sh("zfs", "create", "-o", "canmount=noauto", "tank/secret/still")
    sh("zfs", "create", "tank/secret/still/deep")
    sh("zfs", "create", "-V", "8M", "tank/secret/vol")
    sh("zfs", "create", *made, "tank/secret/own")
    sh("zfs", "create", "tank/secret/own/child")
    sh(
        "zfs",
        "create",
        "-o",
        "encryption=on",
        "-o",
        "keyformat=raw",
        "-o",
        f"keylocation=file://{raw}",
        "tank/raw",
    )
    sh("zfs", "create", "tank/raw/child")
    Path("/tank/secret/still/deep/diary").write_bytes(os.urandom(100_000))
    Path("/tank/raw/child/diary").write_bytes(os.urandom(100_000))
    sh("zfs", "set", "readonly=on", "tank/secret/still")
    names = shell("zfs list -Hro name tank/secret tank/raw").split()
    roots = {name: get(name, "encryptionroot") for name in names}
    tank.start()
    run()
    sh("truncate", "-s", "1G", str(DISK / "new.img"))
    sh("zpool", "create", "-O", "mountpoint=/new", "new", str(DISK / "new.img"))
    ok("restore", "tank", "tank/secret", "new/secret", "-r")
    for name in names:
        if name.startswith("tank/secret"):
            back = name.replace("tank/", "new/")
            assert get(back, "encryptionroot") == roots[name].replace("tank/", "new/"), name
            assert limits(back) == limits(name)
            for one in ("canmount", "readonly"):
                assert name.endswith("vol") or get(back, one) == get(name, one)
    sh("zfs", "load-key", "new/secret")
    sh("zfs", "mount", "-o", "ro", "new/secret/still/deep")
    assert (
        Path("/new/secret/still/deep/diary").read_bytes()
        == Path("/tank/secret/still/deep/diary").read_bytes()
    )

    # Of a raw key nothing shows that the two are the same: so it says how.
    done = ctl("restore", "tank", "tank/raw", "new/raw", "-r", "-j")
    assert done.code == 1
    document = done.json()
    assert [(one["dataset"], one["what"]) for one in document["differences"]] == [
        ("new/raw/child", "encryption root")
    ]
    for command in document["commands"]:
        sh("sh", "-c", command)
    assert get("new/raw/child", "encryptionroot") == "new/raw"
    assert Path("/new/raw/child/diary").read_bytes() == Path("/tank/raw/child/diary").read_bytes()

    # A child that comes back into its old tree inherits from there, and the next run goes on from it.
    ok("restore", "tank", "tank/secret/still", "tank/secret/still", "-r", "--replace", "--yes")
    assert get("tank/secret/still/deep", "encryptionroot") == "tank/secret"
    assert len(Path("/tank/secret/still/deep/diary").read_bytes()) == 100_000
    ok("vault", "up", "cold")
    ok("run", "tank")
    assert len(snapshots("cold/lab/tank/secret/still/deep")) == 2, "it went on incrementally"
    ok("vault", "down", "cold")


def test_a_restored_dataset_is_compared_with_the_snapshot(tank: World) -> None:
    make_everything(HOME)
    tank.start()
    run()
    done = ok("restore", "tank", "tank", "tank/scratch/back", "-r", "-j")
    compared = done.json()["compared"]
    assert compared["datasets"] == 5
    assert compared["files"] > 35
    assert done.json()["differences"] == []
    quick = ok("restore", "tank", "tank/home", "tank/scratch/quick", "--no-compare", "-j").json()["compared"]
    assert quick["files"] == 0
