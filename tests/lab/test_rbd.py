"""Vaults on RBD images of a real Ceph cluster: made, mapped by krbd and rbd-nbd, shared with nobody, survived."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ceph
import pytest
from world import World, ctl, eventually, journal, main_pid, ok, sh, snapshot_hashes, snapshots, tree_hashes

from zvault.config.device_specs.rbd import parse_rbd
from zvault.core.errors import Busy, DeviceGone, NotFound, Refused, ToolFailed
from zvault.devices.rbd import image as rbd
from zvault.devices.rbd import image_owners as rbd_owner
from zvault.devices.rbd import mapping as rbd_map
from zvault.devices.rbd.access import check_access
from zvault.devices.rbd.cluster import MONITOR_TIMEOUT, CephCluster
from zvault.devices.rbd.image import ImageLayout
from zvault.system.process.runner import HostRunner

LAB = {"mem": "4G", "timeout": 2500}

IMAGE = "rbd_meta/cold"
HOLDER = """
import sys, rados, rbd
cluster = rados.Rados(conffile="/etc/ceph/ceph.conf")
cluster.connect()
with cluster.open_ioctx("rbd_meta") as pool, rbd.Image(pool, "cold") as image:
    image.lock_acquire(rbd.RBD_LOCK_MODE_EXCLUSIVE)
    print("held", flush=True)
    for line in sys.stdin:
        try:
            image.write(b"x" * 4096, 0)
            image.flush()
            print("wrote", flush=True)
        except Exception as error:
            print("refused:", error, flush=True)
"""
"""Another host: its own client of the cluster, which keeps the lock and writes when it is told to."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ceph.Cluster]:
    began = time.monotonic()
    with ceph.cluster() as it:
        print(f"the cluster is up after {time.monotonic() - began:.1f} s")
        it.client("zvault", mon="profile rbd", osd="profile rbd")
        yield it


class Vault(World):
    """The world with its vault on an image."""

    map = "krbd"
    image_spec = IMAGE
    timeout = "30s"
    """Longer than a busy machine may stand still."""
    device = (
        'data_pool = "data"\nobject_size = "1M"\nfeatures = ["exclusive-lock", "object-map", "fast-diff"]'
    )

    def config_text(self) -> str:
        table = f"""
rbd = "{self.image_spec}"
size = "2G"
map = "{self.map}"
timeout = "{self.timeout}"
ceph = {{ user = "zvault", keyring = "{ceph.FOLDER}/client.zvault.keyring" }}
{self.device}
"""
        return re.sub(
            r'\nnbd = .*?timeout = "20s"\n', lambda _: table, super().config_text(), flags=re.DOTALL
        )

    def clean(self) -> None:
        super().clean()
        self.unmap()
        sh("rbd", "rm", self.image_spec, check=False)

    def unmap(self) -> None:
        """Release the image, whoever has it here."""
        for mapping in mappings():
            sh("rbd", "device", "unmap", "-o", "force", mapping["device"], check=False)
        for unit in re.findall(r"zvault-rbd@\S+", sh("systemctl", "list-units", "--plain", "zvault-rbd@*")):
            sh("systemctl", "stop", unit, check=False)


@pytest.fixture
def world(cluster: ceph.Cluster) -> Iterator[Vault]:
    it = Vault()
    it.clean()
    it.source()
    yield it
    it.clean()


def mappings() -> list[dict[str, Any]]:
    """What krbd has mapped."""
    return json.loads(sh("rbd", "device", "list", "--format", "json"))


def watchers() -> list[str]:
    """The addresses of those who have the image open."""
    status = json.loads(sh("rbd", "status", "--format", "json", IMAGE))
    return [watcher["address"] for watcher in status["watchers"]]


def left() -> dict[str, object]:
    """What a vault could have left."""
    found = {
        "mappings": mappings(),
        "watchers": watchers(),
        "nbd": [str(path) for path in Path("/sys/block").glob("nbd*/pid")],
        "units": sh("systemctl", "list-units", "--plain", "--no-legend", "zvault-rbd@*").split(),
        "leases": [path.name for path in Path("/run/zvault/lease").rglob("[0-9]*") if path.is_file()],
    }
    return {kind: things for kind, things in found.items() if things}


def nothing_left() -> None:
    """The cluster may know of a watch for a while that broke off."""
    eventually(lambda: f"nothing is left: {left()}", lambda: left() == {})


