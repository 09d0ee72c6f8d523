"""The block store as a disk of this guest's kernel: nbdkit with zvault's plugin, nbd-client, and RGW behind both."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import boto3
import ceph
import pytest
from botocore.exceptions import ClientError
from world import eventually, sh

import zvault
from zvault.blockstore import known_position

PLUGIN = Path(zvault.__file__).parent / "blockstore" / "nbdkit_plugin.py"
FOLDER = Path("/run/blockstore-lab")
BUCKET = "zvault"
BLOCK = 4096
MIB = 1 << 20


@contextmanager
def store(*, address: str = ceph.HERE, size: int = 4 << 30) -> Iterator[Bucket]:
    """A cluster with S3 and an empty bucket; ``size`` is that of its disk in bytes."""
    FOLDER.mkdir(exist_ok=True)
    sh("modprobe", "-q", "nbd", check=False)
    with ceph.cluster(rgw=True, address=address, size=size) as cluster:
        it = Bucket(cluster, cluster.s3())
        it.client.create_bucket(Bucket=BUCKET)
        yield it


@contextmanager
def nothing_left() -> Iterator[None]:
    """A test that failed leaves the devices to the next one."""
    try:
        yield
    finally:
        for disk in list(Disk.running):
            disk.kill()


@pytest.fixture(name="cluster", scope="module")
def cluster_of_module() -> Iterator[Bucket]:
    """For modules of tests that share a bucket."""
    with store() as it:
        yield it


@pytest.fixture(name="bucket")
def bucket_for_test(cluster: Bucket) -> Iterator[Bucket]:
    """That bucket, with no device left over from one test to the next."""
    with nothing_left():
        yield cluster


@dataclass
class Bucket:
    """The bucket, as S3 itself tells of it."""

    cluster: ceph.Cluster
    s3: ceph.S3
    client: Any = field(init=False)

    def __post_init__(self) -> None:
        keys = {"aws_access_key_id": self.s3.access_key, "aws_secret_access_key": self.s3.secret_key}
        self.client = boto3.client("s3", endpoint_url=self.s3.endpoint, region_name="default", **keys)

    def keys_file(self, secret: str | None = None) -> Path:
        """The keys as ~/.aws/credentials has them; with another ``secret`` they are wrong."""
        return keys_file(
            "keys" if secret is None else "wrong-keys", self.s3.access_key, secret or self.s3.secret_key
        )

    def listed(self, prefix: str) -> dict[str, int]:
        """Keys below a prefix, and their objects' sizes in bytes."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{prefix}/")
        return {one["Key"]: int(one["Size"]) for page in pages for one in page.get("Contents", [])}

    def get(self, key: str) -> bytes:
        """A whole object."""
        return bytes(self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read())

    def put(self, key: str, data: bytes) -> None:
        """A whole object."""
        self.client.put_object(Bucket=BUCKET, Key=key, Body=data)

    def copy(self, prefix: str, to: str) -> None:
        """All objects below a prefix, below another; but for one whose removal was on its way."""
        for key in self.listed(prefix):
            there = {"Bucket": BUCKET, "Key": key}
            try:
                self.client.copy_object(Bucket=BUCKET, Key=to + key.removeprefix(prefix), CopySource=there)
            except ClientError as error:
                if error.response["Error"]["Code"] not in {"NoSuchKey", "404"}:
                    raise


def keys_file(name: str, access: str, secret: str) -> Path:
    """A file with keys, as ~/.aws/credentials has them."""
    file = FOLDER / name
    file.touch(mode=0o600)
    file.write_text(f"[default]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\n")
    return file


