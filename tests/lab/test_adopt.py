"""A replica that another tool made, gone on with: nothing that it sent is sent again, and it may go on afterwards."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from world import DISK, World, ctl, get, noise, ok, sh, shell, snapshot_hashes, snapshots

LAB = {"mem": "3G", "timeout": 900}

CONF = Path("/etc/zvault/zvault.toml")
MIB = 1 << 20


@pytest.fixture
def it() -> Iterator[World]:
    """A source of three datasets; a pool that another tool fills."""
    world = World()
    world.clean()
    DISK.mkdir(exist_ok=True)
    for pool in ("tank", "cold"):
        sh("truncate", "-s", "512M", str(DISK / f"{pool}.img"))
        sh("zpool", "create", "-O", f"mountpoint=/{pool}", pool, str(DISK / f"{pool}.img"))
    for name in ("tank/data", "tank/data/home", "tank/data/home/my mail"):
        sh("zfs", "create", name)
        noise(Path(f"/{name}/noise"), 8)
    yield world
    world.clean()


def syncoid(source: str, target: str) -> None:
    sh("syncoid", "--recursive", "--quiet", source, target)


def zfs_only(source: str, target: str) -> None:
    """As by hand, or by a script."""
    sh("zfs", "snapshot", "-r", f"{source}@2026-11-01-by-hand")
    sh("sh", "-c", 'zfs send -R "$1@2026-11-01-by-hand" | zfs receive -u "$2"', "sh", source, target)


def taken_up(world: World, source: str, replica: str, *more: str) -> str:
    """What 'adopt' says, taken for the configuration as it stands, and a daemon with it."""
    before = ctl("adopt", source, replica, *more)
    print(before.out)
    # syncoid leaves what it received mounted, and to make a mount point writes to the dataset above.
    for command in ctl("adopt", source, replica, *more, "-j").json()["first"]:
        assert command in before.out
        shell(command)
    said = ok("adopt", source, replica, *more).out
    CONF.parent.mkdir(mode=0o755, exist_ok=True)
    CONF.write_text(said)
    sh("systemctl", "restart", "zvaultd")
    return said


@pytest.mark.parametrize("made_by", [syncoid, zfs_only], ids=["syncoid", "zfs"])
def test_a_replica_is_gone_on_with(it: World, made_by) -> None:
    sh("zfs", "create", "cold/mirror")
    made_by("tank/data", "cold/mirror/data")
    theirs = snapshots("cold/mirror/data/home")
    noise(Path("/tank/data/home/new"), 2)
    said = taken_up(it, "tank/data", "cold/mirror/data")
    assert 'into = "mirror/data/{path}"' in said
    # As if the run's snapshot existed: what it sends, and from what.
    assert said.count(": incremental\n") == 3
    assert f"send: incremental @{theirs[-1]} -> @zvault_" in said
    assert "conflict" not in said
    done = ok("run", "data", "-j").json()
    run = done.get("run", done)
    assert run["bytes"] < 5 * MIB, "the 8 MiB of each dataset were there"
    now = snapshots("cold/mirror/data/home")
    assert now[: len(theirs)] == theirs, "theirs are kept"
    assert snapshots("tank/data/home")[: len(theirs)] == theirs
    newest = now[-1]
    for name in ("data", "data/home", "data/home/my mail"):
        assert snapshot_hashes(f"cold/mirror/{name}@{newest}") == snapshot_hashes(f"tank/{name}@{newest}")


def test_a_stream_that_the_other_tool_did_not_finish_is_resumed(it: World) -> None:
    """As zrepl leaves it, with a hold on the source, if it is stopped while it sends."""
    zfs_only("tank/data", "cold/mirror")
    noise(Path("/tank/data/home/new"), 6)
    sh("zfs", "snapshot", "-r", "tank/data@zrepl_20261102_000000_000")
    sh("zfs", "hold", "zrepl_STEP_J_push", "tank/data/home@zrepl_20261102_000000_000")
    stream = "zfs send -i @2026-11-01-by-hand tank/data/home@zrepl_20261102_000000_000 | head -c 4M"
    shell(f"{stream} | zfs receive -s -u cold/mirror/home", check=False)
    assert get("cold/mirror/home", "receive_resume_token") != "-"
    said = taken_up(it, "tank/data", "cold/mirror")
    assert "tank/data/home into cold/mirror/home: resume\n" in said
    done = ok("run", "data", "-j").json()
    assert done.get("run", done)["bytes"] < 4 * MIB, "what was received of the 6 MiB is sent again"
    now = snapshots("cold/mirror/home")
    assert now[:2] == ["2026-11-01-by-hand", "zrepl_20261102_000000_000"]
    assert snapshot_hashes(f"cold/mirror/home@{now[-1]}") == snapshot_hashes(f"tank/data/home@{now[-1]}")


def test_and_the_other_tool_may_go_on_afterwards(it: World) -> None:
    sh("zfs", "create", "cold/mirror")
    syncoid("tank/data", "cold/mirror/data")
    taken_up(it, "tank/data", "cold/mirror/data", "--name", "theirs")
    ok("run", "theirs")
    sh("systemctl", "stop", "zvaultd")
    noise(Path("/tank/data/home/newer"), 2)
    syncoid("tank/data", "cold/mirror/data")
    newest = snapshots("cold/mirror/data/home")[-1]
    assert newest.startswith("syncoid_")
    assert snapshot_hashes(f"cold/mirror/data/home@{newest}") == snapshot_hashes(f"tank/data/home@{newest}")


def test_their_snapshots_are_sent_where_that_is_wanted(it: World) -> None:
    sh("zfs", "create", "cold/mirror")
    sh("zfs", "snapshot", "-r", "tank/data@autosnap_2026-11-01_00:00:01_daily")
    syncoid("tank/data", "cold/mirror/data")
    said = taken_up(it, "tank/data", "cold/mirror/data")
    (also,) = [line for line in said.splitlines() if line.startswith("#also = ")]
    assert '"autosnap_*"' in also
    CONF.write_text(said.replace(also, also.removeprefix("#")))
    sh("systemctl", "reload", "zvaultd")
    sh("zfs", "snapshot", "-r", "tank/data@autosnap_2026-11-02_00:00:01_daily")
    ok("run", "data")
    assert "autosnap_2026-11-02_00:00:01_daily" in snapshots("cold/mirror/data/home")


def test_what_steers_another_tool_is_named_and_taken_out(it: World) -> None:
    """As zfs-autobackup's property was: it came with a stream, and the tool took the vault for a source."""
    sh("zfs", "set", "autobackup:offsite=true", "tank/data")
    zfs_only("tank/data", "cold/mirror")
    sh("zfs", "set", "syncoid:sync=true", "cold/mirror/home")
    assert get("cold/mirror/home", "autobackup:offsite") == "true", "which is inherited there"
    said = taken_up(it, "tank/data", "cold/mirror")
    lines = [line.removeprefix("# ") for line in said.splitlines()]
    at = lines.index("autobackup:offsite steers zfs-autobackup:")
    assert lines[at + 1].startswith("  set on tank/data: it stays out of the vault")
    assert lines[at + 2].startswith(
        "  came with a stream to cold/mirror: the first run takes it out of force"
    )
    assert "    zfs inherit syncoid:sync cold/mirror/home" in lines
    ok("run", "data")
    for name in ("cold/mirror", "cold/mirror/home", "cold/mirror/home/my mail"):
        assert get(name, "autobackup:offsite") == "-"
    assert get("cold/mirror/home", "syncoid:sync") == "true", "set by hand there: it stays"
    assert get("tank/data", "autobackup:offsite") == "true"


