"""The host sleeps: refused while a device is written, and where it happens all the same nothing is lost.

With ``inhibit_sleep = "block-weak"`` root's sleep passes over zvault's inhibitor, as a closed lid does over any; ``-i``
does not on a stock systemd 257, which asks polkit. ``rtcwake -m mem`` asks nobody.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import world
from harmless_reboot import harmless_reboot
from world import World, answer, ask, ctl, eventually, journal, make_tank, metrics, ok, sh, snapshots, status

LAB = {"mem": "4G", "timeout": 2500}

ASLEEP = 21
"""Seconds until the clock wakes the host, from when all is ready for it to sleep. It must be asleep by then, and the
kernel may take 20 to freeze who runs.
"""

HOOK = Path("/usr/lib/systemd/system-sleep/lab")
"""Run by systemd when nothing is left to do but to sleep."""

WAKE = f"#!/bin/sh\n[ $1 != pre ] || exec rtcwake -m no -s {ASLEEP}\n"

DUE = 18
"""Seconds within which a sleep is announced; it does not end before."""

SLEEP_CONF = Path("/etc/systemd/sleep.conf.d/lab.conf")

PATIENT_LOGIND = Path("/run/systemd/logind.conf.d/lab.conf")

SLOWLY = "filter=rate rate=48M"
"""6 MB/s."""

SUSPEND = Path("/sys/module/zfs/parameters/zfs_scan_suspend_progress")
"""A scrub that has begun reads nothing while this is 1."""


class Small(World):
    """A source with two datasets, and a vault on a slow device."""

    inhibit_sleep = "block"

    def config_text(self) -> str:
        return overridable(super().config_text(), self.inhibit_sleep)

    def source(self) -> None:
        make_tank("1G")
        sh("zfs", "create", "tank/home")
        world.fill(Path("/tank/home"), 1, count=5)


def overridable(config: str, mode: str) -> str:
    """A configuration with that mode of logind's lock for a sleep."""
    return config.replace('host = "lab"\n', f'host = "lab"\ninhibit_sleep = "{mode}"\n')


def let_it_sleep() -> None:
    """Have the host sleep when it is told to, and the clock wake it."""
    # Or it would try its other ways to sleep, from which the clock does not wake it any more.
    SLEEP_CONF.parent.mkdir(exist_ok=True)
    SLEEP_CONF.write_text("[Sleep]\nSuspendState=mem\n")
    HOOK.parent.mkdir(exist_ok=True)
    HOOK.write_text(WAKE)
    HOOK.chmod(0o755)


@pytest.fixture
def tank() -> Iterator[Small]:
    let_it_sleep()
    it = Small(delay=SLOWLY, size="2G", backup_extra='limit = "4M"')
    it.clean()
    it.source()
    yield it
    SUSPEND.write_text("0")
    it.clean()
    if PATIENT_LOGIND.exists():
        PATIENT_LOGIND.unlink()
        sh("systemctl", "restart", "systemd-logind")


def suspend() -> subprocess.CompletedProcess[str]:
    """As root would have it."""
    return subprocess.run(["systemctl", "suspend"], capture_output=True, text=True, timeout=300)


def locks(mode: str) -> list[str]:
    out = sh("systemd-inhibit", "--list", "--no-legend", "--no-pager", f"--mode={mode}")
    return [line for line in out.splitlines() if line.startswith("zvault")]


def slept() -> int:
    """How often the host has slept since it was booted."""
    return int(Path("/sys/power/suspend_stats/success").read_text())


def sleep_through() -> bool:
    """Go to sleep as logind announces it, and wake by the clock; False if the kernel could not."""
    before, awake = slept(), journal().count("the host is awake again")
    done = suspend()
    assert done.returncode == 0, done
    eventually("zvaultd to know", lambda: journal().count("the host is awake again") > awake, seconds=200)
    return slept() > before


def told() -> str:
    """What the daemon wrote since it was started last."""
    return journal().rpartition(" is ready; backups: ")[2]


def patient_logind() -> None:
    """By itself it waits for 5 s, which on a busy machine are not enough to be sure that all is put down by then."""
    PATIENT_LOGIND.parent.mkdir(parents=True, exist_ok=True)
    PATIENT_LOGIND.write_text("[Login]\nInhibitDelayMaxSec=60\n")
    sh("systemctl", "restart", "systemd-logind")


def backup() -> dict[str, Any]:
    """How it stands, without the second that zvaultctl takes to start."""
    shown = answer(ask("GET", "/v1/status"))
    assert shown is not None
    return shown["backups"][0]


def unlocked() -> None:
    """logind hears a little later of a lock's end."""
    eventually("nothing to keep the host awake", lambda: locks("block") + locks("block-weak") == [])


def begin(mib: int = 64) -> str:
    """A run that is in the middle of its stream; the result is its id."""
    world.noise(Path("/tank/home/noise"), mib)
    assert answer(ask("POST", "/v1/run/tank"))
    found = eventually("bytes", lambda: (one := backup())["bytes_done"] > 8_000_000 and one)
    assert found["state"] == "running"
    return str(found["run"])


