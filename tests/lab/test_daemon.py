"""zvaultd as a service: start, reload, schedules, catch-up, a second one, drain, who may do what."""

from __future__ import annotations

import os
import pwd
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import world
from world import CONFIG, DISK, World, ctl, eventually, ok, service, sh, shell, snapshots

LAB = {"mem": "3G", "timeout": 1200}


@pytest.fixture
def tank():
    it = World()
    it.clean()
    it.source()
    yield it
    it.clean()


def test_ready_status_line_and_watchdog(tank):
    tank.start()
    assert service("ActiveState") == "active"
    assert "idle" in service("StatusText")
    assert service("NotifyAccess") == "main"
    assert int(service("WatchdogTimestampMonotonic")) > 0
    # A loop that hangs is killed by systemd and started again: make it hang by stopping the process.
    short = Path("/run/systemd/system/zvaultd.service.d/short.conf")
    short.parent.mkdir(parents=True, exist_ok=True)
    short.write_text("[Service]\nWatchdogSec=10\n")
    try:
        sh("systemctl", "daemon-reload")
        sh("systemctl", "restart", "zvaultd")
        before = world.main_pid()
        os.kill(before, signal.SIGSTOP)
        world.restarted(before)
    finally:
        short.unlink()
        sh("systemctl", "daemon-reload")
    assert "Watchdog timeout" in world.journal("-u", "zvaultd")


def test_a_bad_configuration_keeps_it_from_starting_and_says_all(tank):
    tank.configure()
    CONFIG.write_text(
        CONFIG.read_text()
        .replace('pool = "cold"', 'pol = "cold"')
        .replace('vault = "cold"', 'vault = "clod"')
    )
    started = subprocess.run(["systemctl", "start", "zvaultd"], capture_output=True, text=True)
    assert started.returncode != 0
    told = world.journal()
    assert "zvault.toml:6" in told
    assert 'did you mean "pool"' in told
    assert "clod" in told
    checked = ctl("check-config")
    assert checked.code == 2
    assert 'did you mean "pool"' in checked.err + checked.out
    CONFIG.write_bytes(b"\xff\xfe not text")
    assert ctl("check-config").code == 2
    CONFIG.unlink()
    missing = ctl("check-config")
    assert missing.code == 2
    assert str(CONFIG) in missing.err + missing.out


def test_reload_takes_the_good_and_keeps_the_old_for_the_bad(tank):
    tank.start()
    pid = world.main_pid()
    tank.backup_extra = 'max_lag = "1h"'
    tank.configure()
    sh("systemctl", "reload", "zvaultd")
    assert world.status()["backups"][0]["max_lag_seconds"] == 3600
    assert world.metrics()["zvault_config_reload_success"] == 1
    CONFIG.write_text(CONFIG.read_text().replace("max_lag", "max_lagg"))
    sh("systemctl", "reload", "zvaultd")
    assert world.status()["backups"][0]["max_lag_seconds"] == 3600
    assert world.metrics()["zvault_config_reload_success"] == 0
    told = ctl("status")
    assert told.code == 1
    assert "not in force" in told.out + told.err
    assert 'did you mean "max_lag"' in world.journal()
    ok("run", "tank")
    tank.configure()
    sh("systemctl", "reload", "zvaultd")
    assert world.metrics()["zvault_config_reload_success"] == 1
    assert world.main_pid() == pid


def held(kind: str, name: str) -> dict[str, str]:
    """The severity of each condition that holds for a subject, as the metrics have it."""
    mine = f'kind="{kind}",name="{name}"'
    found = [sample for sample in world.metrics() if sample.startswith("zvault_condition") and mine in sample]
    pattern = r'condition="([^"]*)".*severity="([^"]*)"'
    return dict(match.groups() for sample in found if (match := re.search(pattern, sample)))


