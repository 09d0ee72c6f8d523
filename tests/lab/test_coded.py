"""A vault whose data is erasure-coded, on OSDs that lie on volumes of ZFS: the set-up of the slowest reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import ceph
import pytest
from test_rbd import Vault, left, scrubbed
from world import DISK, ctl, eventually, ok, sh, snapshot_hashes, snapshots, tree_hashes

LAB = {"mem": "5G", "timeout": 800}

STRIPE = 2 * 4096
"""Two parts of data, each of osd_pool_erasure_code_stripe_unit's 4 KiB."""


class Coded(Vault):
    """The world with its vault's data on the coded pool."""

    device = f'data_pool = "{ceph.CODED}"\nobject_size = "4M"\nfeatures = ["exclusive-lock"]'
    vault_extra = 'create = true\nprofile = "rbd-hdd"'


@pytest.fixture
def world() -> Iterator[Coded]:
    it = Coded()
    it.clean()
    it.source()
    DISK.mkdir(exist_ok=True)
    sh("truncate", "-s", "8G", str(DISK / "below.img"))
    sh("zpool", "create", "-O", "compression=off", "below", str(DISK / "below.img"))
    for number in range(ceph.OSDS_FOR_CODED):
        sh("zfs", "create", "-s", "-V", "2G", f"below/osd{number}")
    disks = [Path(f"/dev/zvol/below/osd{number}") for number in range(ceph.OSDS_FOR_CODED)]
    eventually("the volumes' devices", lambda: all(disk.is_block_device() for disk in disks))
    with ceph.cluster(disks=disks) as cluster:
        cluster.client("zvault", mon="profile rbd", osd="profile rbd")
        yield it
        sh("zpool", "export", "cold", check=False)
        it.unmap()
    it.clean()


def test_a_vault_on_coded_data_and_what_fit_says_of_what_is_below(world: Coded):
    world.start()
    before = ctl("fit", "-j", "tank").json()
    ok("run", "tank")
    ok("vault", "up", "cold")
    found = ctl("fit", "-j", "tank").json()
    assert found["unknown"] == []
    (device,) = found["devices"]
    assert (device["kind"], device["unit"]) == ("stripe", STRIPE)
    assert before["devices"][0]["unit"] == STRIPE, "known before the image was there"
    twice = [one for one in found["advice"] if one["what"].startswith("move the OSDs")]
    assert [one["about"] for one in twice] == [["rbd:rbd_meta/cold"]]
    assert "its OSDs are on ZFS volumes" in ctl("fit", "tank").out

    newest = snapshots("cold/lab/tank/home")[-1]
    for name in ("home", "big"):
        assert snapshot_hashes(f"cold/lab/tank/{name}@{newest}") == tree_hashes(Path("/tank", name))
    assert "No known data errors" in scrubbed()
    ok("vault", "down", "cold")
    eventually(left, lambda: left() == {})
