"""Hooks with the real daemon: what they are told, what their failure does, and that none after is ever left out."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import world
from world import World, ctl, eventually, get, ok, sh, snapshots

LAB = {"mem": "3G", "timeout": 1000}

SCRATCH = Path("/run/hooks-test")


@pytest.fixture
def tank():
    it = World(source_name="tank/home")
    it.clean()
    sh("rm", "-rf", str(SCRATCH))
    SCRATCH.mkdir()
    it.source()
    yield it
    it.clean()


def hooks(before: list[str] = [], after: list[str] = []) -> str:  # noqa: B006 - never changed
    """Hooks as TOML, each a line of shell."""
    many = [", ".join(json.dumps(["sh", "-c", line]) for line in lines) for lines in (before, after)]
    return f"{{ before = [{many[0]}], after = [{many[1]}] }}"


def told(name: str) -> dict[str, str]:
    """The variables of ours that a hook wrote down."""
    lines = (SCRATCH / name).read_text().splitlines()
    return dict(line.removeprefix("ZVAULT_").split("=", 1) for line in lines)


def see(name: str) -> str:
    return f"env | grep ^ZVAULT_ >{SCRATCH}/{name}"


def test_what_hooks_are_told_and_say(tank):
    # A snapshot is only seen where `after` stands behind it and `before` before it.
    count = "zfs list -Ht snapshot -o name tank/home | wc -l"
    tank.backup_extra = f"""
hooks = {hooks([see("1")], [see("4")])}
snapshot = {{ hooks = {hooks([see("2"), f"echo there are $({count})"], [see("3"), f"echo now $({count})"])} }}
"""
    tank.start()
    done = ok("run", "tank")
    (snapname,) = snapshots("tank/home")
    run = ok("history", "-j").json()["runs"][0]
    common = {"BACKUP": "tank", "RUN": run["id"], "SOURCE": "tank/home", "VAULT": "cold"}
    assert told("1") == {**common, "HOOK": "before-run", "SNAPSHOT": ""}
    assert told("2") == {**common, "HOOK": "before-snapshot", "SNAPSHOT": ""}
    ended = {**common, "SNAPSHOT": snapname, "RESULT": "ok", "ERROR": ""}
    assert told("3") == {**ended, "HOOK": "after-snapshot"}
    assert told("4") == {**ended, "HOOK": "after-run"}
    assert "sh: there are 0" in done.out + done.err
    found = world.journal("HOOK=before-snapshot", "BACKUP=tank", f"RUN={run['id']}").splitlines()
    assert "tank: before-snapshot sh: there are 0" in found
    assert "tank: after-snapshot sh: now 1" in world.journal("HOOK=after-snapshot")
    assert not any(Path("/var/lib/zvault/lease").rglob("run-*"))


def test_failures(tank):
    # What the hooks do can be changed without the configuration.
    script = SCRATCH / "script"
    run = f"exec sh {script}"
    tank.backup_extra = f"""
