"""What a run takes, and when: shown before it begins, only what changed or is chosen, by whom, and under which lock."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest
import world
from run_taken import (
    NAMES,
    Small,
    as_user,
    everything,
    foreseen,
    lag,
    pruned,
    skipping_for_test,  # noqa: F401
    taken,
    tank_for_test,  # noqa: F401
    write,
)
from world import ctl, events, get, ok, sh, snapshots, status

LAB = {"mem": "3G", "timeout": 1200, "in_order": True}


# Shown before it begins


def test_what_is_shown_is_what_the_run_does_and_showing_it_does_nothing(tank: Small) -> None:
    for _ in range(3):
        write("tank/a")
        ok("run", "tank")
    write("tank/a", sync=True)
    sh("zfs", "create", "tank/new")
    before = everything()
    told = foreseen()
    print(ctl("run", "-n", "tank").out)
    assert everything() == before, "nothing was touched"
    there = {name: (snapshots(name), snapshots(f"cold/lab/{name}")) for name in NAMES}

    ok("run", "tank")
    (last,) = ctl("history", "tank", "-j").json()["runs"][:1]
    (plan,) = [event for event in events(last["id"]) if event["event"] == "plan"]
    actions = {row["dataset"]: row["action"] for row in told["datasets"]}
    assert actions == {row["dataset"]: row["action"] for row in plan["datasets"]}
    assert actions["tank/new"] == "full"
    assert set(told["snapshotted"]) == {*NAMES, "tank/new"}
    gone = {
        f"{root}{name}@{snapname}"
        for name in NAMES
        for root, had, has in (
            ("", there[name][0], snapshots(name)),
            ("cold/lab/", there[name][1], snapshots(f"cold/lab/{name}")),
        )
        for snapname in had
        if snapname not in has
    }
    assert gone == pruned(told["prune"]) != set()
    sh("zfs", "destroy", "-r", "tank/new", check=False)


def test_a_vault_that_is_down_stays_down(tank: Small) -> None:
    ok("vault", "down", "cold")
    told = foreseen(code=3)
    assert {row["action"] for row in told["datasets"]} == {"unknown"}
    assert "cold" not in sh("zpool", "list", "-Ho", "name").split()
    ok("vault", "up", "cold")


def test_only_what_was_written_to_is_taken_also_if_that_is_not_on_disk_yet(skipping: Small) -> None:
    write("tank/a")
    assert taken() == {"tank/a"}
    with Path("/dev/zvol/tank/vol").open("r+b") as volume:
        volume.write(str(time.monotonic_ns()).encode())
        # To be in the volume at all: where udev has the device open too, closing it leaves that in the device's cache.
        volume.flush()
        os.fsync(volume.fileno())
    assert taken() == {"tank/vol"}


def test_where_nothing_changed_nothing_is_made_and_that_counts_as_backed_up(skipping: Small) -> None:
    made = max(int(get(f"{name}@{snapshots(name)[-1]}", "creation")) for name in NAMES)
    world.eventually("the snapshots are some seconds old", lambda: time.time() > made + 3)
    began = time.time()
    assert set(foreseen()["snapshotted"]) == set()
    assert taken() == set()
    assert lag() <= time.time() - began < time.time() - made
    # So it is after a restart, while the vault is down: that is on record.
    ok("vault", "down", "cold")
    before = world.main_pid()
    sh("systemctl", "restart", "zvaultd")
    world.restarted(before)
    world.eventually("the lag is known", lambda: status()["backups"][0]["lag_seconds"] is not None)
    assert lag() <= time.time() - began < time.time() - made + 1
    # What is written from now on is lacking since the run, and not since the snapshot.
    write("tank/b", sync=True)
    assert lag() <= time.time() - began
    ok("vault", "up", "cold")
    assert taken() == {"tank/b"}


@pytest.mark.parametrize(
    "change",
    [
        ("zfs", "set", "compression=zstd", "tank/b"),
        ("zfs", "inherit", "compression", "tank/b"),
        ("zfs", "set", "org.example:note=new", "tank/b"),
        ("zfs", "snapshot", "tank/b@other"),
    ],
    ids=["set", "inherited", "user-property", "snapshot-of-others"],
)
def test_what_was_changed_but_not_written_to_is_taken(skipping: Small, change: tuple[str, ...]) -> None:
    sh(*change)
    assert taken() == {"tank/b"}
    sh("zfs", "destroy", "tank/b@other", check=False)


def test_reading_a_file_is_a_change_where_access_times_are_kept(skipping: Small) -> None:
    sh("zfs", "set", "atime=on", "relatime=off", "tank/a")
    write("tank/a")
    ok("run", "tank")
    assert taken() == set()
    world.eventually("another second", lambda: Path("/tank/a/file").read_text() and taken() == {"tank/a"})
    sh("zfs", "inherit", "atime", "tank/a")
    sh("zfs", "inherit", "relatime", "tank/a")


def test_what_was_received_meanwhile_is_taken(skipping: Small) -> None:
    sh("zfs", "create", "tank/from")
    sh("zfs", "snapshot", "tank/from@1")
    world.shell("zfs send tank/from@1 | zfs receive -u tank/copy")
    ok("run", "tank")
    ours = snapshots("tank/copy")[-1]
    write("tank/from", sync=True)
    sh("zfs", "snapshot", "tank/from@2")
    world.release_all("tank/copy")
    world.shell("zfs send -i @1 tank/from@2 | zfs receive -F -u tank/copy")
    assert snapshots("tank/copy") == ["1", "2"], "the received snapshot took the place of zvault's"
    ctl("run", "tank")
    assert snapshots("tank/copy")[-1] not in {ours, "2"}
    world.destroy_held("tank/copy")
    world.destroy_held("tank/from")


def test_only_what_is_included_is_taken_and_nothing_else_is_touched(skipping: Small) -> None:
    before = {name: snapshots(name) for name in NAMES}
    skipping.backup_extra = 'include = ["tank/a", "tank/deep/*"]'
    sh("zfs", "create", "-p", "tank/deep/one/below")
    skipping.reload()
    assert set(foreseen()["snapshotted"]) == {"tank/a", "tank/deep/one"}
    ok("run", "tank")
    assert {name for name in NAMES if snapshots(name) != before[name]} == {"tank/a"}
    kept = ["tank", "tank/b", "tank/vol"]
    assert all(snapshots(f"cold/lab/{name}")[-1] == before[name][-1] for name in kept)
    assert len(snapshots("cold/lab/tank/deep/one")) == 1
    # What is above is only there to hold it; once it is taken, it takes the placeholder's place.
    assert get("cold/lab/tank/deep", "org.zvault:placeholder") == "cold/lab/tank/deep"
    skipping.backup_extra = 'include = ["tank/a", "tank/deep", "tank/deep/*"]'
    skipping.reload()
    ok("run", "tank")
    assert snapshots("cold/lab/tank/deep") == snapshots("tank/deep") != []
    # One that is named and gone is told, and what is there is taken all the same.
    world.destroy_held("tank/deep")
    kept = snapshots("tank/a")
    short = ctl("run", "tank")
    assert short.code == 1
    assert "there is no dataset 'tank/deep'" in short.err + short.out
    assert snapshots("tank/a")[-1] not in kept
    assert snapshots("cold/lab/tank/a")[-1] == snapshots("tank/a")[-1]
    assert ctl("history", "tank", "-j").json()["runs"][0]["result"] == "partial"


def test_several_sources_are_taken_in_one_snapshot_and_all_of_them_or_none(skipping: Small) -> None:
    skipping.backup_extra = ""
    sh("zfs", "create", "-p", "tank/far/one/below")
    skipping.configure()
    one = world.CONFIG.read_text()
    assert 'source = "tank"' in one
    world.CONFIG.write_text(one.replace('source = "tank"', 'source = ["tank/b", "tank/far/one"]'))
    assert not ok("check-config").err
    sh("systemctl", "reload", "zvaultd")
    before = {name: snapshots(name) for name in NAMES}
    write("tank/b")
    ok("run", "tank")
    ours = ["tank/b", "tank/far/one", "tank/far/one/below"]
    assert len({get(f"{name}@{snapshots(name)[-1]}", "createtxg") for name in ours}) == 1
    for name in ours:
        newest = snapshots(name)[-1]
        assert get(f"cold/lab/{name}@{newest}", "guid") == get(f"{name}@{newest}", "guid")
    assert {name for name in NAMES if snapshots(name) != before[name]} == {"tank/b"}
    assert get("cold/lab/tank/far", "org.zvault:placeholder") == "cold/lab/tank/far"
    assert ok("status", "-j").json()["backups"][0]["source"] == "tank/b, tank/far/one"
    # One that is gone is told, and is no reason to take the others alone.
    world.destroy_held("tank/far")
    before = {name: snapshots(name) for name in NAMES}
    assert "there is no dataset 'tank/far/one', so every run fails" in ok("check-config").err
    failed = ctl("run", "tank")
    assert failed.code != 0
    assert "there is no dataset 'tank/far/one'" in failed.err + failed.out
    assert {name: snapshots(name) for name in NAMES} == before
    skipping.reload()


def test_a_property_selects_as_it_is_set_here_and_not_as_it_was_received(skipping: Small) -> None:
    mark = "org.example:backup"
    sh("zfs", "create", "-p", "tank/sel/one")
    sh("zfs", "create", "tank/away")
    sh("zfs", "set", f"{mark}=true", "tank/sel", "tank/b")
    sh("zfs", "snapshot", "tank/b@sent")
    world.shell(
        f"zfs send -p tank/b@sent | zfs receive -u tank/received && zfs get -Ho source {mark} tank/received"
    )
    assert get("tank/received", mark) == "true"
    # A property may hold what looks like the line of another dataset.
    sh("zfs", "set", f"{mark}=true\ntank/vol\ttrue\tlocal\ntank/b\tfalse\tlocal", "tank/a")
    skipping.backup_extra = f'select = "{mark}"'
    skipping.reload()
    assert set(foreseen()["snapshotted"]) == {"tank/b", "tank/sel", "tank/sel/one"}
    before = {name: snapshots(name) for name in (*NAMES, "tank/away", "tank/received")}
    ok("run", "tank")
    assert {name for name in before if snapshots(name) != before[name]} == {"tank/b"}
    assert snapshots("cold/lab/tank/sel/one") == snapshots("tank/sel/one") != []
    sh("zfs", "set", f"{mark}=child", "tank/sel")
    assert set(foreseen()["snapshotted"]) == {"tank/b", "tank/sel/one"}
    for name in ("tank/sel", "tank/away", "tank/received"):
        world.destroy_held(name)
    for name in ("tank/a", "tank/b"):
        sh("zfs", "inherit", mark, name)
    sh("zfs", "destroy", "tank/b@sent")


def test_an_operator_starts_runs_and_nothing_else(skipping: Small) -> None:
    users = "u reader -\nm reader zvault\nu operator -\nm operator zvault\nm operator zvault-operator\n"
    Path("/etc/sysusers.d").mkdir(exist_ok=True)
    Path("/etc/sysusers.d/lab.conf").write_text(users)
    sh("systemd-sysusers")  # also makes the groups, as installing the package does
    before = world.main_pid()
    sh("systemctl", "restart", "zvaultd")  # the socket is made for the group
    world.restarted(before)
    made = snapshots("tank/a")
    write("tank/a")
    refused = as_user("reader", "run", "tank")
    assert (refused.returncode, snapshots("tank/a")) == (2, made)
    assert "zvault-operator" in refused.stderr
    done = as_user("operator", "run", "tank")
    assert done.returncode == 0, done.stderr
    assert snapshots("tank/a")[-1] not in made
    assert as_user("operator", "status").returncode in {0, 1, 3}
    for argv in (
        ("vault", "down", "cold"),
        ("verify", "tank"),
        ("restore", "tank", f"tank/a@{made[-1]}", "tank/back"),
    ):
        told = as_user("operator", *argv)
        assert told.returncode == 2, argv
        assert "only root may do that" in told.stderr, (argv, told.stderr)


WRITER = """
import sqlite3, sys, time
database = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
database.execute("PRAGMA journal_mode = DELETE")
database.execute("CREATE TABLE IF NOT EXISTS pair (up INTEGER, down INTEGER)")
database.execute("INSERT INTO pair VALUES (0, 0)")
while True:
    database.execute("BEGIN IMMEDIATE")
    database.execute("UPDATE pair SET up = up + 1")
    time.sleep(0.05)
    database.execute("UPDATE pair SET down = down - 1")
    database.execute("COMMIT")
    time.sleep(0.01)
