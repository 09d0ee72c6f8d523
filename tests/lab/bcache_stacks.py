"""Stacks of bcache over an NBD device on this guest's kernel, and what is left of them."""

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from device_stacks import LEASES, PATHS, connected, file_spec, leftovers
from world import eventually
from world import shell as sh

from zvault.config.profile import QueueSettings
from zvault.config.schema import Device
from zvault.devices.stack import DeviceStack
from zvault.system.process.runner import HostRunner
from zvault.system.record_store import RecordStore

BCACHE = Path("/sys/block/bcache0/bcache")
MIB = 1 << 20


def sets() -> list[str]:
    return [path.name for path in Path("/sys/fs/bcache").glob("*-*-*-*")]


def all_left() -> dict[str, object]:
    found = leftovers() | {"bcache": sorted(map(str, Path("/sys/block").glob("bcache*"))), "sets": sets()}
    return {kind: things for kind, things in found.items() if things}


def cleared(what: object = "nothing is left") -> None:
    """Nothing is left; the kernel releases a cache a little later."""
    eventually(lambda: f"{what}: {all_left()}", lambda: not all_left())


def stop_all() -> None:
    """Take down what a failed test left, so that it does not become the next one's."""
    sh("for f in /sys/block/bcache*/bcache/stop; do echo 1 >$f; done", check=False)
    with contextlib.suppress(AssertionError):
        eventually("no bcache", lambda: not list(Path("/sys/block").glob("bcache*")), seconds=10)
    sh("for f in /sys/fs/bcache/*/stop; do echo 1 >$f; done", check=False)
    with contextlib.suppress(AssertionError):
        eventually("no cache", lambda: not sets(), seconds=10)
    sh("systemctl stop 'zvault-device@*'; systemctl reset-failed; pkill -KILL nbdkit; true", check=False)
    for index in connected():
        sh(f"nbd-client -d /dev/nbd{index}", check=False)
    sh(f"rm -rf {LEASES} {PATHS.run / 'device'}")


@pytest.fixture(name="_nbd_module", scope="module", autouse=True)
def nbd_module() -> None:
    sh("modprobe nbd && udevadm settle")


@contextlib.contextmanager
def loop_device(file: Path, size: str = "2G") -> Iterator[str]:
    sh(f"truncate -s {size} {file}")
    path = sh(f"losetup --find --show {file}")
    try:
        yield path
    finally:
        sh(f"losetup -d {path}")


@dataclass
class Cached:
    """A vault's device with a cache of its own."""

    folder: Path
    cache: str
    filters: str = ""
    timeout: str = "5s"
    settings: dict[str, object] = field(
        default_factory=lambda: {"mode": "writeback", "sequential_cutoff": "1G"}
    )

    @property
    def backing(self) -> Path:
        return self.folder / "backing"

    def stack(
        self, *, create: bool = True, cache: str | None = None, runner: HostRunner | None = None
    ) -> DeviceStack:
        device = Device.model_validate(
            {
                "nbd": file_spec(self.backing, self.filters),
                "size": "128M",
                "timeout": self.timeout,
                "cache": {"bcache": cache or self.cache, **self.settings},
            }
        )
        leases = RecordStore(LEASES)
        queue = QueueSettings(read_ahead_kb=64)
        return DeviceStack("cold", [device], queue, runner or HostRunner(), PATHS, leases, create=create)

    def write(self, seed: int, mib: int = 8) -> bytes:
        """Data that is the cache's alone for now."""
        data = os.urandom(1024) * 1024 * mib
        fd = os.open("/dev/bcache0", os.O_WRONLY | os.O_EXCL)
        os.pwrite(fd, data, seed * 16 * MIB)
        os.fsync(fd)
        os.close(fd)
        return data

    def holds(self, seed: int, data: bytes) -> bool:
        """Whether the backing file has the data, where the data of a backing device begin."""
        with self.backing.open("rb") as file:
            file.seek(4 * MIB + seed * 16 * MIB)
            return file.read(len(data)) == data


@pytest.fixture(name="cached")
def cached_for_test(tmp_path: Path) -> Iterator[Cached]:
    cleared()
    sh("udevadm settle", check=False)
    with loop_device(tmp_path / "cache") as cache:
        yield Cached(tmp_path, cache)
        with contextlib.suppress(AssertionError):
            cleared()
        found = all_left()
        stop_all()
        assert not found


@contextlib.contextmanager
def server_stopped() -> Iterator[None]:
    """The device's server stands still meanwhile, and nothing reaches its file, however long anything takes."""
    pid = int(sh("systemctl show -P MainPID zvault-device@cold-0"))
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def kernel(name: str) -> str:
    """What the kernel says of the cached device; nothing where there is none, which may be at any time."""
    with contextlib.suppress(OSError):
        return (BCACHE / name).read_text().strip()
    return ""
