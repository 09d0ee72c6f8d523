"""A storage that misbehaves in every way, by scripts drawn by chance, while zvault runs, restores, scrubs and exports.

When the storage is sound again zvault is well by itself within bounded time, or says what a person has to do, and that
makes it well; nothing that was acknowledged is lost; the host's other pools answer all the time; no child stays in D.

``ZVAULT_FAULT_SEEDS=20`` tries the first twenty seeds, and ``ZVAULT_FAULT_FIRST=100`` others.
``ZVAULT_FAULT_SCRIPT="run: 0.5 stall write for 4"`` tries one script, or several with ``|`` between them, and with
``ZVAULT_FAULT_SMALLER=20`` up to so many smaller ones if it fails. ``ZVAULT_FAULT_STORAGE=nbd`` or ``rbd`` tries that
storage alone.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_script import (
    NAMES,
    Script,
    draw_script,
    format_script,
    judge_outcome,
    minimize_script,
    parse_script,
)
from fault_world import (
    WELL_WITHIN,
    Scripted,
    describe_trouble,
    find_stuck_for_good,
    nbd_vault,
    rbd_vault,
)
from faulty_rbd import RBD_FAULTS
from world import eventually, ok, sh, snapshots

LAB = {"mem": "3G", "timeout": 3600}

SCRIPTS = (
    "run: 0.5 stall write,flush for 5",
    "scrub: 0.2 vanish for 3",
    "export: 0 error write for 2; 0 slow read by 0.3 for 4",
    "restore: 0 half for 5",
)
"""What always runs: a stall longer than the device's timeout, a loss, errors, half of the connections."""

RBD_SCRIPTS = ("run: 0.5 stall write,flush for 5; 2 half for 3",)

FIRST, SEEDS = (int(os.environ.get(f"ZVAULT_FAULT_{name}", "0")) for name in ("FIRST", "SEEDS"))
GIVEN = os.environ.get("ZVAULT_FAULT_SCRIPT", "")
SMALLER = int(os.environ.get("ZVAULT_FAULT_SMALLER", "0"))

STORAGE = os.environ.get("ZVAULT_FAULT_STORAGE", "")
VAULTS = {"nbd": nbd_vault, "rbd": rbd_vault}


def list_cases() -> Iterator[tuple[str, Script]]:
    """What is to be tried: the storage, and the script."""
    drawn = range(FIRST, FIRST + SEEDS)
    for storage, names, fixed in (("nbd", NAMES, SCRIPTS), ("rbd", RBD_FAULTS, RBD_SCRIPTS)):
        if STORAGE in {"", storage}:
            texts = GIVEN.split("|") if GIVEN else fixed
            for script in [draw_script(seed, names) for seed in drawn] or map(parse_script, texts):
                yield storage, script


READ_HERE = Path("/mnt/read")

CASES = [pytest.param(*one, id=f"{one[0]}-{number}") for number, one in enumerate(list_cases(), FIRST)]


class Stage:
    """One vault for the scripts in a row that have the same storage, until one of them fails."""

    def __init__(self) -> None:
        self._storage = ""
        self._open = contextlib.ExitStack()
        self._vault: Scripted | None = None
        self.needs_reboot = False

    def vault(self, storage: str) -> Scripted:
        """The vault on some storage."""
        if storage != self._storage:
            self.clear()
        if self._vault is None:
            self._vault = self._open.enter_context(VAULTS[storage]())
            self._storage = storage
        return self._vault

    def clear(self) -> None:
        """Take it down; the next script gets another."""
        self._vault = None
        self._open.close()


@pytest.fixture(name="stage", scope="module")
def stage_of_module() -> Iterator[Stage]:
    it = Stage()
    yield it
    it.clear()


@pytest.mark.parametrize(("storage", "script"), CASES)
def test_zvault_outlives_a_storage_that_misbehaves(stage: Stage, storage: str, script: Script) -> None:
    def find_wrong(tried: Script) -> list[str]:
        assert not stage.needs_reboot, (
            "an earlier script left a pool that only a reboot removes: try this in a guest of its own"
        )
        try:
            outcome = stage.vault(storage).live_through(tried)
        except BaseException:
            stage.clear()
            raise
        wrong = judge_outcome(outcome)
        print(outcome, wrong, flush=True)
        stage.needs_reboot = "reboot this host" in outcome.advice
        if wrong:
            stage.clear()
        return wrong

    wrong = find_wrong(script)
    if wrong and SMALLER:
        print(
            "smaller:", format_script(minimize_script(script, lambda tried: bool(find_wrong(tried)), SMALLER))
        )
    assert not wrong, format_script(script)


AWAY = 9
"""Seconds without a server: two tries to give the pool its device back fail."""


@pytest.mark.skipif(bool(GIVEN or SEEDS), reason="other scripts are asked for")
def test_a_pool_that_was_only_read_gets_its_device_back_at_the_third_try(stage: Stage) -> None:
    """No transaction group is under way as it is suspended: txg_sync spins with a lock (clear_suspended_pool.py)."""
    vault = stage.vault("nbd")
    ok("vault", "up", "cold")
    sh("zpool", "sync", "cold")
    snapshot = f"cold/lab/tank/home@{snapshots('cold/lab/tank/home')[-1]}"
    READ_HERE.mkdir(exist_ok=True)
    state = Path("/proc/spl/kstat/zfs/cold/state")
    vault.storage.command(f"script run: 0 vanish for {AWAY}")
    time.sleep(0.5)
    reader = subprocess.Popen(["mount", "-t", "zfs", snapshot, READ_HERE])
    eventually("the pool to be suspended", lambda: state.read_text().strip() == "SUSPENDED", seconds=20)
    time.sleep(AWAY)
    vault.storage.command("sound")
    eventually("the vault to be well", lambda: not describe_trouble(), seconds=WELL_WITHIN)
    reader.wait(timeout=60)
    sh("umount", str(READ_HERE), check=False)
    assert find_stuck_for_good() == ()
    ok("vault", "down", "cold")