class Disk:
    """A device in a bucket. ``words`` are settings of the block store; ``number`` is N of /dev/nbdN."""

    enter: Sequence[str] = ()
    """What the server's command begins with."""

    running: ClassVar[list[Disk]] = []

    def __init__(
        self,
        bucket: Bucket,
        key: str,
        *words: str,
        number: int = 0,
        endpoint: str | None = None,
        name: str | None = None,
        keys: Path | None = None,
        place: str = BUCKET,
    ) -> None:
        self.bucket = bucket
        self.place = place
        self.key = key
        self.number = number
        self.name = name or key.replace("/", "-")
        self.device = f"/dev/nbd{number}"
        self.folder = FOLDER / self.name
        self.folder.mkdir(exist_ok=True)
        self.socket = self.folder / "socket"
        self.said = self.folder / "said"
        self.journal = self.folder / "journal"
        named = {
            "journal": str(self.journal),
            "endpoint": endpoint or bucket.s3.endpoint,
            "region": "default",
        }
        named["keys"] = str(keys or bucket.keys_file())
        named |= dict(word.split("=", 1) for word in words)
        self.journal = Path(named["journal"])
        self.notes = Path(named.get("seen", "/var/lib/zvault/blockstore"))
        self.words = [f"{name}={value}" for name, value in named.items()]
        self.server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Disk:
        return self.start()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()

    def start(self, *, seconds: float = 240) -> Disk:
        """Serve it, making it if there is none, and have the kernel connect."""
        self.serve()
        eventually(lambda: f"{self.name} is served\n{self.told()}", self.serving, seconds=seconds, every=0.05)
        self.connect()
        return self

    def serve(self) -> None:
        """Start the server only."""
        self.socket.unlink(missing_ok=True)
        (self.folder / "status").unlink(missing_ok=True)
        argv = [*self.enter, "nbdkit", "-f", "--threads=32", "-U", str(self.socket), "python", str(PLUGIN)]
        argv += [
            f"bucket={self.place}",
            f"key={self.key}",
            f"status={self.folder / 'status'}",
            "create=yes",
            *self.words,
        ]
        with self.said.open("ab") as out:
            self.server = subprocess.Popen(argv, stdout=out, stderr=out)
        self.running.append(self)

    def serving(self) -> bool:
        """Whether it is ready; fails when it has ended instead."""
        assert self.server is not None
        assert self.server.poll() is None, f"{self.name} ended: {self.told()}"
        return bool(self.status().get("ready"))

    def connect(self) -> None:
        """Have the kernel's client use it."""
        argv = ("nbd-client", "-unix", str(self.socket), self.device, "-timeout", "600", "-connections", "2")
        eventually("a connection", lambda: subprocess.run(argv, capture_output=True).returncode == 0)
        eventually("its size", lambda: int(Path(f"/sys/block/nbd{self.number}/size").read_text()) > 0)

    def status(self) -> dict[str, Any]:
        """What the server says of itself; empty before it says anything."""
        try:
            return dict(json.loads((self.folder / "status").read_text()))
        except (OSError, ValueError):
            return {}

    def told(self) -> str:
        """The end of what the server wrote."""
        return (
            "\n".join(self.said.read_text(errors="replace").splitlines()[-30:]) if self.said.exists() else ""
        )

    def requests(self) -> dict[str, int]:
        """Requests so far, by kind."""
        return {kind: int(one["requests"]) for kind, one in (self.status()["requests"] or {}).items()}

    def stop(self, *, seconds: float = 240) -> None:
        """Disconnect it and end the server, which puts everything away first."""
        self.disconnect()
        assert self.server is not None
        self.server.terminate()
        code = self.server.wait(seconds)
        self.server = None
        self.running.remove(self)
        assert code == 0, f"{self.name} ended with {code}: {self.told()}"
        assert self.status()["closed"], self.status()
        self.see_no_traceback()

    def kill(self) -> None:
        """End the server at once."""
        if self.server is not None:
            self.server.kill()
            self.server.wait()
            self.server = None
            self.running.remove(self)
        self.disconnect()
        self.see_no_traceback()

    def see_no_traceback(self) -> None:
        """Whatever a store or a client does: a server has words for it."""
        said = self.said.read_text(errors="replace") if self.said.exists() else ""
        assert "Traceback" not in said, said

    def disconnect(self) -> None:
        """Take it from the kernel."""
        with suppress(subprocess.TimeoutExpired):
            sh("nbd-client", "-d", self.device, check=False, timeout=60)
        connected = Path(f"/sys/block/nbd{self.number}/pid")
        eventually(f"{self.device} is free", lambda: not connected.exists())

    @contextmanager
    def held(self) -> Iterator[None]:
        """The server does nothing for a while."""
        assert self.server is not None
        self.server.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.server.send_signal(signal.SIGCONT)

    def power_cut(self) -> None:
        """The server is gone, and so is what was in memory: the next boot, as the host's notes have it."""
        self.kill()
        shutil.rmtree(self.journal)
        for notes in self.notes.iterdir() if self.notes.exists() else ():
            # What this host notes of a journal in memory counts in the boot in which it was noted, and no other.
            os.truncate(notes, min(notes.stat().st_size, known_position._JOURNAL_AT))


class Direct:
    """A device without the kernel's cache. Offsets and lengths are in blocks of 4 KiB."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_DIRECT)

    def __enter__(self) -> Direct:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def write(self, block: int, data: bytes) -> None:
        """Whole blocks; it is answered when this returns."""
        with mmap.mmap(-1, len(data)) as room:
            room[:] = data
            assert os.pwritev(self.fd, [room], block * BLOCK) == len(data)

    def read(self, block: int, count: int = 1) -> bytes:
        """Raises OSError."""
        with mmap.mmap(-1, count * BLOCK) as room:
            assert os.preadv(self.fd, [room], block * BLOCK) == count * BLOCK
            return room[:]

    def flush(self) -> None:
        """What was answered is durable. Raises OSError."""
        os.fsync(self.fd)


def fio(device: str, *words: str, mib: int, timeout: float = 480) -> Sequence[str]:
    """Write so much with checksums, trim some of it, and read all back; fails for any error."""
    argv = ["fio", "--name=verify", f"--filename={device}", "--direct=1", "--ioengine=libaio", "--iodepth=16"]
    argv += [f"--size={mib}M", "--verify=crc32c", "--verify_fatal=1", "--verify_dump=0", *words]
    return sh(*argv, timeout=timeout).splitlines()
