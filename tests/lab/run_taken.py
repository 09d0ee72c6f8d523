"""A source, a vault, and what a run took of it and was said to take."""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import world
from world import World, ctl, get, ok, sh, snapshots, status

NAMES = ["tank", "tank/a", "tank/b", "tank/vol"]
SKIP = "snapshot.skip_unchanged = true"


class Small(World):
    """A few small datasets and a volume; the vault stays up, but where a test takes it down."""

    def source(self) -> None:
        world.DISK.mkdir(exist_ok=True)
        sh("truncate", "-s", "512M", str(world.DISK / "tank.img"))
        sh(
            "zpool",
            "create",
            "-O",
            "mountpoint=/tank",
            "-O",
            "atime=off",
            "tank",
            str(world.DISK / "tank.img"),
        )
        # Of these some are not in force on a vault, and some are not sent at all.
        kept = [
            word
            for one in ("exec=off", "checksum=sha256", "canmount=on", "quota=100M")
            for word in ("-o", one)
        ]
        sh("zfs", "create", *kept, "tank/a")
        sh("zfs", "create", "tank/b")
        sh("zfs", "create", "-V", "16M", "tank/vol")

    def reload(self) -> None:
        self.configure()
        sh("systemctl", "reload", "zvaultd")


@pytest.fixture(name="tank", scope="module")
def tank_for_test() -> Iterator[Small]:
    it = Small(keep="{ source = { last = 2 }, vault = { last = 3 } }", exclude="[]", delay="")
    it.clean()
    it.source()
    it.start()
    ok("vault", "up", "cold")
    yield it
    it.clean()


def write(name: str, *, sync: bool = False) -> None:
    """Change a file. What was written is not on disk yet when this returns, unless ``sync``."""
    Path(f"/{name}/file").write_text(str(time.monotonic_ns()))
    if sync:
        sh("zpool", "sync", "tank")


def everything() -> str:
    """Whatever changes a pool leaves a trace in its history."""
    sh("zpool", "sync")
    return sh("zpool", "history", "-i", "tank") + sh("zpool", "history", "-i", "cold")


def taken(*argv: str) -> set[str]:
    """The datasets that a run snapshots; all of those are on the vault afterwards, and it is well."""
    before = {name: snapshots(name) for name in NAMES}
    ok("run", "tank", *argv)
    after = {name: snapshots(name) for name in NAMES}
    for name in NAMES:
        assert get(f"cold/lab/{name}@{after[name][-1]}", "guid") == get(f"{name}@{after[name][-1]}", "guid")
    return {name for name in NAMES if after[name][-1:] != before[name][-1:]}


def foreseen(code: int = 0) -> Any:
    done = ctl("run", "-n", "tank", "-j")
    assert done.code == code, f"{done.out}{done.err}"
    return done.json()


def pruned(rows: list[dict[str, Any]]) -> set[str]:
    return {row["snapshot"] for row in rows if not row["keep"]}


@pytest.fixture(name="skipping")
def skipping_for_test(tank: Small) -> Small:
    if tank.backup_extra != SKIP:
        tank.backup_extra = SKIP
        tank.reload()
    ok("run", "tank")
    return tank


def lag() -> float:
    return float(status()["backups"][0]["lag_seconds"])


def as_user(name: str, *argv: str) -> subprocess.CompletedProcess[str]:
    user = pwd.getpwnam(name)
    return subprocess.run(
        ["zvaultctl", *argv],
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=os.getgrouplist(name, user.pw_gid),
        capture_output=True,
        text=True,
    )