def test_what_is_wrong_shows_everywhere_until_it_is_right_again(tank):
    tank.backup_extra = 'max_lag = "1h"'
    tank.start()
    # What was never shown to be well is not said to be.
    assert ctl("status").code == 3
    health = 'zvault_health{{kind="{}",name="{}"}}'
    eventually("the daemon has looked", lambda: world.metrics()[health.format("daemon", "zvaultd")] == 0)
    assert held("backup", "tank") == {"new": "unknown"}
    eventually("a look at the vault", lambda: held("vault", "cold") == {"never-seen": "unknown"})
    ok("run", "tank")
    eventually("all to be well", lambda: ctl("status").code == 0)
    eventually(
        "that in the metrics",
        lambda: world.metrics()[health.format("vault", "cold")] == 0 == len(held("vault", "cold")),
    )
    assert world.metrics()[health.format("backup", "tank")] == 0

    # The lag becomes too long by a reload, and what is on disk is not in force before it.
    CONFIG.write_text(CONFIG.read_text().replace('max_lag = "1h"', 'max_lag = "1s"'))
    eventually("it is seen", lambda: held("daemon", "zvaultd") == {"config-changed": "warning"})
    said = ctl("status")
    assert (said.code, said.out.splitlines()[0]) == (1, "zvaultd has 1 warning")
    assert "systemctl reload zvaultd" in said.out
    assert held("backup", "tank") == {}
    eventually("it is told", lambda: "is not in force" in world.journal("CONDITION=config-changed"))
    sh("systemctl", "reload", "zvaultd")
    eventually("it is late", lambda: held("backup", "tank").keys() & {"late", "very-late"})
    eventually("that no more", lambda: held("daemon", "zvaultd") == {})
    eventually("it is far behind", lambda: held("backup", "tank") == {"very-late": "critical"})
    assert world.metrics()[health.format("backup", "tank")] == 3
    said = ctl("status")
    print(said.out)
    assert said.code == 1
    assert said.out.splitlines()[0] == "1 of 1 backup needs attention: tank late"
    verdict = world.status()["backups"][0]["verdict"]
    assert (verdict["level"], verdict["state"]) == ("critical", "late")
    assert "max_lag is 1s" in verdict["findings"][0]["why"]
    eventually(
        "the journal", lambda: "backup tank (critical) is far behind" in world.journal("HEALTH=critical")
    )
    assert "backup tank (critical)" in world.journal("BACKUP=tank", "CONDITION=very-late")
    tank.configure()
    sh("systemctl", "reload", "zvaultd")
    eventually("it is well again", lambda: ctl("status").code == 0)
    assert held("backup", "tank") == {}
    eventually(
        "that is told", lambda: "backup tank is well again" in world.journal("BACKUP=tank", "HEALTH=ok")
    )


def test_every_runs_by_itself_and_catches_up_once_after_a_pause(tank):
    tank.backup_extra = 'every = "8s"'
    tank.keep = "{ source = { last = 50 }, vault = { last = 50 } }"
    tank.start()
    eventually("a run of its own", lambda: len(snapshots("tank/home")) >= 2, seconds=240)
    sh("systemctl", "stop", "zvaultd")
    world.nothing_left()
    before = len(snapshots("tank/home"))
    # Only one run of the three that were missed may happen; the next one is not due for half an hour.
    tank.backup_extra = 'every = "30m"'
    tank.configure()
    sh("date", "--set", "+100 minutes")
    try:
        sh("systemctl", "start", "zvaultd")
        eventually("the missed run", lambda: len(snapshots("tank/home")) > before)
        eventually("it to end", lambda: world.status()["backups"][0]["state"] == "idle")
        assert len(snapshots("tank/home")) == before + 1
        triggers = [run["trigger"] for run in ok("history", "-j").json()["runs"]]
        assert triggers[0] == "catch-up"
        assert "schedule" in triggers
        sh("systemctl", "stop", "zvaultd")
    finally:
        sh("date", "--set", "-100 minutes")


def test_a_cron_schedule_names_its_next_run(tank):
    ok_config = 'schedule = "30 2 * * mon-fri"'
    tank.backup_extra = ok_config
    tank.start()
    eventually("the first run, of a backup that never ran", lambda: snapshots("tank/home"))
    at = time.localtime(world.status()["backups"][0]["next_run"])
    assert (at.tm_hour, at.tm_min) == (2, 30)
    assert at.tm_wday < 5