def suspensions() -> int:
    """How often the vault's pool was suspended: zvault resumes it, maybe before anybody looks."""
    return sh("zpool", "events", "-H", "cold").count("ereport.fs.zfs.io_failure")


def scrubbed() -> str:
    """The vault's pool read back as a whole: what ``zpool status`` says of it."""
    sh("zpool", "wait", "-t", "resilver", "cold")  # what it missed meanwhile
    sh("zpool", "scrub", "-w", "cold")
    return sh("zpool", "status", "cold")


def mapped_by_hand() -> str:
    """Where somebody else has it mapped now."""
    return sh("rbd", "device", "map", "-o", "exclusive", IMAGE).strip()


@contextmanager
def holder() -> Iterator[subprocess.Popen[str]]:
    """Another client, which has the image's lock."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=pipe, stdout=pipe, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()


def write(process: subprocess.Popen[str]) -> str:
    """Have the other client write; what came of it."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("write\n")
    process.stdin.flush()
    return process.stdout.readline()


@pytest.mark.parametrize("way", ["krbd", "rbd-nbd"])
def test_a_vault_on_an_image_that_zvault_makes(world: Vault, way: str):
    world.map = way
    world.start()
    ok("run", "tank")
    info = json.loads(sh("rbd", "info", "--format", "json", IMAGE))
    assert (info["data_pool"], info["object_size"], info["size"]) == ("data", 1 << 20, 2 << 30)
    assert {"exclusive-lock", "object-map", "fast-diff", "data-pool"} == set(info["features"])
    nothing_left()

    if way == "krbd":  # by hand: it is joined, not mapped once more
        assert mapped_by_hand() == "/dev/rbd0"
    ok("vault", "up", "cold")
    (device,) = re.findall(r"/dev/\S+", sh("zpool", "list", "-vHPL", "-o", "name", "cold"))
    assert device.startswith("/dev/rbd0" if way == "krbd" else "/dev/nbd")
    (address,) = watchers()
    lock = json.loads(sh("rbd", "lock", "ls", "--format", "json", IMAGE))
    assert [entry["address"] for entry in lock] == [address]

    killed = main_pid()
    sh("systemctl", "kill", "-s", "KILL", "zvaultd")
    eventually("systemd to notice", lambda: main_pid() != killed)
    sh("systemctl", "reset-failed", "zvaultd", check=False)
    sh("systemctl", "start", "zvaultd")
    eventually("adoption", lambda: "up" in ctl("vault", "status", "cold").out)
    assert watchers() == [address], "it was not adopted as it was"
    assert "No known data errors" in scrubbed()
    newest = snapshots("cold/lab/tank/home")[-1]
    for name in ("home", "big"):
        assert snapshot_hashes(f"cold/lab/tank/{name}@{newest}") == tree_hashes(Path("/tank", name))
    if way == "rbd-nbd":
        before = suspensions()
        sh("systemctl", "kill", "-s", "KILL", "zvault-rbd@cold-0")
        writer = subprocess.Popen(["zfs", "set", "org.zvault.test:x=y", "cold"])
        eventually("suspension", lambda: suspensions() > before)
        ok("vault", "up", "cold")
        assert writer.wait(240) == 0
        assert device in sh("zpool", "list", "-vHPL", "cold")
        assert "No known data errors" in scrubbed()
    ok("vault", "down", "cold")
    nothing_left()


def refused_for(address: str) -> float:
    """For how many days from now the cluster refuses a client; 0 if it does not."""
    for line in sh("ceph", "osd", "blocklist", "ls").splitlines():
        if line.startswith(f"{address} "):
            return (datetime.fromisoformat(line.split()[1]) - datetime.now(UTC)).total_seconds() / 86400
    return 0.0


def test_another_host_has_it_and_is_shut_out_when_told(world: Vault):
    world.start()
    sh("rbd", "create", "--size", "2G", "--data-pool", "data", "--object-size", "1M", IMAGE)
    with holder() as other:
        (address,) = watchers()
        for way in ("krbd", "rbd-nbd"):
            world.map = way
            world.configure()
            sh("systemctl", "restart", "zvaultd")
            refused = ctl("vault", "up", "cold")
            assert refused.code == 1
            assert f"at {address} holds its exclusive lock" in " ".join(refused.err.split()), refused.err
            eventually("nothing else to be left", lambda: left() == {"watchers": [address]})
        assert write(other) == "wrote\n"
        (device,) = ok("vault", "take", "cold", "-n", "-j").json()["takeover"]["devices"]
        assert f"at {address}" in device["holder"]
        fence, unlock = (step["command"] for step in device["steps"])
        assert "blocklist" in fence
        for command in (fence, unlock):
            sh(*shlex.split(command))
        assert refused_for(address) > 360  # a host may sleep for longer than the hour that is Ceph's default
        assert write(other).startswith("refused:")
        sh("dd", "if=/dev/zero", f"of={mapped_by_hand()}", "bs=1M", "count=1", "oflag=direct")
        sh("rbd", "device", "unmap", IMAGE)
        ok("vault", "up", "cold")
        eventually("its watch to end", lambda: address not in watchers())
        assert write(other).startswith("refused:")
    assert "No known data errors" in scrubbed()
    ok("vault", "down", "cold")


