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
from peer import hashes, install_zvault, introduce, peer, peer_hashes
from report_to_host import PEER_SSH
from s3_servers import (
    ACCESS,
    PROGRAMS,
    SECRET,
    EarlierRclone,
    MinIO,
    Rclone,
    S3Program,
    SeaweedFS,
    VersityGW,
    running,
)
from world import (
    CONFIG,
    ctl,
    eventually,
    fill,
    journal,
    noise,
    nothing_left,
    ok,
    pools,
    sh,
    snapshots,
    tree_hashes,
)

from zvault.core.errors import Busy
from zvault.devices.s3_lease.lease_object import BucketPlace, LeaseObjectStore, make_own_lease
from zvault.devices.s3_lease.takeover import BootClock, take_lease

LAB = {"mem": "4G", "timeout": 1200, "s3-servers": True, "in_order": True, "peer": True}

GOOD, WITHOUT_CONDITIONS = [SeaweedFS, VersityGW, Rclone], [EarlierRclone]
if (PROGRAMS / MinIO.name).exists():
    GOOD.append(MinIO)
HOSTS = 4
"""Hosts that ask for one lease at once."""


@dataclass
class OnServer(Vault):
    """The world with its vault in a bucket that locks what is put there where it can; its leases are in another."""

    server: S3Program = field(kw_only=True)
    key: str = "cold"
    bucket: str = "locked"
    mode: str = "history=last:3 lease-bucket=leases"
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

    def make_bucket(self) -> None:
        """The vault's own, which locks what is put there if the server can."""
        if self.server.locks:
            self.mode += " lock=compliance:1d"
        self.server.client.create_bucket(Bucket=self.bucket, ObjectLockEnabledForBucket=self.server.locks)

    @property
    def lease(self) -> LeaseObjectStore:
        words = ["bucket=leases", f"key={self.key}", f"endpoint={self.server.endpoint}", f"keys={KEYS}"]
        return LeaseObjectStore(BucketPlace.of([*words, "region=us-east-1"]))

    def config_text(self) -> str:
        # SeaweedFS that was killed takes up to half a minute until it reads and writes again.
        return super().config_text().replace('timeout = "20s"', 'timeout = "4m"')

    def shared_text(self, host: str) -> str:
        """The configuration with which two hosts share the vault, on one of them."""
        text = self.config_text().replace('host = "lab"', f'host = "{host}"').partition("[backup.tank]")[0]
        text = text.replace("create = true\n", 'hosts = ["lab", "peer"]\n')
        return text.replace('timeout = "4m"', 'timeout = "4m"\nlease = "20s"')

    def list_keys(self, bucket: str) -> list[str]:
        """The objects that a bucket shows."""
        pages = self.server.client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return [one["Key"] for page in pages for one in page.get("Contents", [])]

    def list_lost(self) -> set[str]:
        """The objects that are nothing but zero bytes."""
        names = self.list_keys(self.bucket)
        bodies = {name: self.server.client.get_object(Bucket=self.bucket, Key=name)["Body"] for name in names}
        return {name for name, body in bodies.items() if not body.read().strip(b"\0")}

    def run(self, seed: int) -> None:
        """Back up some files more."""
        fill(Path("/tank/home"), seed, count=3)
        ok("run", "tank")


@pytest.fixture(scope="module", name="other_host")
def host_beside() -> None:
    """The second guest, with a zvault of its own."""
    introduce()
    install_zvault()
    peer("zgenhostid -f 0badcafe")  # the guests come from one tree, as clones do


@pytest.fixture(scope="module", params=GOOD, ids=lambda kind: kind.name)
def world(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnServer]:
    with running(request.param, tmp_path_factory.mktemp("server")) as server:
        it = OnServer(server=server)
        it.begin()
        it.make_bucket()
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


def test_of_two_hosts_the_second_takes_the_vault_over_and_finds_all_of_it(world: OnServer, other_host: None):
    """With ``hosts`` the first gives its pool up by itself."""
    world.run(4)
    CONFIG.write_text(world.shared_text("lab"))
    sh("systemctl", "reload", "zvaultd")
    ok("vault", "up", "cold")
    for path, text in {KEYS: KEYS.read_text(), CONFIG: world.shared_text("peer")}.items():
        put = f"mkdir -p {path.parent} && umask 077 && cat >{path}"
        subprocess.run([*PEER_SSH, put], input=text, text=True, check=True)
    peer("systemctl restart zvaultd")
    said = peer("zvaultctl vault up cold 2>&1; true")
    assert "is held by lab" in " ".join(said.split()), said
    peer("zvaultctl vault take cold --yes")
    assert world.lease.read().lease.host == "peer"
    eventually("the pool is given up", lambda: "cold" not in pools(), seconds=240)
    ok("vault", "down", "cold")
    nothing_left()
    newest = f"tank/home@{snapshots('tank/home')[-1]}"
    assert peer_hashes(f"cold/lab/{newest}") == hashes(newest)
    peer("zvaultctl vault down cold && systemctl stop zvaultd")
    world.configure()
    sh("systemctl", "reload", "zvaultd")
    ok("vault", "up", "cold")
    unharmed()


def hide_all(world: OnServer) -> datetime:
    """Take the vault down, and have somebody with the writer's key hide every object; a moment before that."""
    ok("vault", "down", "cold")
    gone()
    moment = datetime.now(UTC)
    time.sleep(2)  # S3 dates versions by whole seconds
    for name in world.list_keys("locked"):
        world.server.client.delete_object(Bucket="locked", Key=name)
    assert world.list_keys("locked") == []
    return moment


def test_what_is_locked_is_brought_back_after_all_was_hidden(world: OnServer):
    """VersityGW gives a version that is hidden a new date: that is told before, and how to bring it back after. rclone
    keeps no versions: that, too, is told.
    """
    if not world.server.locks:
        found = ok("blockstore", "probe", "cold", "--quick", "-j").json()["verdicts"]
        good = {one["use"]: one["good"] for one in found}
        assert good == {use: use not in {"lock", "recover"} for use in good}, found
        return
    eventually("all is locked", lambda: (engine("locked_until") or 0) > time.time() + 86400)
    tried = ctl("blockstore", "drill", "cold", "-j").json()["tried"]
    moved = [] if world.server.keeps_dates else ["find it by its date once it is hidden"]
    assert [one["what"] for one in tried if one["well"] is not True] == moved, tried
    moment = hide_all(world)
    where = f"endpoint={world.server.endpoint} region=us-east-1 style=path credential=zvault.lab"
    back = f"zvault:attic/back {where}"
    if not world.server.keeps_dates:
        said = ctl("blockstore", "recover", "cold", "--before", moment.isoformat())
        assert said.code != 0
        assert "its server changes the dates of versions that are hidden" in " ".join(said.err.split())
        moment = datetime.now(UTC)
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
    """Long after the last put nothing is missing. These servers answer before what was put is on their disk: what was
    lost right after that is told, with what to do. Where objects are files, none is called damaged that is whole.
    """
    files = world.server.commit_seconds < 2
    world.server.disk.sync()
    world.server.cut_power()
    ok("vault", "up", "cold")
    world.run(6)
    ok("vault", "down", "cold")
    if files:
        time.sleep(3)  # then there are objects whose names alone are on the disk
    world.server.cut_power()
    done = ctl("vault", "up", "cold")
    print(done)
    if done.code == 0:
        unharmed()
    else:
        assert " next: " in done.err
    if files and done.code != 0:
        damaged = {one["object"] for one in ctl("blockstore", "check", "cold", "-j").json()["problems"]}
        assert damaged
        assert damaged <= world.list_lost()
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
