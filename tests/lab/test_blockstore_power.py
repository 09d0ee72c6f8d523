"""A pool on a block store, and the power goes: what the bucket and the disk hold then is a pool that lacks nothing.

The power does not really go. At a moment that nobody chose the server is stopped, and all that would outlive a power
cut is copied: the bucket, and with ``writeback`` the journal. The copies are looked at once the pool is away.
"""

from __future__ import annotations

import random
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from blockstore_lab import MIB, Bucket, Disk, bucket_for_test, cluster_of_module  # noqa: F401 - fixtures too
from world import eventually, sh, snapshot_hashes, tree_hashes

LAB = {"mem": "5G", "timeout": 1200}

POOL, MOUNT = "vault", Path("/vault")
CUTS = 2


@dataclass
class Cut:
    """What was copied, and the files of each snapshot that had to be in it."""

    number: int
    snapshots: dict[str, dict[str, str]]
    gone: set[str]


class Load:
    """Writes, snapshots and destroys; ``synced`` are the snapshots that the pool must have, with their files."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lock = threading.Lock()
        self.synced: dict[str, dict[str, str]] = {}
        self.gone: set[str] = set()
        """Snapshots that were destroyed, for sure."""
        self.over = threading.Event()
        self.failed: BaseException | None = None
        self.rounds = 0
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        try:
            while not self.over.is_set():
                self.once()
        except BaseException as error:
            self.failed = error

    def once(self) -> None:
        folder = MOUNT / f"d{self.random.randrange(4)}"
        folder.mkdir(exist_ok=True)
        for _ in range(self.random.randrange(1, 12)):
            size = self.random.choice([300, 5000, 200_000, 2 * MIB])
            (folder / f"f{self.random.randrange(30)}").write_bytes(self.random.randbytes(size))
        for path in self.random.sample(sorted(folder.iterdir()), 1):
            path.unlink()
        self.rounds += 1
        name = f"{POOL}@{self.rounds:04d}"
        sh("zfs", "snapshot", name)
        files = tree_hashes(MOUNT)
        with self.lock:
            # One that is being destroyed may be there or not.
            old = self.random.choice(sorted(self.synced)) if len(self.synced) > 4 else None
            if old is not None:
                del self.synced[old]
        if old is not None:
            sh("zfs", "destroy", old)
        sh("zpool", "sync", POOL)
        with self.lock:
            self.synced[name] = files
            self.gone |= {old} if old is not None else set()


@pytest.mark.timeout(700)
@pytest.mark.parametrize("mode", ["strict", "writeback"])
def test_a_pool_has_all_that_was_synced(bucket: Bucket, mode: str) -> None:
    words = ["size=2G", f"mode={mode}"]
    if mode == "writeback":
        words.append("journal=/var/tmp/power-journal")
    disk = Disk(bucket, f"power-{mode}", *words).start()
    options = ("-o", "cachefile=none", "-o", "ashift=12", "-o", "autotrim=on", "-O", f"mountpoint={MOUNT}")
    sh("zpool", "create", "-f", *options, POOL, disk.device)
    load = Load(len(mode))
    load.thread.start()
    cuts = []
    for number in range(CUTS):
        enough = load.rounds + 6
        eventually(
            "more", lambda enough=enough: load.failed or load.rounds >= enough, seconds=240, every=0.05
        )
        time.sleep(load.random.random())
        cuts.append(copied(bucket, disk, load, number))
    load.over.set()
    load.thread.join(240)
    assert load.failed is None
    assert not load.thread.is_alive()
    sh("zpool", "export", POOL)
    disk.stop()
    for cut in cuts:
        looked_at(bucket, disk.key, words, cut)


def copied(bucket: Bucket, disk: Disk, load: Load, number: int) -> Cut:
    """All that would be left now."""
    with load.lock:
        snapshots, gone = dict(load.synced), set(load.gone)
    with disk.held():
        bucket.copy(disk.key, f"{disk.key}-{number}")
        if disk.words and "mode=writeback" in disk.words:
            shutil.copytree(disk.journal, journal_of(number))
        # What was destroyed meanwhile had been asked for when the power went.
        with load.lock:
            snapshots = {name: files for name, files in snapshots.items() if name in load.synced}
    assert snapshots, "nothing was synced yet"
    return Cut(number, snapshots, gone)


def journal_of(number: int) -> Path:
    return Path(f"/var/tmp/power-journal-{number}")


def looked_at(bucket: Bucket, key: str, words: list[str], cut: Cut) -> None:
    """The copy as another host would find it."""
    words = [word for word in words if not word.startswith("journal=")]
    if "mode=writeback" in words:
        words.append(f"journal={journal_of(cut.number)}")
    disk = Disk(bucket, f"{key}-{cut.number}", *words, number=1).start()
    try:
        sh("zpool", "import", "-f", "-N", "-o", "cachefile=none", "-d", disk.device, POOL)
        sh("zpool", "scrub", "-w", POOL)
        said = sh("zpool", "status", POOL)
        assert "No known data errors" in said, said
        assert "with 0 errors" in said, said
        there = set(sh("zfs", "list", "-Ho", "name", "-t", "snapshot").split())
        assert set(cut.snapshots) <= there
        assert not cut.gone & there, "what was destroyed is back"
        for name, files in cut.snapshots.items():
            assert snapshot_hashes(name) == files, name
        print(f"{disk.key}: {len(cut.snapshots)} snapshots, {disk.told()}")
    finally:
        sh("zpool", "export", "-f", POOL, check=False)
        disk.stop()
        shutil.rmtree(journal_of(cut.number), ignore_errors=True)
