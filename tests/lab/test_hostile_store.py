"""A pool on a block store whose S3 lies. What a flush answered is there, or the device says that it is not: no old or
foreign block is read, and nothing in the bucket is removed.

The S3 is the small one of the unit tests, which knows the lies; server, kernel client and pool are real.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from blockstore_lab import BLOCK, BUCKET, FOLDER, MIB, Direct, Disk, nothing_left
from world import eventually, sh, tree_hashes

# Behind all else: zvault stays the installed one.
sys.path.append(str(Path(__file__).parents[2]))
from tests.unit.object_store.hostile_s3 import HostileS3, lying

LAB = {"mem": "3G", "timeout": 900}

POOL, MOUNT = "vault", Path("/vault")
UNREAD = 6 * MIB // BLOCK
"""A block that nobody reads by himself: who looks for a partition table reads both ends."""
ROOM = 600 * MIB
"""Bytes of memory: what a server may take beside its caches, whatever a store sends."""


@dataclass
class Place:
    """The bucket, in the words in which a Disk is told of it."""

    server: HostileS3

    @property
    def s3(self) -> Place:
        return self

    @property
    def endpoint(self) -> str:
        return self.server.endpoint

    def keys_file(self) -> Path:
        file = FOLDER / "keys"
        file.touch(mode=0o600)
        file.write_text("[default]\naws_access_key_id = KEY\naws_secret_access_key = SECRET\n")
        return file

    def of_kind(self, kind: str) -> list[str]:
        """Keys, oldest first."""
        return sorted(key for key in self.server.store.objects if f"/{kind}/" in key)


@pytest.fixture
def place() -> Iterator[Place]:
    FOLDER.mkdir(exist_ok=True)
    sh("modprobe", "-q", "nbd", check=False)
    with lying() as server, nothing_left():
        try:
            yield Place(server)
        finally:
            sh("zpool", "export", "-f", POOL, check=False)


def disk_of(place: Place, key: str, *words: str, **more: object) -> Disk:
    seen = () if any(word.startswith("seen=") for word in words) else (f"seen={FOLDER / 'seen'}",)
    return Disk(place, key, "size=256M", "memory=64M", *seen, *words, **more)  # type: ignore[arg-type]


def pool_on(disk: Disk) -> dict[str, str]:
    """A pool with files; their hashes."""
    sh("zpool", "create", "-f", "-o", "cachefile=none", "-O", f"mountpoint={MOUNT}", POOL, disk.device)
    for number in range(12):
        (MOUNT / f"f{number}").write_bytes(bytes([number + 1]) * MIB)
        sh("zpool", "sync", POOL)
    return tree_hashes(MOUNT)


def read_again(disk: Disk) -> dict[str, str]:
    """What the pool has by now, every block of it read and checked."""
    sh("zpool", "import", "-d", disk.device, "-o", "cachefile=none", POOL)
    found = tree_hashes(MOUNT)
    sh("zpool", "scrub", "-w", POOL)
    assert "with 0 errors" in sh("zpool", "status", POOL)
    sh("zpool", "export", POOL)
    return found


def cut(disk: Disk) -> None:
    """The host's power fails while a pool is in use: of this host nothing is left but what it keeps on its disk."""
    sh("zpool", "export", POOL)
    disk.power_cut()


@contextmanager
def nothing_removed(place: Place) -> Iterator[None]:
    before = set(place.server.store.objects)
    yield
    assert before <= set(place.server.store.objects)


def refused(disk: Disk) -> str:
    """What a server says that does not start."""
    disk.serve()
    assert disk.server is not None
    assert disk.server.wait(240) != 0
    disk.server = None
    Disk.running.remove(disk)
    disk.see_no_traceback()
    return disk.told()


@pytest.mark.parametrize(
    "which", [slice(-1, None), slice(3, 6), slice(None)], ids=["newest", "middle", "all"]
)
def test_segments_that_a_listing_leaves_out_are_found(place: Place, which: slice) -> None:
    disk = disk_of(place, "hidden").start()
    files = pool_on(disk)
    cut(disk)
    place.server.hidden = set(place.of_kind("segments")[which])
    assert place.server.hidden
    disk.start()
    assert read_again(disk) == files
    disk.stop()


@pytest.mark.parametrize("kind", ["segments", "checkpoints", ""])
def test_an_older_state_is_refused_and_stays_as_it_is(place: Place, kind: str) -> None:
    """Not only of everything: of the checkpoints alone the segments after them look like a crash's leavings."""
    disk = disk_of(place, "older").start()
    pool_on(disk)
    sh("zpool", "export", POOL)
    disk.stop()
    older = dict(place.server.store.objects)
    disk.start()
    sh("zpool", "import", "-d", disk.device, "-o", "cachefile=none", POOL)
    (MOUNT / "new").write_bytes(b"new" * MIB)
    files = tree_hashes(MOUNT)
    cut(disk)
    newest = dict(place.server.store.objects)
    place.server.store.objects = {
        key: older.get(key, data) for key, data in newest.items() if key in older or f"/{kind}" not in key
    }
    with nothing_removed(place):
        said = refused(disk)
    print(said)
    assert re.search(r"older than|missing|lost", said)
    place.server.store.objects = newest
    disk.start()
    assert read_again(disk) == files
    disk.stop()