def test_below_an_encrypted_dataset(it: World) -> None:
    """What another tool sent in the clear is encrypted there; what was sent decrypted cannot be followed raw."""
    for number, name in enumerate(("tank/secret", "cold/enc")):
        key = Path(f"/run/key{number}")
        key.write_bytes(os.urandom(32))
        words = ("encryption=on", "keyformat=raw", f"keylocation=file://{key}")
        sh("zfs", "create", *(word for one in words for word in ("-o", one)), name)
    noise(Path("/tank/secret/noise"), 4)
    for number in range(100):  # so small that they are embedded in their pointers
        Path(f"/tank/data/{number}").write_text(f"small {number}")
    for name in ("data", "secret"):
        sh("zfs", "snapshot", f"tank/{name}@2026-11-01-by-hand")
        shell(f"zfs send tank/{name}@2026-11-01-by-hand | zfs receive -u cold/enc/{name}")
    said = taken_up(it, "tank/data", "cold/enc/data")
    assert "encrypted by the key of cold/enc" in said
    for number in range(100):
        Path(f"/tank/data/{number}-more").write_text(f"small {number}")
    ok("run", "data")
    newest = snapshots("cold/enc/data")[-1]
    assert newest.startswith("zvault_")
    assert get("cold/enc/data", "encryptionroot") == "cold/enc"
    assert snapshot_hashes(f"cold/enc/data@{newest}") == snapshot_hashes(f"tank/data@{newest}")

    refused = ctl("adopt", "tank/secret", "cold/enc/secret")
    assert refused.code == 1
    assert "tank/secret and cold/enc/secret are encrypted by different keys" in refused.out
    shell("zfs destroy -r cold/enc/secret")
    shell("zfs send -w tank/secret@2026-11-01-by-hand | zfs receive -u cold/enc/secret")
    assert "by different keys" not in ctl("adopt", "tank/secret", "cold/enc/secret").out