def whole() -> None:
    """Both sides are the same, file by file, and the vault's pool has no fault."""
    ok("vault", "up", "cold")
    newest = snapshots("tank/home")[-1]
    assert snapshots("cold/lab/tank/home")[-1] == newest
    assert world.snapshot_hashes(f"cold/lab/tank/home@{newest}") == world.snapshot_hashes(
        f"tank/home@{newest}"
    )
    sh("zpool", "scrub", "-w", "cold")
    assert re.search(r"scrub repaired 0B .* with 0 errors", sh("zpool", "status", "cold"))
    assert sh("zpool", "list", "-Ho", "health", "cold").strip() == "ONLINE"
    ok("vault", "down", "cold")
    world.nothing_left()


def test_while_it_is_written_the_host_stays_awake(tank):
    tank.backup_extra = 'limit = "2M"'  # it does not end before all of this was seen
    tank.start()
    (delay,) = eventually(
        "the lock that only puts it off", lambda: len(found := locks("delay")) == 1 and found
    )
    assert "shutdown:sleep" in delay
    began = time.time()
    begin(140)
    (lock,) = eventually("one lock", lambda: len(found := locks("block")) == 1 and found)
    assert " sleep " in lock, "neither a shutdown nor a screen that goes dark is refused"
    assert locks("block-weak") == []
    since = metrics()['zvault_inhibitor_since_timestamp_seconds{vault="cold"}']
    assert int(began) <= since <= time.time()
    assert ": sleep waits" in ctl("vault", "status", "cold").out
    refused = suspend()
    print(refused.stderr)
    assert refused.returncode != 0
    with two_days_later():
        (told,) = eventually("the warning", lambda: status()["daemon"]["warnings"])
        assert "vault cold has kept the host awake for 2d" in told
        assert ctl("status").code == 1
    tank.backup_extra = ""
    reload(tank)
    eventually("the run to end", lambda: backup()["state"] == "idle", seconds=240)
    unlocked()
    # Others may be there: of a device, say, that is slower now that more is written.
    eventually("the warning to go", lambda: "kept the host awake" not in str(status()["daemon"]["warnings"]))
    assert 'zvault_inhibitor_since_timestamp_seconds{vault="cold"}' not in metrics()
    whole()


@contextmanager
def two_days_later() -> Iterator[None]:
    sh("date", "-s", "+2 days")
    try:
        yield
    finally:
        sh("date", "-s", "-2 days")


def test_a_stream_is_put_down_and_goes_on_after_it(tank):
    patient_logind()
    tank.inhibit_sleep = "block-weak"
    tank.start()
    run = begin(96)
    assert sleep_through()
    (first,) = [one for one in ctl("history", "-j").json()["runs"] if one["id"] == run]
    assert first["result"] == "interrupted"
    assert first["error"]["why"] == "the host goes to sleep"
    last = eventually(
        "the run that goes on to end",
        lambda: next(
            (one for one in ctl("history", "-j").json()["runs"] if one["id"] != run and one["ended"]), None
        ),
        seconds=240,
    )
    assert last["result"] == "ok", last
    assert last["trigger"] == "catch-up"
    # What had arrived before was not sent again.
    print(first["bytes"], last["bytes"])
    kinds = [one["kind"] for one in world.events(last["id"]) if one["event"] == "transfer-started"]
    assert "resume" in kinds
    assert last["bytes"] < 94 << 20
    whole()


def test_a_shutdown_stops_the_run_and_exports_its_vault_and_what_is_called_off_goes_on(tank):
    patient_logind()
    tank.start()
    run = begin(96)
    with harmless_reboot():
        # By root, with Debian's own rules of polkit: nothing refuses it.
        sh("systemctl", "reboot")
        eventually("the end of it", lambda: "the host does not go down after all" in told(), seconds=200)
    said = told()
    steps = [
        "the host is going down; 1 runs to stop",
        ": exported pool cold",
        "ready for the shutdown after",
    ]
    places = [said.index(step) for step in [*steps, "the host does not go down after all"]]
    assert places == sorted(places), "logind went on before all was put down"
    (first,) = [one for one in ctl("history", "-j").json()["runs"] if one["id"] == run]
    assert (first["result"], first["error"]["why"]) == ("interrupted", "the host is going down")
    last = eventually(
        "the run that goes on to end",
        lambda: next(
            (one for one in ctl("history", "-j").json()["runs"] if one["id"] != run and one["ended"]), None
        ),
        seconds=240,
    )
    assert (last["result"], last["trigger"]) == ("ok", "catch-up")
    kinds = [one["kind"] for one in world.events(last["id"]) if one["event"] == "transfer-started"]
    assert "resume" in kinds
    whole()


