"""S3 servers that are not Ceph, each a real program: started, killed, and cut from its power.

``get-s3-servers`` fetches them; a module gets them with ``LAB = {"s3-servers": True}``.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import boto3
from botocore.config import Config
from ceph import S3

PROGRAMS = Path("/share/s3-servers")
ADDRESS = "10.99.0.1"
"""Of this guest, where another one reaches it."""
ACCESS, SECRET = "lab-access-key", "lab-secret-key-0123456789"
START_SECONDS = 240
"""Seconds for a server to answer: its program, of 100 MB, is read for the first time."""


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, f"{argv}: {done.stderr}"


def free_ports(count: int) -> int:
    """The first of so many ports that nobody listens on, below those that the kernel gives to others."""
    for first in range(20_000, 30_000, count):
        with contextlib.ExitStack() as taken, contextlib.suppress(OSError):
            for port in range(first, first + count):
                taken.enter_context(socket.create_server((ADDRESS, port)))
            return first
    raise AssertionError("no port is free")


@dataclass
class PoweredDisk:
    """A file system in a file, whose power can be cut."""

    image: Path
    folder: Path
    size: str = "3G"
    options: str = "defaults"

    def mount(self) -> None:
        """Make it where it is not there, and mount it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.image.exists():
            _run("truncate", "-s", self.size, str(self.image))
            _run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1", str(self.image))
        _run("mount", "-o", f"loop,{self.options}", str(self.image), str(self.folder))

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.folder)], capture_output=True)

    def sync(self) -> None:
        """Have all of it on the disk, as it is by itself half a minute after the last write."""
        _run("sync", "-f", str(self.folder))

    def cut_power(self) -> None:
        """Go on with what is on the disk at this moment: whatever the kernel has not written out is lost."""
        kept = self.image.with_suffix(".kept")
        _run("cp", "--sparse=always", str(self.image), str(kept))
        self.unmount()
        kept.rename(self.image)
        self.mount()


@dataclass
class S3Program:
    """One server, with its data on a disk of its own."""

    disk: PoweredDisk
    port: int = field(default_factory=lambda: free_ports(8))
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    name: ClassVar[str] = ""
    locks: ClassVar[bool] = True
    """Whether its buckets keep versions, and lock them."""
    commit_seconds: ClassVar[int] = 5
    """Seconds until its disk has the names of new files; their contents are there after half a minute."""
    keeps_dates: ClassVar[bool] = True
    """Whether a version that is hidden keeps its date."""

    @property
    def endpoint(self) -> str:
        return f"http://{ADDRESS}:{self.port}"

    @property
    def s3(self) -> S3:
        return S3(self.endpoint, ACCESS, SECRET)

    @property
    def data(self) -> Path:
        """The folder of its data."""
        return self.disk.folder / "data"

    def argv(self) -> list[str]:
        """What runs it in the foreground."""
        raise NotImplementedError

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self.disk.folder)}

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.data.mkdir(parents=True, exist_ok=True)
        streams = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.argv(), stdout=log, env=self.environment, cwd=self.disk.folder, **streams
            )
        end = time.monotonic() + START_SECONDS
        while not self.answers():
            assert self.process.poll() is None, f"{self.name} ended: {self.said()}"
            assert time.monotonic() < end, f"{self.name} does not answer: {self.said()}"
            time.sleep(0.2)

    def answers(self) -> bool:
        """Whether it lists its buckets, and reads an object of each: SeaweedFS does that seconds later."""
        try:
            for bucket in self.client.list_buckets()["Buckets"]:
                for one in self.client.list_objects_v2(Bucket=bucket["Name"], MaxKeys=1).get("Contents", []):
                    self.client.get_object(Bucket=bucket["Name"], Key=one["Key"])["Body"].read()
        except Exception:
            return False
        return True

    @cached_property
    def client(self) -> Any:
        """Amazon's own client."""
        keys = {"aws_access_key_id": ACCESS, "aws_secret_access_key": SECRET}
        # Its own second tries, ever later, would keep a server waiting that has begun to answer.
        tries = Config(retries={"max_attempts": 1}, connect_timeout=5, read_timeout=30)
        return boto3.client("s3", endpoint_url=self.endpoint, region_name="us-east-1", config=tries, **keys)

    @property
    def log(self) -> Path:
        return self.disk.image.with_name(f"{self.name}.log")

    def said(self) -> str:
        """The end of what it wrote."""
        return self.log.read_text(errors="replace")[-3000:]

    def kill(self) -> None:
        """End it at once."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def cut_power(self) -> None:
        """Its host's power fails, and comes back."""
        # First what is on the disk: an ending process might write.
        self.kill()
        self.disk.cut_power()
        self.start()


