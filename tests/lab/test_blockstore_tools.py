"""zvaultctl blockstore on the S3 of a real Ceph cluster: made, filled, damaged, repaired, copied, and looked at."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from blockstore_lab import BUCKET, FOLDER, MIB, Bucket, Direct, Disk, nothing_left, store
from world import eventually, sh, tree_hashes

from zvault.blockstore.attach import attach
from zvault.blockstore.format import BLOCK
from zvault.blockstore.maintenance.repair import quiet
from zvault.blockstore.options import Options
from zvault.cli.verbs import blockstore_place

LAB = {"mem": "4G", "timeout": 900}

MOUNT = Path("/mnt/seen")


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with store() as it:
        yield it


def words(bucket: Bucket) -> str:
    return f"endpoint={bucket.s3.endpoint} style=path region=default keys={bucket.keys_file()}"


def ctl(*words: str, status: int = 0) -> Any:
    done = sh("sh", "-c", 'zvaultctl blockstore "$@"; echo "status $?"', "sh", *words, "-j")
    text, _, code = done.rpartition("status ")
    assert int(code) == status, done
    return json.loads(text) if text.strip() else None


def test_a_life(bucket: Bucket, tmp_path: Path):
    objects, more = bucket.s3.bucket(BUCKET), words(bucket)
    place, other = f"zvault:{BUCKET}/cold {more}", f"zvault:{BUCKET}/warm/copy {more}"
    assert ctl("create", place, "--size", "1G")["size"] == 1 << 30
    ctl("create", place, "--size", "1G", status=2)

    engine = attach(
        blockstore_place.reach(blockstore_place.find(place)),
        "cold",
        quiet(Options(tmp_path / "journal")),
        "lab",
    )
    for tag in range(1, 5):
        engine.write(0, bytes([tag]) * (3000 * BLOCK))
        engine.write(1000 * tag * BLOCK, b"k" * (900 * BLOCK))
        engine.flush()
        engine.checkpoint()
    during = ctl("check", place, "--all")
    assert during["well"]
    engine.write(0, b"z" * BLOCK)
    truth = engine.read(0, 5000 * BLOCK)
    engine.close()

    told = ctl("info", place)
    assert told["live_bytes"] == 4800 * BLOCK
    assert told["owner"] == "lab"
    found = ctl("check", place, "--all")
    assert (found["well"], found["strays"]) == (True, [])

    ctl("gc", place, status=2)
    done = ctl("gc", place, "--yes")
    assert done["after"] <= 1.1 * done["live"]

    ctl("copy", place, other)
    assert ctl("check", other, "--all")["well"]
    ctl("copy", place, other, status=2)

    for item in objects.objects.filter(Prefix="cold/maps/"):
        item.delete()
    objects.put_object(Key="cold/maps/0000000001-00000000", Body=b"stray")
    found = ctl("check", place, status=1)
    assert {problem["why"] for problem in found["problems"]} >= {
        "1 of its parts of the map cannot be used: it is missing"
    }
    ctl("check", place, "--repair", "--yes", "--doubtful", "data")
    found = ctl("check", place, "--all")
    assert (found["well"], found["strays"]) == (True, [])
    for where, key in ((place, "cold"), (other, "warm/copy")):
        engine = attach(
            blockstore_place.reach(blockstore_place.find(where)), key, quiet(Options(tmp_path / key)), "lab"
        )
        assert engine.read(0, 5000 * BLOCK) == truth
        engine.close()


class Writing:
    """A writer that discards all that there was, and writes other bytes over it, again and again, until it is told."""

    def __init__(self, disk: Disk, mib: int) -> None:
        self.disk, self.mib = disk, mib
        self.random = random.Random(7)
        self.written = 0
        self.over = threading.Event()
        self.failed: BaseException | None = None
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        try:
            sh("blkdiscard", self.disk.device)
            with Direct(self.disk.device) as device:
                while not self.over.is_set():
                    self.once(device)
                device.flush()
        except BaseException as error:
            self.failed = error

    def once(self, device: Direct) -> None:
        # The labels first, and both ends of where the pool has its data.
        for at in [0, self.mib - 1, *self.random.sample(range(1, self.mib - 1), self.mib - 2)]:
            device.write(at * MIB // BLOCK, self.random.randbytes(MIB))
            self.written += 1
            if at % 32 == 0:
                device.flush()
            # Slowly: segments are what checkpoints are taken after.
            if self.over.wait(1):
                return

    def __enter__(self) -> Writing:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join(240)
        assert self.failed is None
        assert not self.thread.is_alive()


class Seen:
    """A store that 'zvaultctl blockstore serve' serves, attached as it says."""

    def __init__(self, place: str, *more: str) -> None:
        self.socket = FOLDER / "seen.sock"
        self.said = FOLDER / "seen.said"
        argv = ["zvaultctl", "blockstore", "serve", place, "--socket", str(self.socket), *more]
        with self.said.open("wb") as out:
            self.server = subprocess.Popen(argv, stdout=out, stderr=out)
        eventually(lambda: f"it is served: {self.told()}", self.serving, every=0.1)
        client, pool = (line.split() for line in self.told().splitlines() if line.startswith("  "))
        self.device = next(word for word in client if word.startswith("/dev/nbd"))
        eventually("it is attached", lambda: subprocess.run(client, capture_output=True).returncode == 0)
        self.importing = pool

    def serving(self) -> bool:
        return "read-only: checkpoint" in self.told() and self.socket.exists()

    def told(self) -> str:
        return self.said.read_text(errors="replace")

    def end(self) -> int:
        sh("nbd-client", "-d", self.device, check=False)
        self.server.send_signal(signal.SIGINT)
        return self.server.wait(120)


@contextmanager
def seen(place: str, *more: str) -> Iterator[Seen]:
    it = Seen(place, *more)
    try:
        yield it
    finally:
        print(it.told())
        sh("zpool", "export", "-f", "tank-view", check=False)
        if it.server.poll() is None:
            it.end()


def test_it_is_looked_at_while_it_is_written_to(bucket: Bucket, tmp_path: Path):
    place = f"zvault:{BUCKET}/busy {words(bucket)} memory=64M"
    with nothing_left():
        disk = Disk(bucket, "busy", "size=1G").start()
        sh("zpool", "create", "-f", "-o", "cachefile=none", "-O", f"mountpoint={MOUNT}", "tank", disk.device)
        for number in range(40):
            (MOUNT / f"f{number}").write_bytes(random.Random(number).randbytes(MIB))
        # A writer that closes takes a checkpoint. The second one after it is still far away: that removes what is seen.
        sh("zpool", "export", "tank")
        disk.stop()
        disk.start()
        sh("zpool", "import", "-d", disk.device, "-o", "cachefile=none", "tank")
        truth, epoch = tree_hashes(MOUNT), disk.status()["engine"]["epoch"]
        # What is seen has a pool that is in use, with a write on its way.
        busy = subprocess.Popen(["dd", "if=/dev/urandom", f"of={MOUNT}/growing", "bs=64k", "count=300"])
        with seen(place) as view:
            view.importing = [word.replace("POOL", "tank") for word in view.importing]
            assert busy.wait(240) == 0
            sh("zpool", "export", "tank")
            with Writing(disk, 96) as writer:
                eventually("the labels are written over", lambda: writer.written > 8)
                before = writer.written
                sh(*view.importing)
                sh("zfs", "mount", "tank-view")
                found = tree_hashes(MOUNT)
                found.pop("growing", None)
                assert found == truth
                eventually("it is written to", lambda: writer.written > before + 2)
                assert tree_hashes(MOUNT).items() >= truth.items()
                assert writer.thread.is_alive(), "all the while"
            refused_to_write(view.device)
            assert "No known data errors" in sh("zpool", "status", "tank-view")
            engine = disk.status()["engine"]
            assert (engine["fenced"], engine["trouble"], engine["epoch"]) == (False, None, epoch)
            sh("zpool", "export", "tank-view")
            disk.stop()
            clear(place, tmp_path)
            assert told_once(view) == 1
            assert view.end() == 0


def test_a_pool_that_was_destroyed_is_there_as_it_was(bucket: Bucket):
    """Whoever has root destroys the pool and writes over its device; the moment before that is kept."""
    place = f"zvault:{BUCKET}/past {words(bucket)} memory=64M"
    with nothing_left():
        disk = Disk(bucket, "past", "size=1G", "history=last:3").start()
        sh("zpool", "create", "-f", "-o", "cachefile=none", "-O", f"mountpoint={MOUNT}", "tank", disk.device)
        for number in range(20):
            (MOUNT / f"f{number}").write_bytes(random.Random(number).randbytes(MIB))
        truth = tree_hashes(MOUNT)
        sh("zpool", "export", "tank")
        disk.stop()
        assert ctl("history", place)["moments"] == []
        then = time.time()
        disk.start()
        sh("zpool", "import", "-d", disk.device, "-o", "cachefile=none", "tank")
        sh("sh", "-c", f"rm {MOUNT}/*")
        sh("zpool", "destroy", "tank")
        sh("blkdiscard", disk.device)
        with Direct(disk.device) as device:
            for at in range(32):
                device.write(at * MIB // BLOCK, random.Random(at).randbytes(MIB))
            device.flush()
        disk.stop()
        found = ctl("history", place)
        assert [one["taken"] <= then for one in found["moments"]].count(True) == 1
        assert found["past_bytes"] > 20 * MIB
        assert ctl("check", place, "--all")["well"]
        ctl("gc", place, "--yes")
        with seen(place, "--at", datetime.fromtimestamp(then, UTC).isoformat()) as view:
            sh(*(word.replace("POOL", "tank") for word in view.importing))
            sh("zfs", "mount", "tank-view")
            assert tree_hashes(MOUNT) == truth
            assert "No known data errors" in sh("zpool", "status", "tank-view")
            refused_to_write(view.device)
            sh("zpool", "export", "tank-view")
            assert view.end() == 0
        back = datetime.fromtimestamp(then, UTC).isoformat()
        assert ctl("rewind", place, "--to", back)["rewound"] is False
        assert ctl("rewind", place, "--to", back, "--yes")["rewound"] is True
        disk.start()
        sh("zpool", "import", "-d", disk.device, "-o", "cachefile=none", "tank")
        assert tree_hashes(MOUNT) == truth
        sh("zpool", "scrub", "-w", "tank")
        assert "No known data errors" in sh("zpool", "status", "tank")
        sh("zpool", "export", "tank")
        disk.stop()
        assert ctl("check", place, "--all")["well"]
        assert [one["taken"] <= then for one in ctl("history", place)["moments"]].count(True) == 1


def refused_to_write(device: str) -> None:
    assert sh("blockdev", "--getro", device).strip() == "1"
    with pytest.raises(PermissionError), Direct(device) as it:
        it.write(0, bytes(BLOCK))


def clear(place: str, folder: Path) -> None:
    """Have a writer discard everything, and take checkpoints until the segments are gone."""
    found = blockstore_place.find(place)
    engine = attach(blockstore_place.reach(found), found.spec.key, quiet(Options(folder / "journal")), "lab")
    engine.discard(0, engine.size)
    engine.flush()
    for _ in range(4):
        engine.checkpoint()
    engine.close()


def told_once(view: Seen) -> int:
    """Reads fail by then, all but what the server still has in memory; how often it was told why."""
    failed = 0
    for at in range(0, 64, 4):
        done = subprocess.run(
            ["dd", f"if={view.device}", "of=/dev/null", "bs=1M", "count=1", f"skip={at}", "iflag=direct"],
            capture_output=True,
            text=True,
        )
        failed += "Input/output error" in done.stderr
    assert failed > 0
    return len(
        re.findall(
            r"^the block store in s3://zvault/busy at .* as of .* has passed: its writer",
            view.told(),
            re.MULTILINE,
        )
    )
