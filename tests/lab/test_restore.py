"""Find and restore, as at 3 a.m.: a file, a tree, a dataset in its old place, everything; cut off and resumed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from world import (
    World,
    ctl,
    eventually,
    get,
    main_pid,
    noise,
    nothing_left,
    ok,
    sh,
    snapshot_hashes,
    snapshots,
    tree_hashes,
)

LAB = {"mem": "4G", "timeout": 2500}

HOME = Path("/tank/home")
RESCUE = Path("/rescue")


@pytest.fixture
def tank() -> Iterator[World]:
    it = World(keep="{ source = { last = 9 }, vault = { last = 9 } }")
    it.clean()
    it.source()
    yield it
    it.clean()
    sh("rm", "-rf", str(RESCUE))


def run() -> str:
    """Run the backup; the snapname of its snapshot."""
    time.sleep(1.1)  # names hold whole seconds
    ok("run", "tank")
    return snapshots("tank/home")[-1]


def make_special(thesis: Path) -> None:
    """Another version of a file, with all that a copy can lose; beside it a link and a file of holes."""
    thesis.write_text("second one")
    os.chown(thesis, 1000, 1001)
    thesis.chmod(0o640)
    os.setxattr(thesis, "user.note", b"mine")
    (thesis.parent / "link").symlink_to("the\nthesis.pdf")
    with (thesis.parent / "sparse").open("wb") as file:
        file.truncate(50 << 20)


def test_find_folds_versions_and_files_come_back_as_they_were(tank: World) -> None:
    docs = HOME / "docs"
    docs.mkdir()
    thesis = docs / "the\nthesis.pdf"
    thesis.write_text("first")
    tank.start()
    snapnames = [run()]
    ok("vault", "up", "cold")
    (HOME / "other").write_text("so that the dataset changes")
    snapnames.append(run())
    make_special(thesis)
    snapnames.append(run())
    when = time.time()
    thesis.unlink()
    snapnames.append(run())

    found = ok("find", "tank", "*thesis*", "-j").json()["versions"]
    assert [(one["size"], one["snapshots"], one["first"], one["last"]) for one in found] == [
        (10, 1, snapnames[2], snapnames[2]),
        (5, 2, snapnames[0], snapnames[1]),
    ]
    assert {one["path"] for one in found} == {r"docs/the\nthesis.pdf"}
    assert {one["dataset"] for one in found} == {"tank/home"}
    lines = ok("find", "tank", "docs/*thesis*", "--at", time.strftime("%FT%TZ", time.gmtime(when)), "-Hp").out
    assert lines.split("\t")[2] == "10"
    assert ctl("find", "tank", "nothing like it").code == 1

    RESCUE.mkdir()
    request = ["restore", "tank", f"tank/home@{snapnames[2]}", str(RESCUE), "--file", "docs/the\nthesis.pdf"]
    ok(*request)
    back = RESCUE / "the\nthesis.pdf"
    there = back.stat()
    assert back.read_text() == "second one"
    assert (there.st_uid, there.st_gid, there.st_mode & 0o777) == (1000, 1001, 0o640)
    assert os.getxattr(back, "user.note") == b"mine"
    back.write_text("mine, newer")
    refused = ctl(*request)
    assert refused.code == 1
    assert "in /rescue already" in refused.err
    assert back.read_text() == "mine, newer"
    assert r"is there already: ./the\nthesis.pdf" in ok(*request, "-n").out
    assert r"overwriting ./the\nthesis.pdf" in ok(*request, "--overwrite").out
    assert back.read_text() == "second one"

    ok("restore", "tank", f"tank/home@{snapnames[2]}", str(RESCUE), "--file", "docs")
    assert (RESCUE / "docs" / "link").readlink() == Path("the\nthesis.pdf")
    assert (RESCUE / "docs" / "sparse").stat().st_blocks < 1000
    (RESCUE / "all").mkdir()
    ok("restore", "tank", f"tank/home@{snapnames[0]}", str(RESCUE / "all"))
    assert tree_hashes(RESCUE / "all") == snapshot_hashes(f"tank/home@{snapnames[0]}")
    missing = ctl(
        "restore", "tank", f"tank/home@{snapnames[3]}", str(RESCUE), "--file", "docs/the\nthesis.pdf"
    )
    assert missing.code == 1
    assert "zvaultctl find" in missing.err
    ok("vault", "down", "cold")
    nothing_left()


def test_a_dataset_takes_its_old_place_and_nothing_is_lost(tank: World) -> None:
    sh("zfs", "set", "mountpoint=/data", "tank/home")
    data = Path("/data")
    tank.start()
    first = run()
    ok("vault", "up", "cold")
    before = tree_hashes(data)
    (data / "after").write_text("written after the snapshot")
    assert ctl("restore", "tank", "tank/home", "tank/home").code != 0

    shown = ctl("restore", "tank", f"tank/home@{first}", "tank/home", "--replace")
    assert shown.code == 1
    assert "nothing was done" in shown.err
    assert f"written since @{first}" in shown.out
    assert (data / "after").exists()
    with (data / "after").open() as _:
        busy = ctl("restore", "tank", f"tank/home@{first}", "tank/home", "--replace", "--yes")
    assert busy.code == 1
    assert "cannot be set aside" in busy.err
    assert (data / "after").exists()
    again = ok("restore", "tank", f"tank/home@{first}", "tank/home", "--replace", "--yes")
    assert "is restored already" in again.out
    assert tree_hashes(data) == before
    assert get("tank/home", "mountpoint") == "/data"
    aside = next(name for name in sh("zfs", "list", "-Ho", "name").split() if "_zvault-before-" in name)
    sh("mount", "-t", "zfs", "-o", "zfsutil", aside, "/mnt")
    assert Path("/mnt/after").read_text() == "written after the snapshot"
    sh("umount", "/mnt")
    assert get("tank/home", "org.zvault:restoring") == "-"
    (data / "again").write_text("goes on")
    snapname = run()
    assert len(snapshots("cold/lab/tank/home")) == 2
    assert snapshot_hashes(f"cold/lab/tank/home@{snapname}") == snapshot_hashes(f"tank/home@{snapname}")
    ok("vault", "down", "cold")


def test_everything_comes_back_in_order_killed_on_the_way(tank: World) -> None:
    # Bits: a large dataset takes 16 s, and is still on its way when the daemon is killed.
    tank.delay = "filter=rate rate=24M burstiness=0.5"
    key = Path("/root/key")
    key.write_text("correcthorse\n")
    encrypted = ["-o", "encryption=on", "-o", "keyformat=passphrase", "-o", f"keylocation=file://{key}"]
    sh("zfs", "create", *encrypted, "tank/secret")
    Path("/tank/secret/diary").write_bytes(os.urandom(100_000))
    sh("zfs", "create", "tank/zoo")
    Path("/tank/zoo/lion").write_bytes(os.urandom(200_000))
    sh("zfs", "snapshot", "tank/zoo@manual-1")
    sh("zfs", "clone", "tank/zoo@manual-1", "tank/ark")  # comes before its origin by name
    Path("/tank/ark/dove").write_bytes(os.urandom(100_000))
    noise(Path("/tank/big/more"), 24)
    tank.backup_extra = 'also = ["manual-*"]'
    tank.start()
    snapname = run()
    names = ["tank", "tank/ark", "tank/big", "tank/home", "tank/my files", "tank/zoo"]
    wanted = {name: snapshot_hashes(f"{name}@{snapname}") for name in names}
    volume = sh("sh", "-c", "sha256sum </dev/zvol/tank/vol")
    sh("truncate", "-s", "1G", "/var/lib/zvault-lab/new.img")
    sh("zpool", "create", "new", "/var/lib/zvault-lab/new.img")

    request = ["restore", "tank", "tank", "new/tank", "-r"]
    plan = ok(*request, "-n").out
    assert plan.index("new/tank/zoo ") < plan.index("new/tank/ark ")
    started = [*request, "--no-wait"]
    ok(*started)
    eventually("a large one is under way", lambda: written_out("new/tank/big", 8 << 20), every=0.05)
    os.kill(main_pid(), signal.SIGKILL)
    eventually("a new daemon", lambda: ctl("status").code != 2)
    eventually("the receive has ended", lambda: len(get("new/tank/big", "receive_resume_token")) > 10)
    assert "resume" in ok(*request, "-n").out
    done = ok(*request)
    assert "is restored already" in done.out
    for name in names:
        assert tree_hashes(Path(f"/new/{name}")) | {} == {**wanted[name], **below(name, wanted)}, name
    assert sh("sh", "-c", "sha256sum </dev/zvol/new/tank/vol") == volume
    assert get("new/tank/ark", "origin") == "new/tank/zoo@manual-1"
    sh("zfs", "load-key", "-L", f"file://{key}", "new/tank/secret")
    sh("zfs", "mount", "new/tank/secret")
    assert Path("/new/tank/secret/diary").read_bytes() == Path("/tank/secret/diary").read_bytes()
    assert ctl(*request).code == 1, "it exists now"
    nothing_left()


def written_out(dataset: str, least: int) -> bool:
    """Whether so much of a dataset is in its pool; not while it does not exist. Its pool need not wait for a txg."""
    value = sh("zfs", "get", "-Hpo", "value", "used", dataset, check=False).strip()
    if value.isdecimal():
        sh("zpool", "sync", dataset.split("/", maxsplit=1)[0])
    return value.isdecimal() and int(value) >= least


def below(name: str, wanted: dict[str, dict[str, str]]) -> dict[str, str]:
    """The files of the datasets mounted below one, as they are seen from it."""
    return {
        f"{other.removeprefix(name + '/')}/{path}": digest
        for other, files in wanted.items()
        if other.startswith(f"{name}/")
        for path, digest in files.items()
    }
