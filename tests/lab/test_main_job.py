"""The main job, end to end: three backups into a pool on an NBD device, prune, lag, restore, kill and resume."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from datetime import datetime
from pathlib import Path

import pytest
import world
from world import World, answer, ask, ctl, eventually, get, ok, sh, snapshots

LAB = {"mem": "4G", "timeout": 2250}

DATASETS = ("tank", "tank/home", "tank/my files", "tank/big", "tank/vol")


def target(dataset: str) -> str:
    return f"cold/lab/{dataset}"


@pytest.fixture
def tank():
    it = World()
    it.clean()
    it.source()
    yield it
    it.clean()


def same_on_both_sides(snapname: str) -> None:
    """Every dataset of one snapshot: same GUID, same files by hash; the volume by its bytes."""
    for dataset in DATASETS:
        assert get(f"{dataset}@{snapname}", "guid") == get(f"{target(dataset)}@{snapname}", "guid")
        if dataset != "tank/vol":
            here = world.snapshot_hashes(f"{dataset}@{snapname}")
            assert here == world.snapshot_hashes(f"{target(dataset)}@{snapname}")
            assert here or dataset == "tank"
    assert volume_hash("tank", snapname) == volume_hash("cold/lab/tank", snapname)


def volume_hash(root: str, snapname: str) -> str:
    pool = root.partition("/")[0]
    clone = f"{pool}/clone-of-vol"
    path = Path("/dev/zvol") / clone
    sh("zfs", "clone", "-o", "volmode=full", "-o", "readonly=on", f"{root}/vol@{snapname}", clone)
    try:
        eventually("the clone's device", path.exists)
        return sh("sha256sum", str(path)).split()[0]
    finally:
        # udev may still look at it; and its name must not stand for what the next one of that name is not.
        destroy = ["zfs", "destroy", clone]
        eventually("nobody to use the clone", lambda: subprocess.run(destroy).returncode == 0)
        eventually("its name to go", lambda: not path.is_symlink())


def change(tank: World, seed: int) -> None:
    """Three files of about 200 KB and 4 MiB of the volume."""
    world.fill(Path("/tank/home"), seed, count=3)
    Path("/tank/home/plain/file 1 of 1").unlink(missing_ok=True)
    tank.write_volume(seed)
    os.sync()  # what is only in the cache of the volume's device is in no snapshot


def test_three_backups_then_restore(tank):
    tank.start()

    first = ok("run", "tank")
    print(first.out, first.err)
    world.nothing_left()
    ok("vault", "up", "cold")
    (snapname,) = snapshots("tank/home")
    for dataset in DATASETS:
        assert snapshots(dataset) == snapshots(target(dataset)) == [snapname]
        assert get(target(dataset), "readonly") == "on"
    assert snapshots("tank/scratch") == []
    assert sh("zfs", "list", "-Ho", "name", target("tank/scratch"), check=False) == ""
    assert get(target("tank/home"), "mounted") == "no"
    assert get(target("tank/big"), "recordsize") == str(1 << 20)
    same_on_both_sides(snapname)
    full = ok("history", "-j").json()["runs"][0]
    assert (full["result"], full["sent"], full["datasets"]) == ("ok", 5, 5)
    assert full["bytes"] > 24 << 20

    snapnames = [snapname]
    for seed in (2, 3):
        time.sleep(1.1)
        change(tank, seed)
        done = ok("run", "tank")
        run = ok("history", "-j").json()["runs"][0]
        assert run["result"] == "ok", done.err
        # What changed, not the 24 MiB that did not.
        assert 4 << 20 < run["bytes"] < 12 << 20
        snapnames.append(snapshots("tank/home")[-1])
        same_on_both_sides(snapnames[-1])
    for dataset in DATASETS:
        assert snapshots(dataset) == snapnames[-2:], "the source keeps its last two"
        assert snapshots(target(dataset)) == snapnames, "the vault keeps its last three"

    time.sleep(1.1)
    ok("run", "tank")
    newest = snapshots("tank/home")[-1]
    for dataset in DATASETS:
        assert snapshots(target(dataset)) == [*snapnames[1:], newest]
        base = [
            mark
            for mark in sh("zfs", "list", "-Ht", "bookmark", "-o", "name", "-d", "1", dataset).split("\n")
            if mark
        ]
        two = {get(f"{target(dataset)}@{one}", "guid") for one in snapshots(target(dataset))[-2:]}
        assert {get(mark, "guid") for mark in base} == two, "the base and the one before it are bookmarked"
        assert len(base) == 2
        held = sh("zfs", "holds", "-H", *[f"{dataset}@{one}" for one in snapshots(dataset)]).splitlines()
        assert [line.split("\t")[0] for line in held] == [f"{dataset}@{newest}"], (
            "the base, and nothing else, is held"
        )

    restored = ok("restore", "tank", f"tank/home@{snapnames[1]}", "tank/back")
    assert "/tank/back" in restored.out + restored.err
    assert get("tank/back", "mounted") == "yes"
    assert get("tank/back", "readonly") == "off"
    kept = "tank/home" if snapnames[1] in snapshots("tank/home") else target("tank/home")
    assert world.tree_hashes(Path("/tank/back")) == world.snapshot_hashes(f"{kept}@{snapnames[1]}")
    ok("restore", "tank", "tank/vol", "tank/vol-back")
    assert get("tank/vol-back", "volsize") == str(16 << 20)
    again = ctl("restore", "tank", "tank/home", "tank/back")
    assert again.code != 0
    assert "already exists" in again.err

    ok("vault", "down", "cold")
    world.nothing_left()


def test_inhibitor_during_a_run_and_none_after(tank):
    tank.backup_extra = 'limit = "256K"'  # it lasts until all of this was seen, and then it may go
    tank.start()
    assert world.inhibitors() == ""
    running = subprocess.Popen(
        ["zvaultctl", "run", "tank"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    held = eventually("an inhibitor", world.inhibitors)
    assert " sleep " in held
    assert "shutdown" not in held, "it is delayed, never refused"
    assert "block" in held
    refused = subprocess.run(
        ["systemctl", "suspend", "--check-inhibitors=yes"], capture_output=True, text=True
    )
    assert refused.returncode != 0
    assert world.metrics()['zvault_inhibitor_held{vault="cold"}'] == 1
    assert running.poll() is None, "it was not over when it was looked at"
    tank.backup_extra = 'limit = "50M"'
    tank.configure()
    sh("systemctl", "reload", "zvaultd")
    out, _ = running.communicate(timeout=300)
    assert running.returncode == 0, out
    assert world.metrics()['zvault_inhibitor_held{vault="cold"}'] == 0
    eventually("logind to have heard of its end", lambda: world.inhibitors() == "")


def test_kill_mid_transfer_then_resume(tank):
    world.noise(Path("/tank/big/more"), 120)
    tank.backup_extra = 'limit = "8M"'  # for some 18 s
    tank.start()
    ok("run", "--no-wait", "tank")

    def halfway() -> bool:
        told = answer(ask("GET", "/v1/status"))
        return told is not None and told["backups"][0]["bytes_done"] > 40 << 20

    eventually("some bytes on their way", halfway)
    killed = world.main_pid()
    os.kill(killed, signal.SIGKILL)
    eventually("systemd to start it again", lambda: world.main_pid() not in {0, killed})
    sh("systemctl", "start", "zvaultd")
    runs = eventually(
        "the catch-up run to end",
        lambda: (r := ok("history", "-j").json()["runs"]) and len(r) == 2 and r[0]["ended"] and r,
        seconds=480,
        every=1,
    )
    assert [(run["trigger"], run["result"]) for run in runs] == [("catch-up", "ok"), ("hand", "interrupted")]
    assert "interrupted receive" in world.journal() or "resume" in world.journal()
    whole = int(get("tank/big", "logicalused"))
    assert runs[0]["bytes"] < whole - (10 << 20), "what had arrived before the kill was not sent again"
    world.nothing_left()
    ok("vault", "up", "cold")
    same_on_both_sides(snapshots("tank/home")[-1])
    ok("vault", "down", "cold")


def test_lag_against_a_clock_of_our_own(tank):
    tank.backup_extra = 'max_lag = "10m"'
    tank.start()
    assert 'zvault_backup_lag_seconds{backup="tank",dataset="tank/home"}' not in world.metrics(), (
        "missing is not zero"
    )
    assert ctl("status").code == 3, "a backup that never ran is not known to be well"
    ok("run", "tank")
    created = datetime.fromisoformat(snapshots("tank/home")[-1].removeprefix("zvault_")).timestamp()
    assert ctl("status").code == 0

    def right() -> bool:
        """Whether the lag is told, and if so, it must be right."""
        before = time.time()
        lag = world.metrics().get('zvault_backup_lag_seconds{backup="tank",dataset="tank/home"}')
        after = time.time()
        assert lag is None or before - created - 0.1 <= lag <= after - created + 0.1
        return lag is not None

    for _ in range(3):
        assert right()
        time.sleep(1.5)
    limit = int(time.time() - created) + 10
    tank.backup_extra = f'max_lag = "{limit}s"'
    tank.configure()
    sh("systemctl", "reload", "zvaultd")
    eventually("the backup to be late", lambda: ctl("status").code == 1)
    assert time.time() - created > limit, "it was no later than it may be"
    # The vault is down. A daemon that knows nothing must read the lag from the pools, not from a memory.
    sh("systemctl", "stop", "zvaultd")
    sh("rm", "-rf", "/var/lib/zvault", "/run/zvault")
    sh("systemctl", "start", "zvaultd")
    eventually("the lag read again", right)


def test_pruning_by_age(tank):
    tank.keep = '{ source = { within = "1s" }, vault = { within = "8s" } }'
    tank.start()
    ok("vault", "up", "cold")
    for _ in range(3):
        ok("run", "tank")
        time.sleep(1.2)
    for dataset in DATASETS:
        assert len(snapshots(dataset)) == 1, "older than a second; the newest stays, whatever its age"
    time.sleep(max(0.0, 8 - (time.time() - int(get(f"tank@{snapshots('tank')[-1]}", "creation")))) + 0.5)
    ok("run", "tank")
    for dataset in DATASETS:
        assert snapshots(target(dataset)) == snapshots(dataset), "all others are older than 8 seconds"
    ok("vault", "down", "cold")


def test_an_encrypted_dataset_comes_back_with_its_key(tank):
    key = Path("/root/key")
    key.write_bytes(b"k" * 32)
    sh(
        "zfs",
        "create",
        "-o",
        "encryption=on",
        "-o",
        "keyformat=raw",
        "-o",
        f"keylocation=file://{key}",
        "tank/secret",
    )
    sh("zfs", "create", "-o", "recordsize=1M", "tank/secret/child")
    world.fill(Path("/tank/secret/child"), 7, count=3)
    sh("zfs", "create", "-V", "8M", "tank/secret/vol")
    tank.start()
    ok("run", "tank")
    world.fill(Path("/tank/secret/child"), 8, count=2)
    time.sleep(1.1)
    ok("run", "tank")
    ok("vault", "up", "cold")
    assert get(target("tank/secret/child"), "keystatus") == "unavailable", "the vault never has the key"
    ok("vault", "down", "cold")
    restored = ok("restore", "tank", "tank/secret/child", "tank/opened")
    assert "load-key" in restored.out + restored.err
    sh("sh", "-c", f"zfs load-key -L file://{key} tank/opened && zfs mount tank/opened")
    assert world.tree_hashes(Path("/tank/opened")) == world.tree_hashes(Path("/tank/secret/child"))
    assert get("tank/opened", "recordsize") == str(1 << 20)
    assert get("tank/opened", "readonly") == "off"
    ok("restore", "tank", "tank/secret/vol", "tank/opened-vol")
    missing = ctl("restore", "tank", "tank/home", "nopool/home")
    assert missing.code != 0
    assert "zpool list" in missing.out + missing.err
