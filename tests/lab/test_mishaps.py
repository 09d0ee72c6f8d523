"""What people and clocks do behind a backup's back: it is told, nothing is lost, and the next run puts it right."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import world
from crash_world import (
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
from mishaps_world import (
    HOME,
    VAULTED,
    NamesGivenAgain,
    all_is_well,
    clock_held_at,
    clock_set,
    exported,
    lag,
    lag_is_unknown,
    mid_stream,
    plan,
    process,
    release,
    runs,
    tank_for_test,  # noqa: F401
    told,
    write,
)
from world import eventually, get, sh, snapshots

LAB = {"mem": "3G", "timeout": 2250}


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
    with mid_stream(tank, run):
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
    with mid_stream(tank, run):
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
    with mid_stream(tank, run):
        while pid := process(*helper):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            eventually("its end", lambda pid=pid: process(*helper) != pid)
    print(run)
    bases()
    if run["result"] != "ok":
        told(run)
    all_is_well()


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


def test_a_clock_set_back_between_runs_and_in_one(tank):
    tank.keep = "{ source = { hourly = 2, last = 2 }, vault = { within = '1h', last = 3 } }"
    tank.start()
    runs(3)
    before = points(VAULTED)[VAULTED].snapshots
    with clock_set("3 days ago"):
        lag_is_unknown()
        sh("systemctl", "restart", "zvaultd")
        lag_is_unknown()
        began = int(time.time())
        all_is_well()
        newest = list(points(VAULTED)[VAULTED].snapshots)[-1]
        assert newest not in before
        assert list(points(HOME)[HOME].snapshots)[-1] == newest, (
            "the newest by its transaction, not by its name"
        )
        assert 0 <= lag() <= time.time() - began
        assert history(1)[0]["result"] == "ok"
        last_run = world.status()["backups"][0]["last_run"]
        assert began <= last_run <= time.time(), "not the one from the future"
        time.sleep(1)
        all_is_well()
    # And forward again.
    time.sleep(1)
    all_is_well()

    run: dict[str, Any] = {}
    before = time.monotonic()
    with mid_stream(tank, run):
        sh("date", "--set", "5 hours ago")
    try:
        assert run["result"] == "ok"
        assert 0 <= run["seconds"] <= time.monotonic() - before
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
        with given.set_back(clash=not known):
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
    with given.set_back(clash=True):
        eventually("the hook of what is made anew", lambda: not given.waits.exists())
        sh("systemctl", "kill", "-s", "KILL", "zvaultd")
    (clashing,) = given.names & set(snapshots(HOME))
    sh("systemctl", "restart", "zvaultd")
    run_of(history()[0]["id"])
    all_is_well()
    assert clashing not in snapshots(HOME), "what a killed run would have destroyed goes in a later one"
    assert "left by an earlier run that was to make them anew" in world.journal()


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
    with world.clock_put_right(), clock_held_at(second):
        goes_on.touch()
        eventually("the snapshot", lambda: snapshots(HOME) != before)
    goes_on.unlink()
    assert int(get(HOME, "snapshots_changed")) == second
    done = run_of(run)
    assert (done["result"], done["sent"]) == ("ok", 2)
    bases_advanced()
    same_files()
