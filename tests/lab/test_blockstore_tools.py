"""zvaultctl blockstore on the S3 of a real Ceph cluster: made, filled, damaged, repaired, copied, and looked at."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from blockstore_lab import BUCKET, FOLDER, MIB, Bucket, Direct, Disk, keys_file, nothing_left, store
from botocore.exceptions import ClientError
from world import eventually, sh, tree_hashes

from zvault.blockstore.attach import attach
from zvault.blockstore.format import BLOCK
from zvault.blockstore.locked_bucket import bare_store
from zvault.blockstore.maintenance.repair import quiet
from zvault.blockstore.maintenance.version_gc import remove_versions
from zvault.blockstore.options import Options
from zvault.blockstore.reach import settings_of
from zvault.blockstore.recovery import create
from zvault.cli.verbs import blockstore_place
from zvault.core.policy.object_lock import Lock
from zvault.object_store.s3 import S3Store

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


class Locked:
    """A bucket with object lock, one for leases, and users: whose they are, who writes, who reads, who removes."""

    NAME, LEASES = "locked", "leases"
    READS = ("GetObject", "GetObjectVersion")
    RIGHTS: ClassVar[dict[str, Sequence[str]]] = {
        "writer": (*READS, "PutObject", "PutObjectRetention", "GetObjectRetention"),
        "reader": READS,
        "collector": (*READS, "DeleteObject", "DeleteObjectVersion"),
    }
    LOOKS = ("ListBucket", "ListBucketVersions", "GetBucketObjectLockConfiguration")

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.owner = bucket.client
        users = {name: bucket.cluster.s3(name) for name in self.RIGHTS}
        self.keys = {name: keys_file(name, it.access_key, it.secret_key) for name, it in users.items()}
        self.keys["owner"] = bucket.keys_file()
        self.writer = Bucket(bucket.cluster, users["writer"]).client
        self.owner.create_bucket(Bucket=self.NAME, ObjectLockEnabledForBucket=True)
        self.owner.create_bucket(Bucket=self.LEASES)
        self.allow(self.NAME, self.RIGHTS)
        self.allow(self.LEASES, {"writer": ("*",)})

    def allow(self, bucket: str, rights: Mapping[str, Sequence[str]]) -> None:
        """What these users may do with objects; and look at the bucket."""
        here = f"arn:aws:s3:::{bucket}"
        said = [
            {
                "Effect": "Allow",
                "Principal": {"AWS": [f"arn:aws:iam:::user/{user}"]},
                "Action": [f"s3:{one}" for one in (*actions, *self.LOOKS)],
                "Resource": [here, f"{here}/*"],
            }
            for user, actions in rights.items()
        ]
        policy = json.dumps({"Version": "2012-10-17", "Statement": said})
        self.owner.put_bucket_policy(Bucket=bucket, Policy=policy)

    def place(self, key: str, user: str, *more: str) -> str:
        words = f"endpoint={self.bucket.s3.endpoint} style=path region=default keys={self.keys[user]}"
        return " ".join([f"zvault:{self.NAME}/{key} {words}", *more])

    def versions(self, key: str) -> list[dict[str, Any]]:
        pages = self.owner.get_paginator("list_object_versions").paginate(Bucket=self.NAME, Prefix=f"{key}/")
        return [one for page in pages for one in page.get("Versions", [])]

    def undo(self, named: dict[str, str]) -> None:
        """Remove a version, or have it locked for a minute only, also as one who may bypass a lock."""
        for bypass in (False, True):
            refused(partial(self.writer.delete_object, **named, BypassGovernanceRetention=bypass))
        sooner = {"Mode": "COMPLIANCE", "RetainUntilDate": datetime.now(UTC) + timedelta(seconds=60)}
        shorten = partial(self.writer.put_object_retention, **named, Retention=sooner)
        refused(partial(shorten, BypassGovernanceRetention=True))

    def attack(self, key: str) -> None:
        """All that the writer's key can do; what a lock has to refuse is refused."""
        every = self.versions(key)
        for one in every:
            self.undo({"Bucket": self.NAME, "Key": one["Key"], "VersionId": one["VersionId"]})
        objects = [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in every[:1000]]
        done = self.writer.delete_objects(Bucket=self.NAME, Delete={"Objects": objects})
        assert len(done["Errors"]) == len(objects)
        for number, name in enumerate(sorted({one["Key"] for one in every})):
            if number % 3 == 0:
                self.writer.delete_object(Bucket=self.NAME, Key=name)
            elif number % 3 == 1:
                self.writer.put_object(Bucket=self.NAME, Key=name, Body=b"overwritten")
        last = max(one["Key"] for one in every if "/checkpoints/" in one["Key"])
        copied = {"Bucket": self.NAME, "Key": last}
        with suppress(ClientError):  # it may be hidden by now
            self.writer.copy_object(
                Bucket=self.NAME, Key=f"{key}/checkpoints/000000ff-0000000fff", CopySource=copied
            )


