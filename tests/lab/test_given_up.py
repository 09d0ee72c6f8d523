"""A pool that another host has now, exported over a copy of its block store, whatever becomes of the store meanwhile.

If a request to the copy failed, OpenZFS would suspend the pool in its export, and nothing would end that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

import pytest
from blockstore_lab import (  # fixtures among them
    BUCKET,
    FOLDER,
    MIB,
    Bucket,
    bucket_for_test,  # noqa: F401
    cluster_of_module,  # noqa: F401
)
from device_stacks import LEASES, PATHS
from s3_proxy import Proxy
from world import eventually, sh, shell

from zvault.blockstore.attach import attach_store
from zvault.blockstore.options import EngineOptions
from zvault.config.profile import QueueSettings
from zvault.config.tables.device import Device
from zvault.core.errors import DeviceGone
from zvault.devices.s3_lease.lease_object import BucketPlace, LeaseObjectStore
from zvault.devices.stack import DeviceStack
from zvault.ops.vaults.abandon_pool import abandon_pool
from zvault.system.process.runner import HostRunner
from zvault.system.record_store import RecordStore
from zvault.zfs.pool.pool import Zpool

LAB = {"mem": "4G", "timeout": 900}

POOL, SIZE = "cold", "128M"
UNIT = f"zvault-blockstore@{POOL}-0.service"
KEYS = Path("/etc/credstore/zvault.lab")
TIMEOUT = 10
"""Seconds: the device's timeout for a request."""
LATE = 6.0
"""Seconds that each request to the store takes: two after each other, for the map and for a block, take longer."""


@pytest.fixture
def proxy(bucket: Bucket) -> Iterator[Proxy]:
    KEYS.parent.mkdir(exist_ok=True)
    KEYS.write_bytes(bucket.keys_file().read_bytes())
    with Proxy(bucket.s3.endpoint) as it:
        yield it


def stack_of(proxy: Proxy, key: str) -> DeviceStack:
    spec = f"zvault:{BUCKET}/{key} size={SIZE} endpoint={proxy.endpoint} region=default style=path"
    device = Device.model_validate({"nbd": f"{spec} credential=zvault.lab", "timeout": f"{TIMEOUT}s"})
    return DeviceStack(POOL, [device], QueueSettings(), HostRunner(), PATHS, RecordStore(LEASES), create=True)


def state() -> str:
    """The pool's, by the kernel; "" where it is not imported."""
    file = Path(f"/proc/spl/kstat/zfs/{POOL}/state")
    return file.read_text().strip() if file.exists() else ""


def suspended(proxy: Proxy, key: str) -> None:
    """A pool whose server died with something in memory, which goes where the store has something already."""
    (made,) = asyncio.run(stack_of(proxy, key).up(print))
    sh("dd", "if=/dev/urandom", f"of={made.path}", "bs=1M", "oflag=direct", check=False)  # up to its end
    words = f"-o cachefile=none -o ashift=12 -o failmode=continue -O compression=off -O mountpoint=/{POOL}"
    shell(f"zpool create -f {words} {POOL} {made.path}")
    shell(f"for one in $(seq 6); do head -c 1M /dev/urandom >/{POOL}/$one; done")
    shell(f"zpool export {POOL} && zpool import -d {made.path} -o cachefile=none {POOL}")
    shell(f"for one in $(seq 30); do head -c 300K /dev/urandom >/{POOL}/new$one; done")
    sh("systemctl", "kill", "-s", "KILL", UNIT)
    eventually(state, lambda: state() == "SUSPENDED")


def hung() -> str:
    """Where in the kernel everything is that waits there."""
    stacks = "for one in /proc/[0-9]*; do grep -q '^State:.D' $one/status && cat $one/comm $one/stack; done 2>/dev/null"
    return shell(f"{stacks}; dmesg | grep -E 'nbd|Pool|PANIC|VERIFY' | tail -n 30", check=False)


class Meanwhile(asyncio.Event):
    """What the export waits for, once the pool has written to the copy what it had in memory."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__()
        self.happens = happens

    async def wait(self) -> Literal[True]:
        await asyncio.to_thread(self.happens)
        return True


def nothing() -> None:
    """It does not happen."""


def give_up(
    proxy: Proxy, key: str, *, opened: Callable[[], None] = nothing, exported: Callable[[], None] = nothing
) -> None:
    """Export it; something happens just before the pool opens the copy, or just before the export begins."""

    def say(text: str) -> None:
        print(f"{time.monotonic():.1f} {text}")
        if "is given up" in text:
            opened()

    async def export() -> None:
        stack, zpool = stack_of(proxy, key), Zpool(HostRunner(), Path("/proc"))
        await abandon_pool(POOL, zpool, stack, Meanwhile(exported), say, nullcontext)
        await stack.down(say)

    try:
        asyncio.run(export())
    except DeviceGone as error:
        raise AssertionError(f"{error}\n{state()}\n{heard()}\n{hung()}") from error
    assert state() == ""
    assert "timed out" not in sh("dmesg").rpartition("detected capacity change from 0")[2]


def heard() -> str:
    """What the copy's server said last."""
    return sh("journalctl", "-u", UNIT, "-o", "cat", "-n", "20", "--no-pager")


def slow(proxy: Proxy, seconds: float) -> Callable[[], None]:
    """Each request reaches the store so late."""
    return lambda: proxy.late.update({"127.0.0.1": (seconds, 0.0)})


def test_over_a_slow_line(bucket: Bucket, proxy: Proxy) -> None:
    suspended(proxy, "slow")
    before = proxy.requests["PUT"]
    give_up(proxy, "slow", opened=slow(proxy, LATE))
    assert proxy.requests["PUT"] == before, "something of it reached the store"


def test_over_a_line_that_becomes_slow(bucket: Bucket, proxy: Proxy) -> None:
    suspended(proxy, "slower")
    give_up(proxy, "slower", exported=slow(proxy, TIMEOUT + 1))


def test_while_another_host_goes_on(bucket: Bucket, proxy: Proxy) -> None:
    suspended(proxy, "shared")
    there = set(bucket.listed("shared"))

    def rewritten() -> None:
        words = [
            f"bucket={BUCKET}",
            "key=shared",
            f"endpoint={bucket.s3.endpoint}",
            f"keys={bucket.keys_file()}",
        ]
        other = attach_store(
            LeaseObjectStore(BucketPlace.of(words))._objects,
            "shared",
            EngineOptions(FOLDER / "other"),
            "another host",
        )
        for offset in range(0, other.size, 8 * MIB):
            other.write(offset, other.read(offset, 8 * MIB))
        other.flush()
        for _ in range(3):
            other.checkpoint()
        other.close()
        gone = {key for key in there - set(bucket.listed("shared")) if "/segments/" in key}
        assert gone, "the copy can still be read as it was"
        sh("dd", "if=/dev/nbd0", "of=/dev/null", "bs=1M", "iflag=direct")

    give_up(proxy, "shared", exported=rewritten)
    assert "its writer went on" in heard()
    assert "zeroes" not in heard()