def test_a_put_that_was_answered_and_never_carried_out_is_missed(place: Place) -> None:
    disk = disk_of(place, "dropped").start()
    with Direct(disk.device) as device:
        device.write(0, b"a" * BLOCK)
        device.flush()
        kept, place.server.late = place.server.late, []
        device.write(1, b"b" * BLOCK)
        device.flush()
        late, place.server.late = place.server.late, kept
        device.write(2, b"c" * BLOCK)
        device.flush()
    assert [key for key, _ in late if "/segments/" in key]
    disk.power_cut()
    with nothing_removed(place):
        said = refused(disk)
    assert "segment" in said
    place.server.late = late
    place.server.arrive()  # it was late
    disk.start()
    with Direct(disk.device) as device:
        assert device.read(0, 3) == b"a" * BLOCK + b"b" * BLOCK + b"c" * BLOCK
    disk.stop()


def test_a_block_that_is_gone_is_told_in_one_line(place: Place) -> None:
    disk = disk_of(place, "gone").start()
    with Direct(disk.device) as device:
        device.write(UNREAD, b"a" * BLOCK)
        device.flush()
    disk.stop()
    disk.start()
    kept = dict(place.server.store.objects)
    place.server.store.objects = {key: data for key, data in kept.items() if "/segments/" not in key}
    with Direct(disk.device) as device, pytest.raises(OSError, match="Input/output error"):
        device.read(UNREAD)
    (told,) = [line for line in disk.told().splitlines() if "pread" in line]
    assert "segments/" in told
    disk.kill()


def flushed(device: Direct, data: bytes) -> None:
    device.write(0, data)
    device.flush()


def test_where_conditions_are_ignored_one_writer_is_answered(place: Place) -> None:
    place.server.conditions = False
    first = disk_of(place, "two", name="first").start()
    with Direct(first.device) as device:
        device.write(0, b"1" * BLOCK)
        device.flush()
        # Of another host, which has notes of its own.
        second = disk_of(place, "two", f"seen={FOLDER / 'seen there'}", name="second", number=1).start()
        with Direct(second.device) as other:
            other.write(1, b"2" * BLOCK)
            other.flush()
        with pytest.raises(OSError, match="Input/output error"):
            flushed(device, b"3" * BLOCK)
    first.kill()
    second.stop()
    second.start()
    with Direct(second.device) as other:
        assert other.read(0, 2) == b"1" * BLOCK + b"2" * BLOCK
    second.stop()


def bodies(place: Place) -> Disk:
    """A device with data that its server has yet to read."""
    disk = disk_of(place, "bodies").start()
    with Direct(disk.device) as device:
        device.write(0, b"x" * (8 * MIB))
        device.flush()
    disk.stop()
    return disk.start()


@pytest.mark.parametrize("body", ["endless", "huge"])
def test_bodies_that_never_end_are_errors_and_fill_no_memory(place: Place, body: str) -> None:
    disk = bodies(place)
    with Direct(disk.device) as device:
        place.server.objects = body  # type: ignore[assignment]
        with pytest.raises(OSError, match="Input/output error"):
            device.read(UNREAD)
        assert disk.server is not None
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{disk.server.pid}/status").read_text())
        assert peak is not None
        assert int(peak[1]) << 10 < ROOM
        place.server.objects = ""
        assert device.read(UNREAD) == b"x" * BLOCK
    disk.stop()


def test_a_body_that_breaks_off_is_asked_for_again(place: Place) -> None:
    disk = bodies(place)
    with Direct(disk.device) as device, ThreadPoolExecutor(1) as reader:
        place.server.objects = "truncated"
        reading = reader.submit(device.read, UNREAD)
        try:
            eventually(
                "it is told", lambda: "waiting for the object store" in (disk.status()["trouble"] or "")
            )
            assert not reading.done()
        finally:
            place.server.objects = ""
        assert reading.result(120) == b"x" * BLOCK
    disk.stop()


def repaired(place: Place, key: str) -> str:
    """What `check --repair --cut-log` does with a device that nobody serves."""
    where = f"zvault:{BUCKET}/{key} endpoint={place.endpoint} region=default keys={place.keys_file()}"
    return sh("zvaultctl", "blockstore", "check", where, "--repair", "--cut-log", "--yes")


def test_small_flushes_are_found_where_a_long_suffix_is_answered_416(place: Place) -> None:
    """As `rclone serve s3` has it: each of these segments is shorter than the end of one that is asked for."""
    place.server.long_suffix = False
    disk = disk_of(place, "suffix").start()
    with Direct(disk.device) as device:
        for number in range(9):
            device.write(number, bytes([number + 1]) * BLOCK)
            device.flush()
    disk.power_cut()
    disk.start()
    with Direct(disk.device) as device:
        assert device.read(0, 9) == b"".join(bytes([number + 1]) * BLOCK for number in range(9))
    files = pool_on(disk)
    cut(disk)
    disk.start()
    assert read_again(disk) == files
    disk.stop()


def test_a_store_whose_power_went_is_repaired(place: Place) -> None:
    """As VersityGW on ext4 leaves it: zero bytes without an ETag, here of the small object that says who writes."""
    disk = disk_of(place, "power").start()
    files = pool_on(disk)
    cut(disk)
    place.server.lose("power/epoch", etag=False)
    with nothing_removed(place):
        said = refused(disk)
    assert "nothing but zero bytes" in said
    assert "Traceback" not in said
    assert "made power/epoch anew" in repaired(place, "power")
    again = disk_of(place, "power").start()
    assert read_again(again) == files
    again.stop()
