"""What a Ceph user lacks for an image, and what gives it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from zvault.config.device_specs.rbd import RbdImage
from zvault.core.errors import DeviceGone, Refused
from zvault.devices.rbd.access import check_access, find_access_problem, list_image_pools
from zvault.devices.rbd.cluster import CephCluster
from zvault.devices.rbd.image import FoundImage, ImageLayout
from zvault.system.process.runner import ProcessResult

IMAGE = RbdImage("rbd_meta", "", "cold")
FOUND = FoundImage("1a2b", ImageLayout(data_pool="data"), "rbd_data.3.1a2b")
USER = CephCluster(user="zvault")


class Cluster:
    """A cluster whose user may write to some pools, and shut a client out or not."""

    def __init__(self, writes: Sequence[str] = ("rbd_meta", "data"), *, blocklists: bool = True) -> None:
        self.writes, self.blocklists, self.flags = writes, blocklists, ""
        self.removed: dict[str, str] = {}

    async def run(self, argv: Sequence[str], **_: object) -> ProcessResult:
        code, out, said = 0, "", ""
        if argv[0] == "rados":
            pool, name = argv[argv.index("--pool") + 1], argv[-1]
            self.removed[pool] = name
            # From Ceph 18.2.7.
            why = "(2) No such file or directory" if pool in self.writes else "(1) Operation not permitted"
            code, said = 1, f"error removing {pool}>{name}: {why}"
        elif "dump" in argv:
            out = json.dumps({"pools": [{"pool_name": "data", "flags_names": self.flags}]})
        elif "blocklist" in argv and not self.blocklists:
            code, said = 13, "Error EACCES: access denied"
        return ProcessResult(tuple(argv), code, out, said, 0.0)


async def test_a_user_who_may_do_all_is_not_refused_and_no_object_of_the_image_is_touched() -> None:
    cluster = Cluster()
    await check_access(IMAGE, FOUND, USER, cluster, locks=True)
    assert cluster.removed == {
        "rbd_meta": "rbd_header.1a2b.zvault",
        "data": "rbd_data.3.1a2b.ffffffffffffffff",
    }, "names that caps by object_prefix allow too, and no image has"
    assert await find_access_problem(IMAGE, FOUND, USER, cluster) == ""


@pytest.mark.parametrize(
    ("cluster", "why"),
    [
        (Cluster(["rbd_meta"]), "it may not write to pool 'data'"),
        (Cluster(["data"]), "it may not write to pool 'rbd_meta'"),
        (Cluster([]), "it may not write to pool 'rbd_meta', nor write to pool 'data'"),
        (Cluster(blocklists=False), "it may not shut a dead client out"),
    ],
)
async def test_what_is_lacking_is_told_with_the_command_that_gives_it(cluster: Cluster, why: str) -> None:
    with pytest.raises(Refused, match=r"client\.zvault of Ceph may not do all") as refused:
        await check_access(IMAGE, FOUND, USER, cluster, locks=True)
    assert refused.value.why.startswith(why)
    assert (
        '\'ceph auth caps client.zvault mon "profile rbd" osd'
        ' "profile rbd pool=rbd_meta, profile rbd pool=data"\'' in refused.value.next
    )
    assert why in await find_access_problem(IMAGE, FOUND, USER, cluster)


async def test_the_right_to_shut_a_client_out_is_tried_only_where_a_lock_needs_it() -> None:
    await check_access(IMAGE, FOUND, USER, Cluster(blocklists=False), locks=False)


async def test_a_pool_that_is_full_is_told_before_anything_waits_for_it() -> None:
    cluster = Cluster()
    cluster.flags = "full"
    with pytest.raises(DeviceGone, match="takes no writes"):
        await check_access(IMAGE, FOUND, USER, cluster, locks=True)
    assert cluster.removed == {}


async def test_an_image_in_a_namespace_and_one_pool() -> None:
    spec, found, cluster = RbdImage("p", "ns", "x"), FoundImage("9", ImageLayout(), "rbd_data.9"), Cluster([])
    assert list_image_pools(spec, found) == ("p",)
    with pytest.raises(Refused) as refused:
        await check_access(spec, found, USER, cluster, locks=False)
    assert cluster.removed == {"p": "rbd_data.9.ffffffffffffffff"}
    assert "profile rbd pool=p namespace=ns" in refused.value.next
