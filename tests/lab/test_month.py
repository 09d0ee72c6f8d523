"""A month of the daemon's clock, in steps: each backup ran when it should have, each side has what the rules keep, and
the status tells each trouble that the test has brought about, and no other.

The clock is set to just before, or just after, what the calendar in ``month_oracle`` says is due next.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import world
from crash_world import same_files
from month_oracle import berlin
from month_world import HOURS, QUARTERS, Month, history, plans
from world import DISK, eventually, sh, shell

LAB = {"mem": "3G", "timeout": 600}


@pytest.fixture
def month() -> Iterator[Month]:
    it = Month()
    it.clean()
    with world.clock_put_right():
        it.source()
        try:
            yield it
        finally:
            it.clean()


def take_away(month: Month) -> None:
    """The vault ``cold`` is gone, and cannot be imported."""
    eventually(
        "nobody to look at the pool", lambda: shell("zpool export cold && echo gone", check=False) == "gone"
    )
    loop = sh("losetup", "--noheadings", "-O", "NAME", "--associated", str(DISK / "cold.img")).strip()
    sh("losetup", "--detach", loop)
    month.away.add("cold")


def bring_back(month: Month) -> None:
    sh("losetup", "--find", str(DISK / "cold.img"))
    month.away.remove("cold")


def grow(pool: str, size: str) -> None:
    """A vault gets a larger device."""
    image = str(DISK / f"{pool}.img")
    loop = sh("losetup", "--noheadings", "-O", "NAME", "--associated", image).strip()
    sh("truncate", "-s", size, image)
    sh("losetup", "--set-capacity", loop)
    sh("zpool", "online", "-e", pool, loop)


def reload(month: Month, *, good: bool = True) -> None:
    """Have the configuration of now taken over; one that is not ``good`` is told, and not in force."""
    month.configure()
    if not good:
        with world.CONFIG.open("a") as file:
            file.write("\nsched = 1\n")
    sh("systemctl", "reload", "zvaultd")
    month.warnings = 0 if good else 1
    month.look()


def test_a_month(month: Month) -> None:
    begin(month, berlin(3, 1, 0, 10))
    first_days(month)
    a_vault_is_away(month)
    a_vault_is_full(month)
    reloads(month)
    restarts(month)
    the_clock_is_put_forward(month)
    same_files("tank/a", "cold/lab/tank/a")


def test_months_that_were_slept_through_and_the_clock_put_back(month: Month) -> None:
    begin(month, berlin(7, 1, 12, 5))
    the_clock_is_put_back(month)


def begin(month: Month, moment: int) -> None:
    """The daemon starts for the first time: each backup runs at once, for it never ran."""
    month.configure()
    month.set_clock(moment)
    month.write()
    sh("systemctl", "start", "zvaultd")
    month.ran(set(month.plans), [])
    month.look()


def first_days(month: Month) -> None:
    """An hour in full; then nights, and what is jumped over runs once."""
    for minute in (15, 30, 45, 60):
        month.on_time(berlin(3, 1, 0, minute))
    month.to(berlin(3, 1, 2, 15, 1))
    month.on_time(berlin(3, 1, 2, 30))
    for day in (2, 3, 6, 7):
        month.to(berlin(3, day, 2, 30, 1))
    month.to(berlin(3, 7, 23, 45, 1))
    month.on_time(berlin(3, 8, 0, 0))


def a_vault_is_away(month: Month) -> None:
    """What goes there fails, and says so; what goes elsewhere runs on. Once it is back, the next run is ok."""
    take_away(month)
    month.look()
    for day in (9, 10):
        month.to(berlin(3, day, 2, 30, 1))
    assert [month.health(name) for name in month.plans] == ["failed", "ok", "ok"]
    assert month.late("quarter")
    bring_back(month)
    month.to(berlin(3, 11, 12, 0, 1))
    month.to(berlin(3, 15, 0, 0, 1))


def a_vault_is_full(month: Month) -> None:
    """What does not fit fails, and is on the vault with the next run once it has room."""
    month.to(berlin(3, 15, 2, 30, 1))
    world.noise(Path("/tank/b/big"), 100)
    month.full.add("small")
    for day in (16, 17):
        month.to(berlin(3, day, 2, 30, 1))
    assert [month.health(name) for name in month.plans] == ["ok", "failed", "ok"]
    assert month.late("night")
    grow("small", "512M")
    month.full.clear()
    month.to(berlin(3, 18, 2, 30, 1))


def reloads(month: Month) -> None:
    """A shorter rule prunes step by step; another schedule holds at once; a bad configuration changes nothing."""
    quarter = month.plans["quarter"]
    quarter.keep = {"last": 1}
    reload(month)
    month.on_time(berlin(3, 18, 2, 45))
    assert month.health("quarter") == "held-back"
    month.on_time(berlin(3, 18, 3, 0))
    quarter.schedule = HOURS
    reload(month)
    month.on_time(berlin(3, 18, 4, 0))
    quarter.schedule, quarter.keep = QUARTERS, plans()["quarter"].keep
    reload(month)
    reload(month, good=False)
    month.to(berlin(3, 19, 2, 30, 1))
    reload(month)


def restarts(month: Month) -> None:
    """What came while the daemon was down runs once when it is back, and nothing else does."""
    month.to(berlin(3, 22, 2, 30, 1))
    stopped(month, berlin(3, 22, 2, 40))
    stopped(month, berlin(3, 24, 12, 5))
    pid = world.main_pid()
    os.kill(pid, signal.SIGKILL)
    world.restarted(pid)
    month.ran(set(), history())
    month.look()
    month.to(berlin(3, 27, 2, 30, 1))


def stopped(month: Month, until: float) -> None:
    """The daemon is down meanwhile."""
    before = history()
    sh("systemctl", "stop", "zvaultd")
    month.write()
    expected = set(month.due(until))
    month.set_clock(until)
    sh("systemctl", "start", "zvaultd")
    for run in month.ran(expected, before):
        assert run["trigger"] == "catch-up", run
    month.look()


def the_clock_is_put_forward(month: Month) -> None:
    """After 01:59 comes 03:00: every quarter of an hour that there is has its run, and 02:30 is at 03:30."""
    month.to(berlin(3, 28, 1, 30, 1))
    month.on_time(berlin(3, 28, 1, 45))
    for minute in (0, 15, 30, 45):
        month.on_time(berlin(3, 28, 3, minute))
    month.to(berlin(3, 28, 23, 45, 1))
    month.on_time(berlin(3, 29, 0, 0))
    month.to(berlin(3, 29, 2, 15, 1))
    month.on_time(berlin(3, 29, 2, 30))


def the_clock_is_put_back(month: Month) -> None:
    """After the first 02:59 comes 02:00: every quarter of an hour has its run, the night only its first 02:30."""
    month.to(berlin(10, 31, 2, 15, 1))
    month.on_time(berlin(10, 31, 2, 30))
    month.on_time(berlin(10, 31, 2, 45))
    for minute in (0, 15, 30, 45):
        month.on_time(berlin(10, 31, 2, minute, again=True))
    month.to(berlin(10, 31, 23, 45, 1))
    month.on_time(berlin(11, 1, 0, 0))
    month.to(berlin(11, 1, 2, 15, 1))
    month.on_time(berlin(11, 1, 2, 30))
