"""Module parameters of a real OpenZFS: set while a vault is up, put back afterwards, whatever happened in between."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import world
from world import DISK, World, ctl, eventually, journal, metrics, nothing_left, ok, sh, status

LAB = {"mem": "3G", "timeout": 2500, "in_order": True}

PARAMETERS = Path("/sys/module/zfs/parameters")
PROFILES = Path("/etc/zvault/profiles")
LEASES = Path("/run/zvault/lease/tuning")

FLASH, DISKS = "zfs_vdev_aggregation_limit_non_rotating", "zfs_vdev_aggregation_limit"
DEPTH, THROTTLE = "zfs_vdev_async_write_max_active", "zio_dva_throttle_enabled"
LOADED = "zfs_dirty_data_max_max"
BASE = '[pool]\nfailmode = "continue"\n[dataset]\nmountpoint = "none"\n[module]\n'
COLD = {FLASH: "4194304", DEPTH: "4", THROTTLE: "0"}


def now(*names: str) -> dict[str, str]:
    return {name: (PARAMETERS / name).read_text().strip() for name in names}


def put(name: str, value: str) -> None:
    (PARAMETERS / name).write_text(value)


def profile(name: str, module: str) -> None:
    PROFILES.mkdir(parents=True, exist_ok=True)
    (PROFILES / f"{name}.toml").write_text(BASE + module)


BEFORE = now(FLASH, DISKS, DEPTH, THROTTLE, LOADED, "zfs_txg_timeout", "zfs_dirty_data_max")


@pytest.fixture
def it() -> Iterator[World]:
    """A vault whose profile wants three parameters, and a pool of somebody else's."""
    found = World(size="256M", delay="", vault_extra='create = true\nprofile = "cold"')
    found.clean()
    DISK.mkdir(exist_ok=True)
    sh("truncate", "-s", "256M", str(DISK / "tank.img"))
    sh("zpool", "create", "-O", "mountpoint=/tank", "tank", str(DISK / "tank.img"))
    world.noise(Path("/tank/noise"), 8)
    profile("cold", f'{FLASH} = "4M"\n{DEPTH} = 4\n{THROTTLE} = false\n')
    yield found
    found.clean()
    for name, value in BEFORE.items():
        if now(name)[name] != value:
            put(name, value)


def second(profile: str = "warm") -> str:
    """Another vault's table."""
    return (
        f'[vault.warm]\npool = "warm"\nprofile = "{profile}"\ncreate = true\n'
        f'[[vault.warm.device]]\nnbd = "nbdkit:file {DISK}/warm.img"\nsize = "256M"\n'
    )


def device_of(pool: str) -> str:
    """The kernel's name of the one that a pool lies on: the lowest that was free, and nobody looked at just then."""
    return re.findall(r"/dev/(nbd\d+)", sh("zpool", "list", "-vHPL", pool))[0]


def kill() -> None:
    killed = world.main_pid()
    sh("systemctl", "kill", "-s", "KILL", "zvaultd")
    eventually("it is dead", lambda: world.main_pid() != killed)


def words() -> str:
    return journal("_SYSTEMD_UNIT=zvaultd.service", f"_PID={world.main_pid()}")


def rows(*argv: str) -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in json.loads(ctl("tune", "show", "-j", *argv).out)["parameters"]}


def test_set_while_the_vault_is_up_and_put_back_when_it_goes_down(it: World):
    it.start()
    assert metrics()['zvault_tuning_leases{vault="cold"}'] == 0
    assert rows()[FLASH]["state"] == "when up"
    ok("vault", "up", "cold")
    assert now(*COLD) == COLD
    assert metrics()['zvault_tuning_leases{vault="cold"}'] == 3
    assert rows()[FLASH] | {"why": "", "what": ""} == {
        "name": FLASH,
        "what": "",
        "unit": "size",
        "default": "131072",
        "before": BEFORE[FLASH],
        "now": "4194304",
        "value": "4194304",
        "wanted": {"cold": "4194304"},
        "state": "set",
        "why": "",
        "next": "",
    }
    assert f"{DEPTH} {BEFORE[DEPTH]} to 4" in words()
    assert "apply to every pool of this host, also to tank" in words()
    assert status()["daemon"]["warnings"] == []
    ok("vault", "down", "cold")
    assert now(*BEFORE) == BEFORE
    assert metrics()['zvault_tuning_leases{vault="cold"}'] == 0
    nothing_left()


