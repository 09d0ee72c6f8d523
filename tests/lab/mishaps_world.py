"""A source and a vault, streams that are caught midway, names that are given again, and clocks that are set."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import world
from crash_world import (
    Pair,
    api,
    bases_advanced,
    run_now,
    run_of,
    same_files,
)
from world import eventually, sh, snapshots

from zvault.core.names import make_snapname

HOME, VAULTED = "tank/home", "cold/lab/tank/home"
SLOW, FAST = "1M", "1G"
"""Bytes a second of a stream until it was caught midway, and from then on."""


@pytest.fixture(name="tank")
def tank_for_test() -> Iterator[Pair]:
    # What went wrong shall be seen, not what went well later; and a big change takes half a minute. Where the clock is
    # set back a verification would be due, and be one more run.
    it = Pair(backup_extra=f'retries = 0\nlimit = "{SLOW}"\nverify = {{ every = "off" }}')
    it.clean()
    it.source()
    yield it
    it.clean()


def write(mib: int = 0) -> None:
    """Something new, of so many MiB."""
    world.fill(Path("/tank/home"), time.monotonic_ns(), count=1, size=20_000)
    if mib:
        world.noise(Path("/tank/home/noise"), mib)
    sh("zpool", "sync", "tank")


def runs(count: int) -> None:
    for _ in range(count):
        write()
        run_now()
        time.sleep(1)


def all_is_well() -> None:
    """A run is ok, and all of it is on both sides, with nothing left behind."""
    write()
    run_now()
    bases_advanced()
    same_files()


def process(*words: str, has: str = "") -> int:
    """The process that runs this command, 0 if there is none; one of its words begins with ``has``."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            argv = (folder / "cmdline").read_bytes().decode().split("\0")[:-1]
        except OSError:
            continue
        if argv[: len(words)] == [*words] and any(word.startswith(has) for word in argv):
            return int(folder.name)
    return 0


@contextmanager
def mid_stream(tank: Pair, run: dict[str, Any]) -> Iterator[None]:
    """A run whose stream of a big change stands still meanwhile; how it ended is in ``run`` then."""
    write(30)
    begun = api("POST", "/v1/run/tank")["run"]
    sender = eventually("the stream", big, every=0.002)
    # Its helper thread tells of progress once it knows which snapshots it sends.
    eventually(
        "the first of it",
        lambda: sum(1 for _ in Path(f"/proc/{sender}/task").iterdir()) > 1,
        every=0.002,
    )
    # Not the sender: in the kernel, a write that waits for a full pipe fails by any signal, and with it the stream.
    reader = eventually("who reads it", lambda: reader_of(sender), every=0.002)
    os.kill(reader, signal.SIGSTOP)
    eventually("its receiver", lambda: process("zfs", "receive"))
    assert big() == sender, "it was too quick"
    try:
        yield
    finally:
        tank.backup_extra = tank.backup_extra.replace(SLOW, FAST)
        tank.configure()
        sh("systemctl", "reload", "zvaultd")
        with suppress(ProcessLookupError):
            os.kill(reader, signal.SIGCONT)
        run.update(run_of(begun))


def reader_of(sender: int) -> int:
    """The process that has what another one writes as its standard input, 0 if there is none."""
    with suppress(OSError):
        pipe = Path(f"/proc/{sender}/fd/1").readlink()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (folder / "fd/0").readlink() == pipe:
                    return int(folder.name)
    return 0


def big() -> int:
    """The process that sends the big change."""
    return process("zfs", "send", "-vP", has=f"{HOME}@")


def told(run: dict[str, Any], *words: str) -> None:
    """The run failed in part, and said why and what next: in the history and in the journal."""
    assert run["result"] in {"partial", "failed"}, run
    error, journal = run["error"], world.journal(f"RUN={run['id']}")
    assert error["next"], error
    assert error["what"] in journal
    for word in words:
        assert word in str(error), error


def plan() -> str:
    """What a run would do, and why."""
    return str(api("GET", "/v1/plan/tank"))


def release(dataset: str, snapname: str) -> None:
    for line in sh("zfs", "holds", "-H", f"{dataset}@{snapname}").splitlines():
        sh("zfs", "release", line.split("\t")[1], f"{dataset}@{snapname}")


