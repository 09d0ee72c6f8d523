"""Scrubs by policy and by hand: they give way to backups, wait for their windows, and outlast what interrupts them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from world import World, ctl, eventually, inhibitors, journal, metrics, ok, sh, status

LAB = {"mem": "3G", "timeout": 2500}

EVERY = 35 * 86400.0
SUSPEND = Path("/sys/module/zfs/parameters/zfs_scan_suspend_progress")
"""A scrub that has begun reads nothing while this is 1: it is as slow as it is wanted to be."""


class Scrubbed(World):
    """A vault with some files in it, down."""

    def ready(self, more: str = "") -> None:
        self.vault_extra += more
        self.source()
        self.start()
        ok("run", "tank")

    def last_scrub(self, seconds: float) -> None:
        """Have the last scrub lie so far back, as if the pool were old. The vault stays up."""
        ok("vault", "up", "cold")
        ended = time.time() - seconds
        sh("zpool", "set", f"org.zvault:scrubbed={ended:.0f}", "cold")
        eventually("it is known", lambda: (vault()["scrub"] or {}).get("last"))


@pytest.fixture
def tank() -> Iterator[Scrubbed]:
    it = Scrubbed(delay="", vault_extra='create = true\nscrub.every = "35d"')
    it.clean()
    yield it
    SUSPEND.write_text("0")
    it.clean()


def vault() -> dict[str, Any]:
    return next(one for one in status()["vaults"] if one["name"] == "cold")


def state() -> str:
    return str((vault()["scrub"] or {}).get("state"))


def test_one_that_is_due_gives_way_to_a_backup_and_goes_on(tank: Scrubbed):
    SUSPEND.write_text("1")
    before = journal().count("a scrub is due")
    tank.ready()
    assert journal().count("a scrub is due") == before
    assert vault()["scrub"]["last"] is None
    tank.last_scrub(EVERY - 30)
    ctl("vault", "down", "cold")  # it comes up for the scrub by itself, unless that was due already
    eventually("it begins", lambda: state() == "scanning", seconds=240)
    assert "a scrub is due: the last one ended 35d ago" in journal()
    assert metrics()['zvault_scrub_age_seconds{vault="cold"}'] > EVERY - 1
    assert metrics()['zvault_scrub_running{vault="cold"}'] == 1
    eventually("how far it is", lambda: "scrub: 0% of" in ctl("vault", "status", "cold").out)
    assert vault()["users"] == ["scrub cold"]
    eventually("logind to hear that nothing is written", lambda: not inhibitors())
    # While the backup runs it is paused, and so it is when the vault has gone down.
    Path("/tank/home/more").write_bytes(b"x" * 100_000)
    ok("run", "tank")
    assert vault()["scrub"]["state"] == "paused" or "paused: backup tank runs" in journal()
    eventually("it goes on", lambda: state() == "scanning")
    told, going = journal().count("errors: 0"), int(time.time())
    SUSPEND.write_text("0")
    eventually("it ends", lambda: state() == "finished")
    eventually("that to be told", lambda: journal().count("errors: 0") > told)
    assert metrics()['zvault_scrub_age_seconds{vault="cold"}'] <= time.time() - going
    eventually("the scrub releases the vault", lambda: ctl("vault", "down", "cold").code == 0)
    eventually("the vault goes down", lambda: vault()["state"] == "down")
    ok("status")


def test_by_hand_it_is_paused_stopped_and_wanted_again(tank: Scrubbed):
    SUSPEND.write_text("1")
    tank.ready()
    assert ctl("scrub", "cold", "--no-wait").code == 0
    eventually("it goes", lambda: state() == "scanning")
    assert "paused" in ok("scrub", "cold", "--pause").out
    eventually("the vault is released", lambda: vault()["state"] == "down")
    # It stays so over an export and another daemon.
    sh("systemctl", "restart", "zvaultd")
    ok("vault", "up", "cold")
    eventually("it is seen", lambda: state() == "paused")
    time.sleep(6)  # a look of the scrub scheduler's own, which must not go on with it
    assert state() == "paused"
    assert vault()["scrub"]["held"]
    SUSPEND.write_text("0")
    done = ok("scrub", "cold")
    assert "goes on" in done.out, done.out
    assert "errors: 0" in done.out, done.out
    eventually("nobody holds it any more", lambda: not vault()["scrub"]["held"])


def test_outside_its_windows_it_waits_unless_somebody_asks(tank: Scrubbed):
    hour = time.gmtime().tm_hour
    start, end = (hour + 2) % 24, (hour + 3) % 24
    window = f'{{ start = "{start:02}:00", end = "{end:02}:00" }}'
    before = journal().count("a scrub is due")
    tank.ready(f"\nscrub.windows = [{window}]")
    sh("systemctl", "restart", "zvaultd")
    tank.last_scrub(EVERY + 86400)
    time.sleep(7)  # time for a look of the scrub scheduler's
    assert state() != "scanning"
    assert journal().count("a scrub is due") == before
    assert "errors: 0" in ok("scrub", "cold").out


def test_a_vault_goes_down_while_somebody_scrubs_it_and_the_scrub_outlasts_that(tank: Scrubbed):
    tank.ready()
    SUSPEND.write_text("1")
    ok("vault", "up", "cold")
    sh("zpool", "scrub", "cold")
    eventually("it goes", lambda: state() == "scanning")
    ok("vault", "down", "cold")
    assert vault()["state"] == "down"
    ok("vault", "up", "cold")
    eventually("it goes on", lambda: state() == "scanning")
    # One of zvault's own is a use of the vault, so it is named instead.
    sh("zpool", "scrub", "-s", "cold")
    assert ctl("scrub", "cold", "--no-wait").code == 0
    eventually("the next goes", lambda: vault()["users"] == ["scrub cold"] and state() == "scanning")
    down = ctl("vault", "down", "cold")
    print(down.code, down.out, down.err)
    assert down.code != 0
    assert "scrub" in down.err
    SUSPEND.write_text("0")
    eventually("it ends", lambda: state() == "finished")
    eventually("the vault to go down", lambda: ctl("vault", "down", "cold").code == 0)


def scrubs() -> list[dict[str, Any]]:
    return [run for run in ctl("history", "-j").json()["runs"] if run["trigger"] == "scrub"]


def test_the_device_vanishes_under_it(tank: Scrubbed):
    tank.ready('\nup = "always"')
    SUSPEND.write_text("1")
    assert ctl("scrub", "cold", "--no-wait").code == 0
    eventually("it goes", lambda: state() == "scanning")
    sh("systemctl", "kill", "--signal=KILL", "zvault-device@cold-0.service", check=False)
    SUSPEND.write_text("0")
    # By itself the next one may have begun already.
    eventually("it ended early", lambda: "failed" in [run["result"] for run in scrubs()])
    eventually(
        "the vault is well again",
        lambda: vault()["state"] == "up" and vault()["health"] == "ONLINE",
    )
    assert "errors: 0" in ok("scrub", "cold").out