def test_a_run_takes_them_for_as_long_as_it_uses_the_vault(it: World):
    it.backup_extra = 'limit = "512K"'
    it.start()
    ok("run", "tank", "--no-wait", "-q")
    eventually("the vault is tuned for the run", lambda: now(DEPTH) == {DEPTH: "4"})
    eventually("the run is over", lambda: status()["backups"][0]["state"] == "idle")
    eventually("all is as before", lambda: now(*BEFORE) == BEFORE)
    nothing_left()


def test_a_daemon_that_was_killed_puts_back_what_was_there_before_itself(it: World):
    it.start()
    ok("vault", "up", "cold")
    for _ in range(2):
        kill()
        sh("systemctl", "start", "zvaultd")
        assert now(*COLD) == COLD
    assert rows()[DEPTH]["before"] == BEFORE[DEPTH]
    ok("vault", "down", "cold")
    assert now(*BEFORE) == BEFORE
    nothing_left()


def test_killed_and_the_pool_exported_by_hand_meanwhile(it: World):
    it.start()
    ok("vault", "up", "cold")
    sh("systemctl", "mask", "--runtime", "zvaultd")
    try:
        kill()
        # It is busy until whoever zvaultd had ask it for anything has ended, too.
        eventually(
            "nobody to look at the pool", lambda: subprocess.run(["zpool", "export", "cold"]).returncode == 0
        )
        lease = Path("/run/zvault/lease/vault/cold")
        note = json.loads(lease.read_text())
        note["data"]["pinned"] = False  # as it is when a run had it up
        lease.write_text(json.dumps(note))
        assert now(*COLD) == COLD
    finally:
        sh("systemctl", "unmask", "--runtime", "zvaultd")
        sh("systemctl", "reset-failed", "zvaultd", check=False)
    sh("systemctl", "start", "zvaultd")
    assert now(*BEFORE) == BEFORE
    nothing_left()


def test_a_vault_that_left_the_configuration_while_zvaultd_was_dead(it: World):
    """Nobody else could put its parameters back."""
    it.extra = second()
    profile("warm", "zfs_txg_timeout = 30\n")
    it.start()
    ok("vault", "up", "warm")
    assert now("zfs_txg_timeout") == {"zfs_txg_timeout": "30"}
    device = device_of("warm")
    sh("systemctl", "stop", "zvaultd")
    assert now("zfs_txg_timeout") == {"zfs_txg_timeout": "30"}, "a daemon that stops leaves a vault up"
    Path("/run/zvault/lease/vault/warm").unlink()
    it.extra = ""
    it.start()
    assert now(*BEFORE) == BEFORE
    assert not LEASES.exists()
    sh("zpool", "export", "warm")
    sh("nbd-client", "-d", f"/dev/{device}")


def test_notes_of_another_boot_are_dropped_and_nothing_is_put_back(it: World):
    LEASES.joinpath("vault").mkdir(parents=True)
    wanted = {"module": {DEPTH: "4"}, "rotational": []}
    held = {"held": {DEPTH: {"before": "3", "ours": [BEFORE[DEPTH]]}}, "troubles": {DEPTH: "old"}}
    for name, data in (("vault/cold", wanted), ("host", held)):
        (LEASES / name).write_text(json.dumps({"boot_id": "another", "time": 0, "data": data}))
    it.start()
    assert now(*BEFORE) == BEFORE
    assert not LEASES.exists()
    assert status()["daemon"]["warnings"] == []


def test_two_vaults_that_want_different_values(it: World):
    it.extra = second()
    profile("warm", f'{FLASH} = "1M"\n{DEPTH} = 16\nzfs_txg_timeout = 30\n')
    it.start()
    ok("vault", "up", "cold")
    ok("vault", "up", "warm")
    both = {FLASH: "4194304", DEPTH: "4", THROTTLE: "0", "zfs_txg_timeout": "30"}
    assert now(*both) == both
    assert "cold wants 4, warm wants 16; the smaller one" in rows()[DEPTH]["why"]
    ok("vault", "down", "cold")
    alone = {FLASH: "1048576", DEPTH: "16", THROTTLE: "1", "zfs_txg_timeout": "30"}
    assert now(*alone) == alone
    ok("vault", "up", "cold")
    assert now(*both) == both
    ok("vault", "down", "warm")
    assert now(*COLD) == COLD
    ok("vault", "down", "cold")
    assert now(*BEFORE) == BEFORE
    nothing_left()


