"""zvault killed while it maps or unmaps an image, at one step after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import ceph
import pytest
from device_stacks import LEASES, PATHS, Moment, killed, quiet
from test_rbd import IMAGE, left, watchers
from world import eventually, sh

from zvault.config.profile import QueueSettings
from zvault.config.schema import Device
from zvault.devices.stack import DeviceStack
from zvault.system.process.runner import HostRunner
from zvault.system.record_store import RecordStore

LAB = {"mem": "4G", "timeout": 2000}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ceph.Cluster]:
    with ceph.cluster() as it:
        yield it


@pytest.mark.parametrize("verb", ["up", "down"])
@pytest.mark.parametrize("way", ["krbd", "rbd-nbd"])
def test_killed_at_any_moment(cluster: ceph.Cluster, way: str, verb: str):
    """With any of its tools on its way when zvault dies, the next start joins or clears what is there."""
    sh("rbd", "create", "--size", "64M", IMAGE)
    device = Device.model_validate({"rbd": IMAGE, "map": way, "timeout": "30s"})
    stack = DeviceStack("cold", [device], QueueSettings(), HostRunner(), PATHS, RecordStore(LEASES))
    seen = []
    for nth in range(1, 100, 2):
        if verb == "down":
            asyncio.run(stack.up(quiet))
        if not killed(stack, verb, Moment(nth, before=False)):
            break
        (state,) = asyncio.run(stack.probe())
        seen.append(state.state)
        if nth % 4 == 1:
            (found,) = asyncio.run(stack.up(quiet))
            sh("dd", f"if={found.path}", "of=/dev/null", "bs=4096", "count=1", "iflag=direct")
            # One that broke off counts for a while.
            eventually("one watcher", lambda: len(watchers()) == 1)
        asyncio.run(stack.down(quiet))
        eventually(f"nothing left, killed at step {nth} with {state}", lambda: left() == {})
    asyncio.run(stack.down(quiet))
    print(f"killed in {verb} at {len(seen)} moments, found", seen)
    assert len(seen) > 1
    sh("rbd", "rm", IMAGE)
