"""What goes wrong around a block store: another writer, a store that is gone or busy, no room, wrong keys, damage."""

from __future__ import annotations

import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from blockstore_lab import (  # fixtures among them
    BLOCK,
    MIB,
    Bucket,
    Direct,
    Disk,
    bucket_for_test,  # noqa: F401
    cluster_of_module,  # noqa: F401
)
from s3_proxy import Proxy
from world import eventually, sh

from zvault.blockstore.format import SLOT_SIZE

LAB = {"mem": "4G", "timeout": 900}

SIZE = "size=1G"


def filled(number: int, count: int = 1) -> bytes:
    return number.to_bytes(8, "little") * (BLOCK // 8 * count)


class Stream:
    """Writes in the background, 64 KiB after 64 KiB and a flush now and then, until it is told to end."""

    def __init__(self, path: str) -> None:
        self.wrote: list[int] = []
        self.failed: OSError | None = None
        self.slowest = 0.0
        self._path = path
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(240)
        assert not self._thread.is_alive(), "it hangs"

    def _run(self) -> None:
        with Direct(self._path) as device:
            try:
                while not self._over.is_set():
                    began = time.monotonic()
                    number = len(self.wrote) + 1
                    device.write(number % 4000 * 16, filled(number, 16))
                    if number % 50 == 0:
                        device.flush()
                    self.wrote.append(number)
                    self.slowest = max(self.slowest, time.monotonic() - began)
            except OSError as error:
                self.failed = error

    def check(self, path: str) -> None:
        """All that was answered is there."""
        latest = {number % 4000: number for number in self.wrote}
        with Direct(path) as device:
            for place, number in latest.items():
                assert device.read(place * 16, 16) == filled(number, 16)


def stalled(stream: Stream) -> Callable[[], bool]:
    """Whether nothing was answered for a second."""

    def look() -> bool:
        before = len(stream.wrote)
        time.sleep(1)
        return len(stream.wrote) == before

    return look


def trouble(disk: Disk) -> str:
    """What its server says that is wrong; it says so once a second."""
    return disk.status().get("trouble") or ""


def errors(disk: Disk) -> int:
    """Requests that the store has refused so far."""
    # None are told while it cannot say how its device fares.
    requests = eventually("what it has asked", lambda: disk.status().get("requests"))
    return sum(one["errors"] for one in requests.values())


def write_and_flush(device: Direct) -> None:
    device.write(0, filled(99))
    device.flush()


def test_a_second_writer_shuts_the_first_out(bucket: Bucket) -> None:
    first = Disk(bucket, "two", SIZE, name="first").start()
    with Direct(first.device) as device:
        device.write(0, filled(1, 64))
        device.flush()
        second = Disk(bucket, "two", SIZE, name="second", number=1).start()
        with Direct(second.device) as other:
            assert other.read(0, 64) == filled(1, 64)
            other.write(32, filled(2, 32))
            other.flush()
        with pytest.raises(OSError, match="Input/output error"):
            write_and_flush(device)  # the first one, however soon
        with pytest.raises(OSError, match="Input/output error"):
            device.write(0, filled(99))
    eventually("its word", lambda: first.status()["engine"]["fenced"])
    assert "has taken it" in first.status()["trouble"]
    first.kill()
    second.stop()
    second.start()
    with Direct(second.device) as other:
        assert other.read(0, 64) == filled(1, 32) + filled(2, 32)
    second.stop()


def test_a_store_that_goes_and_comes_back_is_waited_for(bucket: Bucket) -> None:
    disk = Disk(bucket, "gone", SIZE).start()
    with Stream(disk.device) as stream:
        eventually("some writes", lambda: len(stream.wrote) > 200)
        bucket.cluster.kill("client.rgw")
        eventually("a word of it", lambda: "waiting for the object store" in trouble(disk))
        eventually("a stall", stalled(stream))
        bucket.cluster.start_rgw()
        before = len(stream.wrote)
        eventually("more writes", lambda: len(stream.wrote) > before + 200, seconds=240)
    assert stream.failed is None
    assert stream.slowest > 1
    stream.check(disk.device)
    eventually("all is well", lambda: not trouble(disk))
    disk.stop()


def test_a_busy_store_is_asked_again(bucket: Bucket) -> None:
    with Proxy(bucket.s3.endpoint) as proxy:
        disk = Disk(bucket, "busy", SIZE, endpoint=proxy.endpoint).start()
        with Stream(disk.device) as stream:
            eventually("some writes", lambda: len(stream.wrote) > 60)
            for mode in ("unavailable", "silent", "unavailable"):
                refused = errors(disk)
                with proxy.doing(mode):
                    if mode == "silent":
                        eventually("a stall", stalled(stream))
                    else:
                        eventually("an error", lambda refused=refused: errors(disk) > refused)
                before = len(stream.wrote)
                eventually("more writes", lambda before=before: len(stream.wrote) > before + 60)
        assert stream.failed is None
        stream.check(disk.device)
        assert errors(disk) > 1
        disk.stop()


@contextmanager
def small_disk(mib: int) -> Iterator[Path]:
    """A file system of its own, not in memory."""
    image, mount = Path("/var/tmp/small.img"), Path("/mnt/small")
    mount.mkdir(parents=True, exist_ok=True)
    sh("truncate", "-s", f"{mib}M", str(image))
    sh("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", str(image))
    sh("mount", "-o", "loop", str(image), str(mount))
    try:
        yield mount
    finally:
        sh("umount", "-l", str(mount))
        image.unlink()


def test_a_journal_on_a_full_disk_waits_for_room(bucket: Bucket) -> None:
    with small_disk(48) as folder:
        words = (SIZE, "mode=writeback", f"journal={folder}/journal", "journal-size=128M")
        disk = Disk(bucket, "full", *words).start()
        rgw = bucket.cluster.daemons["client.rgw"]
        rgw.send_signal(signal.SIGSTOP)
        try:
            with Stream(disk.device) as stream:
                eventually("the disk is full", lambda: shutil.disk_usage(folder).free < 12 * MIB)
                eventually("a stall", stalled(stream))
                eventually("a word of it", lambda: "journal" in trouble(disk))
                rgw.send_signal(signal.SIGCONT)
                before = len(stream.wrote)
                eventually("more writes", lambda: len(stream.wrote) > before + 400, seconds=240)
        finally:
            rgw.send_signal(signal.SIGCONT)
        assert stream.failed is None
        stream.check(disk.device)
        disk.kill()
        disk.start()
        stream.check(disk.device)
        eventually("all is well", lambda: not trouble(disk))
        disk.stop()


def test_wrong_keys_are_told_in_one_line(bucket: Bucket) -> None:
    disk = Disk(bucket, "denied", SIZE, keys=bucket.keys_file("wrong"))
    disk.serve()
    assert disk.server is not None
    assert disk.server.wait(240) == 1
    said = disk.told().splitlines()
    assert len(said) == 1, said
    assert "SignatureDoesNotMatch" in said[0]
    assert "see that bucket, keys and permissions are right" in said[0]
    assert disk.status()["error"]["kind"] == "StoreDenied"
    assert not bucket.listed("denied")


def test_damage_is_an_error_on_its_blocks_and_on_no_other(bucket: Bucket) -> None:
    disk = Disk(bucket, "hurt", SIZE).start()
    chance, count = random.Random(3), 1024
    with Direct(disk.device) as device:
        for block in range(0, count, 64):
            device.write(block, b"".join(filled(number) for number in range(block, block + 64)))
        device.flush()
    disk.stop()
    segments = [key for key in bucket.listed("hurt") if "/segments/" in key]
    hurt: set[int] = set()
    for key in segments:
        data = bytearray(bucket.get(key))
        for slot in chance.sample(range(len(data) // SLOT_SIZE), 3):
            hurt.add(int.from_bytes(data[slot * SLOT_SIZE : slot * SLOT_SIZE + 8], "little"))
            data[slot * SLOT_SIZE + chance.randrange(SLOT_SIZE)] ^= 1 << chance.randrange(8)
        bucket.put(key, bytes(data))
    disk.start()
    failed = set()
    with Direct(disk.device) as device:
        for block in range(count):
            try:
                assert device.read(block) == filled(block)
            except OSError:
                failed.add(block)
        assert failed == hurt
        for block in hurt:
            device.write(block, filled(block))
        device.flush()
        assert device.read(0, count) == b"".join(filled(number) for number in range(count))
    disk.stop()
    assert "does not match its checksums" in disk.told()
