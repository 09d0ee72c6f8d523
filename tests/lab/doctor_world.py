"""A vault on a device of a known rate, and what the doctor says of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from world import World, eventually, make_tank, noise, ok, sh, status

PARAMETERS = Path("/sys/module/zfs/parameters")
RATE = Path("/run/vault.rate")
MERGE = "zfs_vdev_aggregation_limit_non_rotating"
LEAST, MOST = "zfs_vdev_async_write_min_active", "zfs_vdev_async_write_max_active"
THROTTLE = "zio_dva_throttle_enabled"
DIRTY, SHARE = "zfs_dirty_data_max", "zfs_dirty_data_sync_percent"
FAST = {MERGE: 4 << 20, LEAST: 32, MOST: 32, THROTTLE: 0}
ROOM = {DIRTY: 64 << 20, SHARE: 60}
"""Else all of a short stream would be taken in by memory, and the device would have no say."""
BEFORE = {
    name: (PARAMETERS / name).read_text().strip() for name in (MERGE, LEAST, MOST, THROTTLE, DIRTY, SHARE)
}


def put(values: dict[str, int]) -> None:
    for name, value in values.items():
        (PARAMETERS / name).write_text(str(value))


class Sick(World):
    """A pool ``tank`` of one large file, and a vault whose device takes 100 ms a write, and as much as RATE says."""

    def source(self, mib: int = 450) -> None:
        make_tank("1G")
        noise(Path("/tank/noise"), mib)

    def own_profile(self, name: str, text: str) -> None:
        """A profile of the administrator's, for the vault."""
        folder = Path("/etc/zvault/profiles")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.toml").write_text(text)
        self.vault_extra = f'create = true\nprofile = "{name}"'

    def begin(self) -> None:
        """A run, until its stream is under way."""
        ok("run", "tank", "--no-wait", "-q")
        eventually("the stream", lambda: backup()["bytes_done"] > 0)

    def limited(self, limit: str) -> None:
        """Another limit, in force at once."""
        self.backup_extra = f'limit = "{limit}"'
        self.configure()
        sh("systemctl", "reload", "zvaultd")

    def over(self) -> None:
        """Let a run come to its end quickly."""
        put(FAST)
        RATE.write_text("100G")
        eventually("the run ends", lambda: backup()["state"] == "idle", seconds=240)


def backup() -> dict:
    return status()["backups"][0]


@pytest.fixture(name="it")
def sick_vault() -> Iterator[Sick]:
    RATE.write_text("100G")
    found = Sick(vault_extra='create = true\nprofile = "nbd-lan"')
    found.delay = f"filter=delay wdelay=100ms filter=rate rate-file={RATE} burstiness=0.1"
    found.clean()
    put(ROOM)
    yield found
    RATE.write_text("100G")
    put(FAST)
    found.clean()
    for name, value in BEFORE.items():
        (PARAMETERS / name).write_text(value)


TRIES = 5


def diagnosis(seconds: float = 2.0) -> dict:
    """What the doctor says."""
    found = ok("doctor", "-j", "cold", "--seconds", str(seconds)).json()
    for key in ("verdict", "streams", "queue", "request", "groups", "waits", "threads", "idle"):
        print(f"{key}: {found[key]}")
    for one in found["devices"]:
        print(one)
    return found


def bound(by: str, seconds: float = 2.0) -> dict:
    """What the doctor says, once it says that this is the bound: two seconds of a busy machine may show another."""
    for _ in range(TRIES - 1):
        if (seen := diagnosis(seconds))["verdict"]["bound"] == by:
            return seen
    seen = diagnosis(seconds)
    assert seen["verdict"]["bound"] == by
    return seen


def settle(seconds: float = 2.0) -> None:
    """Let what was under way under other settings come to its end."""
    time.sleep(seconds)
