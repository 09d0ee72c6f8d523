"""Datasets side by side, within limits of places and bandwidth; and what fails for a while is tried again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import world
from several_datasets import (
    MIB,
    SMALL,
    Several,
    begun,
    heard,
    held_up,
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

from zvault.core.replication.bandwidth import ALLOWANCE_BURST
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
    tank.backup_extra = 'limit = "4M"'  # so that streams last long enough to meet, however late one begins
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


def test_a_backup_that_waits_for_a_place_says_who_has_it(tank):
    sh("zfs", "create", "tank/other")
    world.noise(Path("/tank/other/noise"), 2)
    tank.exclude = '["tank/scratch", "tank/other", "tank/other/**"]'
    tank.extra = """
[backup.other]
source = "tank/other"
vault = "cold"
into = "other/{dataset}"
snapshot = { prefix = "other" }
"""
    tank.vault_extra, tank.backup_extra = "create = true\ntransfers = 1", 'limit = "256K"'
    tank.start()
    first = begun(0)
    second = ok("run", "--no-wait", "-j", "other").json()["run"]["id"]

    def waits() -> str | None:
        return next(one for one in status()["backups"] if one["name"] == "other")["waits_for"]

    assert "(vault cold); they are taken by: tank 1" in eventually("it says for what it waits", waits)
    assert "other waits for one of the 1 streams" in " ".join(ctl("status").out.split())
    tank.backup_extra = ""
    tank.configure()
    sh("systemctl", "reload", "zvaultd")
    for one in (first, second):
        assert ctl("follow", one).code == 0
    assert waits() is None
    world.nothing_left()


def test_a_dataset_that_stands_still_blocks_no_other_and_is_tried_again(tank):
    tank.vault_extra = 'create = true\ntransfers = 2\nstall = "10s"'
    tank.retries, tank.backup_extra = 1, 'retry_wait = "1s"\nlimit = "3M"'
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
    tank.retries, tank.backup_extra = 6, 'retry_wait = "1s"\nlimit = "3M"'
    tank.start()
    run_id = begun(4, "tank/big")
    with held_up("tank/big"):  # or its stream might be over before the server is found
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


def fastest(samples: Sequence[tuple[float, int]], begin: float) -> float:
    """The highest rate of streams in MiB/s over some seconds since a moment, 0 where there was not so long yet.

    On a machine that is short of CPU they may be slower at times, but not all the time.
    """
    inside = [(when, count / MIB) for when, count in samples if when >= begin]
    rates = [(b - a) / (t - s) for s, a in inside for t, b in inside if SPAN <= t - s < SPAN + 1]
    return max(rates, default=0.0)


def keep_within(
    samples: Sequence[tuple[float, int]], rates: Sequence[tuple[float, float]], end: float
) -> bool:
    """Whether streams never went beyond limits in MiB/s, each from a moment on: the first from before the first byte.

    What is told of them at a moment may be old by then, and so too little, but never too much.
    """
    moments = [*(begin for begin, _ in rates[1:]), end]
    most = max(rate for _, rate in rates) * ALLOWANCE_BURST

    def may_be(when: float) -> float:
        spans = zip(rates, moments, strict=True)
        return most + sum(rate * max(0.0, min(when, to) - begin) for (begin, rate), to in spans)

    seen = [(may_be(when) - count / MIB, when, count) for when, count in samples if when <= end]
    left, when, count = min(seen)
    print(f"nearest to {rates}: {left:.2f} MiB less than may be, of {count / MIB:.2f} at {when:.2f}")
    return left >= 0


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
        told = events(run_id)
        assert most_at_once([e for e in told if e.get("dataset") in SMALL[:streams]]) == streams
        first = min(e["time"] for e in seen(told, "transfer-started"))
        ends = [(e["time"], e["run_bytes"]) for e in seen(told, "transfer-finished")]
        assert max(ends)[1] > 48 * MIB
        assert fastest(samples, first) > 0.85 * 4, "they make use of it"
        assert keep_within([*samples, *ends], [(first, 4.0)], max(ends)[0])


def test_a_window_that_ends_and_a_new_configuration_hold_for_streams_under_way(tank):
    with world.clock_put_right():
        changing_limits(tank)


def changing_limits(tank: Several) -> None:
    world.noise(Path("/tank/big/noise"), 250)
    # In the middle of a day, so that no midnight comes between, and some minutes before the window's end.
    today = time.localtime()
    boundary = time.mktime((today.tm_year, today.tm_mon, today.tm_mday + 1, 12, 0, 0, 0, 0, -1))
    time.clock_settime(time.CLOCK_REALTIME, boundary - 1000)
    windows = '[{ rate = "3M", start = "00:00", end = "12:00" }, { rate = "9M" }]'
    tank.exclude = '["tank", "tank/a/**", "tank/a", "tank/b", "tank/c"]'
    tank.backup_extra = f"limit = {windows}"
    tank.start()
    run_id = begun(0)
    with heard(run_id) as samples:
        eventually("use is made of the first", lambda: fastest(samples, 0) > 0.85 * 3)
        before = time.time() - time.monotonic()
        time.clock_settime(time.CLOCK_REALTIME, boundary - 2)
        jump = time.time() - time.monotonic() - before
        eventually("use is made of the second", lambda: fastest(samples, boundary + 0.5) > 0.85 * 9)
        tank.backup_extra = 'limit = "2M"'
        tank.configure()
        sh("systemctl", "reload", "zvaultd")
        now = time.time()
        eventually("it goes on for a while", lambda: samples[-1][0] > now + 10)
        end = time.time()
        tank.backup_extra = 'limit = "off"'
        tank.configure()
        sh("systemctl", "reload", "zvaultd")
        assert ctl("follow", run_id).code == 0
    assert fastest([one for one in samples if one[0] <= end], now + 0.5) > 0.85 * 2
    told = events(run_id)
    assert order(told, "transfer-started") == ["tank/big"], "it was one stream all the time"
    first = seen(told, "transfer-started")[0]["time"] + jump
    since = [one for one in samples if one[0] >= boundary - 2]
    assert keep_within(since, [(first, 3.0), (boundary, 9.0), (now, 2.0)], end)