READS, SCRUBS = "zfs_vdev_async_read_max_active", "zfs_vdev_scrub_max_active"
SUSPEND = Path("/sys/module/zfs/parameters/zfs_scan_suspend_progress")
"""A scrub that has begun reads nothing while this is 1."""


def test_parameters_for_reading_are_set_while_the_vault_is_read(it: World):
    """By a scrub here, which is killed with its daemon once; a run reads other pools, and has them as they were."""
    was, wanted = now(READS, SCRUBS), {READS: "16", SCRUBS: "16"}
    profile("cold", f"{DEPTH} = 4\n[reading]\n{READS} = 16\n{SCRUBS} = 16\n")
    it.backup_extra = 'limit = "512K"'
    it.start()
    ok("run", "tank", "--no-wait", "-q")
    eventually("the vault is tuned for the run", lambda: now(DEPTH) == {DEPTH: "4"})
    assert now(READS, SCRUBS) == was
    assert rows()[READS]["state"] == "when read"
    eventually("the run is over", lambda: status()["backups"][0]["state"] == "idle")
    SUSPEND.write_text("1")
    try:
        with subprocess.Popen(["zvaultctl", "scrub", "cold"]) as scrub:
            eventually("it is read", lambda: now(READS, SCRUBS) == wanted)
            assert (rows()[READS]["state"], rows()[READS]["before"]) == ("set", was[READS])
            kill()
            scrub.wait(timeout=60)
        # Whoever read it is gone; zvaultd goes on with the scrub by itself, and reads again.
        eventually("the scrub goes on", lambda: now(READS, SCRUBS) == wanted)
        assert rows()[READS]["before"] == was[READS]
    finally:
        SUSPEND.write_text("0")
    eventually("all is as before", lambda: {**now(*BEFORE), **now(READS, SCRUBS)} == {**BEFORE, **was})
    eventually("the vault is down", lambda: not LEASES.exists())
    nothing_left()


def test_what_counts_only_when_openzfs_is_loaded(it: World):
    profile("cold", f'{LOADED} = "2G"\n{DEPTH} = 4\n')
    it.start()
    assert status()["daemon"]["warnings"] == []
    ok("vault", "up", "cold")
    assert now(LOADED, DEPTH) == {LOADED: BEFORE[LOADED], DEPTH: "4"}
    (warning,) = status()["daemon"]["warnings"]
    assert f"{LOADED} is not set: OpenZFS reads it only when it is loaded" in warning
    shown = ctl("tune", "show", "cold")
    assert shown.code == 1
    assert "see 'zvaultctl tune modprobe'" in shown.out
    file = ok("tune", "modprobe").out
    assert file.splitlines()[-1] == f"options zfs {LOADED}={2 << 30}"
    folder = DISK / "modprobe.d"
    folder.mkdir()
    (folder / "zvault.conf").write_text(file)
    assert f"options zfs {LOADED}={2 << 30}" in sh("modprobe", "-C", str(folder), "--showconfig")
    ok("vault", "down", "cold")
    assert status()["daemon"]["warnings"] == []
    nothing_left()


def test_what_somebody_else_changes_is_left_to_them(it: World):
    it.start()
    ok("vault", "up", "cold")
    put(DEPTH, "7")
    row = rows()[DEPTH]
    assert (row["state"], row["now"], row["value"]) == ("changed", "7", "4")
    assert ctl("tune", "show").code == 1
    sh("systemctl", "restart", "zvaultd")
    assert now(DEPTH) == {DEPTH: "7"}, "also when the vault is adopted"
    (warning,) = status()["daemon"]["warnings"]
    assert f"{DEPTH} is 7: somebody else set it after zvault had set 4" in warning
    ok("vault", "down", "cold")
    assert now(FLASH, DEPTH) == {FLASH: BEFORE[FLASH], DEPTH: "7"}
    assert f"{DEPTH} stays at 7" in words()
    assert status()["daemon"]["warnings"] == []
    nothing_left()
    put(DEPTH, BEFORE[DEPTH])


