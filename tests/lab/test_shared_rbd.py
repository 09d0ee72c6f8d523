"""Two hosts and one vault on an RBD image: when one fails in a run the other shuts it out of Ceph and goes on."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import ceph
import pytest
from peer import (
    daemon,
    hashes,
    install_zvault,
    introduce,
    peer,
    peer_daemon,
    peer_hashes,
    peer_pool,
    peer_snapshots,
)
from report_to_host import PEER_SSH
from test_one_writer import ADDRESS, CUT, RECONNECT, on
from test_shared_vault import RATE_MIB, backup, began, events, last_run, log, vault, write
from world import eventually, sh, snapshots

from zvault.config.device_specs.rbd import RbdImage
from zvault.devices.rbd.cluster import Cluster, may_blocklist
from zvault.devices.rbd.objects import RadosObjects
from zvault.devices.rbd.place import ImagePlace
from zvault.object_store.interface import NEW, ObjectMissing, PreconditionFailed
from zvault.system.process.runner import HostRunner

LAB = {"mem": "4G", "timeout": 1500, "peer": True}

BOUND = 20
WITHIN = BOUND + 60
"""Seconds from a failure of the one host until the other has the lease."""
RESERVED = 1 << 20
"""Bytes: a place in the image that ZFS keeps free, between its first labels and its data (VDEV_BOOT_OFFSET)."""
UNITS = "zvaultd zvault-rbd-lease@cold-0"

CONFIG = f"""
[vault.cold]
pool = "cold"
create = true
hosts = ["lab", "peer"]
[[vault.cold.device]]
rbd = "rbd_meta/cold"
size = "1G"
ceph = {{ user = "zvault" }}
lease = "{BOUND}s"
timeout = "15s"

[backup.tank]
source = "ssh://root@peer/tank"
vault = "cold"
into = "{{dataset}}"
every = "1h"
limit = "{RATE_MIB}M"
retries = 0
keep = {{ source = {{ last = 9 }}, vault = {{ last = 9 }} }}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ceph.Cluster]:
    """A source on the peer, which both reach by ssh, a cluster on this guest, and the same configuration on both."""
    introduce()
    install_zvault()
    peer("zgenhostid -f 0badcafe")
    peer_ssh = shlex.join(PEER_SSH)
    keep = "--exclude .ssh/authorized_keys"
    subprocess.run(f"tar -C /root -c .ssh | {peer_ssh} 'tar -C /root -x {keep}'", shell=True, check=True)
    peer("grep -q peer /etc/hosts || echo 10.99.0.2 peer >>/etc/hosts")
    peer_pool("tank", options="-O compression=off")
    peer("zfs create tank/home")
    with ceph.cluster(address=ADDRESS["lab"]) as it:
        keyring = it.client("zvault", mon="profile rbd", osd="profile rbd")
        shutil.copy(keyring, ceph.ETC / "ceph.client.zvault.keyring")
        files = "etc/ceph/ceph.conf etc/ceph/ceph.client.zvault.keyring"
        subprocess.run(f"tar -C / -c {files} | {peer_ssh} 'tar -x -C /'", shell=True, check=True)
        write(0)
        daemon(CONFIG)
        peer_daemon(CONFIG)
        yield it


@contextmanager
def objects() -> Iterator[Any]:
    """The pool of the image, as librados has it."""
    import rados

    with rados.Rados(conffile="/etc/ceph/ceph.conf") as it, it.open_ioctx("rbd_meta") as pool:
        yield pool


def has_lease() -> str:
    """Whose the lease is, by the object itself."""
    with objects() as pool:
        lease = json.loads(pool.read("zvault.cold.lease"))
    return lease["host"] if lease["held"] else ""


def client(host: str) -> str:
    """The address of a host's mapping in the cluster."""
    return on(host, "cat /sys/bus/rbd/devices/*/client_addr").strip()


def refused_for(address: str) -> float:
    """For how many days from now the cluster refuses a client; 0 if it does not."""
    for line in sh("ceph", "osd", "blocklist", "ls").splitlines():
        if line.startswith(f"{address} "):
            return (datetime.fromisoformat(line.split()[1]) - datetime.now(UTC)).total_seconds() / 86400
    return 0.0


def left_nothing(host: str) -> bool:
    """Whether neither pool nor mapping, lease or copy of the vault is on a host."""
    found = on(
        host,
        "cat /proc/spl/kstat/zfs/cold/state 2>/dev/null; ls /sys/bus/rbd/devices; cat /sys/block/nbd*/pid 2>/dev/null;"
        " systemctl list-units --plain --no-legend --state=active 'zvault-rbd-lease@*' 'zvault-device@*'",
    )
    return not found.strip()


def stored() -> bytes:
    """What the image has in the place that ZFS keeps free."""
    import rbd

    with objects() as pool, rbd.Image(pool, "cold", read_only=True) as image:
        return bytes(image.read(RESERVED, 4096))


def kill(host: str) -> None:
    """zvault is gone, and says nothing; the kernel goes on with the pool, and writes."""
    on(host, f"systemctl kill -s KILL {UNITS}; systemctl --no-block stop zvaultd")


def stop(host: str) -> None:
    """zvault hangs; the kernel goes on."""
    on(host, f"systemctl kill -s STOP --kill-whom=all {UNITS}")


def cut(host: str) -> None:
    on(host, CUT)


