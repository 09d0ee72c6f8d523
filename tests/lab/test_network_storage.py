"""What storage over a network, and people who look after it, do to a vault's pool.

Public reports of pools on NBD, RBD and iSCSI, each as small as it gets; what zvault says is part of each.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import world
from vault_faults_world import status, tank_for_test  # noqa: F401
from world import DISK, ctl, eventually, ok, sh

LAB = {"mem": "3G", "timeout": 900}


def findings() -> dict[str, dict[str, str]]:
    """What is wrong with the vault, by its condition."""
    (vault,) = status()["vaults"]
    return {one["condition"]: one for one in vault["verdict"]["findings"]}


def test_a_local_disk_added_to_the_pool_is_told_and_named_when_it_is_gone(tank):
    tank.start()
    ok("run", "tank")
    ok("vault", "up", "cold")
    local = DISK / "local.img"
    sh("truncate", "-s", "300M", str(local))
    sh("zpool", "add", "-f", "cold", str(local))
    eventually("it to be told", lambda: "foreign-device" in findings())
    assert str(local) in findings()["foreign-device"]["why"]
    done = ctl("run", "tank")
    assert str(local) in done.out + done.err, "a run says so"
    sh("zfs", "create", "cold/spread")
    assert ctl("status").code == 1

    ok("vault", "down", "cold")
    assert "foreign-device" in findings(), "also while the vault is down"
    ok("vault", "up", "cold")
    ok("vault", "down", "cold")
    # The host is lost, and its disk with it.
    away = DISK / "away.img"
    local.rename(away)
    refused = ctl("vault", "up", "cold")
    print(refused.out, refused.err)
    assert refused.code == 1
    said = refused.out + refused.err
    assert "devices of it are missing" in said
    assert str(local) in said
    world.nothing_left()

    away.rename(local)
    ok("vault", "up", "cold")
    sh("zpool", "remove", "-w", "cold", str(local))
    eventually("it to be well again", lambda: "foreign-device" not in findings())
    ok("run", "tank")
    ok("vault", "down", "cold")
    ok("vault", "up", "cold")
    ok("vault", "down", "cold")
    world.nothing_left()


def test_who_has_the_device_open_is_named_and_runs_go_on(tank):
    tank.start()
    ok("run", "tank")
    ok("vault", "up", "cold")
    reader = subprocess.Popen(["bash", "-c", "exec 3</dev/nbd0; exec sleep 9999"])
    try:
        eventually("it to be open", lambda: Path(f"/proc/{reader.pid}/fd/3").exists())
        ok("vault", "down", "cold")
        said = world.journal("VAULT=cold")
        assert f"it is open: sleep (process {reader.pid}, user root)" in said
        assert "no reboot is needed" in said
        assert status()["vaults"][0]["state"] == "down"
        ok("run", "tank")
        ok("vault", "up", "cold")
        assert "/dev/nbd1" in sh("zpool", "list", "-vHPL", "cold"), "another number"
        ok("vault", "down", "cold")
        assert ctl("status").code == 0, "nothing is wrong with the vault"
    finally:
        reader.kill()
        reader.wait()
    eventually("the kernel to give the number up", lambda: not world.connected(0))
    ok("run", "tank")
    world.nothing_left()
