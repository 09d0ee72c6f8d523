"""A vault in an object store: nbdkit's S3 plugin, as zvault serves it, on the S3 of a real Ceph cluster."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ceph
import pytest
from world import (
    World,
    command_lines,
    eventually,
    fill,
    main_pid,
    make_tank,
    nothing_left,
    ok,
    sh,
    snapshot_hashes,
    snapshots,
    tree_hashes,
)

LAB = {"mem": "4G", "timeout": 2500}

BUCKET = "zvault"
KEY = Path("/etc/s3.key")


@pytest.fixture(scope="module")
def cluster() -> Iterator[ceph.Cluster]:
    with ceph.cluster(rgw=True) as it:
        yield it


class Vault(World):
    """The world with its vault in a bucket."""

    s3: ceph.S3

    def source(self) -> None:
        """Little: each write of less than an object is a read and a write of one, at 20 ms of this guest's CPU."""
        make_tank("256M")
        sh("zfs", "create", "tank/home")
        fill(Path("/tank/home"), 1, count=10)

    def config_text(self) -> str:
        nbd = (
            f"nbdkit:S3 bucket={BUCKET} key=cold size=1G object-size=128K endpoint-url={self.s3.endpoint}"
            f" access-key={self.s3.access_key} secret-key=+{KEY}"
        )
        return re.sub(r"\nnbd = .*\nsize = .*\n", lambda _: f'\nnbd = "{nbd}"\n', super().config_text())


@pytest.fixture
def world(cluster: ceph.Cluster) -> Iterator[Vault]:
    it = Vault()
    it.s3 = cluster.s3()
    it.clean()
    KEY.touch(mode=0o600)
    KEY.write_text(it.s3.secret_key)
    it.source()
    yield it
    it.clean()


def bucket(s3: ceph.S3) -> Any:
    """The bucket, as S3 itself tells of it."""
    return s3.bucket(BUCKET)


def scrubbed() -> str:
    sh("zpool", "scrub", "-w", "cold")
    return sh("zpool", "status", "cold")


def test_backups_into_a_bucket(world: Vault, cluster: ceph.Cluster):
    objects = bucket(world.s3)
    objects.create()
    world.start()
    ok("vault", "up", "cold")
    said = command_lines()
    assert world.s3.access_key in said
    assert world.s3.secret_key not in said
    ok("run", "tank")
    names = [item.key for item in objects.objects.all() if item.key != "cold.lease"]
    assert len(names) > 20
    assert all(re.fullmatch(r"cold/[0-9a-f]{16}", name) for name in names)

    before = main_pid()
    sh("systemctl", "restart", "zvaultd")
    eventually("the daemon again", lambda: main_pid() not in (0, before))
    fill(Path("/tank/home"), 3, count=3)
    ok("run", "tank")
    assert "No known data errors" in scrubbed()
    newest = snapshots("cold/lab/tank/home")[-1]
    assert snapshot_hashes(f"cold/lab/tank/home@{newest}") == tree_hashes(Path("/tank/home"))

    # The store goes, and comes back with all that it had acknowledged.
    cluster.kill("client.rgw")
    writer = subprocess.Popen(["zfs", "set", "org.zvault.test:x=y", "cold"])
    eventually("suspension", lambda: "SUSPENDED" in sh("zpool", "list", "-Ho", "health", "cold"))
    cluster.start_rgw()
    ok("vault", "up", "cold")
    assert writer.wait(240) == 0
    assert "No known data errors" in scrubbed()
    assert snapshot_hashes(f"cold/lab/tank/home@{newest}") == tree_hashes(Path("/tank/home"))
    ok("vault", "down", "cold")
    nothing_left()
