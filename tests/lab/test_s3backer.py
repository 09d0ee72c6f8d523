"""A vault in a bucket that s3backer shows as a file: what it acknowledged is in the bucket, whatever happens to it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import ceph
import pytest
from test_s3_nbd import BUCKET, bucket
from world import (
    DISK,
    World,
    command_lines,
    ctl,
    eventually,
    fill,
    journal,
    nothing_left,
    ok,
    sh,
    snapshot_hashes,
    snapshots,
    tree_hashes,
)

LAB = {"mem": "4G", "timeout": 2000}

SECRETS = Path("/etc/s3backer.pass")
UNIT = "zvault-s3backer@cold-0.service"


@dataclass
class Vault(World):
    """The world with its vault in a bucket."""

    s3: ceph.S3 = field(init=False)

    def source(self) -> None:
        DISK.mkdir(exist_ok=True)
        sh("truncate", "-s", "256M", str(DISK / "tank.img"))
        sh("zpool", "create", "-O", "mountpoint=/tank", "tank", str(DISK / "tank.img"))
        sh("zfs", "create", "tank/home")
        fill(Path("/tank/home"), 1, count=8)

    @property
    def settings(self) -> str:
        """How s3backer is to find the bucket."""
        return f"accessFile={SECRETS} baseURL={self.s3.endpoint}/"

    def config_text(self) -> str:
        nbd = f"s3backer:{BUCKET}/cold size=1G blockSize=128k {self.settings}"
        return re.sub(r"\nnbd = .*\nsize = .*\n", lambda _: f'\nnbd = "{nbd}"\n', super().config_text())


@pytest.fixture
def world() -> Iterator[Vault]:
    with ceph.cluster(rgw=True) as cluster:
        it = Vault()
        it.s3 = cluster.s3()
        it.clean()
        SECRETS.touch(mode=0o600)
        SECRETS.write_text(f"{it.s3.access_key}:{it.s3.secret_key}\n")
        bucket(it.s3).create()
        it.source()
        yield it
        it.clean()
        sh("systemctl", "stop", UNIT, check=False)


def unharmed() -> None:
    """All of the newest snapshot is there, byte by byte, and the pool has no fault."""
    newest = snapshots("cold/lab/tank/home")[-1]
    assert snapshot_hashes(f"cold/lab/tank/home@{newest}") == tree_hashes(Path("/tank/home"))
    sh("zpool", "scrub", "-w", "cold")
    assert "No known data errors" in sh("zpool", "status", "cold")


def test_backups_into_a_bucket(world: Vault):
    world.start()
    ok("run", "tank")
    nothing_left()
    assert not list(Path("/run/zvault/device").glob("*.s3backer"))
    names = [item.key for item in bucket(world.s3).objects.all()]
    assert len(names) > 10
    assert all(name.startswith("cold/") for name in names)

    ok("vault", "up", "cold")
    said = command_lines()
    assert "--blockCacheSync" in said
    assert world.s3.secret_key not in said
    unharmed()

    # Killed, with writes on their way: what was acknowledged is there, and zvault removes the mark that is its own.
    writer = subprocess.Popen(["zfs", "set", "org.zvault.test:x=y", "cold"])
    sh("systemctl", "kill", "-s", "KILL", UNIT)
    # In the journal, for zvault may have brought it back before anybody asks for its state.
    eventually("it to be seen", lambda: "cold-0 is gone" in journal("VAULT=cold"))
    ok("vault", "up", "cold")
    assert writer.wait(120) == 0
    unharmed()
    ok("vault", "down", "cold")
    nothing_left()

    # Another host has it.
    Path("/mnt/other").mkdir()
    other = [
        "s3backer",
        "-f",
        *(f"--{word}" for word in world.settings.split()),
        "--prefix=cold/",
        BUCKET,
        "/mnt/other",
    ]
    process = subprocess.Popen(other)
    eventually("the other's mount", lambda: Path("/mnt/other/file").exists())
    refused = ctl("vault", "up", "cold")
    assert refused.code == 1
    assert "--reset-mounted-flag" in refused.err
    sh("umount", "/mnt/other")
    process.wait(120)
    ok("vault", "up", "cold")
    unharmed()
    ok("vault", "down", "cold")
    nothing_left()
