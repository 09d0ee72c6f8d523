"""Block devices in a bucket: zvault's block store, nbdkit's S3 plugin and s3backer, each as zvault would serve it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "lab"))
from blockstore_lab import BUCKET, FOLDER, Bucket, Disk
from far import ENTER
from world import eventually, sh

from zvault.config.device_specs.s3backer import parse_s3backer
from zvault.devices.nbd.s3backer import S3BACKER_FILE, s3backer_argv

OBJECT = "128k"
"""Of both peers: the record size of ZFS."""
THREADS = 32


class FarDisk(Disk):
    """zvault's, its server far away."""

    enter = ENTER


@contextmanager
def zvault(bucket: Bucket, key: str, *words: str) -> Iterator[FarDisk]:
    """Connected at /dev/nbd0."""
    with FarDisk(bucket, key, *words) as disk:
        yield disk


@contextmanager
def connected(argv: list[str], name: str) -> Iterator[str]:
    """An NBD server that listens on a socket of this name, as /dev/nbd0."""
    socket = FOLDER / f"{name}.socket"
    socket.unlink(missing_ok=True)
    with (FOLDER / f"{name}.said").open("wb") as out:
        server = subprocess.Popen(
            [*ENTER, "nbdkit", "-f", "-t", str(THREADS), "-U", str(socket), *argv], stderr=out
        )
    try:
        eventually(f"{name} listens", socket.exists, every=0.05)
        client = ("nbd-client", "-unix", str(socket), "/dev/nbd0", "-timeout", "120", "-connections", "2")
        eventually("a connection", lambda: subprocess.run(client, capture_output=True).returncode == 0)
        eventually("its size", lambda: int(Path("/sys/block/nbd0/size").read_text()) > 0)
        yield "/dev/nbd0"
    finally:
        sh("nbd-client", "-d", "/dev/nbd0", check=False)
        eventually("nbd0 is free", lambda: not Path("/sys/block/nbd0/pid").exists())
        server.terminate()
        server.wait(120)


@contextmanager
def nbdkit_s3(bucket: Bucket, key: str, size: str = OBJECT) -> Iterator[str]:
    """nbdkit's plugin, as test_s3_nbd.py has it; ``size`` of its objects."""
    keys = [f"access-key={bucket.s3.access_key}", f"secret-key={bucket.s3.secret_key}"]
    words = [
        f"bucket={BUCKET}",
        f"key={key}",
        "size=4G",
        f"object-size={size}",
        f"endpoint-url={bucket.s3.endpoint}",
    ]
    with connected(["S3", *words, *keys], "nbdkit-s3") as device:
        yield device


@contextmanager
def s3backer(bucket: Bucket, key: str) -> Iterator[str]:
    """Its file, served by nbdkit."""
    access = FOLDER / "s3backer.pass"
    access.touch(mode=0o600)
    access.write_text(f"{bucket.s3.access_key}:{bucket.s3.secret_key}")
    spec = parse_s3backer(
        f"{BUCKET}/{key} size=4G blockSize={OBJECT} accessFile={access} baseURL={bucket.s3.endpoint}/"
    )
    mount = FOLDER / "s3backer"
    mount.mkdir(exist_ok=True)
    with (FOLDER / "s3backer.said").open("wb") as out:
        files = subprocess.Popen([*ENTER, *s3backer_argv(spec), str(mount)], stdout=out, stderr=out)
    try:
        eventually("s3backer's file", lambda: files.poll() is not None or (mount / S3BACKER_FILE).exists())
        assert files.poll() is None, (FOLDER / "s3backer.said").read_text()
        with connected(["file", str(mount / S3BACKER_FILE)], "s3backer") as device:
            yield device
    finally:
        with suppress(AssertionError):
            sh("umount", str(mount))
        files.terminate()
        files.wait(120)
