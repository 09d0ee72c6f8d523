"""A source in which others make, rename and destroy datasets and snapshots all the time: no run is lost to one."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from crash_world import Pair, api, bases_advanced, points, run_now, run_of, same_files, vault_guid
from world import eventually, sh, snapshots

LAB = {"mem": "3G", "timeout": 900}


@pytest.fixture
def tank() -> Iterator[Pair]:
    it = Pair(
        keep="{ source = { last = 3 }, vault = { last = 3 } }", backup_extra='retries = 2\nretry_wait = "1s"'
    )
    it.clean()
    it.source()
    yield it
    it.clean()


@contextmanager
def busy(script: str) -> Iterator[None]:
    """A shell loop that does so all the time, with ``$n`` counting up."""
    loop = f"n=0; while :; do n=$((n+1)); {script}; done"
    meddler = subprocess.Popen(["sh", "-c", loop], stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(meddler.pid, signal.SIGTERM)
        meddler.wait()
        # What it called last may be in the kernel still.
        eventually("nobody meddles any more", lambda: not in_group(meddler.pid))


def in_group(number: int) -> bool:
    """Whether a process group has any process."""
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    return True


def runs(count: int) -> None:
    """So many runs in a row, each of which is ok and has a snapshot of what nobody meddles with on the vault."""
    for _ in range(count):
        run = run_now()
        newest = [one for one in snapshots("tank/home") if one.startswith("zvault_")][-1]
        assert newest in snapshots("cold/lab/tank/home"), run
        time.sleep(1)


def quiet(tank: Pair) -> None:
    """Nobody meddles any more: the next run leaves one hold a dataset, on its base."""
    for name in points("tank"):
        for snapname in snapshots(name):
            if not snapname.startswith("zvault_"):
                sh("zfs", "destroy", f"{name}@{snapname}", check=False)
    run_now()
    tag = f"zvault:{vault_guid()}"
    held = {
        name: [guid for guid, tags in one.holds.items() if tag in tags]
        for name, one in points("tank").items()
    }
    assert all(len(guids) == 1 for guids in held.values()), held


def test_datasets_that_come_and_go(tank):
    tank.start()
    run_now()
    with busy("zfs create tank/ci$n; sleep 0.3; zfs destroy -r tank/ci$n"):
        runs(6)
    quiet(tank)


def test_a_dataset_that_is_renamed_again_and_again(tank):
    sh("zfs", "create", "tank/here")
    tank.start()
    run_now()
    with busy("zfs rename tank/here tank/there; sleep 1; zfs rename tank/there tank/here; sleep 1"):
        for _ in range(5):
            run = run_of(api("POST", "/v1/run/tank")["run"])
            # It may have moved in each of the tries; then it alone is told as gone, and never as a conflict.
            assert run["result"] == "ok" or "1 of 3 datasets failed" in str(run["error"]), run
            assert "in common" not in str(run["error"]), run
            assert snapshots("tank/home")[-1] in snapshots("cold/lab/tank/home"), run
            time.sleep(1)
    sh("zfs", "rename", "tank/there", "tank/here", check=False)
    run_now()
    bases_advanced()
    same_files()


def test_snapshots_that_come_and_go_ten_a_second(tank):
    for number in range(6):
        sh("zfs", "create", f"tank/d{number}")
    tank.backup_extra += '\nalso = ["*"]'
    tank.start()
    run_now()
    with busy("zfs snapshot -r tank@f$n; zfs destroy -r tank@f$((n-4)); sleep 0.1"):
        runs(6)
    quiet(tank)
    same_files()
