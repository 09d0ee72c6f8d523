"""A scrub under way when the power goes, and the same one after the next boot. For test_scrub_power.py."""

from __future__ import annotations

import sys
from pathlib import Path

from world import CONFIG, METRICS, ctl, eventually, journal, noise, ok, sh, status

SUSPEND = Path("/sys/module/zfs/parameters/zfs_scan_suspend_progress")
DISK = "/dev/ubda"


def scrub() -> dict[str, object]:
    return status()["vaults"][0]["scrub"] or {}


def start() -> None:
    CONFIG.parent.mkdir(exist_ok=True)
    CONFIG.write_text(f'[daemon]\nmetrics = "{METRICS}"\n[vault.cold]\npool = "cold"\nup = "always"\n')
    sh("systemctl", "start", "zvaultd")


def cut() -> None:
    sh("zpool", "create", "-O", "mountpoint=/cold", "cold", DISK)
    noise(Path("/cold/noise"), 64)
    SUSPEND.write_text("1")
    start()
    assert ctl("scrub", "cold", "--no-wait").code == 0
    eventually("it goes", lambda: scrub().get("state") == "scanning")
    sh("zpool", "sync", "cold")
    Path("/proc/sysrq-trigger").write_text("c")


def after() -> None:
    sh("modprobe", "zfs")
    SUSPEND.write_text("1")  # or it would have ended before anybody looks
    sh("zpool", "import", "-f", "-d", DISK, "cold")
    start()
    eventually("it is taken up", lambda: "scrub of cold goes on" in journal())
    SUSPEND.write_text("0")
    eventually("it ends", lambda: scrub().get("state") == "finished")
    eventually("it was told", lambda: "errors: 0" in journal())
    assert scrub()["errors"] == 0
    ok("status")
    print("it went on and ended")


{"cut": cut, "after": after}[sys.argv[1]]()