class Rclone(S3Program):
    """``rclone serve s3`` since 1.76: buckets are folders, objects are files, and conditions are kept."""

    name = "rclone"
    commit_seconds = 1
    locks = False
    program = "rclone-serve-s3"

    def argv(self) -> list[str]:
        options = [f"--addr={ADDRESS}:{self.port}", f"--auth-key={ACCESS},{SECRET}", "--config=/dev/null"]
        return [str(PROGRAMS / self.program), "serve", "s3", *options, str(self.data)]


class EarlierRclone(Rclone):
    """1.75 ignores conditions, and answers 200 to a range."""

    name = "rclone-1.75"
    program = "rclone"


class VersityGW(S3Program):
    """VersityGW's gateway to a POSIX file system: what it knows of an object is in the file's attributes."""

    name = "versitygw"
    commit_seconds = 1
    keeps_dates = False

    def argv(self) -> list[str]:
        versions = self.disk.folder / "versions"
        versions.mkdir(exist_ok=True)
        options = [f"--port={ADDRESS}:{self.port}", f"--access={ACCESS}", f"--secret={SECRET}", "--quiet"]
        posix = ["posix", f"--versioning-dir={versions}", str(self.data)]
        return [str(PROGRAMS / "versitygw"), *options, *posix]


class MinIO(S3Program):
    """MinIO on one disk. It is there only if it was asked for with ZVAULT_LAB_S3=minio: it takes minutes to build."""

    name = "minio"

    def argv(self) -> list[str]:
        return [
            str(PROGRAMS / self.name),
            "server",
            "--quiet",
            f"--address={ADDRESS}:{self.port}",
            str(self.data),
        ]

    @property
    def environment(self) -> dict[str, str]:
        keys = {"MINIO_ROOT_USER": ACCESS, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_BROWSER": "off"}
        return super().environment | keys


class SeaweedFS(S3Program):
    """SeaweedFS with all its parts in one process."""

    name = "seaweedfs"

    def argv(self) -> list[str]:
        keys = {"accessKey": ACCESS, "secretKey": SECRET}
        who = {"name": "lab", "credentials": [keys], "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
        config = self.disk.folder / "s3.json"
        config.write_text(json.dumps({"identities": [who]}))
        options = [
            f"-dir={self.data}",
            f"-ip={ADDRESS}",
            f"-ip.bind={ADDRESS}",
            "-s3",
            f"-s3.port={self.port}",
        ]
        options += [f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false"]
        options += ["-master.telemetry=false"]
        options += [f"-master.port={self.port + 1}", f"-volume.port={self.port + 2}"]
        options += [f"-filer.port={self.port + 3}", f"-s3.port.grpc={self.port + 4}"]
        options += ["-master.volumeSizeLimitMB=256", "-volume.max=30"]
        return [str(PROGRAMS / "weed"), "server", *options]


@contextmanager
def running(kind: type[S3Program], folder: Path) -> Iterator[S3Program]:
    """A server, with its data on a disk of its own in ``folder``."""
    options = f"commit={kind.commit_seconds}"
    it = kind(PoweredDisk(folder / f"{kind.name}.img", folder / kind.name, options=options))
    it.disk.mount()
    try:
        it.start()
        yield it
    finally:
        it.kill()
        it.disk.unmount()
