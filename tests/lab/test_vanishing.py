"""Storage that vanishes below a vault: whatever is under way, for seconds or minutes, and comes back.

Each fault meets a receive, a scrub or a teardown. Meanwhile the daemon answers at once and tells what is wrong; when
the storage is back everything goes on by itself, and nothing that was acknowledged is lost.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
import world
from test_rbd import mappings
from vanishing_storage import (
    PROMPT,
    Stage,
    cluster_with_s3,  # noqa: F401 - asked for by name
    rbd,
    receive,
    scrub,
    stage_of_module,  # noqa: F401
    teardown,
    vault_on,
)
from watcher import Watcher
from world import DISK, eventually, main_pid, ok, sh

from zvault.daemon.monitors.vault_monitor import VAULT_INTERVAL

LAB = {"mem": "4G", "timeout": 3600}
ALL = bool(os.environ.get("ZVAULT_ALL"))
SECONDS, MINUTES = 2.0, 150.0
"""That the storage stays away after all who look have been told."""
FAULTS = {
    "nbd": ("killed", "cut", "requests cut", "answers cut", "read-only"),
    "rbd": ("osd stopped", "osd cut", "paused"),
    "s3": ("unavailable", "slow and full", "silent"),
}
OPERATIONS = {"receive": receive, "scrub": scrub, "teardown": teardown}
CASES = [
    ("nbd", "killed", "receive", SECONDS),
    ("nbd", "cut", "teardown", SECONDS),
    ("nbd", "read-only", "scrub", SECONDS),
    ("rbd", "osd stopped", "receive", SECONDS),
    ("rbd", "osd cut", "teardown", SECONDS),
    ("s3", "unavailable", "receive", SECONDS),
]
"""What always runs. With ZVAULT_ALL it is every fault in every operation, and some for minutes."""


if ALL:
    CASES = [
        (name, fault, verb, SECONDS)
        for name, faults in FAULTS.items()
        for fault in faults
        for verb in OPERATIONS
    ]
    CASES += [
        ("nbd", "killed", "receive", MINUTES),
        ("rbd", "osd stopped", "teardown", MINUTES),
    ]


def exported() -> bool:
    """It is busy for as long as anybody asks it for anything, and the daemon does so now and then."""
    return subprocess.run(["zpool", "export", "cold"]).returncode == 0


def imported() -> bool:
    return "cold" in sh("zpool", "list", "-Ho", "name").split()


def said() -> int:
    """How often it was told; the verdict on the vault tells it once more."""
    lines = world.journal().splitlines()
    return sum("somebody exported it" in line and "is half up" not in line for line in lines)


def state(wanted: str, why: str = "") -> bool:
    vault = world.status()["vaults"][0]
    return vault["state"] == wanted and why in (vault["error"] or {}).get("why", "")


def test_what_somebody_wants_so_is_not_repaired(stage: Stage):
    """A vault is to be up, and somebody exports its pool while its storage is well."""
    vault = stage.vault("nbd")
    stage.spoilt = True
    vault.vault_extra = 'create = true\nup = "always"'
    vault.configure()
    sh("systemctl", "restart", "zvaultd")
    eventually("it to be up", lambda: state("up"))
    before = said()
    eventually("nobody to look at the pool", exported)
    eventually("it to be told", lambda: state("partial", "somebody exported it"))
    eventually("the journal", lambda: said() > before)
    assert said() == before + 1
    assert not imported()
    ok("vault", "up", "cold")
    assert imported()
    ok("vault", "down", "cold")
    time.sleep(3 * VAULT_INTERVAL)
    assert not imported(), "what was taken down came up by itself"


@pytest.mark.parametrize(("storage", "fault", "operation", "outage"), CASES)
def test_storage_that_vanishes(stage: Stage, storage: str, fault: str, operation: str, outage: float):
    vault = stage.vault(storage)
    it = vault.storage
    stage.spoilt = True
    if operation == "receive":
        # Else the stream could be over before the storage is away: so it lasts for some twenty seconds.
        vault.backup_extra = f'retry_wait = "1s"\nlimit = "{48 * it.noise}K"'
        vault.configure()
        sh("systemctl", "reload", "zvaultd")
    if operation != "receive" and not world.snapshots("tank/home"):
        ok("run", "tank")
    pid = main_pid()
    with Watcher() as watcher:
        eventually("a first look", lambda: watcher.vault and watcher.samples)
        OPERATIONS[operation](it, it.faults[fault], outage, watcher)
    print("the slowest answers:", watcher.worst)
    assert not watcher.failed
    assert max(watcher.worst.values()) < PROMPT, watcher.worst
    assert main_pid() == pid, "the daemon did not survive it"
    unharmed()
    stage.spoilt = False


def unharmed() -> None:
    """Everything is there, byte by byte, and the pool has no fault."""
    ok("vault", "up", "cold")
    snapname = world.snapshots("tank/home")[-1]
    assert world.snapshots("cold/lab/tank/home")[-1] == snapname
    here = world.snapshot_hashes(f"tank/home@{snapname}")
    assert here
    assert world.snapshot_hashes(f"cold/lab/tank/home@{snapname}") == here
    sh("zpool", "scrub", "-w", "cold")
    assert "errors: No known data errors" in sh("zpool", "status", "cold")
    ok("vault", "down", "cold")


def test_a_cache_is_written_back_before_the_image_below_goes(stage: Stage):
    """bcache on krbd, dirty while the OSD is away: it goes down when it is clean, and not before."""
    stage.clear()
    DISK.mkdir(exist_ok=True)
    sh("truncate", "-s", "2G", "/run/cache")
    cache = sh("losetup", "--find", "--show", "/run/cache").strip()
    table = f'\ncache = {{ bcache = "{cache}", mode = "writeback", sequential_cutoff = "1G" }}'
    state = Path("/sys/block/rbd0/bcache/state")
    with vault_on(rbd(stage.cluster(), table, timeout=200)) as vault, Watcher() as watcher:
        ok("vault", "up", "cold")
        assert "/dev/bcache0" in sh("zpool", "list", "-vHPL", "cold")
        with vault.storage.faults["osd stopped"]():
            world.noise(Path("/tank/home/noise"), 4)
            time.sleep(1.1)
            ok("run", "tank")
            assert state.read_text() == "dirty\n"
            down = subprocess.Popen(["zvaultctl", "vault", "down", "cold"])
            eventually("it to be told", lambda: "still to be written back" in world.journal("VAULT=cold"))
            assert state.read_text() == "dirty\n"
            assert down.poll() is None
        assert down.wait(200) == 0
        assert not Path("/sys/block/bcache0").exists()
        assert mappings() == []
        unharmed()
    assert not watcher.failed
    assert max(watcher.worst.values()) < PROMPT, watcher.worst
    sh("losetup", "--detach", cache)
