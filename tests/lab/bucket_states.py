"""Buckets that lock, one that is written to meanwhile, and what zvaultctl blockstore shows of them."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from blockstore_lab import FOLDER, MIB, Bucket, Direct, Disk, keys_file, store
from botocore.exceptions import ClientError
from world import eventually, sh

from zvault.blockstore.attach import attach_store
from zvault.blockstore.format import BLOCK_SIZE
from zvault.blockstore.maintenance.repair import quiet_options
from zvault.blockstore.options import EngineOptions
from zvault.cli.verbs import blockstore_place

MOUNT = Path("/mnt/seen")


@pytest.fixture(name="bucket", scope="module")
def bucket_for_test() -> Iterator[Bucket]:
    with store() as it:
        yield it


def words(bucket: Bucket) -> str:
    return f"endpoint={bucket.s3.endpoint} style=path region=default keys={bucket.keys_file()}"


def ctl(*words: str, status: int = 0) -> Any:
    done = sh("sh", "-c", 'zvaultctl blockstore "$@"; echo "status $?"', "sh", *words, "-j")
    text, _, code = done.rpartition("status ")
    assert int(code) == status, done
    return json.loads(text) if text.strip() else None


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


@pytest.fixture(name="locked", scope="module")
def locked_bucket(bucket: Bucket) -> Locked:
    return Locked(bucket)


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
            device.write(at * MIB // BLOCK_SIZE, self.random.randbytes(MIB))
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


def refused_to_write(device: str) -> None:
    assert sh("blockdev", "--getro", device).strip() == "1"
    with pytest.raises(PermissionError), Direct(device) as it:
        it.write(0, bytes(BLOCK_SIZE))


def clear(place: str, folder: Path) -> None:
    """Have a writer discard everything, and take checkpoints until the segments are gone."""
    found = blockstore_place.find_store(place)
    engine = attach_store(
        blockstore_place.reach_objects(found),
        found.spec.key,
        quiet_options(EngineOptions(folder / "journal")),
        "lab",
    )
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
