"""A vault on an RBD image for two guests. The first one has the cluster; all that the cluster refuses is seen there."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import ceph
import failover
from failover import Kind, Storage, Wrote, connect, write
from failover_hosts import ADDRESS, POOL, begin, on, other, prepare
from report_to_host import PEER_SSH
from world import sh

IMAGE_POOL = "rbd_meta"
BOUND = 20
RESERVED = 1 << 20
"""Bytes: a place in the image that ZFS keeps free, between its first labels and its data (VDEV_BOOT_OFFSET)."""
FOREVER = 360
"""Days: longer than a host sleeps. Ceph's own would be an hour."""


@contextmanager
def objects() -> Iterator[Any]:
    """The pool of the image, as librados has it."""
    import rados

    with rados.Rados(conffile="/etc/ceph/ceph.conf") as it, it.open_ioctx(IMAGE_POOL) as pool:
        yield pool


@dataclass
class Image:
    """The storage of the vault: see failover.Storage.

    ``mapped``: the address of each host's client when something befell it for which the other takes over.
    """

    cluster: ceph.Cluster
    units: str = f"zvault-rbd-lease@{POOL}-0"
    ports: str = "3300, 6789, 6800-7300"
    bound: float = BOUND
    mapped: dict[str, str] = field(default_factory=dict)

    def holder(self) -> str:
        """By the lease's object itself."""
        with objects() as pool:
            lease = json.loads(pool.read(f"zvault.{POOL}.lease"))
        return str(lease["host"]) if lease["held"] else ""

    def late(self, host: str, asked: float, answered: float = 0.0) -> None:
        """Nothing stands before the cluster that could be late."""
        raise NotImplementedError

    def after(self, taker: str) -> Wrote:
        """The other's client, if the cluster would take a write of it."""
        address = self.mapped.pop(other(taker), None)
        return Wrote() if address is None or refused_for(address) > FOREVER else Wrote([address])


def refused_for(address: str) -> float:
    """For how many days from now the cluster refuses a client; 0 if it does not."""
    for line in sh("ceph", "osd", "blocklist", "ls").splitlines():
        if line.startswith(f"{address} "):
            return (datetime.fromisoformat(line.split()[1]) - datetime.now(UTC)).total_seconds() / 86400
    return 0.0


def stored() -> bytes:
    """What the image has in the place that ZFS keeps free."""
    import rbd

    with objects() as pool, rbd.Image(pool, POOL, read_only=True) as image:
        return bytes(image.read(RESERVED, 4096))


def writes_nothing(host: str) -> None:
    """What the kernel of a host that was shut out writes to its mapping is refused, and nothing of it is there."""
    before = stored()
    said = on(
        host,
        f"tr '\\0' x </dev/zero | dd of=/dev/rbd0 bs=4096 count=1 seek={RESERVED // 4096} oflag=direct iflag=fullblock"
        " 2>&1 || true",
    )
    assert re.search("Input/output error|Connection timed out", said), said
    assert stored() == before != b"x" * 4096


def noted(kind: Kind) -> Kind:
    """The same failure; the address of the host's client is noted before."""

    def strike(storage: Storage, host: str) -> None:
        assert isinstance(storage, Image)
        storage.mapped[host] = on(host, "cat /sys/bus/rbd/devices/*/client_addr").strip()
        kind.strike(storage, host)

    return replace(kind, strike=strike)


def watched(kind: Kind) -> Kind:
    """The same failure; what the host's kernel writes after another took over is tried before the host comes back."""

    def back(storage: Storage, host: str) -> None:
        assert isinstance(storage, Image)
        assert refused_for(storage.mapped[host]) > FOREVER
        writes_nothing(host)
        kind.back(storage, host)

    return replace(noted(kind), back=back)


def go_on(storage: Storage, host: str) -> None:
    """What was stopped goes on, the keeper of the lease too."""
    on(host, f"systemctl kill -s CONT --kill-whom=all zvaultd {storage.units}; systemctl start zvaultd")


def connect_in_bad_order(storage: Storage, host: str) -> None:
    """Its packets come and go. At first its pool cannot be given up, since nbdkit is away; and once it is, somebody has
    its mapping open until that was told, as udev has until its reads fail.
    """
    since = on(host, "date '+%F %T'").strip()
    until = f"until journalctl -u zvaultd -S '{since}' | grep -q '%s'; do sleep 1; done"
    nbdkit = f"{until % 'cannot be given up: nbdkit'}; mv /usr/bin/nbdkit.away /usr/bin/nbdkit"
    later = f"journalctl -u zvaultd -S '{since}' | sed '1,/is exported here/d'"
    reader = f"exec 3</dev/rbd0; until {later} | grep -q 'stays mapped: it is open: sh'; do sleep 1; done"
    on(
        host,
        "mv /usr/bin/nbdkit /usr/bin/nbdkit.away;"
        f' for it in {shlex.quote(nbdkit)} {shlex.quote(reader)}; do systemd-run -q sh -c "$it"; done',
    )
    connect(storage, host)


STOPPED = watched(replace(failover.STOPPED, back=go_on))
CUT_OFF = watched(replace(failover.CUT_OFF, back=connect_in_bad_order))
KINDS = (
    (watched(failover.HUNG), ("lab", "peer")),
    (failover.ASLEEP_KIND, ("peer",)),
    (CUT_OFF, ("peer",)),
    (failover.ALONE, ("peer", "lab")),
    (STOPPED, ("peer", "lab")),
    (watched(failover.KILLED), ("lab", "peer")),
)
"""Each kind with the hosts that it may befall: see failovers.py. One that falls asleep gives the vault back before."""


@contextmanager
def shared_image(keep: int = 9, mib: int = 8) -> Iterator[Image]:
    """Both hosts with one vault on an image, and a source with something to send."""
    prepare()
    with ceph.cluster(address=ADDRESS["lab"]) as it:
        keyring = it.client("zvault", mon="profile rbd", osd="profile rbd")
        shutil.copy(keyring, ceph.ETC / "ceph.client.zvault.keyring")
        files = "etc/ceph/ceph.conf etc/ceph/ceph.client.zvault.keyring"
        subprocess.run(f"tar -C / -c {files} | {shlex.join(PEER_SSH)} 'tar -x -C /'", shell=True, check=True)
        write(0, mib)
        device = f'rbd = "{IMAGE_POOL}/{POOL}"\nsize = "1G"\nceph = {{ user = "zvault" }}'
        begin(f'{device}\nlease = "{BOUND}s"\ntimeout = "15s"', "local", keep)
        yield Image(it)