def test_its_storage_stops_answering_for_a_while(world: Vault, cluster: ceph.Cluster):
    world.timeout = "12s"
    world.start()
    ok("vault", "up", "cold")
    cluster.stop_osd()
    try:
        writer = subprocess.Popen(["zfs", "set", "org.zvault.test:x=y", "cold"])
        began = time.monotonic()
        eventually("suspension", lambda: "SUSPENDED" in sh("zpool", "list", "-Ho", "health", "cold"))
        print(f"suspended after {time.monotonic() - began:.1f} s")
        eventually("it to be told", lambda: "SUSPENDED" in ctl("vault", "status", "cold").out.upper())
    finally:
        cluster.start_osd()
    ok("vault", "up", "cold")
    assert writer.wait(240) == 0
    assert "No known data errors" in scrubbed()
    ok("vault", "down", "cold")
    # Its watch broke off and the cluster still counts it as there for a while: no stranger to be refused for.
    ok("vault", "up", "cold")
    ok("vault", "down", "cold")
    nothing_left()


def test_a_host_that_the_cluster_refuses_is_told_how_to_be_let_in_again(world: Vault):
    world.timeout = "12s"
    world.start()
    ok("run", "tank")
    ok("vault", "up", "cold")
    (address,) = watchers()
    sh("ceph", "osd", "blocklist", "add", address)
    before = suspensions()
    writer = subprocess.Popen(["zfs", "set", "org.zvault.test:x=y", "cold"])
    eventually("suspension", lambda: suspensions() > before)
    told = eventually(
        "the cause", lambda: found if "blocklist" in (found := ctl("vault", "status", "cold").out) else ""
    )
    print(told)
    told = " ".join(told.split())
    assert "no other host has had the image since" in told
    assert "no reboot is needed" in told
    sh("ceph", "osd", "blocklist", "rm", address)
    ok("vault", "up", "cold")
    assert writer.wait(240) == 0
    assert "No known data errors" in scrubbed()
    ok("run", "tank")
    ok("vault", "down", "cold")
    ok("vault", "up", "cold")
    ok("vault", "down", "cold")
    nothing_left()


