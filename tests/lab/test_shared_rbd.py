"""Two hosts and one vault on an RBD image: when one fails in a run the other shuts it out of Ceph and goes on.

As test_shared_vault.py has it for a bucket.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import failover
import failover_rbd
import pytest
from failover import Kind, fail, judge_after_failures, wait_until_idle
from failover_hosts import POOL, left_nothing, on, other
from failover_rbd import Image, shared_image, watched
from world import eventually, shell

from zvault.config.device_specs.rbd import RbdImage
from zvault.devices.rbd.cluster import CephCluster, may_blocklist
from zvault.devices.rbd.objects import RadosObjects
from zvault.devices.rbd.place import ImagePlace
from zvault.object_store.interface import NO_OBJECT_YET, ObjectMissing, PreconditionFailed
from zvault.system.process.runner import HostRunner

LAB = {"mem": "4G", "timeout": 1500, "peer": True}


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    with shared_image() as it:
        yield it


def test_an_object_is_put_only_in_the_place_of_the_one_that_was_read(image: Image) -> None:
    place = ImagePlace(RbdImage("rbd_meta", "", "other"), CephCluster(user="zvault"))
    here, there = RadosObjects(place), RadosObjects(place)
    with pytest.raises(ObjectMissing):
        here.read_aged("x")
    first = here.put("x", b"one", NO_OBJECT_YET)
    for stale in (NO_OBJECT_YET, str(int(first) + 1), "0", "no version"):
        with pytest.raises(PreconditionFailed):
            there.put("x", b"two", stale)
    began = time.monotonic()
    second = there.put("x", b"two", first)
    with pytest.raises(PreconditionFailed):
        here.put("x", b"three", first)
    time.sleep(1)
    data, version, age = here.read_aged("x")
    assert (data, version) == (b"two", second)
    assert 1 <= age <= time.monotonic() - began
    here.delete(["x", "x"])
    with pytest.raises(PreconditionFailed):
        here.put("x", b"four", second)


def test_a_user_that_may_not_shut_others_out_is_refused(image: Image) -> None:
    weak = image.cluster.client("weak", mon="allow r", osd="profile rbd")
    assert not asyncio.run(may_blocklist(CephCluster(user="weak", keyring=str(weak)), HostRunner()))
    assert asyncio.run(may_blocklist(CephCluster(user="zvault"), HostRunner()))


def test_of_two_that_are_due_one_runs_and_the_other_skips(image: Image) -> None:
    failover.one_runs_and_the_other_skips()


@pytest.mark.parametrize(
    ("number", "kind", "victim"),
    [
        (1, watched(failover.KILLED), "peer"),
        (2, failover_rbd.STOPPED, "lab"),
        (3, failover_rbd.CUT_OFF, "peer"),
    ],
    ids=str,
)
def test_another_goes_on_with_a_run_whose_host_fails(
    image: Image, number: int, kind: Kind, victim: str
) -> None:
    row = fail(image, kind, victim, number)
    row.wrote = image.after(other(victim))
    print(row)
    assert row.lost == 0
    assert not row.wrote.counts
    if kind is failover_rbd.CUT_OFF:
        said = on(victim, "journalctl -u zvaultd --no-pager")
        assert "cannot be given up: nbdkit is not installed" in said
        assert "stays mapped: it is open: sh" in said.rpartition("is exported here")[2]


def test_what_was_acknowledged_is_there(image: Image) -> None:
    row = judge_after_failures(image)
    assert row.same, row
    assert row.scrub == "clean", row
    eventually("nobody has the lease", lambda: image.holder() == "")


def test_a_pool_whose_lease_was_not_kept_for_a_while_goes_on_on_its_mapping(image: Image) -> None:
    wait_until_idle()
    shell(f"zvaultctl vault up {POOL}; systemctl kill -s KILL {image.units}")
    mapping = shell("cat /sys/bus/rbd/devices/*/client_addr")
    eventually(
        "its keeper is gone", lambda: shell(f"systemctl is-active {image.units} || true").strip() == "failed"
    )
    shell(f"zvaultctl vault up {POOL}; systemctl is-active {image.units}; zpool sync {POOL}")
    assert shell("cat /sys/bus/rbd/devices/*/client_addr") == mapping
    assert shell(f"cat /proc/spl/kstat/zfs/{POOL}/state").strip() == "ONLINE"
    assert image.holder() == "lab"
    shell(f"zvaultctl vault down {POOL}")
    eventually("nothing to be left", lambda: left_nothing("lab"))
    assert image.holder() == ""