def refused(call: Callable[[], object]) -> None:
    with pytest.raises(ClientError) as found:
        call()
    assert found.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


@pytest.fixture(scope="module")
def locked(bucket: Bucket) -> Locked:
    return Locked(bucket)


def test_what_was_before_an_attack_with_the_writers_key_is_brought_back(bucket: Bucket, locked: Locked):
    """Root on the writer's host, whose key may do all with objects, against a lock."""
    lock = ("lock=compliance:1d", "gc=elsewhere", f"lease-bucket={locked.LEASES}")
    writer, reader = locked.place("cold", "writer", *lock), locked.place("cold", "reader")
    with nothing_left():
        disk = Disk(
            bucket, "cold", "size=1G", "history=last:3", *lock, keys=locked.keys["writer"], place=locked.NAME
        ).start()
        sh("zpool", "create", "-f", "-o", "cachefile=none", "-O", f"mountpoint={MOUNT}", "tank", disk.device)
        for number in range(20):
            (MOUNT / f"f{number}").write_bytes(random.Random(number).randbytes(MIB))
        for _ in range(2):  # the writer has no right to remove anything: so it lives
            sh("zpool", "export", "tank")
            disk.stop()
            disk.start()
            sh("zpool", "import", "-d", disk.device, "-o", "cachefile=none", "tank")
            (MOUNT / f"more{time.time()}").write_bytes(random.Random(9).randbytes(MIB))
        eventually("all is locked", lambda: disk.status()["engine"]["locked_until"] > time.time() + 86400)
        assert disk.status()["trouble"] is None
        truth = tree_hashes(MOUNT)
        sh("zpool", "export", "tank")
        disk.stop()
        assert ctl("check", writer, "--all")["strays"] == []
        tried = ctl("drill", writer)["tried"]
        assert {one["well"] for one in tried} == {True}, tried
        assert len(tried) == 7
        collected = ctl("gc", locked.place("cold", "collector", *lock))
        assert (collected["removed"], collected["strange"]) == (0, [])
        assert collected["locked"] > 0
        then = time.time()

        disk.start()
        sh("blkdiscard", disk.device)
        with Direct(disk.device) as device:
            for at in range(0, 96, 3):
                device.write(at * MIB // BLOCK, random.Random(at).randbytes(MIB))
            device.flush()
        disk.stop()
        locked.allow(locked.NAME, {**locked.RIGHTS, "writer": ("*Object*",)})
        locked.attack("cold")

        bring_back(bucket, reader, then, truth)


def bring_back(bucket: Bucket, reader: str, then: float, truth: dict[str, str]) -> None:
    """See it as it was, and copy it to where it can be written to."""
    moment = datetime.fromtimestamp(then, UTC).isoformat()
    with nothing_left():
        with seen(reader, "--before", moment, verb="recover") as view:
            sh(*(word.replace("POOL", "tank") for word in view.importing))
            sh("zfs", "mount", "tank-view")
            assert tree_hashes(MOUNT) == truth
            assert "No known data errors" in sh("zpool", "status", "tank-view")
            sh("zpool", "export", "tank-view")
            assert view.end() == 0
        found = ctl("recover", reader, f"zvault:{BUCKET}/back {words(bucket)}", "--before", moment)
        assert found["hidden"] > 0
        assert found["put"] <= then
        disk = Disk(bucket, "back").start()
        sh("zpool", "import", "-d", disk.device, "-o", "cachefile=none", "tank")
        assert tree_hashes(MOUNT) == truth
        sh("zpool", "scrub", "-w", "tank")
        assert "No known data errors" in sh("zpool", "status", "tank")
        sh("zpool", "export", "tank")
        disk.stop()


def test_a_lock_is_made_longer_and_what_nobody_needs_goes_when_it_ends(locked: Locked, tmp_path: Path):
    place = locked.place("short", "owner", "lock=governance:1d", f"lease-bucket={locked.LEASES}")
    found, lock = blockstore_place.find(place), Lock("governance", 6.0)
    settings = replace(settings_of(found.spec), lock=lock)
    bare, store = S3Store(settings), bare_store(settings, found.spec)
    create(store, "short", 1 << 30)
    options = quiet(Options(tmp_path / "journal", lock=lock))
    engine = attach(store, "short", replace(options, keeps_locked=True), "lab")
    engine.write(0, b"a" * (500 * BLOCK))
    engine.flush()
    engine.checkpoint()
    (first,) = [one for one in locked.versions("short") if "/segments/" in one["Key"]]
    was = bare.lock_of(first["Key"], first["VersionId"])
    assert was is not None

    def longer() -> bool:
        now = bare.lock_of(first["Key"], first["VersionId"])
        return now is not None and now.until > was.until and now.mode == "governance"

    eventually("it is locked for longer", longer)
    engine.write(0, b"b" * (500 * BLOCK))
    engine.flush()
    for _ in range(3):
        engine.checkpoint()
    with blockstore_place.workers(2) as pool:
        removed = remove_versions(store, "short", pool, do=True)
        assert removed.locked > 0
        assert first["VersionId"] in {one["VersionId"] for one in locked.versions("short")}
        eventually(
            "it goes", lambda: remove_versions(store, "short", pool, do=True).removed > 0, seconds=60, every=1
        )
        eventually(
            "its segment too",
            lambda: (
                remove_versions(store, "short", pool, do=True) is not None
                and first["VersionId"] not in {one["VersionId"] for one in locked.versions("short")}
            ),
            seconds=60,
            every=1,
        )
    assert engine.read(0, 500 * BLOCK) == b"b" * (500 * BLOCK)
    engine.close()
    # Whose bucket it is may bypass this mode; and what there is is locked for seconds only.
    tried = ctl("drill", place, status=1)["tried"]
    assert [one["what"] for one in tried if not one["well"]][:1] == ["remove it as one who may bypass a lock"]
    assert "at least" in tried[-1]["came"]
    assert tried[-1]["well"] is False


def test_buckets_that_do_not_lock_and_that_lock_by_themselves(bucket: Bucket, locked: Locked, tmp_path: Path):
    place = f"zvault:{BUCKET}/no-lock {words(bucket)} lock=compliance:1d lease-bucket={locked.LEASES}"
    ctl("create", place, "--size", "1G", status=2)
    ctl("drill", place, status=2)
    ctl("drill", f"zvault:{BUCKET}/no-lock {words(bucket)}", status=2)
    days = {"Mode": "GOVERNANCE", "Days": 1}
    locked.owner.put_object_lock_configuration(
        Bucket=locked.NAME,
        ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": days}},
    )
    found = blockstore_place.find(locked.place("default", "owner", f"lease-bucket={locked.LEASES}"))
    store = blockstore_place.reach(found)
    create(store, "default", 1 << 30)
    engine = attach(store, "default", quiet(Options(tmp_path / "journal")), "lab")
    for tag in (b"a", b"b"):
        engine.write(0, tag * (100 * BLOCK))
        engine.flush()
        for _ in range(3):
            engine.checkpoint()
    assert engine.read(0, 100 * BLOCK) == b"b" * (100 * BLOCK)
    engine.close()
    assert ctl("check", locked.place("default", "owner", f"lease-bucket={locked.LEASES}"))["well"]


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

    def __init__(self, place: str, *more: str, verb: str = "serve") -> None:
        self.socket = FOLDER / "seen.sock"
        self.said = FOLDER / "seen.said"
        argv = ["zvaultctl", "blockstore", verb, place, "--socket", str(self.socket), *more]
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
def seen(place: str, *more: str, verb: str = "serve") -> Iterator[Seen]:
    it = Seen(place, *more, verb=verb)
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