def test_a_wall_clock_that_jumps_ahead_like_after_sleep_runs_what_is_due(tank):
    tank.backup_extra = 'every = "1h"'
    tank.start()
    eventually("the first run", lambda: len(snapshots("tank/home")) == 1)
    eventually("it to end", lambda: world.status()["backups"][0]["state"] == "idle")
    sh("date", "--set", "+3 hours")
    try:
        # Three were missed; the monotonic clock, as after suspend, knows nothing of it.
        eventually("the missed run", lambda: len(snapshots("tank/home")) == 2)
        eventually("it to end", lambda: world.status()["backups"][0]["state"] == "idle")
        time.sleep(3)
        assert len(snapshots("tank/home")) == 2
    finally:
        sh("date", "--set", "-3 hours")


def test_a_second_daemon_is_refused(tank):
    tank.start()
    second = subprocess.run(["zvaultd"], capture_output=True, text=True, timeout=240)
    assert second.returncode == 2
    assert "another zvaultd is running" in second.stderr
    assert str(world.main_pid()) in second.stderr
    assert "Traceback" not in second.stderr
    assert ctl("status").code == 3, "the first one still answers, and knows of no backup yet"


def test_a_taken_port_stops_no_backup_and_is_told_until_it_is_free(tank):
    taken = socket.create_server(("127.0.0.1", 9712))
    tank.start()
    told = ctl("status")
    assert "9712" in told.out + told.err
    assert told.code == 1
    assert "metrics cannot be served" in world.journal()
    ok("run", "tank")
    taken.close()
    eventually("metrics once the port is free", serves_metrics, every=1)


def serves_metrics() -> bool:
    try:
        return bool(world.metrics())
    except OSError:
        return False


@pytest.mark.timeout(600)
def test_sigterm_drains_and_the_next_start_resumes(tank):
    world.noise(Path("/tank/big/more"), 150)
    # The drain's grace is over long before the stream is.
    tank.delay, tank.backup_extra = "filter=rate rate=32M", 'limit = "1M"'
    tank.start()
    ok("run", "--no-wait", "tank")
    eventually("bytes on their way", lambda: world.status()["backups"][0]["bytes_done"] > 10 << 20)
    sh("systemctl", "stop", "zvaultd")
    world.nothing_left()
    tank.backup_extra = ""
    tank.start()
    runs = eventually(
        "the catch-up run to end",
        lambda: (r := ok("history", "-j").json()["runs"]) and len(r) == 2 and r[0]["ended"] and r,
        seconds=240,
        every=1,
    )
    assert [(run["trigger"], run["result"]) for run in runs] == [("catch-up", "ok"), ("hand", "interrupted")]
    assert "resume to" in world.journal()


def test_what_may_be_deleted_of_the_state_costs_no_backup_anything(tank):
    tank.start()
    ok("run", "tank")
    sh("systemctl", "stop", "zvaultd")
    page = Path("/src/docs/reference/files.md").read_text()
    deletable = re.findall(r"^\| `([\w.-]+)`[^|]*\| may be deleted \|", page, re.MULTILINE)
    there = {path.name for path in Path("/var/lib/zvault").iterdir()}
    assert {"history.sqlite", "pools", "places"} <= there & set(deletable)
    for name in deletable:
        sh("rm", "-rf", f"/var/lib/zvault/{name}")
    world.fill(Path("/tank/home"), 3, count=2)
    tank.start()
    ok("run", "tank")
    (run,) = ok("history", "-j").json()["runs"]
    assert run["result"] == "ok"
    kinds = {one["kind"] for one in world.events(run["id"]) if one["event"] == "transfer-started"}
    assert kinds == {"incremental"}
    ok("vault", "up", "cold")
    newest = snapshots("tank/home")[-1]
    assert world.snapshot_hashes(f"cold/lab/tank/home@{newest}") == world.snapshot_hashes(
        f"tank/home@{newest}"
    )
    ok("vault", "down", "cold")