def test_large_records_are_asked_for(it: World) -> None:
    """The tables of 'adopt' leave the other tool its way back, unless somebody takes that line out."""
    sh("zfs", "set", "recordsize=1M", "tank/data")
    noise(Path("/tank/data/large"), 4)
    sh("zfs", "snapshot", "tank/data@2026-11-01-by-hand")
    shell("zfs send tank/data@2026-11-01-by-hand | zfs receive -u cold/mirror")
    said = taken_up(it, "tank/data", "cold/mirror")
    assert "send = { large_blocks = false }  # no dataset of the replica's pool has such records" in said
    noise(Path("/tank/data/larger"), 4)
    ok("run", "data")
    assert sh("zpool", "get", "-Ho", "value", "feature@large_blocks", "cold").strip() == "enabled"
    sh("systemctl", "stop", "zvaultd")
    sh("zfs", "snapshot", "tank/data@2026-11-02-by-hand")
    newest = snapshots("cold/mirror")[-1]
    shell(f"zfs send -i @{newest} tank/data@2026-11-02-by-hand | zfs receive -u cold/mirror")


def test_a_trial_beside_another_tool_leaves_nothing(it: World) -> None:
    """The page's commands, as they stand there."""
    page = Path("/src/docs/how-to/come-from-elsewhere.md").read_text()
    trial = page.partition("## Try it beside the other tool")[2].partition("\n## ")[0]
    clear_target, clear_source = [part.partition("```")[0] for part in trial.split("```sh\n")[1:]]
    sh("zfs", "create", "cold/mirror")
    syncoid("tank/data", "cold/mirror/data")
    CONF.parent.mkdir(mode=0o755, exist_ok=True)
    CONF.write_text(
        '[vault.cold]\npool = "cold"\n[backup.trial]\nsource = "tank/data"\nvault = "cold"\ninto = "trial/{path}"\n'
    )
    sh("systemctl", "restart", "zvaultd")
    ok("run", "trial")
    noise(Path("/tank/data/home/new"), 1)
    ok("run", "trial")
    noise(Path("/tank/data/home/newer"), 1)
    syncoid("tank/data", "cold/mirror/data")
    assert [one for one in snapshots("cold/mirror/data/home") if one.startswith("zvault_")], (
        "as the page says"
    )
    shell(clear_target)
    shell(clear_source)
    left = sh("zfs", "list", "-Hrt", "snapshot,bookmark", "-o", "name", "tank/data", "cold/mirror")
    assert "@zvault_" not in left
    assert "#zvault" not in left
    assert "@syncoid_" in left
    noise(Path("/tank/data/home/newest"), 1)
    syncoid("tank/data", "cold/mirror/data")
    newest = snapshots("cold/mirror/data/home")[-1]
    assert snapshot_hashes(f"cold/mirror/data/home@{newest}") == snapshot_hashes(f"tank/data/home@{newest}")


def test_what_cannot_be_gone_on_with_is_said(it: World) -> None:
    sh("zfs", "create", "cold/other")
    sh("zfs", "snapshot", "-r", "tank/data@autosnap_2026-11-01_00:00:01_daily")
    sh("zfs", "snapshot", "-r", "cold/other@autosnap_2026-11-01_00:00:01_daily")
    said = ctl("adopt", "tank/data", "cold/other")
    assert said.code != 0
    assert "no replica" in said.err
    assert "GUID" in said.err
    said = ctl("adopt", "tank/nothing", "cold/other")
    assert "there is no dataset 'tank/nothing'" in said.err
    syncoid("tank/data", "cold/mirror")
    sh("zfs", "set", "readonly=off", "cold/mirror")
    sh("zfs", "mount", "cold/mirror", check=False)
    (Path("/cold/mirror") / "changed").write_text("by somebody")
    sh("zpool", "sync", "cold")
    said = ctl("adopt", "tank/data", "cold/mirror")
    print(said.out)
    assert said.code == 1
    assert "zfs rollback cold/mirror@" in said.out
    assert subprocess.run(["zvaultctl", "adopt", "a b@c", "cold"], capture_output=True).returncode != 0