def test_a_sleep_that_nobody_announced(tank):
    # The freezer interrupts 'zfs receive', and its ioctl begins anew: "destination exists". Trying again resumes.
    tank.retries = 3
    tank.backup_extra += '\nretry_wait = "1s"'
    tank.start()
    run = begin()
    # The freezer may find a request pending, and give up: then the host stays awake.
    print(subprocess.run(["rtcwake", "-m", "mem", "-s", str(ASLEEP)], capture_output=True, text=True))
    ended = eventually(
        "the run to end",
        lambda: next((one for one in ctl("history", "-j").json()["runs"] if one["ended"]), None),
        seconds=240,
    )
    assert (ended["id"], ended["result"]) == (run, "ok")
    whole()


def test_no_export_begins_once_a_sleep_is_announced(tank):
    tank.delay = "filter=rate rate=32M"
    tank.inhibit_sleep = "block-weak"
    tank.start()
    ok("vault", "up", "cold")
    unlocked()
    world.noise(Path("/tank/home/noise"), 100)
    sh("zfs", "create", "-o", "mountpoint=/cold/scratch", "cold/scratch")
    sh("cp", "/tank/home/noise", "/cold/scratch/noise")
    ended: list[world.Done] = []
    down = threading.Thread(target=lambda: ended.append(ctl("vault", "down", "cold")))
    down.start()
    eventually("the teardown", lambda: "takes down vault cold" in "".join(locks("block-weak")))
    print("slept:", sleep_through())
    down.join(timeout=240)
    assert ended[0].code == 0, ended
    said = told()
    announced, awake = said.index("the host goes to sleep"), said.index("the host is awake again")
    # What it has to write takes 25 s. The export that comes then is not begun any more.
    assert announced < awake < said.index("cold: exported pool cold")
    world.nothing_left()
    ok("vault", "up", "cold")
    sh("zfs", "mount", "cold/scratch")
    assert sh("cmp", "/tank/home/noise", "/cold/scratch/noise") == ""
    sh("zpool", "scrub", "-w", "cold")
    assert "with 0 errors" in sh("zpool", "status", "cold")
    ok("vault", "down", "cold")


def test_a_scrub_goes_on_after_it_and_what_was_missed_is_made_up_for(tank):
    patient_logind()
    tank.start()
    begin()
    eventually("the run to end", lambda: backup()["state"] == "idle", seconds=240)
    ok("vault", "up", "cold")
    unlocked()
    SUSPEND.write_text("1")
    sh("zpool", "scrub", "cold")
    assert "scrub in progress" in sh("zpool", "status", "cold")
    # Due again while the host sleeps: it counts from when the run began or what it made, whatever came last.
    last = max(backup()["last_run"], world.named_at(snapshots("tank/home")[-1]))
    usual = tank.backup_extra
    tank.backup_extra += f'\nevery = "{time.time() - last + DUE:.0f}s"'
    reload(tank)
    asleep = time.time()
    assert sleep_through()
    made_up = eventually("the run that was missed", by_itself, seconds=240)
    assert made_up["result"] == "ok"
    # The clock may tell of its time before zvaultd has found out that it has passed.
    assert made_up["trigger"] in {"catch-up", "schedule"}
    assert made_up["started"] > asleep + ASLEEP - 2, "it began when the host was awake again"
    tank.backup_extra = usual
    reload(tank)
    # It gives way to a backup, and goes on after it.
    assert re.search("scrub (in progress|paused)", sh("zpool", "status", "cold"))
    SUSPEND.write_text("0")
    eventually(
        "the end of the scrub", lambda: "scrub repaired 0B" in sh("zpool", "status", "cold"), seconds=240
    )
    eventually("the vault to be up", lambda: status()["vaults"][0]["state"] == "up")
    # The sleep interrupts whoever reads them, and he goes on.
    assert "OpenZFS's events cannot be followed" not in told()
    # zvault took care of a scrub that had not ended, and looks now and then whether it has.
    eventually("the scrub releases the vault", lambda: ctl("vault", "down", "cold").code == 0)
    whole()


def reload(tank: Small) -> None:
    tank.configure()
    sh("systemctl", "reload", "zvaultd")


def by_itself() -> dict[str, Any] | None:
    """The first run that nobody asked for, when it has ended."""
    runs: list[dict[str, Any]] = ctl("history", "-j").json()["runs"]
    first = next((one for one in reversed(runs) if one["trigger"] != "hand"), None)
    return first if first is not None and first["ended"] else None


def test_what_is_to_be_exported_is_and_comes_back(tank):
    patient_logind()
    tank.vault_extra += '\non_sleep = "export"'
    tank.start()
    ok("vault", "up", "cold")
    sh("zfs", "create", "-o", "mountpoint=/cold/scratch", "cold/scratch")
    Path("/cold/scratch/late").write_text("written just before")
    assert sleep_through()
    said = told()
    exported = said.index("cold: exported pool cold")
    assert exported < said.index("ready to sleep") < said.index("the host is awake")
    eventually("the vault to be up", lambda: status()["vaults"][0]["state"] == "up")
    sh("zfs", "mount", "cold/scratch")
    assert Path("/cold/scratch/late").read_text() == "written just before"
    assert status()["vaults"][0]["error"] is None
    ok("vault", "down", "cold")
    world.nothing_left()