def test_group_may_read_root_may_act_others_nothing(tank):
    Path("/etc/sysusers.d").mkdir(exist_ok=True)
    Path("/etc/sysusers.d/lab.conf").write_text("u reader -\nm reader zvault\nu stranger -\n")
    sh("systemd-sysusers")  # also makes the group, as installing the package does
    tank.start()

    def as_user(name: str, *argv: str) -> subprocess.CompletedProcess[str]:
        user = pwd.getpwnam(name)
        groups = os.getgrouplist(name, user.pw_gid)
        return subprocess.run(
            ["zvaultctl", *argv],
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=groups,
            capture_output=True,
            text=True,
        )

    assert as_user("reader", "list").returncode == 0
    refused = as_user("reader", "run", "tank")
    assert refused.returncode == 2
    assert "only root may" in refused.stderr
    assert snapshots("tank/home") == []
    stranger = as_user("stranger", "list")
    assert stranger.returncode == 2
    assert "group zvault" in stranger.stderr


def test_journal_fields_find_a_run(tank):
    tank.start()
    ok("run", "tank")
    run = ok("history", "-j").json()["runs"][0]["id"]
    assert "tank/home" in world.journal(f"RUN={run}", "DATASET=tank/home")
    assert "ok" in world.journal(f"RUN={run}", "BACKUP=tank")
    assert world.journal("-p", "err", f"RUN={run}").strip() == ""


SLOW = DISK / "slow.img"
SLOW_DEVICE = Path("/dev/nbd9")


@pytest.fixture
def slow(tank: World) -> Iterator[int]:
    """A pool ``slow`` whose snapshots are not cached; the pid of its disk's server."""
    server, pidfile = Path("/run/slow.sock"), Path("/run/slow.pid")
    sh("truncate", "-s", "256M", str(SLOW))
    sh("nbdkit", "-U", str(server), "-P", str(pidfile), "file", str(SLOW))
    eventually("the disk", pidfile.exists)
    pid = int(pidfile.read_text())
    client = ("nbd-client", "-unix", str(server), str(SLOW_DEVICE))
    eventually("a connection", lambda: "Connected" in sh(*client, check=False))
    sh("zpool", "create", "-m", "none", "slow", str(SLOW_DEVICE))
    # So many that the import does not read all that a listing does.
    shell(
        "for n in $(seq 15); do zfs create slow/$n; done; for n in $(seq 30); do zfs snapshot -r slow@$n; done"
    )
    sh("zpool", "export", "slow")
    sh("zpool", "import", "-N", "-d", str(SLOW_DEVICE), "slow")
    sh("udevadm", "settle")  # it reads what came and went
    yield pid
    os.kill(pid, signal.SIGCONT)
    sh("systemctl", "stop", "zvaultd", check=False)
    sh("zpool", "destroy", "-f", "slow")
    sh("nbd-client", "-d", str(SLOW_DEVICE))
    os.kill(pid, signal.SIGTERM)
    eventually("the end of its server", lambda: not Path(f"/proc/{pid}").exists())


def test_a_source_that_does_not_answer_keeps_neither_the_start_nor_other_backups_waiting(
    tank: World, slow: int
) -> None:
    """Else systemd would end zvaultd and start it again and again, as its start takes too long."""
    tank.start()
    ok("run", "tank")
    sh("systemctl", "stop", "zvaultd")
    tank.backup_extra = 'every = "8s"'
    tank.extra = '[backup.slow]\nsource = "slow"\nvault = "cold"\nevery = "30m"\n'
    os.kill(slow, signal.SIGSTOP)
    tank.start()
    eventually("three runs of the other", lambda: [run["result"] for run in runs("tank")].count("ok") >= 3)
    assert backup("tank")["next_run"] is not None
    assert (backup("slow")["scheduled"], backup("slow")["next_run"]) == (True, None)
    assert "not known until its source and vault have been looked at" in ctl("status", "slow").out
    assert int(service("NRestarts")) == 0
    sh("systemctl", "reload", "zvaultd")
    os.kill(slow, signal.SIGCONT)
    eventually("what was missed", lambda: backup("slow")["last_result"] == "ok")
    assert backup("slow")["next_run"] is not None
    assert int(service("NRestarts")) == 0


def runs(name: str) -> list[dict[str, Any]]:
    """The runs of a backup that the history has."""
    return ok("history", name, "-j").json()["runs"]


def backup(name: str) -> dict[str, Any]:
    """What the status has of a backup."""
    (found,) = [one for one in world.status()["backups"] if one["name"] == name]
    return found
