"""What people and clocks do behind a backup's back: it is told, nothing is lost, and the next run puts it right."""

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
    bases,
    bases_advanced,
    history,
    points,
    run_now,
    run_of,
    same_files,
    vault_guid,
)
from world import eventually, get, sh, snapshots

from zvault.core.names import make_snapname

LAB = {"mem": "3G", "timeout": 2250}

HOME, VAULTED = "tank/home", "cold/lab/tank/home"


@pytest.fixture
def tank() -> Iterator[Pair]:
    # What went wrong shall be seen, not what went well later; and a big change takes some seconds.
    it = Pair(backup_extra='retries = 0\nlimit = "8M"')
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
def mid_stream(run: dict[str, Any]) -> Iterator[None]:
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
    os.kill(sender, signal.SIGSTOP)
    eventually("its receiver", lambda: process("zfs", "receive"))
    assert big() == sender, "it was too quick"
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(sender, signal.SIGCONT)
        run.update(run_of(begun))


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


def test_a_snapshot_destroyed_while_it_is_sent(tank):
    tank.start()
    runs(3)
    oldest = snapshots(HOME)[0]
    # Two more, so that the stream holds three: one is being sent, one waits.
    for hour in (3, 2):
        write(10)
        snapname = sh("date", "-u", "-d", f"{hour} hours ago", "+zvault_%FT%TZ").strip()
        sh("zfs", "snapshot", f"{HOME}@{snapname}")
    run: dict[str, Any] = {}
    with mid_stream(run):
        refused = subprocess.run(["zfs", "destroy", f"{HOME}@{snapname}"], capture_output=True, text=True)
        assert refused.returncode != 0, "it is held"
        release(HOME, snapname)
        sh("zfs", "destroy", "-d", f"{HOME}@{snapname}", check=False)
        sh("zfs", "destroy", f"{HOME}@{oldest}")  # nothing needs that one: the run was to prune it
        gone = snapname not in snapshots(HOME)
    bases()
    assert oldest not in snapshots(HOME)
    assert gone
    told(run, snapname)
    all_is_well()


@pytest.mark.parametrize("stage", [("zfs", "send"), ("mbuffer",), ("zfs", "receive")])
def test_a_stage_of_a_stream_killed(tank, stage):
    tank.vault_extra += '\nprofile = "nbd-lan"'  # which has mbuffer
    tank.start()
    runs(1)
    run: dict[str, Any] = {}
    with mid_stream(run):
        victim = process(*stage)
        assert victim, f"{stage} does not run"
        os.kill(victim, signal.SIGKILL)
    bases()
    if run["result"] != "ok":  # it may have been tried again
        told(run, stage[-1])
    assert "killed by signal 9" in world.journal(f"RUN={run['id']}")
    all_is_well()


def test_the_helper_of_libzfs_core_killed(tank):
    tank.start()
    runs(1)
    run: dict[str, Any] = {}
    helper = ("/usr/bin/python3", "-m", "zvault.zfs.lzc_child")
    with mid_stream(run):
        while pid := process(*helper):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            eventually("its end", lambda pid=pid: process(*helper) != pid)
    print(run)
    bases()
    if run["result"] != "ok":
        told(run)
    all_is_well()


def exported() -> bool:
    """It is busy for as long as anybody asks it for anything, and the daemon does so now and then."""
    return subprocess.run(["zpool", "export", "cold"]).returncode == 0


def test_the_vault_exported_by_hand_between_runs_and_in_one(tank):
    go = Path("/run/go")
    hook = f'["sh", "-c", "while [ ! -e {go} ]; do sleep 0.1; done"]'
    tank.backup_extra += f"\nsnapshot = {{ hooks = {{ before = [{hook}] }} }}"
    go.touch()
    tank.start()
    runs(2)
    eventually("nobody to look at the pool", exported)
    write()
    run_now()
    bases_advanced()

    go.unlink()
    begun = api("POST", "/v1/run/tank")["run"]
    eventually("the hook", lambda: process("sh", "-c", f"while [ ! -e {go} ]; do sleep 0.1; done"))
    eventually("nobody to look at the pool", exported)
    time.sleep(0.5)
    go.touch()
    told(run_of(begun), "not imported any more", "somebody exported it")
    all_is_well()


