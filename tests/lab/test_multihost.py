"""A vault's pool with ``multihost=on`` whose storage stands still: it is suspended for good, and nothing waits for it.

The guest cannot get rid of the pool either, so this module has one test.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import world
from vault_faults_world import UNIT, begin, status, tank_for_test  # noqa: F401
from world import ctl, eventually, ok, sh

LAB = {"mem": "3G", "timeout": 900}

STALL = 20.0
"""Seconds for which the server answers nothing. OpenZFS suspends the pool after ten."""

WATCHED = 45.0
"""Seconds to watch what zvault does about it: it tries after 5, 10 and 20."""

STATE = Path("/proc/spl/kstat/zfs/cold/state")


def zpool_commands() -> list[str]:
    """The zpool commands that run, by their words."""
    return [" ".join(found) for found in re.findall(r"(zpool)\0(\w+)\0([^\0]*)", world.command_lines())]


def findings() -> dict[str, dict[str, str]]:
    """What is wrong with the vault, by its condition."""
    (vault,) = status()["vaults"]
    return {one["condition"]: one for one in vault["verdict"]["findings"]}


def test_a_pool_that_multihost_suspended_is_never_cleared(tank):
    tank.long_stream()
    tank.start()
    ok("vault", "up", "cold")
    sh("zpool", "set", "multihost=on", "cold")
    eventually("the warning", lambda: "risky-properties" in findings())
    assert "multihost=on" in findings()["risky-properties"]["why"]

    begin()
    sh("systemctl", "kill", "-s", "STOP", UNIT)
    time.sleep(STALL)
    assert STATE.read_text().strip() == "SUSPENDED"
    sh("systemctl", "kill", "-s", "CONT", UNIT)

    seen, end = set(), time.monotonic() + WATCHED
    while time.monotonic() < end:
        seen.update(one.split()[1] for one in zpool_commands())
        began = time.monotonic()
        sh("zpool", "list", "-H", "tank", timeout=20)
        sh("zfs", "list", "-Ho", "name", "tank/home", timeout=20)
        assert time.monotonic() - began < 15, "other pools answer"
        time.sleep(0.2)
    assert "clear" not in seen
    assert "export" not in seen

    told = findings()["pool-unwell"]
    assert "multihost=on" in told["why"]
    assert told["next"].startswith("reboot this host")
    for argv in (("vault", "up", "cold"), ("vault", "down", "cold"), ("run", "tank")):
        refused = ctl(*argv)
        print(argv, refused.out, refused.err)
        assert refused.code == 1
        assert "reboot this host" in refused.out + refused.err
    assert not [one for one in zpool_commands() if "clear" in one]
    sh("zfs", "snapshot", "tank@goes-on", timeout=20)
