"""Slow storage to receive onto, made afresh for each contender: five models behind NBD, and an image of a real Ceph
cluster. All of it lies on the guest's disk.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "lab"))
import ceph
from world import eventually, sh

UBDA = Path("/dev/ubda")
SOCKET = Path("/run/zvault-bench.sock")
NBD = "/dev/nbd0"
PLUGIN = Path(__file__).parent / "devices" / "slots.py"
REQUESTS = Path("/run/zvault-bench-requests")
"""Each request of the model that was served last, see ``devices/slots.py``."""
SIZE = 100 << 30
"""Bytes of a device. On one of 4 GiB transaction groups have at most 160 MiB, whatever the parameters: OpenZFS takes a
write to need up to 24 times its size (spa_asize_inflation)."""
ENDS = 16 << 20
"""Bytes at either end of a device that are made zeros, for it to be blank."""
THREADS = 64
"""Requests that a server takes in at a time; how many it works on is the model's."""
COMMIT_MS = 5
"""What each write of the OSD takes, that of a good disk with a cache."""


@dataclass(frozen=True)
class Model:
    """A device: so many requests at a time, each ``latency`` seconds and its bytes at ``rate``; zvault's profile.

    ``more`` is what else the model is told (``devices/slots.py``), ``filters`` those of its server. It is given one
    ``share``th of the bytes. ``device`` is its table in a vault's configuration.
    """

    slots: int
    latency: float
    rate: float
    profile: str
    more: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    share: int = 1
    device: str = f'nbd = "unix:{SOCKET}"'

    @contextmanager
    def served(self) -> Iterator[None]:
        """A server of the model with an empty device behind it."""
        _blank()
        REQUESTS.unlink(missing_ok=True)
        settings = [f"file={UBDA}", f"size={SIZE}"]
        settings += [f"slots={self.slots}", f"latency={self.latency}", f"rate={self.rate}", *self.more]
        settings += [f"log={REQUESTS}"]
        filters = [f"--filter={name}" for name in self.filters]
        argv = ["nbdkit", "-f", "-t", str(THREADS), "-U", str(SOCKET), *filters, "python", str(PLUGIN)]
        SOCKET.unlink(missing_ok=True)
        server = subprocess.Popen([*argv, *settings])
        try:
            eventually("the device is served", SOCKET.exists, every=0.05)
            yield
        finally:
            server.terminate()
            server.wait()

    @contextmanager
    def raw(self) -> Iterator[str]:
        """The device alone, in this kernel."""
        with self.served():
            # Whoever looks at a device that was just there may have it open still.
            eventually("the device is connected", _connected)
            try:
                yield NBD
            finally:
                sh("nbd-client", "-d", NBD)


def _blank() -> None:
    """Make the disk's ends zeros: nothing is found on it any more."""
    with UBDA.open("r+b") as disk:
        for place in (0, SIZE - ENDS):
            disk.seek(place)
            disk.write(bytes(ENDS))
        os.fsync(disk.fileno())


def _connected() -> bool:
    argv = ("nbd-client", "-unix", str(SOCKET), NBD, "-timeout", "60")
    return subprocess.run(argv, capture_output=True).returncode == 0


@dataclass(frozen=True)
class Image:
    """An image mapped by krbd, of a Ceph cluster that is up while ``served`` first was until the guest ends."""

    profile: str = "rbd-hdd"
    share: int = 2
    device: str = f'rbd = "{ceph.META}/cold"\nsize = "{SIZE >> 30}G"\ndata_pool = "{ceph.DATA}"'

    @contextmanager
    def served(self) -> Iterator[None]:
        """The cluster without the image, which zvault makes."""
        if not ceph.ADMIN.exists():
            _cluster.enter_context(ceph.cluster(disks=[_delayed()]))
        try:
            yield
        finally:
            if "cold" in sh("rbd", "ls", ceph.META).split():
                sh("rbd", "rm", "--no-progress", f"{ceph.META}/cold", timeout=600)

    @contextmanager
    def raw(self) -> Iterator[str]:
        """The image alone, in this kernel."""
        with self.served():
            sh("rbd", "create", "--size", f"{SIZE}B", "--data-pool", ceph.DATA, f"{ceph.META}/cold")
            device = sh("rbd", "map", f"{ceph.META}/cold").strip()
            try:
                yield device
            finally:
                sh("rbd", "unmap", device)


_cluster = ExitStack()


def _delayed() -> Path:
    """A disk that takes its time for each write."""
    _blank()
    _cluster.callback(sh, "dmsetup", "remove", "--deferred", "osd")
    sh("dmsetup", "create", "osd", "--table", f"0 {SIZE >> 9} delay {UBDA} 0 0 {UBDA} 0 {COMMIT_MS}")
    return Path("/dev/mapper/osd")


STORAGE: dict[str, Model | Image] = {
    "hdd": Model(4, 0.035, 60e6, "rbd-hdd"),
    # No profile of zvault's is made for the next two, and nothing was tuned with them: they show what is found of a
    # device that nobody has seen before.
    # An array of disks that cuts requests at 1 MiB, and says that it rotates.
    "array": Model(8, 0.012, 40e6, "nbd-lan", (f"largest={1 << 20}",), ("rotational",)),
    # Two mirrored pairs of shingled disks behind a small server, in stripes of 512 KiB that are written as a whole.
    "smr": Model(2, 0.080, 30e6, "rbd-hdd", (f"unit={512 << 10}",)),
    "s3": Model(32, 0.030, 10e6, "s3"),
    "rbd": Image(),
    "ssd": Model(16, 0.002, 100e6, "rbd-ssd", share=2),
}
ON_REQUEST = ("s3", "rbd", "ssd")
"""Measured only if asked for: the guest's one processor bounds them more than the device does."""


@contextmanager
def storage(mib: int) -> Iterator[None]:
    """All of it can be used; afterwards no cluster runs any more.

    The host gives a guest its memory, and room for its disk, page by page when they are first written to, which is
    slow. So memory and the disk's first ``mib`` MiB are written to once, before anything is timed.
    """
    for module in ("nbd", "rbd", "dm-delay"):
        sh("modprobe", module)
    sh("mount", "-t", "tmpfs", "-o", "size=80%", "none", "/mnt")
    room = os.statvfs("/mnt")
    sh(
        "dd",
        "if=/dev/zero",
        "of=/mnt/memory",
        "bs=1M",
        f"count={room.f_bavail * room.f_bsize * 9 // 10 >> 20}",
        timeout=600,
    )
    sh("umount", "/mnt")
    sh("dd", "if=/dev/zero", f"of={UBDA}", "oflag=direct", "bs=4M", f"count={mib // 4}", timeout=600)
    with _cluster:
        yield


def fio(device: str, block: str, mib: int) -> Sequence[str]:
    """The command that writes so much to a device, one request after the other."""
    return (
        *("fio", "--name=raw", f"--filename={device}", "--rw=write", "--direct=1", "--ioengine=libaio"),
        *(f"--bs={block}", "--iodepth=64", f"--size={mib}M", "--output-format=json"),
    )