def exported() -> bool:
    """It is busy for as long as anybody asks it for anything, and the daemon does so now and then."""
    return subprocess.run(["zpool", "export", "cold"]).returncode == 0


@contextmanager
def clock_set(change: str) -> Iterator[None]:
    """The wall clock jumps, and back at the end."""
    with world.clock_put_right():
        sh("date", "--set", change)
        yield


LAG = 'zvault_backup_lag_seconds{backup="tank",dataset="tank/home"}'


def lag() -> float:
    """As it is told."""
    return eventually("the lag", lambda: [x for x in [world.metrics().get(LAG)] if x is not None])[0]


def lag_is_unknown() -> None:
    """What the vault has is dated later than now: no figure is told, and the backup is not said to be well."""
    eventually("no lag", lambda: LAG not in world.metrics())

    def told() -> tuple[Any, str, bool]:
        backup = world.status()["backups"][0]
        dated = "is dated later than now" in str(backup["verdict"]["findings"])
        return backup["lag_seconds"], backup["verdict"]["level"], dated

    # Verdicts are made anew now and then.
    eventually(lambda: f"it to be told: {told()}", lambda: told() == (None, "unknown", True))


class NamesGivenAgain:
    """Snapnames that only the vault still has, and that a run gives again where the clock is set back in a hook."""

    def __init__(self, tank) -> None:
        self.first = int(time.time()) - 3600
        moments = (datetime.fromtimestamp(self.first + second, UTC) for second in range(4))
        self.names = {make_snapname("zvault", moment) for moment in moments}
        self.waits, self.goes_on = Path("/run/waits"), Path("/run/goes-on")
        hook = (
            f"[ ! -e {self.waits} ] || "
            f"{{ rm {self.waits}; while [ ! -e {self.goes_on} ]; do sleep 0.1; done; rm {self.goes_on}; }}"
        )
        tank.backup_extra += f"\nsnapshot = {{ hooks = {{ before = [{json.dumps(['sh', '-c', hook])}] }} }}"
        tank.keep = "{ source = { last = 1 }, vault = { last = 20 } }"
        tank.start()
        runs(1)
        for name in sorted(self.names):
            write()
            sh("zfs", "snapshot", "-r", f"tank@{name}")
        runs(1)

    def hide(self) -> None:
        """Rename the vault's, and have zvaultd forget the names."""
        self._rename("", "not-yet-")
        sh("systemctl", "restart", "zvaultd")

    def show(self) -> None:
        self._rename("not-yet-", "")

    def _rename(self, old: str, new: str) -> None:
        for name in self.names:
            sh("zfs", "rename", "-r", f"cold/lab/tank@{old}{name}", f"cold/lab/tank@{new}{name}")

    def run_until_hook(self) -> str:
        """Begin a run, which waits in its hook before the snapshot."""
        assert not self.names & set(snapshots(HOME))
        write()
        self.waits.touch()
        run = api("POST", "/v1/run/tank")["run"]
        eventually("the hook", lambda: not self.waits.exists())
        return run

    @contextmanager
    def set_back(self, *, clash: bool) -> Iterator[None]:
        """The hook ends at a moment whose name the vault has.

        With ``clash`` the clock stands still until a snapshot has got such a name, however long that takes; else it
        goes on, so that zvaultd, which knows them, can wait for one that is free.
        """
        assert self.names <= set(snapshots(VAULTED))
        with world.clock_put_right():
            if clash:
                with clock_held_at(self.first):
                    self.goes_on.touch()
                    eventually(
                        "a snapshot of a name that the vault has",
                        lambda: self.names & set(snapshots(HOME)),
                        every=0.05,
                    )
            else:
                time.clock_settime(time.CLOCK_REALTIME, self.first)
                self.goes_on.touch()
            yield


@contextmanager
def clock_held_at(second: int) -> Iterator[None]:
    """The wall clock does not leave one second; from the end it goes on from there."""
    held = threading.Event()

    def hold() -> None:
        while not held.wait(0.02):
            time.clock_settime(time.CLOCK_REALTIME, second + 0.01)

    time.clock_settime(time.CLOCK_REALTIME, second + 0.01)
    holding = threading.Thread(target=hold)
    holding.start()
    try:
        yield
    finally:
        held.set()
        holding.join()
