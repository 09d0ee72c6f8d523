"""Datasets side by side, within limits of places and bandwidth; and what fails for a while is tried again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import world
from several_datasets import (
    MIB,
    SMALL,
    begun,
    heard,
    live,
    most_at_once,
    order,
    run,
    same_everywhere,
    seen,
    stopped,
    tank_for_test,  # noqa: F401
)
from world import ctl, events, eventually, get, ok, sh, snapshots, status

from zvault.core.replication.bandwidth import BURST
from zvault.daemon.shutdown import DRAIN_SECONDS

LAB = {"mem": "4G", "timeout": 2500}
UNIT = "zvault-device@cold-0.service"


def test_several_at_once_parents_first_and_never_more_than_the_vault_allows(tank):
    sh("zfs", "create", "tank/other")
    world.noise(Path("/tank/other/noise"), 24)
    tank.exclude = '["tank/scratch", "tank/other", "tank/other/**"]'
    tank.extra = """
[backup.other]
source = "tank/other"
vault = "cold"
into = "other/{dataset}"
snapshot = { prefix = "other" }
"""
    tank.vault_extra = "create = true\ntransfers = 3"
    tank.backup_extra = 'limit = "12M"'  # so that streams last long enough to meet
    tank.start()
    code, told = run()
    assert code == 0
    assert most_at_once(told) == 3
    started = order(told, "transfer-started")
    assert started.index("tank/a/child") > started.index("tank/a")
    parent = next(e["time"] for e in seen(told, "transfer-finished") if e["dataset"] == "tank/a")
    child = next(e["time"] for e in seen(told, "transfer-started") if e["dataset"] == "tank/a/child")
    assert child >= parent
    assert started[0] == "tank", "all others lie in it"
    assert {"tank/big", "tank/a"} < set(started[1:4]), "what the longest way depends on goes first"
    last = seen(told, "progress")[-1]
    assert last["run_bytes"] <= last["run_total"]
    assert seen(told, "run-finished")[0]["bytes"] > 40 * MIB

    # Two backups into one vault share its places.
    tank.write(6)
    tank.vault_extra = "create = true\ntransfers = 2"
    tank.restart()
    ids = [ok("run", "--no-wait", "-j", name).json()["run"]["id"] for name in ("tank", "other")]
    for one in ids:
        assert ctl("follow", one).code == 0
    both = [event for one in ids for event in events(one)]
    assert {event["backup"] for event in seen(both, "transfer-started")} == {"tank", "other"}
    assert most_at_once(both) == 2
    same_everywhere("tank/big", *SMALL, "tank/a/child")
    world.nothing_left()


def test_a_dataset_that_stands_still_blocks_no_other_and_is_tried_again(tank):
    tank.vault_extra = 'create = true\ntransfers = 2\nstall = "10s"'
    tank.retries, tank.backup_extra = 1, 'retry_wait = "1s"\nlimit = "6M"'
    tank.start()
    run_id = begun(6)
    with stopped("tank/big"):
        ok("follow", run_id)
    told = events(run_id)
    failed = seen(told, "dataset-failed")
    assert [(event["dataset"], event["again"], event["error"]["reason"]) for event in failed] == [
        ("tank/big", True, "stalled")
    ]
    still = re.search(r"no byte moved for (\d+)s,", failed[0]["error"]["why"])
    assert still is not None
    assert 10 <= int(still[1]) < 60
    others = [e for e in seen(told, "transfer-finished") if e["dataset"] in (*SMALL, "tank/a/child")]
    assert len(others) == 4
    tries = seen(told, "retry")
    assert world.metrics()['zvault_backup_retries_total{backup="tank"}'] == len(tries)
    assert [event["number"] for event in tries] == [1]
    assert all(event["time"] < tries[0]["time"] for event in others), "they did not wait for it"
    again = seen(told, "transfer-started")[-1]
    assert (again["dataset"], again["kind"]) == ("tank/big", "resume")
    assert seen(told, "run-finished")[0]["result"] == "ok"
    assert len(seen(told, "snapshot")) == 1, "a try takes up what there is"
    assert len(snapshots("tank/big")) == 1
    same_everywhere("tank/big", "tank/a/child")
    world.nothing_left()


def test_what_fails_stops_what_is_below_it_and_the_run_says_which(tank):
    tank.retries, tank.backup_extra = 3, 'retry_wait = "1s"'
    sh("zfs", "create", "tank/full")
    tank.start()
    ok("run", "tank")
    # The room that is short is below a dataset that is not sent any more: who comes at the same time needs none of it.
    tank.exclude = '["tank/scratch", "tank/full"]'
    tank.configure()
    sh("systemctl", "reload", "zvaultd")
    ok("vault", "up", "cold")
    sh("zfs", "set", "readonly=off", "cold/lab/tank/b")
    sh("mount", "-t", "zfs", "-o", "zfsutil", "cold/lab/tank/b", "/mnt")
    Path("/mnt/written by hand").touch()
    sh("umount", "/mnt")
    sh("zfs", "create", "tank/full/new")
    sh("zfs", "create", "tank/full/new/below")
    used = int(get("cold/lab/tank/full", "used"))
    sh("zfs", "set", f"quota={used + 8 * MIB}", "cold/lab/tank/full")
    world.noise(Path("/tank/full/new/noise"), 24)
    code, told = run()
    assert code == 1
    end = seen(told, "run-finished")[0]
    assert end["result"] == "partial"
    assert "3 of 8 datasets failed" in end["error"]["what"]
    for name in ("tank/b (", "tank/full/new (", "tank/full/new/below ("):
        assert name in end["error"]["why"]
    assert "it comes after tank/full/new, which failed" in end["error"]["why"]
    assert {event["dataset"]: event["error"]["reason"] for event in seen(told, "dataset-failed")} == {
        "tank/b": "conflict",
        "tank/full/new": "vault-full",
        "tank/full/new/below": "refused",
    }
    assert seen(told, "retry") == [], "waiting does not help"
    assert order(told, "transfer-finished"), "the others went on"
    shown = status()["backups"][0]
    assert shown["last_result"] == "partial"
    assert "3 of 8 datasets failed" in shown["last_error"]["what"]
    assert "tank/full/new" in ctl("history", "tank", "-j").json()["runs"][0]["error"]["why"]
    print(ctl("status").out, ctl("history").out, world.journal("PRIORITY=3"))

    sh("zfs", "set", "quota=none", "cold/lab/tank/full")
    sh("zfs", "rollback", f"cold/lab/tank/b@{snapshots('cold/lab/tank/b')[-1]}")
    ok("run", "tank")
    same_everywhere("tank/b", "tank/full/new")


def test_a_device_that_dies_is_brought_back_and_the_streams_resume(tank):
    tank.retries, tank.backup_extra = 6, 'retry_wait = "1s"\nlimit = "6M"'
    tank.start()
    run_id = begun(4, "tank/big")
    with stopped("tank/big"):  # or its stream might be over before the server is found
        os.kill(int(sh("systemctl", "show", "-P", "MainPID", UNIT)), signal.SIGKILL)
    done = ctl("follow", run_id)
    told = events(run_id)
    print(done.out, done.err)
    assert done.code == 0
    tries = seen(told, "retry")
    assert tries
    assert tries[0]["error"]["reason"] in {"device-gone", "pool-suspended"}
    assert "trying again in" in done.out
    assert "resume" in {event["kind"] for event in seen(told, "transfer-started")}
    assert len(seen(told, "snapshot")) == 1
    assert status()["backups"][0]["last_result"] == "ok"
    same_everywhere("tank/big", *SMALL, "tank/a/child")
    world.nothing_left()


def waiting() -> dict[str, Any] | None:
    shown = live()
    return shown if shown["state"] == "waiting" else None


def test_a_vault_that_cannot_come_up_is_waited_for_and_a_stop_waits_for_nothing(tank):
    socket = "/run/lab-nbd.sock"
    tank.image.parent.mkdir(exist_ok=True)
    sh("truncate", "-s", "2G", str(tank.image))
    tank.retries, tank.backup_extra = 5, 'retry_wait = "1m"'
    nbd = f"nbdkit:file '{tank.image}' {tank.delay}"
    tank.configure()
    text = tank.config_text().replace(nbd, f"unix:{socket}").replace('size = "2G"\n', "")
    assert f"unix:{socket}" in text
    world.CONFIG.write_text(text)
    sh("systemctl", "start", "zvaultd")
    ok("run", "--no-wait", "tank")
    shown = eventually("it to wait", waiting)
    assert 20 < shown["retry_at"] - time.time() < 80
    assert "waiting" in ctl("status").out
    eventually("nothing to keep the host from sleeping meanwhile", lambda: world.inhibitors() == "")

    began = time.monotonic()
    sh("systemctl", "stop", "zvaultd")
    assert time.monotonic() - began < DRAIN_SECONDS, "it did not wait to try again, nor for a run to end"
    sh("systemctl", "start", "zvaultd")
    assert [r["result"] for r in ok("history", "-j", "tank").json()["runs"]][-1] == "interrupted"
    eventually("the run that makes up for it to wait", waiting)

    # A run that is asked for meanwhile is not made to wait: it takes over.
    server = subprocess.Popen(["nbdkit", "-f", "-U", socket, "file", str(tank.image)])
    try:
        eventually("the server", Path(socket).exists)
        ok("run", "tank")
        results = [run["result"] for run in ok("history", "-j", "tank").json()["runs"]]
        assert results[:2] == ["ok", "failed"]
    finally:
        ctl("vault", "down", "cold")
        server.kill()
        server.wait()
        Path(socket).unlink(missing_ok=True)


# Bandwidth


SPAN = 4.0
"""Seconds a rate is taken over."""
STALE = 1.5
"""Seconds that a figure may be old on a machine short of CPU: it is told and passed on twice a second each."""


def keeps_to(limit: float, samples: list[tuple[float, int]], begin: float, end: float) -> bool:
    """Whether streams made use of a limit in MiB/s between two moments, and never went beyond it.

    On a machine that is short of CPU they may be slower at times, and make up for it by what may be saved up.
    """
    inside = [(when, count / MIB) for when, count in samples if begin <= when <= end]
    (first, before), (last, after) = inside[0], inside[-1]
    rates = [
        ((b - a) / (t - s), (b - a) / (t - s + BURST + STALE))
        for s, a in inside
        for t, b in inside
        if SPAN <= t - s < SPAN + 1 or (s, t) == (first, last)
    ]
    mean = (after - before) / (last - first)
    seen, proven = (max(rate) for rate in zip(*rates, strict=True))
    print(f"limit {limit}: {mean:.2f} MiB/s, at most {seen:.2f}, of which {proven:.2f} is proven")
    return 0.85 * limit < seen and proven <= limit


def test_all_streams_together_keep_to_the_limit(tank):
    tank.backup_extra = 'limit = "4M"'
    tank.start()
    world.noise(Path("/tank/big/noise"), 1)
    ok("run", "tank")
    for streams in (1, 3):
        for name in SMALL[:streams]:
            world.noise(Path(f"/{name}/noise"), 48 // streams)
        run_id = ok("run", "--no-wait", "-j", "tank").json()["run"]["id"]
        with heard(run_id) as samples:
            assert ctl("follow", run_id).code == 0
        wanted = [e for e in events(run_id) if e.get("dataset") in SMALL[:streams]]
        began = max(e["time"] for e in seen(wanted, "transfer-started"))
        end = min(e["time"] for e in seen(wanted, "transfer-finished"))
        assert most_at_once(wanted) == streams
        assert keeps_to(4, samples, began + 1, end - 0.5)


def test_a_window_that_ends_and_a_new_configuration_hold_for_streams_under_way(tank):
    world.noise(Path("/tank/big/noise"), 250)
    boundary = (int(time.time()) // 60 + 3) * 60
    clock = time.strftime("%H:%M", time.localtime(boundary))
    windows = f'[{{ rate = "3M", start = "00:00", end = "{clock}" }}, {{ rate = "9M" }}]'
    tank.exclude = '["tank", "tank/a/**", "tank/a", "tank/b", "tank/c"]'
    tank.backup_extra = f"limit = {windows}"
    tank.start()
    run_id = begun(0)
    sh("date", "-s", f"@{boundary - 8}")
    with heard(run_id) as samples:
        time.sleep(boundary + 7 - time.time())
        tank.backup_extra = 'limit = "2M"'
        tank.configure()
        sh("systemctl", "reload", "zvaultd")
        now = time.time()
        time.sleep(10)
        tank.backup_extra = 'limit = "off"'
        tank.configure()
        sh("systemctl", "reload", "zvaultd")
        assert ctl("follow", run_id).code == 0
    assert keeps_to(3, samples, boundary - 6, boundary)
    assert keeps_to(9, samples, boundary + 0.5, boundary + 7)
    assert keeps_to(2, samples, now + 0.5, now + 10)
    assert order(events(run_id), "transfer-started") == ["tank/big"], "it was one stream all the time"