"""


def half_written(snapshot: str) -> bool:
    """Whether a snapshot has a transaction's journal, by which the database would have to be recovered."""
    with world.mounted(snapshot) as root:
        return (root / "app.db-journal").exists()


def test_a_program_that_holds_a_lock_over_the_snapshot(skipping: Small) -> None:
    page = Path("/src/docs/how-to/hooks.md").read_text()
    script = Path("/usr/local/sbin/hold-sqlite")
    script.write_text(page.partition("```python\n")[2].partition("```")[0])
    script.chmod(0o755)
    database = "/tank/a/app.db"
    writer = subprocess.Popen(["python3", "-c", WRITER, database])
    try:
        world.eventually("the database", lambda: Path(database).exists() and writer.poll() is None)

        def caught() -> bool:
            sh("zfs", "snapshot", "tank/a@caught")
            try:
                return half_written("tank/a@caught")
            finally:
                sh("zfs", "destroy", "tank/a@caught")

        world.eventually("a snapshot amid a transaction", caught)
        hook = f'{{ run = ["{script}", "{database}"], hold = true, timeout = "60s" }}'
        skipping.backup_extra = f"snapshot.hooks.before = [{hook}]"
        skipping.reload()
        for _ in range(4):
            ok("run", "tank")
            made = f"tank/a@{snapshots('tank/a')[-1]}"
            assert not half_written(made)
            with world.mounted(made) as root:
                copy = sqlite3.connect(f"file:{root}/app.db?mode=ro&immutable=1", uri=True)
                up, down = copy.execute("SELECT up, down FROM pair").fetchone()
                copy.close()
            assert up == -down > 0
        assert "hold-sqlite" not in world.command_lines()
        assert writer.poll() is None, "the writer only waited"

        skipping.backup_extra = (
            'snapshot.hooks.before = [{ run = ["sleep", "1000"], hold = true, timeout = "1s" }]'
        )
        skipping.reload()
        before = snapshots("tank/a")
        refused = ctl("run", "tank")
        assert refused.code == 1
        assert "did not end within 1 s" in refused.err
        assert snapshots("tank/a") == before
    finally:
        writer.kill()
        writer.wait()


def test_what_was_rolled_back_is_not_what_the_vault_has(skipping: Small) -> None:
    write("tank/a")
    ok("run", "tank")
    old, new = snapshots("tank/a")[-2:]
    world.release_all("tank/a")
    sh("zfs", "rollback", "-r", f"tank/a@{old}")
    done = ctl("run", "tank")
    assert done.code == 1, "a conflict"
    assert "tank/a" in done.err
    assert snapshots("tank/a")[-1] not in {old, new}, (
        "it was snapshotted: nothing shows that the vault has it"
    )
    assert snapshots("cold/lab/tank/a")[-1] == new