def test_the_newest_snapshot_of_the_vault_destroyed(tank):
    tank.start()
    runs(3)
    # Nothing was written between the last two, so the older base is all it needs.
    time.sleep(1)
    run_now()
    snapnames = snapshots(HOME)
    release(VAULTED, snapnames[-1])
    sh("zfs", "destroy", f"{VAULTED}@{snapnames[-1]}")
    assert bases(protected=False)[HOME] == get(f"{HOME}@{snapnames[-2]}", "guid")
    sh("zfs", "snapshot", f"{HOME}@zvault_2026-01-01T00:00:00Z")
    assert f"the newest snapshot both sides share is {snapnames[-2]}" in plan()
    all_is_well()

    # What was written between them is still there, though its snapshot is not: that is for a person to see.
    newest = snapshots(VAULTED)[-1]
    write()
    release(VAULTED, newest)
    sh("zfs", "destroy", f"{VAULTED}@{newest}")
    run = run_of(api("POST", "/v1/run/tank")["run"])
    older = snapshots(VAULTED)[-1]
    told(run, "was written to", f"zfs rollback -r {VAULTED}@{older}")
    bases(protected=False)
    sh("zfs", "rollback", "-r", f"{VAULTED}@{older}")
    all_is_well()


def test_the_base_destroyed_on_the_source(tank):
    tank.start()
    runs(3)
    base = snapshots(HOME)[-1]
    release(HOME, base)
    sh("zfs", "destroy", f"{HOME}@{base}")
    before = points(VAULTED)[VAULTED].snapshots
    assert list(before)[-1] == bases()[HOME]
    write()
    sh("zfs", "snapshot", f"{HOME}@zvault_2026-01-01T00:00:00Z")
    assert f"the newest bookmark both sides share is zvault_{vault_guid()}" in plan()
    all_is_well()
    after = points(VAULTED)[VAULTED].snapshots
    assert list(before)[-1] in after, "the vault keeps what it had"


def test_every_base_destroyed_is_told_and_what_is_told_helps(tank):
    tank.start()
    runs(3)
    for snapname in snapshots(HOME):
        release(HOME, snapname)
        sh("zfs", "destroy", f"{HOME}@{snapname}")
    for mark in points(HOME)[HOME].marks.values():
        sh("zfs", "destroy", f"{HOME}#{mark[0]}")
    kept = points(VAULTED)[VAULTED].snapshots
    files = world.snapshot_hashes(f"{VAULTED}@{list(kept.values())[-1]}")
    for _ in range(2):
        write()
        told(
            run_of(api("POST", "/v1/run/tank")["run"]),
            "no snapshot or bookmark in common",
            f"rename {VAULTED}",
        )
        assert points(VAULTED)[VAULTED].snapshots == kept, "not one of them may go"
        time.sleep(1)
    sh("zfs", "rename", VAULTED, "cold/kept")
    all_is_well()
    assert points("cold/kept")["cold/kept"].snapshots == kept
    assert world.snapshot_hashes(f"cold/kept@{list(kept.values())[-1]}") == files


def test_a_dataset_of_the_vault_destroyed(tank):
    tank.start()
    runs(2)
    world.destroy_held(VAULTED)
    all_is_well()


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
    backup = world.status()["backups"][0]
    assert (backup["lag_seconds"], backup["verdict"]["level"]) == (None, "unknown")
    assert "is dated later than now" in str(backup["verdict"]["findings"])


def test_a_clock_set_back_between_runs_and_in_one(tank):
    tank.keep = "{ source = { hourly = 2, last = 2 }, vault = { within = '1h', last = 3 } }"
    tank.start()
    runs(3)
    before = points(VAULTED)[VAULTED].snapshots
    with clock_set("3 days ago"):
        lag_is_unknown()
        sh("systemctl", "restart", "zvaultd")
        lag_is_unknown()
        all_is_well()
        newest = list(points(VAULTED)[VAULTED].snapshots)[-1]
        assert newest not in before
        assert list(points(HOME)[HOME].snapshots)[-1] == newest, (
            "the newest by its transaction, not by its name"
        )
        assert 0 <= lag() < 60
        assert history(1)[0]["result"] == "ok"
        assert abs(world.status()["backups"][0]["last_run"] - time.time()) < 60, "not the one from the future"
        time.sleep(1)
        all_is_well()
    # And forward again.
    time.sleep(1)
    all_is_well()

    run: dict[str, Any] = {}
    with mid_stream(run):
        sh("date", "--set", "5 hours ago")
    try:
        assert run["result"] == "ok"
        assert 0 <= run["seconds"] < 60
        bases_advanced()
        time.sleep(1)
        all_is_well()
    finally:
        sh("date", "--set", "5 hours")