async def test_what_is_wrong_is_told(cluster: ceph.Cluster, tmp_path: Path):
    run, ours = HostRunner(), CephCluster()
    there = parse_rbd("rbd_meta/shape")
    shape = ImageLayout(size=1 << 30, object_size=8 << 20, stripe_unit=64 << 10, stripe_count=4)
    assert await rbd.create_image(there, shape, ours, run)
    assert not await rbd.create_image(there, shape, ours, run)
    found = await rbd.find_image(there, ours, run)
    assert found is not None
    assert shape.differences(found.shape) == []
    with pytest.raises(Refused, match="size is 1G, not 2G; data_pool is none, not data"):
        await rbd.create_image(there, ImageLayout(size=2 << 30, data_pool="data"), ours, run)

    assert await rbd.find_image(parse_rbd("rbd_meta/none"), ours, run) is None
    with pytest.raises(NotFound, match="there is no pool 'nopool'"):
        await rbd.find_image(parse_rbd("nopool/x"), ours, run)
    with pytest.raises(NotFound, match="there is no namespace 'ns'"):
        await rbd.find_image(parse_rbd("rbd_meta/ns/x"), ours, run)
    with pytest.raises(NotFound, match="there is no pool 'nodata'"):
        await rbd.create_image(
            parse_rbd("rbd_meta/new"), ImageLayout(size=1 << 30, data_pool="nodata"), ours, run
        )
    with pytest.raises(DeviceGone, match=r"does not let client\.nobody in"):
        await rbd.find_image(there, CephCluster(user="nobody"), run)
    with pytest.raises(NotFound, match="no Ceph configuration at /none"):
        await rbd.find_image(there, CephCluster(conf="/none"), run)

    sh("rbd", "trash", "mv", "rbd_meta/shape")
    with pytest.raises(NotFound, match=r"rbd_meta/shape is in the trash") as in_trash:
        await rbd.refuse_if_in_trash(there, ours, run)
    (restore,) = re.findall(r"'(rbd trash restore [^']+)'", in_trash.value.next)
    sh(*shlex.split(restore))
    await rbd.refuse_if_in_trash(there, ours, run)
    assert await rbd.find_image(there, ours, run) is not None

    sh("rbd", "namespace", "create", "rbd_meta/ns")
    odd = parse_rbd("rbd_meta/ns/odd")
    assert await rbd.create_image(
        odd, ImageLayout(size=1 << 30, features=("exclusive-lock", "journaling")), ours, run
    )
    await rbd_map.check_krbd(run)
    argv = rbd_map.map_argv(odd, ours, exclusive=True, timeout=10)
    with pytest.raises(
        ToolFailed, match=r"lacks a feature of it: journaling.*feature disable rbd_meta/ns/odd"
    ):
        await rbd_map.map_krbd(odd, argv, ours, run, exclusive=True)
    sh("rbd", "feature", "disable", str(odd), "journaling")
    await rbd_map.map_krbd(odd, argv, ours, run, exclusive=True)
    mapping = rbd_map.find_mapping(odd)
    assert mapping is not None
    assert mapping.size == 1 << 30
    assert rbd_map.find_mapping(parse_rbd("rbd_meta/odd")) is None
    (owner,) = await rbd_owner.list_owners(odd, ours, run)
    assert (owner.address, owner.watches, owner.lock is not None) == (mapping.client, True, True)
    with (
        Path(mapping.path).open("rb"),
        pytest.raises(Busy, match=rf"it is open: .* \(process {os.getpid()}, user root\)"),
    ):
        await rbd_map.unmap_image(mapping, ours, run)
    await rbd_map.unmap_image(mapping, ours, run)
    assert rbd_map.find_mapping(odd) is None
    assert await rbd_owner.list_owners(odd, ours, run) == []


async def test_a_user_who_may_too_little_is_told_what_gives_it(cluster: ceph.Cluster):
    run, admin, image = HostRunner(), CephCluster(), parse_rbd("rbd_meta/rights")
    assert await rbd.create_image(image, ImageLayout(size=1 << 30, data_pool="data"), admin, run)
    found = await rbd.find_image(image, admin, run)
    assert found is not None
    rights = {
        "nodata": {"mon": "profile rbd", "osd": "profile rbd pool=rbd_meta"},
        "reader": {"mon": "profile rbd", "osd": "profile rbd-read-only pool=rbd_meta, profile rbd pool=data"},
        "nomon": {"mon": "allow r", "osd": "profile rbd"},
    }
    lacks = {
        "nodata": "write to pool 'data'",
        "reader": "write to pool 'rbd_meta'",
        "nomon": "shut a dead client out",
    }
    for name, caps in rights.items():
        user = CephCluster(user=name, keyring=str(cluster.client(name, **caps)))
        with pytest.raises(Refused, match=lacks[name]) as refused:
            await check_access(image, found, user, run, locks=True)
        (command,) = re.findall(r"'(ceph auth caps [^']+)'", refused.value.next)
        sh(*shlex.split(command))
        await check_access(image, found, user, run, locks=True)
    sh("ceph", "osd", "pause")
    try:
        with pytest.raises(DeviceGone, match=r"rbd_meta/rights") as blocked:
            await check_access(image, found, admin, run, locks=True)
        assert blocked.value.next == "'ceph osd unpause'"
    finally:
        sh("ceph", "osd", "unpause")
    await check_access(image, found, admin, run, locks=True)
    sh("rbd", "rm", str(image))


def test_an_image_in_a_namespace_grows(world: Vault):
    sh("rbd", "namespace", "create", "rbd_meta/grown")
    world.image_spec = "rbd_meta/grown/cold"
    world.start()
    ok("run", "tank")
    before = snapshot_hashes_on_vault()
    sh("rbd", "resize", "--size", "3G", world.image_spec)
    ok("vault", "up", "cold")
    (command,) = set(re.findall(r"'zvaultctl ([^']+)' gives the pool", journal("VAULT=cold")))
    small = int(sh("zpool", "get", "-Hpo", "value", "size", "cold"))
    ok("vault", "down", "cold")
    ok(*command.split())
    ok("vault", "up", "cold")
    assert int(sh("zpool", "get", "-Hpo", "value", "size", "cold")) > small + (900 << 20)
    assert "No known data errors" in scrubbed()
    ok("vault", "down", "cold")
    assert snapshot_hashes_on_vault() == before
    ok("run", "tank")
    assert mappings() == []


