"""What is told of lag while the vault is down, beside what an independent reader saw on it: never better."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import world
from crash_world import DROP_IN, Pair, points
from lag_history import History
from world import DISK, ctl, eventually, ok, sh, shell

LAB = {"mem": "3G", "timeout": 1200}

NAMES = [f"tank/d{number}" for number in range(10)]


class Once(Pair):
    """The pair under a daemon that stays dead when it was killed."""

    def source(self) -> None:
        super().source()
        for name in NAMES:
            sh("zfs", "create", name)
            world.noise(Path("/") / name / "file", 2)

    def start(self) -> None:
        DROP_IN.parent.mkdir(parents=True, exist_ok=True)
        DROP_IN.write_text("[Service]\nRestart=no\n")
        sh("systemctl", "daemon-reload")
        super().start()

    def clean(self) -> None:
        super().clean()
        DROP_IN.unlink(missing_ok=True)
        sh("systemctl", "daemon-reload")


@pytest.fixture
def tank() -> Iterator[Once]:
    it = Once(vault_extra="transfers = 2", backup_extra='limit = "512K"\nretries = 0')
    it.clean()
    it.source()
    yield it
    it.clean()


def on_vault() -> set[str]:
    """The datasets of the source of which the vault has a snapshot, by GUID."""
    here, there = points("tank"), points("cold")
    guids = {guid for one in there.values() for guid in one.snapshots}
    return {name for name, one in here.items() if guids.intersection(one.snapshots)}


def told_to_have_arrived() -> int:
    """Of how many datasets the source has noted what the vault has got: by a bookmark."""
    return sum(bool(one.marks) for one in points("tank").values())


def status() -> dict[str, Any]:
    """What the status says of the backup."""
    return ctl("status", "-j").json()["backups"][0]


def take_away() -> None:
    """The vault is gone, and cannot be imported."""
    eventually("the receives to end", lambda: shell("zpool export cold && echo gone", check=False) == "gone")
    loop = sh("losetup", "--noheadings", "-O", "NAME", "--associated", str(DISK / "cold.img")).strip()
    sh("losetup", "--detach", loop)


def test_a_first_full_that_was_cut_off_claims_nothing_that_did_not_arrive(tank: Once) -> None:
    tank.start()
    ok("run", "--no-wait", "tank")
    eventually("some of it on the vault", lambda: len(on_vault()) >= 4 and told_to_have_arrived() >= 2)
    os.kill(world.main_pid(), signal.SIGKILL)
    eventually("the end of its children", lambda: world.service("ActiveState") == "failed")
    arrived = on_vault()
    assert 4 <= len(arrived) < len(NAMES), arrived
    take_away()
    sh("systemctl", "start", "zvaultd")

    def lags() -> dict[str, float | None]:
        return {row["dataset"]: row["lag_seconds"] for row in ok("list", "-j").json()["datasets"]}

    eventually("the run that makes up for it to fail", lambda: status()["run"] is None)
    told = lags()
    assert set(told) == {"tank", "tank/home", *NAMES}
    assert {name for name, lag in told.items() if lag is not None} <= arrived
    # Not all is unknown: what the run was told to have arrived is.
    assert sum(lag is not None for lag in told.values()) >= 2
    backup = eventually(
        "the lags in the status", lambda: status() if status()["datasets"] == len(told) else None
    )
    assert backup["lag_seconds"] is None
    assert backup["pending"] is None or backup["pending"] >= len(told) - len(arrived)


STEPS = {
    "run": 8,
    "run, a stream is killed": 2,
    "run, the daemon is killed": 2,
    "run, the daemon is killed and the vault goes away": 2,
    "restart": 2,
    "the state is lost": 1,
    "the vault goes away": 3,
    "the vault comes back": 2,
    "rename": 1,
    "create": 1,
    "replace": 1,
    "prune the source": 1,
    "prune the vault": 1,
    "the vault goes back": 1,
    "another pool": 2,
    "another vault": 1,
    "another place": 2,
    "the clock is set": 1,
}
"""What may happen next, and how often."""

SEED = int(os.environ.get("ZVAULT_LAG_SEED", "1"))
COUNT = int(os.environ.get("ZVAULT_LAG_STEPS", "24"))


@pytest.fixture
def pools() -> Iterator[History]:
    it = History(SEED)
    it.clean()
    it.source()
    with world.clock_put_right():
        yield it
    it.clean()


def test_after_each_step_of_a_history_no_lag_is_better_than_the_truth(pools: History) -> None:
    """ZVAULT_LAG_SEED chooses the history, ZVAULT_LAG_STEPS how long it is."""
    print(f"ZVAULT_LAG_SEED={SEED}")
    pools.start()
    pools.idle()
    for number in range(COUNT):
        step = pools.chance.choices(list(STEPS), list(STEPS.values()))[0]
        backup, came = pools.take(step)
        print(f"{time.monotonic():7.1f} {number:3} {step}: {backup} {came}", flush=True)
        pools.idle()
        # Not all is unknown: what a good run has just put on a vault is.
        exact = backup if (step, came) == ("run", "ok") else None
        eventually(
            lambda exact=exact: "\n".join(pools.wrong(exact)),
            lambda exact=exact: not pools.wrong(exact),
        )
        print(f"{'':15}{pools.known} known, {pools.unknown} not", flush=True)
