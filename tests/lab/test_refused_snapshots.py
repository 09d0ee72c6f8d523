"""What ZFS makes no snapshot of keeps nothing else from getting one; and what zvault advises there helps.

And snapshots at their own time, on a source whose vault is away.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import world
from world import CONFIG, World, ctl, eventually, get, ok, sh, shell, snapshots

LAB = {"mem": "3G", "timeout": 900}

DATASETS = ("tank", "tank/home", "tank/data")


def configure(more: str = "") -> None:
    CONFIG.parent.mkdir(exist_ok=True)
    CONFIG.write_text(f"""
[vault.cold]
pool = "cold"
up = "always"

[backup.tank]
source = "tank"
into = "{{dataset}}"
vault = "cold"
retries = 0
prune_limit = "100%"
{more}
""")


@pytest.fixture
def tank() -> Iterator[World]:
    """Two pools on files, and a backup of one into the other by hand."""
    it = World()
    it.clean()
    for name, size in (("tank", "400M"), ("cold", "600M")):
        world.DISK.mkdir(exist_ok=True)
        sh("truncate", "-s", size, str(world.DISK / f"{name}.img"))
        sh("zpool", "create", "-O", f"mountpoint=/{name}", name, str(world.DISK / f"{name}.img"))
    for name in DATASETS[1:]:
        sh("zfs", "create", name)
    configure()
    sh("systemctl", "start", "zvaultd")
    yield it
    it.clean()


def all_sent(*datasets: str) -> None:
    """Their newest snapshot is on the vault, and of one moment."""
    newest = {name: snapshots(name)[-1] for name in datasets}
    assert len(set(newest.values())) == 1
    assert len({get(f"{name}@{snap}", "createtxg") for name, snap in newest.items()}) == 1
    for name, snap in newest.items():
        assert get(f"cold/{name}@{snap}", "guid") == get(f"{name}@{snap}", "guid")


def half_receive(dataset: str) -> None:
    """A restore that was cut off."""
    snap = f"cold/tank/home@{snapshots('cold/tank/home')[-1]}"
    shell(f"zfs send -p '{snap}' | head -c 5M | zfs receive -s -u '{dataset}' 2>/dev/null; true")
    assert get(dataset, "receive_resume_token") != "-"


def test_two_that_refuse_are_named_with_what_helps_and_all_others_are_backed_up(tank: World) -> None:
    world.noise(Path("/tank/home/big"), 10)
    ok("run", "tank")
    half_receive("tank/found")
    sh("zfs", "create", "-V", "200M", "tank/vm")
    eventually("the volume's device", lambda: Path("/dev/zvol/tank/vm").exists())
    shell("head -c 150M /dev/urandom >/dev/zvol/tank/vm; sync; zpool sync tank")

    told = ctl("plan", "tank")
    assert told.code == 1
    for dataset, advice in (
        ("tank/found", "zfs receive -A tank/found"),
        ("tank/vm", "zfs set refreservation=none tank/vm"),
    ):
        assert f"no snapshot can be made of {dataset}" in told.out
        assert advice in " ".join(told.out.split())
        assert f"{dataset} cannot be snapshotted" in ctl("check-config").err.replace("\n", " ")

    run = ctl("run", "tank")
    assert run.code == 1, run
    assert "tank partial" in run.out + run.err
    for dataset in ("tank/found", "tank/vm"):
        assert f"failed: {dataset}" in run.out + run.err
        assert snapshots(dataset) == []
    all_sent(*DATASETS)
    (backup,) = world.status()["backups"]
    assert backup["verdict"]["findings"][0]["condition"] == "partial"

    sh("zfs", "receive", "-A", "tank/found")
    sh("zfs", "set", "refreservation=none", "tank/vm")
    assert ctl("plan", "tank").code == 0
    ok("run", "tank")
    all_sent(*DATASETS, "tank/vm")


def test_an_incremental_that_waits_to_be_resumed_is_no_reason_to_leave_a_dataset_out(tank: World) -> None:
    """Somebody's replica in the source: the token is beside the dataset, which is whole."""
    sh("zfs", "create", "cold/other")
    sh("zfs", "snapshot", "cold/other@1")
    shell("zfs send cold/other@1 | zfs receive -u tank/replica")
    world.noise(Path("/cold/other/big"), 10)
    sh("zfs", "snapshot", "cold/other@2")
    shell("zfs send -i @1 cold/other@2 | head -c 5M | zfs receive -s -u tank/replica 2>/dev/null; true")
    assert get("tank/replica", "receive_resume_token") != "-"
    ok("run", "tank")
    all_sent(*DATASETS, "tank/replica")


def test_a_source_full_of_expired_snapshots_is_pruned_for_the_next_one(tank: World) -> None:
    configure('keep = { source = { within = "90d" }, vault = { last = 50 } }')
    sh("systemctl", "reload", "zvaultd")
    for ago in (6, 5, 4):
        world.noise(Path("/tank/home/a"), 60)
        sh("zfs", "snapshot", "-r", shell(f"date -u -d '{ago} days ago' +tank@zvault_%FT%TZ"))
    ok("run", "tank", "--no-snapshot")
    configure('keep = { source = { within = "1h" }, vault = { last = 50 } }')
    sh("systemctl", "reload", "zvaultd")
    shell("dd if=/dev/urandom of=/tank/home/fill bs=64k 2>/dev/null; zpool sync tank", check=False)
    shell("dd if=/dev/urandom of=/tank/home/rest bs=512 2>/dev/null; zpool sync tank", check=False)
    assert "out of space" in shell("zfs snapshot tank/data@full 2>&1", check=False)
    run = ok("run", "tank")
    assert "what has expired there goes first" in run.err
    assert "pruned: 6 snapshots on the source" in run.out
    all_sent(*DATASETS)
    assert len(snapshots("tank/home")) == 2, "the base was sacred"


def test_snapshots_go_on_while_the_vault_is_away_and_the_next_run_sends_them(tank: World) -> None:
    ok("run", "tank")
    base = snapshots("tank/home")[-1]
    sh("zpool", "export", "cold")
    Path(world.DISK / "cold.img").rename(world.DISK / "away")
    run = ctl("run", "tank")
    assert run.code == 1
    (by_run,) = snapshots("tank/home")[1:]
    assert f"@{by_run} of 3 datasets" in run.out, "a run that cannot have its vault makes its snapshot"
    configure('snapshot = { every = "2s" }\nkeep = { source = { last = 2 }, vault = { last = 50 } }')
    sh("systemctl", "reload", "zvaultd")
    eventually("five of its own", lambda: len(snapshots("tank/home")) >= 7)
    assert world.status()["backups"][0]["next_snapshot"] is not None
    configure("keep = { source = { last = 2 }, vault = { last = 50 } }")
    sh("systemctl", "reload", "zvaultd")
    made = snapshots("tank/home")
    assert made[:2] == [base, by_run], "nothing that is still to be sent goes, nor the base"
    Path(world.DISK / "away").rename(world.DISK / "cold.img")
    sh("zpool", "import", "-d", str(world.DISK), "cold")
    eventually("the vault is up", lambda: world.status()["vaults"][0]["state"] == "up")
    run = ok("run", "tank")
    assert "full" not in run.out.partition("plan:")[2].partition("\n")[0]
    there = snapshots("cold/tank/home")
    assert there[: len(made)] == made, "all of them"
    all_sent(*DATASETS)
    assert snapshots("tank/home") == there[-2:], "what is sent goes by its rules"
