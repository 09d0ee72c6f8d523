"""A vault on S3 servers that are not Ceph, each a real program: made, backed up to, scrubbed, restored, shared, locked,
brought back, while its server is killed and loses its power; and what is said of a server that lacks what zvault needs.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from blockstore_vaults import KEYS, UNIT, Vault, engine, gone, told, unharmed
from s3_servers import ACCESS, SECRET, Rclone, S3Program, SeaweedFS, running
from world import ctl, eventually, fill, journal, noise, ok, sh, tree_hashes

from zvault.core.errors import Busy
from zvault.devices.s3_lease.lease_object import BucketPlace, LeaseObjectStore, make_own_lease
from zvault.devices.s3_lease.takeover import BootClock, take_lease

LAB = {"mem": "4G", "timeout": 900, "s3-servers": True, "in_order": True}

GOOD, WITHOUT_CONDITIONS = [SeaweedFS], [Rclone]
HOSTS = 4
"""Hosts that ask for one lease at once."""


@dataclass
class OnServer(Vault):
    """The world with its vault in a bucket that locks what is put there; its leases are in another."""

    server: S3Program = field(kw_only=True)
    key: str = "cold"
    bucket: str = "locked"
    mode: str = "history=last:3 lock=compliance:1d lease-bucket=leases"
    source_size: int = 6

    def begin(self) -> None:
        """Make the buckets, the keys and the source."""
        self.s3 = self.server.s3
        self.clean()
        for name in ("leases", "attic"):
            self.server.client.create_bucket(Bucket=name)
        KEYS.parent.mkdir(exist_ok=True)
        KEYS.touch(mode=0o600)
        KEYS.write_text(f"[default]\naws_access_key_id = {ACCESS}\naws_secret_access_key = {SECRET}\n")
        self.source()

    @property
    def lease(self) -> LeaseObjectStore:
        words = ["bucket=leases", f"key={self.key}", f"endpoint={self.server.endpoint}", f"keys={KEYS}"]
        return LeaseObjectStore(BucketPlace.of([*words, "region=us-east-1"]))

    def config_text(self) -> str:
        # SeaweedFS that was killed takes up to half a minute until it reads and writes again.
        return super().config_text().replace('timeout = "20s"', 'timeout = "4m"')

    def list_keys(self, bucket: str) -> list[str]:
        """The objects that a bucket shows."""
        pages = self.server.client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return [one["Key"] for page in pages for one in page.get("Contents", [])]

    def run(self, seed: int) -> None:
        """Back up some files more."""
        fill(Path("/tank/home"), seed, count=3)
        ok("run", "tank")


@pytest.fixture(scope="module", params=GOOD, ids=lambda kind: kind.name)
def world(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnServer]:
    with running(request.param, tmp_path_factory.mktemp("server")) as server:
        it = OnServer(server=server)
        it.begin()
        server.client.create_bucket(Bucket="locked", ObjectLockEnabledForBucket=True)
        yield it
        it.clean()


def test_a_vault_is_made_backed_up_to_scrubbed_and_restored(world: OnServer):
    world.start()
    ok("vault", "create", "cold", "--yes")
    ok("vault", "up", "cold")
    world.run(2)
    world.run(3)
    unharmed()
    ok("restore", "tank", "tank/home", "tank/back")
    assert tree_hashes(Path("/tank/back")) == tree_hashes(Path("/tank/home"))
    sh("zfs", "destroy", "-r", "tank/back")


def test_its_server_is_killed_in_the_middle_of_a_run(world: OnServer):
    noise(Path("/tank/home/noise"), 16)
    world.backup_extra = 'limit = "6M"'
    world.configure()
    sh("systemctl", "reload", "zvaultd")
    before = engine("written_bytes")
    run = subprocess.Popen(["zvaultctl", "run", "tank"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    eventually("bytes on their way", lambda: engine("written_bytes") > before + 4_000_000, every=0.1)
    world.server.kill()
    eventually("it is told", lambda: told()["trouble"])
    world.server.start()
    out, _ = run.communicate(timeout=240)
    assert run.returncode == 0, out
    unharmed()
    ok("vault", "down", "cold")


def test_of_hosts_that_ask_at_once_one_has_the_lease_and_it_is_taken_over(world: OnServer):
    mine = make_own_lease(world.lease.place, 60.0, time.time())
    together = threading.Barrier(HOSTS)

    def ask(number: int) -> bool:
        host = replace(mine, host=f"host{number}", machine=f"m{number}", boot=f"boot{number}")
        theirs = world.lease
        together.wait()
        try:
            take_lease(theirs, host, resume=False, say=print, clock=BootClock())
        except Busy:
            return False
        return True

    for last in (False, True):
        with ThreadPoolExecutor(HOSTS) as pool:
            won = [f"host{number}" for number, it in enumerate(pool.map(ask, range(HOSTS))) if it]
        seen = world.lease.read()
        assert won == [seen.lease.host]
        world.lease.put(replace(seen.lease, held=last, bound=1.0), seen.etag)

    refused = ctl("vault", "up", "cold")
    assert refused.code == 1
    assert f"is held by {won[0]}" in " ".join(refused.err.split())
    gone()
    ok("vault", "take", "cold", "--yes")
    assert world.lease.read().lease.host not in won


def test_what_is_locked_is_brought_back_after_all_was_hidden(world: OnServer):
    world.run(4)
    eventually("all is locked", lambda: (engine("locked_until") or 0) > time.time() + 86400)
    tried = ok("blockstore", "drill", "cold", "-j").json()["tried"]
    assert {one["well"] for one in tried} == {True}, tried
    ok("vault", "down", "cold")
    gone()
    moment = datetime.now(UTC)
    time.sleep(2)  # S3 dates versions by whole seconds
    for name in world.list_keys("locked"):
        world.server.client.delete_object(Bucket="locked", Key=name)
    assert world.list_keys("locked") == []
    where = f"endpoint={world.server.endpoint} region=us-east-1 style=path credential=zvault.lab"
    back = f"zvault:attic/back {where}"
    found = ok("blockstore", "recover", "cold", back, "--before", moment.isoformat(), "-j").json()
    assert found["hidden"] > 0
    world.bucket, world.key, world.mode = "attic", "back", ""
    world.configure()
    sh("systemctl", "reload", "zvaultd")
    ok("vault", "up", "cold")
    unharmed()
    ok("vault", "down", "cold")
    gone()


def test_its_server_loses_its_power(world: OnServer):
    """Long after the last put nothing is missing. SeaweedFS answers before what was put is on its disk: what it lost
    right after that is told, with what to do.
    """
    world.server.disk.sync()
    world.server.cut_power()
    ok("vault", "up", "cold")
    world.run(5)
    ok("vault", "down", "cold")
    world.server.cut_power()
    done = ctl("vault", "up", "cold")
    print(done)
    if done.code == 0:
        unharmed()
    else:
        assert " next: " in done.err
    ok("vault", "down", "cold")
    gone()
    assert "Traceback" not in journal() + journal(f"_SYSTEMD_UNIT={UNIT}")


@pytest.mark.parametrize("kind", WITHOUT_CONDITIONS, ids=lambda kind: kind.name)
def test_a_server_that_keeps_no_conditions_is_refused_and_nothing_is_left_there(
    kind: type[S3Program], tmp_path: Path
):
    """rclone 1.75 ignores them, and answers 200 to a range. It is no place for a single host either."""
    with running(kind, tmp_path) as server:
        it = OnServer(server=server, bucket="attic", mode="")
        it.begin()
        for more in ("", "exclusive = false"):
            it.prices = more
            it.start()
            done = ctl("vault", "create", "cold", "--yes")
            assert done.code != 0
            said = " ".join(done.err.split())
            assert "done, though it should have been refused" in said
            assert "'zvaultctl blockstore probe' tells" in said
            sh("systemctl", "stop", "zvaultd")
        assert it.list_keys("attic") == []
        it.clean()
