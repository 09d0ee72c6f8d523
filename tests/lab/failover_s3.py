"""A vault in a bucket for two guests: RGW behind a proxy that knows who put what, and can be late for one of them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import ceph
from failover import Wrote, write
from failover_hosts import ADDRESS, POOL, begin, on, prepare
from s3_proxy import Proxy
from world import eventually

from zvault.blockstore.format import find_key_numbers
from zvault.blockstore.map.root import EpochStart
from zvault.blockstore.recovery import read_newest_root, read_superblock
from zvault.devices.s3_lease.lease_object import BucketPlace, LeaseObjectStore
from zvault.object_store.s3 import S3Store

BUCKET, KEY, KEYS = "zvault", "cold", "/etc/credstore/zvault.lab"
BOUND = 20
PORT = 7481


@dataclass
class Bucket:
    """The storage of the vault: see failover.Storage."""

    proxy: Proxy
    lease: LeaseObjectStore
    objects: S3Store
    units: str = f"zvault-blockstore@{POOL}-0"
    ports: str = str(PORT)
    bound: float = BOUND

    def holder(self) -> str:
        """By the lease's object itself."""
        seen = self.lease.read()
        return seen.lease.host if seen is not None and seen.lease.held else ""

    def late(self, host: str, asked: float, answered: float = 0.0) -> None:
        """See the proxy."""
        self.proxy.late[ADDRESS[host]] = (asked, answered)

    def after(self, taker: str) -> Wrote:
        """By all puts in the order in which they were carried out, from the newest epoch of the taker on.

        An epoch begins with its first root, and ends when its successor's host takes the lease: the first host may have
        had the vault again since. The root says from where on the log is of its epoch. A segment of an earlier epoch
        before that would count, and so would one of the objects that are replaced, or one in the place of another's.
        """
        eventually("no request under way", lambda: not self.proxy.held)
        reigns = read_newest_root(self.objects, KEY, read_superblock(self.objects, KEY)).reigns
        keys = [(put.client, put.path.removeprefix(f"/{BUCKET}/{KEY}")) for put in self.proxy.puts]
        began = [(one, at) for one in reigns if (at := _began(keys, one)) is not None]
        theirs = [number for number, (_, at) in enumerate(began) if keys[at][0] == ADDRESS[taker]]
        assert theirs, (began, keys[-20:])
        counts, ignored = [], 0
        for number in range(theirs[-1], len(began)):
            now, at = began[number]
            end = _ended(keys, at, began[number + 1][1] if number + 1 < len(began) else None)
            mine, by = keys[at][0], {key: client for client, key in keys[:at]}
            for client, key in keys[at:end]:
                if client != mine:
                    if by.get(key, client) != client or _counts(key, now):
                        counts.append(f"{client} {key}")
                    else:
                        ignored += 1
                by[key] = client
        return Wrote(counts, ignored)


def _began(keys: list[tuple[str, str]], reign: EpochStart) -> int | None:
    """Which put was the first root of an epoch; None where that was before anything was counted."""
    root = f"/checkpoints/{reign.epoch:08x}-"
    return next((at for at, (_, key) in enumerate(keys) if key.startswith(root)), None)


def _ended(keys: list[tuple[str, str]], began: int, following: int | None) -> int:
    """With which put an epoch ended: the one with which the host of the ``following`` one first replaced its lease."""
    if following is None:
        return len(keys)
    heir, mine = keys[following][0], keys[began][0]
    ends = {".lease", "/epoch"} if heir != mine else {"/epoch"}
    return next(
        (at for at in range(began, following) if keys[at][0] == heir and keys[at][1] in ends), following
    )


def _counts(key: str, now: EpochStart) -> bool:
    """Whether an object that a host with an earlier epoch puts changes what the store holds."""
    if key in {"/epoch", ".lease", ".note"}:
        return True
    if key.startswith("/checkpoints/"):
        return find_key_numbers(key)[0] >= now.epoch
    if key.startswith("/segments/"):
        sequence, epoch = find_key_numbers(key)
        return epoch >= now.epoch or sequence < now.first
    return False


@contextmanager
def shared_bucket(keep: int = 9, mib: int = 8) -> Iterator[Bucket]:
    """Both hosts with one vault in a bucket, and a source with something to send."""
    prepare()
    with ceph.cluster(rgw=True, address=ADDRESS["lab"]) as it:
        s3 = it.s3()
        s3.bucket(BUCKET).create()
        keys = f"[default]\naws_access_key_id = {s3.access_key}\naws_secret_access_key = {s3.secret_key}\n"
        for host in ADDRESS:
            on(host, f"mkdir -p {KEYS.rpartition('/')[0]}; umask 077; printf %s {shlex.quote(keys)} >{KEYS}")
        place = BucketPlace.of([f"bucket={BUCKET}", f"key={KEY}", f"endpoint={s3.endpoint}", f"keys={KEYS}"])
        with Proxy(s3.endpoint, address=ADDRESS["lab"], port=PORT) as proxy:
            write(0, mib)
            begin(
                f'nbd = "zvault:{BUCKET}/{KEY} size=1G endpoint={proxy.endpoint} region=default style=path'
                f' credential=zvault.lab"\nlease = "{BOUND}s"\ntimeout = "15s"',
                "blockstore",
                keep,
            )
            lease = LeaseObjectStore(place)
            yield Bucket(proxy, lease, lease._objects)