def snapshot_hashes_on_vault() -> dict[str, str]:
    """The files of tank/home in the vault's oldest snapshot, which is up for that."""
    ok("vault", "up", "cold")
    found = snapshot_hashes(f"cold/lab/tank/home@{snapshots('cold/lab/tank/home')[0]}")
    ok("vault", "down", "cold")
    return found


def test_a_monitor_that_is_cut_off_while_a_vault_is_mapped_and_exported(world: Vault, cluster: ceph.Cluster):
    world.start()
    ok("run", "tank")
    cluster.stop_mon()
    try:
        began = time.monotonic()
        refused = ctl("vault", "up", "cold")
        print(f"up without a monitor: {time.monotonic() - began:.0f} s", refused.err)
        assert refused.code == 1
        assert "no monitor of Ceph answered" in " ".join(refused.err.split())
        assert mappings() == []
    finally:
        cluster.start_mon()
    ok("vault", "up", "cold")
    cluster.stop_mon()
    try:
        # The OSD goes on: all that the pool has is written, and only what needs the monitor waits for it.
        began = time.monotonic()
        sh("zfs", "set", "org.zvault.test:x=y", "cold")
        down = ctl("vault", "down", "cold", timeout=240)
        print(f"down without a monitor: {time.monotonic() - began:.0f} s", down.code, down.out, down.err)
        assert "cold" not in sh("zpool", "list", "-Ho", "name").split(), "it is exported"
    finally:
        cluster.start_mon()
    eventually("it to be down", lambda: "down" in ctl("vault", "status", "cold").out, seconds=240)
    nothing_left()
    ok("run", "tank")
    nothing_left()


@contextmanager
def full_cluster() -> Iterator[None]:
    """A cluster whose OSDs call themselves full; each ratio is at least that before it (OSD.cc, recalc_full_state)."""

    def ratios(near: float, backfill: float, full: float) -> None:
        for name, ratio in (("nearfull", near), ("backfillfull", backfill), ("full", full)):
            sh("ceph", "osd", f"set-{name}-ratio", str(ratio))

    def is_full() -> bool:
        dump = json.loads(sh("ceph", "osd", "dump", "--format", "json"))
        return any("full" in pool["flags_names"].split(",") for pool in dump["pools"])

    ratios(0.0001, 0.0001, 0.0001)
    try:
        eventually("the cluster to be full", is_full)
        yield
    finally:
        ratios(0.85, 0.9, 0.95)
        eventually("the cluster to have room", lambda: not is_full())


def test_a_full_cluster_is_told_and_no_pool_waits_for_it(world: Vault):
    world.timeout = "10s"
    world.start()
    ok("run", "tank")
    with full_cluster():
        refused = ctl("vault", "up", "cold")
        assert refused.code == 1
        assert "pool 'data' is full" in " ".join(refused.err.split())
        assert mappings() == []
    ok("vault", "up", "cold")
    before = suspensions()
    with full_cluster():
        subprocess.Popen(["zfs", "create", "cold/late"])
        eventually("the pool to be suspended", lambda: suspensions() > before)
        eventually("the cause", lambda: "is full: each write waits" in journal("VAULT=cold"))
    eventually("the pool to go on", lambda: sh("zpool", "list", "-Ho", "health", "cold").strip() == "ONLINE")
    ok("vault", "down", "cold")
    ok("run", "tank")
    nothing_left()


async def test_a_cluster_that_does_not_answer_is_given_up(
    cluster: ceph.Cluster, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rbd, "RBD_CALL_DEADLINE", 5.0)
    run, image = HostRunner(), parse_rbd("rbd_meta/any")
    cluster.stop_osd()
    with pytest.raises(DeviceGone, match="no answer within 5 s: OSDs may be down"):
        await rbd.find_image(image, CephCluster(), run)
    cluster.start_osd()
    cluster.stop_mon()
    # The tool gives up by itself, also where it takes long to start.
    monkeypatch.setattr(rbd, "RBD_CALL_DEADLINE", 240.0)
    with pytest.raises(DeviceGone, match=f"no monitor of Ceph answered within {MONITOR_TIMEOUT} s"):
        await rbd.find_image(image, CephCluster(), run)
    cluster.start_mon()