hooks = {hooks([], [see("ended")])}
snapshot = {{ hooks = {hooks([run], [see("after"), "exit $(cat " + str(SCRATCH / "status") + ")"])} }}
"""
    script.write_text("echo psql: no such database >&2; exit 2\n")
    (SCRATCH / "status").write_text("0")
    tank.start()
    failed = ctl("run", "tank")
    assert failed.code != 0
    print(failed.err)
    assert "the hook 'sh' before the snapshot failed" in failed.err
    assert "exit status 2; it said: psql: no such database" in failed.err
    assert snapshots("tank/home") == []
    assert told("after")["RESULT"] == told("ended")["RESULT"] == "failed"
    assert told("ended")["ERROR"].startswith("the hook 'sh' before the snapshot failed: exit status 2")
    assert world.metrics()['zvault_backup_failures_total{backup="tank",reason="hook"}'] == 1
    world.nothing_left()

    script.write_text("true\n")
    (SCRATCH / "status").write_text("5")
    partial = ctl("run", "tank")
    assert partial.code != 0, "an after that fails is not silent"
    assert "the hook 'sh' after the snapshot (2 of 2) failed" in partial.err
    run_record = ok("history", "-j").json()["runs"][0]
    assert (run_record["result"], run_record["sent"]) == ("partial", 1), "but what was made is sent"
    assert told("ended")["RESULT"] == "partial"


def test_a_stop_and_a_crash_between_the_hooks(tank):
    lock = SCRATCH / "locked"
    first_time = SCRATCH / "first"
    first_time.touch()
    hang = f"touch {lock}; if rm {first_time} 2>/dev/null; then echo hanging; exec sleep 500; fi"
    before = f'[{{ run = {json.dumps(["sh", "-c", hang])}, timeout = "10m" }}]'
    after = json.dumps(["sh", "-c", f"rm {lock}; env | grep ^ZVAULT_ >>{SCRATCH}/after"])
    tank.backup_extra = f"snapshot = {{ hooks = {{ before = {before}, after = [{after}] }} }}"
    tank.start()

    ok("run", "--no-wait", "tank")
    eventually("the lock", lambda: lock.exists() and not first_time.exists())
    killed = world.main_pid()
    os.kill(killed, signal.SIGKILL)
    world.restarted(killed)
    runs = eventually(
        "the catch-up run to end",
        lambda: (
            (r := ctl("history", "-j")).code == 0
            and len(r.json()["runs"]) == 2
            and r.json()["runs"][0]["ended"]
            and r.json()["runs"]
        ),
        seconds=240,
        every=1,
    )
    assert [(run["trigger"], run["result"]) for run in runs] == [("catch-up", "ok"), ("hand", "interrupted")]
    assert not lock.exists()
    lines = (SCRATCH / "after").read_text().splitlines()
    results = [line for line in lines if line.startswith(("ZVAULT_RUN", "ZVAULT_RESULT"))]
    assert sorted(results[:2]) == ["ZVAULT_RESULT=interrupted", f"ZVAULT_RUN={runs[1]['id']}"]
    assert sorted(results[2:]) == ["ZVAULT_RESULT=ok", f"ZVAULT_RUN={runs[0]['id']}"], "once each"
    said = world.journal("HOOK=after-snapshot", f"RUN={runs[1]['id']}").splitlines()
    print("\n".join(said))
    assert said[0] == (
        f"tank: run {runs[1]['id']} was cut off before its hooks after the snapshot: running them now"
    )
    assert len(snapshots("tank/home")) == 1

    # The same for a stop: the daemon waits a while, then cuts the hook short and runs the one after.
    first_time.touch()
    ok("run", "--no-wait", "tank")
    eventually("the lock", lambda: lock.exists() and not first_time.exists())
    sh("systemctl", "stop", "zvaultd")
    assert not lock.exists()
    assert (SCRATCH / "after").read_text().count("ZVAULT_RESULT=interrupted") == 2
    assert sh("pgrep", "-f", "sleep 500", check=False) == "", "the hook that hung went with it"
    assert get("tank/home", "type") == "filesystem"
    assert len(snapshots("tank/home")) == 1


QM = f"""#!/bin/sh
# A stand-in: one guest, whose disk is a volume below the source.
count() {{ zfs list -Ht snapshot -o name tank/home/vm-100-disk-0 2>/dev/null | wc -l; }}
case "$1 $2 $4" in
"list "*) printf 'VMID NAME STATUS\\n100 web running\\n' ;;
"config 100 "*) printf 'agent: 1\\nscsi0: local-zfs:vm-100-disk-0,size=8M\\n' ;;
"guest cmd fsfreeze-freeze") echo "frozen $(count)" >>{SCRATCH}/qm; touch {SCRATCH}/frozen ;;
"guest cmd fsfreeze-thaw") echo "thawed $(count)" >>{SCRATCH}/qm; rm -f {SCRATCH}/frozen ;;
esac
"""


def test_guests_are_frozen_over_the_snapshot_and_thawed_whatever_happens(tank):
    for name, text in (("qm", QM), ("pvesm", '#!/bin/sh\necho "/dev/zvol/tank/home/${2#local-zfs:}"\n')):
        program = Path("/usr/local/bin", name)
        program.write_text(text)
        program.chmod(0o755)
    sh("zfs", "create", "-V", "8M", "tank/home/vm-100-disk-0")
    hook = "/usr/share/zvault/hooks/proxmox-freeze"
    before, after = (f'[["python3", "{hook}", "{what}"]]' for what in ("freeze", "thaw"))
    tank.extra = f"[backup.tank.snapshot.hooks]\nbefore = {before}\nafter = {after}\n"
    tank.start()
    ok("run", "tank")
    assert (SCRATCH / "qm").read_text().split("\n")[:2] == ["frozen 0", "thawed 1"]
    assert not (SCRATCH / "frozen").exists()
    assert sh("systemctl", "list-units", "--all", "--plain", "--no-legend", "zvault-thaw-*") == ""

    # Whoever froze is gone. The timer may come before one looks.
    sh("env", "ZVAULT_SOURCE=tank/other, tank/home", "python3", hook, "freeze", "--at-most", "2")
    assert (SCRATCH / "qm").read_text().splitlines()[2] == "frozen 1"
    eventually("the timer thaws", lambda: (SCRATCH / "qm").read_text().splitlines()[3:] == ["thawed 1"])
    assert not (SCRATCH / "frozen").exists()
