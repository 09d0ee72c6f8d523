"""The block store on S3 servers that are not Ceph, each a real program: made, written to, looked at, locked, brought
back, shared; and what becomes of it where the server is killed, loses its power, or lacks what zvault depends on.

Servers and block store are processes of this host: no guest, no pool.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from s3_servers import Rclone, S3Program, SeaweedFS, running

from zvault.blockstore.attach import attach_store
from zvault.blockstore.engine import BlockEngine
from zvault.blockstore.format import BLOCK_SIZE
from zvault.blockstore.locked_bucket import see_that_conditions_hold, writers_bucket
from zvault.blockstore.maintenance.check import find_store_problems
from zvault.blockstore.maintenance.lock_drill import DRILL_LOCK_TIME, drill_locks
from zvault.blockstore.maintenance.recover import find_last_whole
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.reached_store import make_s3_settings
from zvault.blockstore.recovery import create_store
from zvault.cli.verbs import blockstore_place
from zvault.cli.verbs.blockstore_place import StorePlace
from zvault.core.errors import Busy, Refused
from zvault.core.policy.object_lock import LOCK_SPAN_FACTOR, ObjectLock
from zvault.devices.s3_lease.lease_object import BucketPlace, LeaseObjectStore, make_own_lease
from zvault.devices.s3_lease.takeover import BootClock, take_lease
from zvault.object_store.conditions import ROUNDS
from zvault.object_store.interface import ObjectDamaged
from zvault.object_store.probe import probe_store
from zvault.object_store.retrying_store import RetryingStore
from zvault.object_store.s3 import S3Store

LAB = {"where": "host"}

HOSTS = 8
"""Hosts that ask for one lease at once."""
BLOCKS = 20_000
"""Of the device, those that are written to."""
LOCK = ObjectLock("compliance", 86400.0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Program]:
    with running(SeaweedFS, tmp_path_factory.mktemp("seaweedfs")) as it:
        it.client().create_bucket(Bucket="attic")
        it.client().create_bucket(Bucket="locked", ObjectLockEnabledForBucket=True)
        yield it


def find_place(server: S3Program, key: str, *words: str, bucket: str = "attic") -> StorePlace:
    where = f"endpoint={server.endpoint} region=us-east-1 style=path keys={server.write_keys()}"
    return blockstore_place.find_store(" ".join([f"zvault:{bucket}/{key}", where, *words]))


class Writer:
    """A device in a store, and what it must hold: by block, the number that it is full of."""

    def __init__(self, place: StorePlace, folder: Path) -> None:
        self.place, self.folder = place, folder
        self.holds: dict[int, int] = {}
        self.random = random.Random(7)
        self.engine: BlockEngine | None = None

    def attach(self, journal: str = "journal", **options: object) -> None:
        objects = RetryingStore(
            S3Store(make_s3_settings(self.place.spec)), stopping=threading.Event(), say=print
        )
        it = EngineOptions(
            self.folder / journal, journal_size=256 << 20, seen=self.folder / "seen", **options
        )  # type: ignore[arg-type]
        self.engine = attach_store(objects, self.place.spec.key, it, "lab", print)

    def write(self, count: int) -> None:
        assert self.engine is not None
        for _ in range(count):
            first, length = self.random.randrange(BLOCKS), self.random.choice([1, 8, 60, 256])
            number = self.random.getrandbits(60)
            self.engine.write(first * BLOCK_SIZE, number.to_bytes(8, "little") * (BLOCK_SIZE // 8 * length))
            self.holds |= dict.fromkeys(range(first, first + length), number)

    def flush(self) -> None:
        assert self.engine is not None
        self.engine.flush()

    def close(self) -> None:
        assert self.engine is not None
        self.engine.close()

    def verify(self) -> None:
        """All that was written is read again."""
        assert self.engine is not None
        for block, number in self.holds.items():
            assert self.engine.read(block * BLOCK_SIZE, 8) == number.to_bytes(8, "little"), f"block {block}"


def test_a_life_in_which_the_server_is_killed_and_loses_its_power(server: S3Program, tmp_path: Path) -> None:
    place = find_place(server, "life")
    create_store(blockstore_place.reach_objects(place), "life", 1 << 30)
    writer = Writer(place, tmp_path)
    writer.attach()
    writer.write(300)
    writer.flush()
    writer.close()
    assert check(place) == []

    # Killed while it is written to: what was answered stays, and whoever writes waits until the server is back.
    writer.attach()
    writer.write(200)
    busy = threading.Thread(target=lambda: (writer.write(100), writer.flush()), daemon=True)
    busy.start()
    server.kill()
    time.sleep(1)
    server.start()
    busy.join(120)
    assert not busy.is_alive()
    writer.verify()
    writer.close()

    # Its power, long after the last put: all is there.
    server.disk.sync()
    server.cut_power()
    assert check(place) == []
    writer.attach()
    writer.verify()

    # Its power, right after an acknowledged put. SeaweedFS answers before that is on its disk: what it lost is told.
    writer.write(100)
    writer.flush()
    writer.close()
    server.cut_power()
    try:
        writer.attach()
    except ObjectDamaged as error:
        print(error)
    else:
        writer.verify()
        writer.close()


def check(place: StorePlace) -> list[str]:
    """Everything in the store is read and checked; what is wrong, in words."""
    with blockstore_place.start_workers() as pool:
        report = find_store_problems(
            blockstore_place.reach_objects(place), place.spec.key, pool=pool, share=1.0
        )
    return [str(one) for one in report.problems]


def test_of_hosts_that_ask_at_once_one_has_the_lease(server: S3Program) -> None:
    words = ["bucket=attic", "key=lease", f"endpoint={server.endpoint}", f"keys={server.write_keys()}"]
    where = BucketPlace.of([*words, "region=us-east-1"])
    mine = make_own_lease(where, 60.0, time.time())
    hosts = [replace(mine, host=f"host{n}", machine=f"m{n}", boot=f"boot{n}") for n in range(HOSTS)]
    for _ in range(3):
        together = threading.Barrier(HOSTS)

        def ask(number: int, together: threading.Barrier = together) -> int | None:
            together.wait()
            try:
                take_lease(LeaseObjectStore(where), hosts[number], resume=False, say=print, clock=BootClock())
            except Busy:
                return None
            return number

        with ThreadPoolExecutor(HOSTS) as pool:
            won = [one for one in pool.map(ask, range(HOSTS)) if one is not None]
        assert len(won) == 1
        seen = LeaseObjectStore(where).read()
        assert seen is not None
        assert seen.lease.host == f"host{won[0]}"
        LeaseObjectStore(where).put(replace(seen.lease, held=False), seen.etag)


def test_what_is_locked_stays_and_is_brought_back_after_all_was_hidden(
    server: S3Program, tmp_path: Path
) -> None:
    place = find_place(server, "cold", "lock=compliance:1d", "lease-bucket=attic", bucket="locked")
    create_store(blockstore_place.reach_objects(place), "cold", 1 << 30)
    writer = Writer(place, tmp_path)
    writer.attach(lock=LOCK)
    writer.write(100)
    writer.flush()
    writer.close()
    settings = make_s3_settings(place.spec)
    drill = S3Store(replace(settings, lock=ObjectLock(LOCK.mode, DRILL_LOCK_TIME / LOCK_SPAN_FACTOR)))
    with blockstore_place.start_workers() as pool:
        tried = drill_locks(drill, blockstore_place.reach_objects(place), "cold", LOCK, pool=pool)
        assert [one for one in tried if one.well is not True] == []
        moment = drill.now()
        time.sleep(2)
        listed = server.client().list_objects_v2(Bucket="locked")["Contents"]
        for one in listed:
            server.client().delete_object(Bucket="locked", Key=one["Key"])
        assert "Contents" not in server.client().list_objects_v2(Bucket="locked")
        then, objects = blockstore_place.reach_objects_as_of(place, moment)
        found = find_last_whole(objects, then, "cold", pool)
    assert found.objects > 1
    assert then.passed_over.hidden >= len(listed)


def test_a_server_that_keeps_no_conditions_is_refused_and_nothing_is_left_there(tmp_path: Path) -> None:
    """rclone 1.75 ignores them, and answers 200 to a range."""
    with running(Rclone, tmp_path) as server:
        server.client().create_bucket(Bucket="attic")
        place = find_place(server, "none")
        report = probe_store(make_s3_settings(place.spec), "none.probe/", rounds=ROUNDS, speed=False)
        assert [one.use for one in report.verdicts() if one.good] == []
        with pytest.raises(Refused, match="a writer that was shut out"):
            see_that_conditions_hold(writers_bucket(make_s3_settings(place.spec), place.spec), place.spec)
        assert "Contents" not in server.client().list_objects_v2(Bucket="attic")
