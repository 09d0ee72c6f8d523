"""A source and a vault whose datasets are renamed, cloned and changed by hand, and what a run sends of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
import world
from world import (
    Done,
    World,
    answer,
    ask,
    ctl,
    events,
    get,
    sh,
    snapshot_hashes,
    snapshots,
)


class Small(World):
    """Two pools of this host: what follows what is the same on any device."""

    also: str = ""
    metrics_datasets: str = "1000"

    def source(self) -> None:
        world.DISK.mkdir(exist_ok=True)
        for pool in ("tank", "cold"):
            sh("truncate", "-s", "400M", str(world.DISK / f"{pool}.img"))
            sh("zpool", "create", "-O", f"mountpoint=/{pool}", pool, str(world.DISK / f"{pool}.img"))

    def config_text(self) -> str:
        return f"""
[daemon]
metrics = "{world.METRICS}"
host = "lab"
timezone = "UTC"
metrics_datasets = {self.metrics_datasets}

[vault.cold]
pool = "cold"
up = "always"

[backup.tank]
source = "tank"
exclude = {self.exclude}
vault = "cold"
keep = {self.keep}
{self.backup_extra}
"""

    def reload(self, **changes: str) -> None:
        for key, value in changes.items():
            setattr(self, key, value)
        self.configure()
        sh("systemctl", "reload", "zvaultd")


@pytest.fixture(name="tank")
def tank_for_test() -> Iterator[Small]:
    it = Small(keep="{ source = { last = 9 } }", exclude="[]")
    it.clean()
    it.source()
    yield it
    for pool in ("tank", "cold"):
        for snapshot in sh("zfs", "list", "-rHt", "snapshot", "-o", "name", pool, check=False).splitlines():
            for line in sh("zfs", "holds", "-H", snapshot, check=False).splitlines():
                sh("zfs", "release", line.split("\t")[1], snapshot, check=False)
    it.clean()


def make(name: str, *options: str, kib: int = 2000) -> None:
    """A filesystem with a file that does not compress."""
    sh("zfs", "create", *options, name)
    write(name, "first", kib)


def write(name: str, file: str, kib: int = 200) -> None:
    """A file that does not compress."""
    Path(f"/{name}/{file}").write_bytes(os.urandom(kib << 10))


def run(*, code: int = 0) -> tuple[Done, int]:
    """A run, and how many bytes its streams had."""
    done = ctl("run", "-j", "tank")
    assert done.code == code, done.out + done.err
    last = json.loads(ctl("history", "-j", "-l", "1").out)["runs"][0]
    return done, last["bytes"]


def plan() -> dict[str, dict]:
    """The plan by dataset."""
    return {row["dataset"]: row for row in json.loads(ctl("plan", "tank", "-j").out)["datasets"]}


def said() -> str:
    """What the last run told."""
    number = json.loads(ctl("history", "-j", "-l", "1").out)["runs"][0]["id"]
    return "\n".join(
        event["text"] for event in events(str(number)) if event["event"] in {"message", "warning"}
    )


def alike(name: str, target: str = "") -> None:
    """The newest state of a filesystem is on the vault, file by file, under the same GUID."""
    target = target or f"cold/lab/{name}"
    snapname = [one for one in snapshots(name) if one.startswith("zvault_")][-1]
    assert get(f"{name}@{snapname}", "guid") == get(f"{target}@{snapname}", "guid")
    assert snapshot_hashes(f"{name}@{snapname}") == snapshot_hashes(f"{target}@{snapname}")


def guid(name: str) -> str:
    return get(name, "guid")


def plan_after_snapshot(name: str) -> str:
    """Why, once there is something to send: a run's snapshot is not there yet when a plan is asked for."""
    sh("zfs", "snapshot", f"{name}@zvault_2001-01-01T00:00:00Z")
    try:
        return plan()[name]["reason"]
    finally:
        sh("zfs", "destroy", f"{name}@zvault_2001-01-01T00:00:00Z")


def names(top: str) -> list[str]:
    """The datasets at and below one."""
    return sh("zfs", "list", "-rH", "-t", "filesystem,volume", "-o", "name", top).splitlines()


def series(metric: str) -> dict[str, float]:
    """What a scrape has of a metric of the backup's datasets, by the label ``dataset``."""
    begin = f'{metric}{{backup="tank",dataset="'
    return {
        name.removeprefix(begin).removesuffix('"}'): value
        for name, value in world.metrics().items()
        if name.startswith(begin)
    }


def pages(limit: int) -> list[list[dict]]:
    """The backup's datasets as /v1/list tells them page by page."""
    found: list[list[dict]] = []
    after: str | None = ""
    while after is not None:
        told = answer(ask("GET", "/v1/list?" + urlencode({"backup": "tank", "limit": limit, "after": after})))
        assert told is not None, after
        found.append(told["datasets"])
        after = told["next"]
        assert len(found) < 100, after
    return found
