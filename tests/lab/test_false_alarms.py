"""A machine that stands still for seconds at random: nothing is wrong then, and so nothing is told to be."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from world import World, ok, service, sh, status

LAB = {"mem": "3G", "timeout": 900}

CGROUPS = Path("/sys/fs/cgroup")
STANDSTILL = (1.0, 6.0)
"""Seconds for which the machine stands still: well below the device's timeout of 20 s."""


@pytest.fixture
def tank() -> Iterator[World]:
    it = World(backup_extra='max_lag = "1h"')
    it.clean()
    it.source()
    yield it
    it.clean()


def freeze(frozen: bool) -> None:
    """Stop every process of zvault's, its devices' servers too, as a hypervisor would that gives no time; or go on."""
    for cgroup in CGROUPS.rglob("zvault*.service"):
        (cgroup / "cgroup.freeze").write_text("1" if frozen else "0")


@contextmanager
def standing_still(chance: random.Random) -> Iterator[list[float]]:
    """While the block runs; gives the seconds of each standstill."""
    over, lasted = threading.Event(), list[float]()

    def stumble() -> None:
        while not over.wait(chance.uniform(0.5, 3.0)):
            lasted.append(chance.uniform(*STANDSTILL))
            freeze(True)
            try:
                over.wait(lasted[-1])
            finally:
                freeze(False)

    thread = threading.Thread(target=stumble)
    thread.start()
    try:
        yield lasted
    finally:
        over.set()
        thread.join()


def alarms() -> list[str]:
    """Every finding that would have somebody look."""
    now = status()
    judged = [now["daemon"], *now["backups"], *now["vaults"]]
    return [
        f"{one['condition']}: {one['why']}"
        for subject in judged
        for one in subject["verdict"]["findings"]
        if one["level"] in {"warning", "critical"}
    ]


def warnings() -> list[str]:
    """What zvaultd wrote to the journal as a warning or worse."""
    sh("journalctl", "--sync")
    told = sh(
        *("journalctl", "-q", "-o", "cat", "--no-pager", "-p", "warning"),
        *("_SYSTEMD_UNIT=zvaultd.service", "+", "SYSLOG_IDENTIFIER=zvaultd"),
    )
    return told.splitlines()


def test_a_machine_that_stands_still_for_seconds_raises_no_alarm(tank: World) -> None:
    tank.start()
    ok("run", "tank")
    before = warnings()
    seed = time.time_ns()
    print(f"seed {seed}")
    found: list[str] = []
    with standing_still(random.Random(seed)) as lasted:
        for number in range(4):
            Path(f"/tank/home/new {number}").write_bytes(bytes(1 << 20))
            ok("run", "tank")
            found += alarms()
            ok("vault", "up", "cold")
            found += alarms()
            ok("vault", "down", "cold")
            found += alarms()
    print(f"it stood still {len(lasted)} times, {sum(lasted):.0f} s in all")
    assert len(lasted) >= 4
    assert found == []
    assert warnings() == before
    assert service("NRestarts") == "0"