def test_schedules_go_on_when_the_clock_is_set_back(tank):
    sh("zfs", "create", "tank/night")
    tank.backup_extra += '\nevery = "6s"\nexclude = ["tank/night", "tank/night/**"]'
    tank.extra = '[backup.nightly]\nsource = "tank/night"\nvault = "cold"\ninto = "nightly/{dataset}"\n'
    tank.extra += 'snapshot = { prefix = "nightly" }\nschedule = "0 3 * * *"\n'
    tank.start()
    eventually("a run of its own", lambda: snapshots(HOME))

    def next_night() -> float:
        return world.status()["backups"][1]["next_run"] - time.time()

    with clock_set("3 days ago"):
        last = snapshots(HOME)[-1]
        eventually("the next run", lambda: snapshots(HOME)[-1] != last)
        eventually("the night is planned by the new time", lambda: 0 < next_night() < 86400)
        assert "the clock was set back by" in world.journal()
        sh("systemctl", "restart", "zvaultd")
        last = snapshots(HOME)[-1]
        eventually("one after a restart, too", lambda: snapshots(HOME)[-1] != last)
        eventually("and so it is after a restart", lambda: 0 < next_night() < 86400)


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
    def set_back(self) -> Iterator[None]:
        """The hook ends at a moment whose name the vault has."""
        assert self.names <= set(snapshots(VAULTED))
        with world.clock_put_right():
            time.clock_settime(time.CLOCK_REALTIME, self.first)
            self.goes_on.touch()
            yield


def test_a_name_that_only_the_vault_still_has(tank):
    """After the clock was set back: whether zvaultd knows the vault's names or not, the run takes another one.

    They are not known where they were given while a hook before the snapshot ran. In the end zvaultd is killed before
    the snapshot is made anew.
    """
    given = NamesGivenAgain(tank)
    for known in (False, True):
        if not known:
            given.hide()
        run = given.run_until_hook()
        if not known:
            given.show()
        with given.set_back():
            done = run_of(run)
            assert done["result"] == "ok", done
            newest = snapshots(HOME)[-1]
            assert newest not in given.names
            assert newest == snapshots(VAULTED)[-1]
            all_is_well()
        anew = world.journal().count("is made anew under a later name")
        assert anew == 1, "only where the vault's names are not known a snapshot has to go"

    given.hide()
    given.run_until_hook()
    given.show()
    given.waits.touch()
    with given.set_back():
        eventually("the hook of what is made anew", lambda: not given.waits.exists())
        sh("systemctl", "kill", "-s", "KILL", "zvaultd")
    (clashing,) = given.names & set(snapshots(HOME))
    sh("systemctl", "restart", "zvaultd")
    run_of(history()[0]["id"])
    all_is_well()
    assert clashing not in snapshots(HOME), "what a killed run would have destroyed goes in a later one"
    assert "left by an earlier run that was to make them anew" in world.journal()


@contextmanager
def clock_held_at(second: float) -> Iterator[None]:
    """The wall clock does not leave one second."""
    held = threading.Event()

    def hold() -> None:
        while not held.wait(0.02):
            time.clock_settime(time.CLOCK_REALTIME, second)

    with clock_set("now"):
        time.clock_settime(time.CLOCK_REALTIME, second)
        holding = threading.Thread(target=hold)
        holding.start()
        try:
            yield
        finally:
            held.set()
            holding.join()


def test_a_clock_that_comes_by_the_same_second_twice(tank):
    """The pool tells by the second when something last changed: a listing of before must not pass for one of now."""
    waits, goes_on = Path("/run/waits"), Path("/run/goes-on")
    hook = f"[ ! -e {waits} ] || {{ rm {waits}; while [ ! -e {goes_on} ]; do sleep 0.1; done; }}"
    tank.backup_extra += f"\nsnapshot = {{ hooks = {{ before = [{json.dumps(['sh', '-c', hook])}] }} }}"
    tank.keep = "{ }"
    tank.start()
    runs(2)
    sh("zfs", "snapshot", "-r", "tank@by-hand")
    second = int(get(HOME, "snapshots_changed"))
    write()
    waits.touch()
    run = api("POST", "/v1/run/tank")["run"]
    eventually("the hook", lambda: not waits.exists())
    before = snapshots(HOME)
    with clock_held_at(second + 0.5):
        goes_on.touch()
        eventually("the snapshot", lambda: snapshots(HOME) != before)
    goes_on.unlink()
    assert int(get(HOME, "snapshots_changed")) == second
    done = run_of(run)
    assert (done["result"], done["sent"]) == ("ok", 2)
    bases_advanced()
    same_files()
