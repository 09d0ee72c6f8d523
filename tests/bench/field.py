"""What the contenders meet on: a source pool and copies of it, all on files in the guest, and zvault's daemon."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "lab"))
import world
from world import CONFIG, DISK, ok, sh

ROOT = "tank/data"

CONFIG_TEXT = """
[daemon]
host = "lab"

[vault.cold]
pool = "cold"
up = "always"

[backup.bench]
source = "{root}"
vault = "cold"
into = "{into}/{{dataset}}"
"""


def source(size: str, mountpoint: str = "none") -> None:
    """A new pool ``tank`` on a sparse file."""
    world.World().clean()
    DISK.mkdir(exist_ok=True)
    disk = DISK / "tank.img"
    sh("truncate", "-s", size, str(disk))
    sh("zpool", "create", "-O", "compression=off", "-O", f"mountpoint={mountpoint}", "tank", str(disk))


def datasets(count: int) -> list[str]:
    """The source and ``count - 1`` filesystems below it, as zfs-autobackup wants them marked."""
    sh("zfs", "create", "-o", "autobackup:bench=true", ROOT)
    children = [f"{ROOT}/d{number:03}" for number in range(1, count)]
    for child in children:
        sh("zfs", "create", child)
    return [ROOT, *children]


def snapname(number: int) -> str:
    """The name of the snapshot ``number``, in the form of zvault's own: only those it sends."""
    return f"zvault_2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"


def snapshot(number: int) -> str:
    """A snapshot of every dataset; its name."""
    sh("zfs", "snapshot", "-r", f"{ROOT}@{snapname(number)}")
    return snapname(number)


def copy_to(pool: str, target: str) -> None:
    """A second pool, a copy of the source's image, in which all of the source lies at ``target`` with its GUIDs.

    A tenth of the time that it takes to receive as many snapshots.
    """
    disk = DISK / pool / "disk.img"
    disk.parent.mkdir()
    sh("zpool", "export", "tank")
    sh("cp", "--sparse=always", str(DISK / "tank.img"), str(disk))
    sh("zpool", "import", "-N", "-d", str(disk.parent), "tank", pool)
    sh("zpool", "reguid", pool)
    sh("zpool", "import", "-d", str(DISK), "tank")
    sh("zfs", "create", "-p", target.rpartition("/")[0])
    sh("zfs", "set", "mountpoint=none", pool)
    sh("zfs", "rename", f"{pool}{ROOT.removeprefix('tank')}", target)
    sh("zfs", "set", "readonly=on", "canmount=off", pool)
    sh("zfs", "inherit", "autobackup:bench", target)


def settle() -> None:
    """Let both pools come to rest, so that nobody pays for another's last writes."""
    sh("zpool", "sync")
    time.sleep(1)


def daemon(into: str) -> None:
    """Start zvault's daemon with a backup ``bench`` of the source into a folder of the target pool."""
    CONFIG.parent.mkdir(exist_ok=True)
    CONFIG.write_text(CONFIG_TEXT.format(root=ROOT, into=into))
    sh("systemctl", "restart", "zvaultd")


def zvault() -> float:
    """Seconds of a run that sends the snapshots that are there, from zvaultctl's start to its end."""
    started = time.monotonic()
    # The program itself, as its peers start: world.ok's has all imported already.
    sh("zvaultctl", "run", "bench", "--no-snapshot", "-q", timeout=1200)
    return time.monotonic() - started


def stream_seconds() -> float:
    """Seconds of the one stream of zvault's newest run, as its daemon tells them."""
    run = ok("history", "-j").json()["runs"][0]["id"]
    (finished,) = [event for event in world.events(run) if event["event"] == "transfer-finished"]
    return float(finished["seconds"])


def newest_everywhere(target: str, newest: str) -> None:
    """Every dataset of the source has its counterpart below ``target``, with the newest snapshot's GUID."""

    def guids(root: str) -> dict[str, str]:
        out = sh("zfs", "get", "-rHp", "-t", "snapshot", "-o", "name,value", "guid", root)
        pairs = (line.split("\t") for line in out.splitlines())
        return {name.removeprefix(root): guid for name, guid in pairs if name.endswith(f"@{newest}")}

    assert guids(ROOT) == guids(target), f"{target} is no copy of {ROOT}@{newest}"


def destroy(root: str) -> None:
    """A dataset with all below it, whatever is held there: zvault holds its bases on the vault, too."""
    for snap in sh("zfs", "list", "-Hro", "name", "-t", "snapshot", root).split():
        for line in sh("zfs", "holds", "-H", snap).splitlines():
            sh("zfs", "release", line.split("\t")[1], snap)
    sh("zfs", "destroy", "-r", root)