def test_what_the_kernel_refuses_is_told_and_the_rest_is_set(it: World):
    profile("cold", f'zfs_txg_timeout = "soon"\n{DEPTH} = 4\n')
    it.start()
    ok("vault", "up", "cold")
    assert now("zfs_txg_timeout", DEPTH) == {"zfs_txg_timeout": BEFORE["zfs_txg_timeout"], DEPTH: "4"}
    (warning,) = status()["daemon"]["warnings"]
    assert "zfs_txg_timeout is 5 and not soon: the kernel refused it" in warning
    assert rows()["zfs_txg_timeout"]["state"] == "not set"
    ok("vault", "down", "cold")


def test_dirty_data_stays_within_memory_and_unknown_names_are_told(it: World):
    profile("cold", 'zfs_dirty_data_max = "64G"\nzfs_recv_defer_batch_size = "32M"\nzfs_txg_timeuot = 5\n')
    it.start()
    ok("vault", "up", "cold")
    assert now("zfs_dirty_data_max") == {"zfs_dirty_data_max": BEFORE[LOADED]}
    found = rows()
    assert "the most that this host's memory allows" in found["zfs_dirty_data_max"]["why"]
    assert "2.5 added it" in found["zfs_recv_defer_batch_size"]["why"]
    assert "is zfs_txg_timeout meant?" in found["zfs_txg_timeuot"]["why"]
    assert ctl("tune", "show").code == 0, "what this OpenZFS lacks is no trouble"
    assert status()["daemon"]["warnings"] == []
    ok("vault", "down", "cold")


def test_a_device_that_says_it_rotates_has_the_other_limit(it: World):
    it.delay = "filter=rotational"
    it.start()
    ok("vault", "up", "cold")
    rotational = Path(f"/sys/block/{device_of('cold')}/queue/rotational")
    assert rotational.read_text().strip() == "1"
    assert now(FLASH, DISKS) == {FLASH: BEFORE[FLASH], DISKS: "4194304"}
    found = rows()
    assert "its device is rotational" in found[DISKS]["why"]
    assert found[FLASH]["state"] == "unused"
    ok("vault", "down", "cold")
    # Linux 7.2 never takes it back, also for a server that does not say so.
    rotational.write_text("0")


def test_properties_of_the_pools_devices(it: World):
    profile("cold", '[vdev]\nfailfast = "off"\nscheduler = "on"\nnosuch = 1\n')
    it.start()
    ok("vault", "up", "cold")
    device = device_of("cold")
    assert sh("zpool", "get", "-Ho", "value", "failfast", "cold", device).strip() == "off"
    assert f"failfast of {device} set to off" in words()
    assert "this OpenZFS has no vdev property nosuch" in words()
    assert "scheduler" not in words(), "it always has one"
    assert not LEASES.exists()
    ok("vault", "down", "cold")
    nothing_left()


def test_how_it_is_shown(it: World):
    it.start()
    ok("vault", "up", "cold")
    page = ok("tune", "show", "cold")
    print(page.out)
    assert "cold: profile cold, tuned" in page.out
    assert f"{FLASH}  128K" in page.out
    table = ok("tune", "show", "-H", "-o", "parameter,default,now,wanted,state").out.splitlines()
    assert f"{FLASH}\t128K\t4M\t4M\tset" in table
    assert f"{DEPTH}\t10\t4\t4\tset" in table
    assert f"{FLASH}\t131072\t4194304" in ok("tune", "show", "-Hp", "-o", "parameter,default,now").out
    assert ctl("tune", "show", "nope").code == 2
    sh("systemctl", "stop", "zvaultd")
    assert ok("tune", "show", "cold").out == page.out, "also without a daemon"
    sh("systemctl", "start", "zvaultd")
    ok("vault", "down", "cold")
    empty = ok("tune", "modprobe")
    assert (empty.out, empty.err) != ("", "")