@dataclass(frozen=True)
class Failure:
    """What befalls a host in the middle of a run, and how it comes back."""

    victim: str
    strike: Callable[[str], None]
    back: str

    def __str__(self) -> str:
        return f"{self.strike.__name__} {self.victim}"


def test_an_object_is_put_only_in_the_place_of_the_one_that_was_read(cluster: ceph.Cluster) -> None:
    place = ImagePlace(RbdImage("rbd_meta", "", "other"), Cluster(user="zvault"))
    here, there = RadosObjects(place), RadosObjects(place)
    with pytest.raises(ObjectMissing):
        here.read_aged("x")
    first = here.put("x", b"one", NEW)
    for stale in (NEW, str(int(first) + 1), "0", "no version"):
        with pytest.raises(PreconditionFailed):
            there.put("x", b"two", stale)
    second = there.put("x", b"two", first)
    with pytest.raises(PreconditionFailed):
        here.put("x", b"three", first)
    time.sleep(1)
    data, version, age = here.read_aged("x")
    assert (data, version) == (b"two", second)
    assert 1 <= age < 60
    here.delete(["x", "x"])
    with pytest.raises(PreconditionFailed):
        here.put("x", b"four", second)


def test_a_user_that_may_not_shut_others_out_is_refused(cluster: ceph.Cluster) -> None:
    weak = cluster.client("weak", mon="allow r", osd="profile rbd")
    assert not asyncio.run(may_blocklist(Cluster(user="weak", keyring=str(weak)), HostRunner()))
    assert asyncio.run(may_blocklist(Cluster(user="zvault"), HostRunner()))


def test_of_two_that_are_due_one_runs_and_the_other_skips(cluster: ceph.Cluster) -> None:
    results = eventually(
        lambda: f"{ {host: last_run(host) for host in ADDRESS} }{log('lab')[-2000:]}{log('peer')[-2000:]}",
        lambda: (
            all(last_run(host)["ended"] for host in ADDRESS)
            and {host: last_run(host)["result"] for host in ADDRESS}
        ),
        seconds=180,
        every=2,
    )
    print(results)
    assert sorted(results.values()) == ["ok", "skipped"], log("lab") + log("peer")


@pytest.mark.parametrize(
    ("number", "failure"),
    [
        (1, Failure("peer", kill, "systemctl start zvaultd")),
        (2, Failure("lab", stop, f"systemctl kill -s CONT --kill-whom=all {UNITS}; systemctl start zvaultd")),
        (3, Failure("peer", cut, RECONNECT)),
    ],
    ids=str,
)
def test_another_goes_on_with_a_run_whose_host_fails(
    cluster: ceph.Cluster, number: int, failure: Failure
) -> None:
    victim = failure.victim
    (taker,) = set(ADDRESS) - {victim}
    write(number)
    on(victim, "zvaultctl run --no-wait tank")
    eventually(lambda: f"the stream {log(victim)[-2000:]}", lambda: began(victim), seconds=120, every=1)
    on(taker, "zvaultctl run --no-wait tank")
    eventually(
        lambda: f"{backup(taker)}",
        lambda: f"{victim} has the vault" in (backup(taker)["turn"]["waits"] or ""),
    )
    assert vault(taker)["held_by"] == has_lease() == victim
    address = client(victim)
    struck = time.monotonic()
    failure.strike(victim)
    eventually(lambda: log(taker)[-3000:], lambda: has_lease() == taker, seconds=WITHIN, every=1)
    print(f"{failure}: taken over after {time.monotonic() - struck:.0f} s")
    assert refused_for(address) > 360  # longer than a host sleeps; rbd's own would be an hour
    nobody_writes_as(victim)
    eventually("its run has ended", lambda: last_run(taker)["ended"], seconds=240, every=1)
    run = last_run(taker)
    assert run["result"] == "ok", (run, log(taker)[-3000:])
    kinds = re.findall(r'"kind": ?"([a-z-]+)"', on(taker, events(run["id"])))
    assert "resume" in kinds, kinds
    on(victim, failure.back)
    eventually(lambda: log(victim)[-5000:], lambda: left_nothing(victim), seconds=180, every=2)
    eventually(lambda: f"{last_run(victim)}", lambda: backup(victim)["state"] == "idle", seconds=120, every=1)
    assert refused_for(address) > 360
    print(f"{failure}: stands by after {time.monotonic() - struck:.0f} s")


def nobody_writes_as(victim: str) -> None:
    """What the kernel of a host that was shut out writes to its mapping is refused, and nothing of it is there."""
    before = stored()
    said = on(
        victim,
        f"tr '\\0' x </dev/zero | dd of=/dev/rbd0 bs=4096 count=1 seek={RESERVED // 4096} oflag=direct iflag=fullblock"
        " 2>&1 || true",
    )
    assert "Input/output error" in said, said
    assert stored() == before != b"x" * 4096


def test_what_was_acknowledged_is_there(cluster: ceph.Cluster) -> None:
    on("lab", "zvaultctl vault up cold")
    there, here = peer_snapshots("tank/home"), snapshots("cold/tank/home")
    assert len(there) > 3
    assert set(there) <= set(here), (there, here)
    for snapname in there:
        assert hashes(f"cold/tank/home@{snapname}") == peer_hashes(f"tank/home@{snapname}")
    found = sh("sh", "-c", "zpool scrub -w cold; zpool status cold")
    assert "No known data errors" in found, found
    on("lab", "zvaultctl vault down cold")
    eventually("nobody has the lease", lambda: has_lease() == "")
