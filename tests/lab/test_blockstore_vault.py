"""A vault in a bucket by zvault's own block store: the whole tool on it, on the S3 of a real Ceph cluster."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ceph
import pytest
from s3_proxy import Proxy
from test_s3_nbd import BUCKET, bucket
from world import (
    Done,
    World,
    command_lines,
    ctl,
    eventually,
    fill,
    journal,
    main_pid,
    make_tank,
    metrics,
    noise,
    nothing_left,
    ok,
    sh,
    snapshot_hashes,
    snapshots,
    tree_hashes,
)

from zvault.config.device_specs.blockstore import USERS
from zvault.devices.s3_lease.lease import BucketPlace, Store

LAB = {"mem": "4G", "timeout": 1200}

KEYS = Path("/etc/credstore/zvault.lab")
UNIT = "zvault-blockstore@cold-0.service"
STATUS = Path("/run/zvault/device/cold-0.store/status")
JOURNAL, CACHE = Path("/var/lib/zvault-lab-journal"), Path("/var/lib/zvault-lab-cache")


@pytest.fixture(scope="module")
def cluster() -> Iterator[ceph.Cluster]:
    with ceph.cluster(rgw=True) as it:
        yield it


@dataclass
class Vault(World):
    """The world with its vault in a bucket; ``mode`` are the words that say how."""

    s3: ceph.S3 = field(init=False)
    key: str = "cold"
    bucket: str = BUCKET
    mode: str = ""
    prices: str = ""
    source_size: int = 12
    vault_extra: str = 'create = true\nprofile = "blockstore"'

    def source(self) -> None:
        make_tank("512M")
        sh("zfs", "create", "tank/home")
        fill(Path("/tank/home"), 1, count=self.source_size)

    def config_text(self) -> str:
        place = (
            f"zvault:{self.bucket}/{self.key} size=2G endpoint={self.s3.endpoint} region=default style=path"
        )
        nbd = f"{place} credential=zvault.lab {self.mode}"
        return re.sub(
            r"\nnbd = .*\nsize = .*\n", lambda _: f'\nnbd = "{nbd}"\n{self.prices}\n', super().config_text()
        )

    @property
    def lease(self) -> Store:
        return Store(
            BucketPlace.of(
                [f"bucket={BUCKET}", f"key={self.key}", f"endpoint={self.s3.endpoint}", f"keys={KEYS}"]
            )
        )

    def clean(self) -> None:
        super().clean()
        sh("systemctl", "kill", "-s", "KILL", UNIT, check=False)
        sh("systemctl", "stop", UNIT, check=False)
        sh("systemctl", "reset-failed", check=False)
        sh("rm", "-rf", "/run/zvault", str(JOURNAL), str(CACHE))


@pytest.fixture
def world(cluster: ceph.Cluster) -> Iterator[Vault]:
    it = Vault()
    it.s3 = cluster.s3()
    it.clean()
    KEYS.parent.mkdir(exist_ok=True)
    KEYS.touch(mode=0o600)
    KEYS.write_text(
        f"[default]\naws_access_key_id = {it.s3.access_key}\naws_secret_access_key = {it.s3.secret_key}\n"
    )
    objects = bucket(it.s3)
    objects.create()
    objects.objects.all().delete()
    it.source()
    yield it
    it.clean()


def told() -> dict[str, Any]:
    """What the device's server says, which it writes down once a second."""
    found: dict[str, Any] = json.loads(STATUS.read_text())
    return found


def engine(name: str) -> Any:
    """One of its engine's figures; None while there is no server that tells."""
    with suppress(FileNotFoundError):
        return (told()["engine"] or {}).get(name)
    return None


def its_status(code: int, words: str) -> Done | None:
    """What 'vault status' tells, if it ends so and has these words (a regular expression)."""
    found = ctl("vault", "status", "cold")
    return found if found.code == code and re.search(words, found.out) else None


def keys(it: Vault) -> list[str]:
    return [item.key for item in bucket(it.s3).objects.all()]


def gone() -> None:
    """Nothing of the vault is on this host, nor of its server."""
    nothing_left()
    units = ("systemctl", "list-units", "--plain", "--no-legend", "--all", "zvault-blockstore@*")
    eventually(lambda: f"no unit is there: {sh(*units)}", lambda: not sh(*units).strip(), seconds=20)
    assert [path.name for path in STATUS.parents[1].iterdir()] == []


def no_secret_is_shown(it: Vault) -> None:
    """The server runs, and nobody sees the keys in the list of processes."""
    said = command_lines()
    assert "nbdkit_plugin.py" in said
    assert it.s3.secret_key not in said
    assert it.s3.access_key not in said


def a_user_of_its_own(it: Vault) -> None:
    """The server has none of root's rights, and its keys are root's as before."""
    lines = Path(f"/proc/{told()['pid']}/status").read_text().splitlines()
    status = {key: value.split() for key, _, value in (line.partition(":") for line in lines)}
    (uid,) = set(status["Uid"])
    assert int(uid) in USERS, journal()
    assert set(status["Gid"]) == {uid}
    assert status["Groups"] == []
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(status[name][0], 16) == 0, name
    journal_folder = Path(told()["journal"])
    assert journal_folder.is_dir(), "as it is called, not as it is reached"
    assert journal_folder.stat().st_uid == int(uid)
    positions = [path.stat() for path in Path("/var/lib/zvault/blockstore").iterdir()]
    assert positions
    assert all(one.st_uid == 0 and one.st_mode & 0o077 == 0 for one in [KEYS.stat(), *positions])
    # Keys or positions, of any store: that user opens none.
    for path in (KEYS, *Path("/var/lib/zvault/blockstore").iterdir()):
        be = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--")
        assert subprocess.run([*be, "head", "-c1", str(path)], capture_output=True).returncode != 0


def unharmed() -> None:
    """All of the newest snapshot is there, byte by byte, and the pool has no fault."""
    newest = snapshots("cold/lab/tank/home")[-1]
    assert snapshot_hashes(f"cold/lab/tank/home@{newest}") == tree_hashes(Path("/tank/home"))
    sh("zpool", "scrub", "-w", "cold")
    assert "No known data errors" in sh("zpool", "status", "cold")


def looks_for_its_keys() -> None:
    """'check-config' misses them where they are not."""
    assert "there is no credential" not in ok("check-config").err
    hidden = KEYS.rename(KEYS.with_name("elsewhere"))
    try:
        told = ok("check-config").err
    finally:
        hidden.rename(KEYS)
    assert "vault.cold.device[0].nbd: there is no credential zvault.lab" in told


@pytest.mark.timeout(600)
def test_backups_into_a_bucket(world: Vault):
    world.start()
    ok("run", "tank")
    gone()
    names = keys(world)
    assert {"cold/store", "cold/epoch", "cold.lease"} <= set(names)
    assert any(name.startswith("cold/segments/") for name in names)
    assert world.lease.read().lease.held is False

    sh("zfs", "create", "tank/mounted")
    ok("vault", "up", "cold")
    no_secret_is_shown(world)
    a_user_of_its_own(world)
    # What was mounted when it began is not kept busy by it.
    sh("zfs", "destroy", "tank/mounted")
    lease = world.lease.read().lease
    assert lease.held
    # The daemon has no file system view of its own for its credentials' sake.
    assert Path(f"/proc/{main_pid()}/ns/mnt").readlink() == Path("/proc/1/ns/mnt").readlink()
    assert sh("zpool", "get", "-Ho", "value", "autotrim", "cold").strip() == "on", "space comes back"
    unharmed()

    # The daemon goes and comes: the server stays, and is adopted.
    pid, before = told()["pid"], main_pid()
    sh("systemctl", "restart", "zvaultd")
    eventually("the daemon again", lambda: main_pid() not in (0, before))
    fill(Path("/tank/home"), 3, count=3)
    ok("run", "tank")
    assert told()["pid"] == pid
    unharmed()

    words = r"strict; \S+ of 256M in its journal; \S+ live, \S+ in the bucket"
    eventually(lambda: f"its status: {ctl('vault', 'status', 'cold')}", lambda: its_status(0, words))
    store = ok("vault", "status", "cold", "-j").json()["vaults"][0]["devices"][0]["store"]
    assert store["mode"] == "strict"
    assert store["requests"]["put"]["requests"] > 0
    labels = 'device="cold-0",vault="cold"'

    def seen() -> dict[str, float]:
        return {name: value for name, value in metrics().items() if name.startswith("zvault_blockstore_")}

    eventually("metrics", lambda: f"zvault_blockstore_trouble{{{labels}}}" in seen())
    now = seen()
    assert now[f"zvault_blockstore_trouble{{{labels}}}"] == 0
    assert now[f"zvault_blockstore_live_bytes{{{labels}}}"] > 2_000_000
    assert any(
        name.startswith("zvault_blockstore_requests_total") and value > 0 for name, value in now.items()
    )
    looks_for_its_keys()
    fits = ok("fit", "tank", "-j").json()
    assert [round(one["puts"]) for one in fits["datasets"]] == [128] * len(fits["datasets"])
    assert fits["unknown"] == []
    assert "cold" in ctl("doctor", "cold").out
    ok("vault", "down", "cold")
    gone()

    # What is there is used as it is.
    before = set(keys(world))
    ok("vault", "up", "cold")
    unharmed()
    ok("vault", "down", "cold")
    assert {name for name in before if name.endswith("/store")} <= set(keys(world))
    gone()


def test_a_vault_whose_bucket_locks_what_is_put(world: Vault):
    """Lease and epoch are in a bucket of their own, and all that is needed is locked while the vault is up."""
    world.bucket, leases = "locked", world.s3.bucket("leases")
    world.s3.bucket("locked").create(ObjectLockEnabledForBucket=True)
    leases.create()
    world.mode = "history=last:3 lock=compliance:2d lease-bucket=leases"
    world.start()
    ok("run", "tank")
    ok("vault", "up", "cold")
    eventually("all is locked", lambda: (engine("locked_until") or 0) > time.time() + 2 * 86400)
    assert told()["trouble"] is None
    a_user_of_its_own(world)
    assert sorted(item.key for item in leases.objects.all()) == ["cold.lease", "cold/epoch"]
    drilled = ok("blockstore", "drill", "cold", "-j").json()["tried"]
    assert {one["well"] for one in drilled} == {True}, drilled
    (device,) = ok("fit", "tank", "-j").json()["devices"]
    assert round(device["locks"]) == 37.5 * 131072
    assert "compliance" in ok("blockstore", "info", "cold").out
    unharmed()
    ok("vault", "down", "cold")
    gone()
    found = ok("blockstore", "gc", "cold", "-j").json()
    assert found["strange"] == []
    assert found["needed_bytes"] > 0


def the_cost() -> dict[str, Any] | None:
    """What the vault's document has of it."""
    found: dict[str, Any] | None = ok("vault", "status", "cold", "-j").json()["vaults"][0]["cost"]
    return found


@pytest.fixture
def proxy(world: Vault) -> Iterator[Proxy]:
    """What stands in front of the bucket and counts; it outlives the vault."""
    with Proxy(world.s3.endpoint) as it:
        world.s3 = replace(world.s3, endpoint=it.endpoint)
        yield it
        world.clean()


def passed_on(proxy: Proxy, method: str, key: str) -> int:
    """Requests for objects of a store, not for those of its lease."""
    ours = f"/{BUCKET}/{key}/"
    return sum(
        number
        for (way, place), number in proxy.of_key.items()
        if way == method and f"{place}/".startswith(ours)
    )


@pytest.mark.timeout(600)
def test_what_it_costs_is_what_the_store_was_asked(world: Vault, proxy: Proxy):
    world.prices = 'prices = { put = 5.0, get = 0.4, stored = 100, download = 90, currency = "$" }'
    world.start()
    ok("vault", "up", "cold")

    def left_out() -> tuple[int, int]:
        """Requests that are not in it: those from before it was first seen, and of the last seconds."""
        cost = the_cost() or {"put": -1 << 30, "get": -1 << 30}
        return tuple(passed_on(proxy, kind, world.key) - cost[kind.lower()] for kind in ("PUT", "GET"))  # type: ignore[return-value]

    def nothing_missed() -> bool:
        return all(was - 3 <= is_now <= was for is_now, was in zip(left_out(), never_seen, strict=True))

    eventually("its cost", lambda: the_cost() is not None)
    looks = []
    for _ in range(12):
        looks.append(left_out())
        time.sleep(1)
    # A look may be some seconds old, but never ahead of what was passed on.
    never_seen = tuple(map(min, zip(*looks, strict=True)))
    first = the_cost()
    assert first is not None
    ok("run", "tank")
    eventually(lambda: f"all of the run is counted: {left_out()}, {never_seen}", nothing_missed)
    after = the_cost()
    assert after is not None
    assert after["put"] > first["put"] + 3
    assert after["put_bytes"] > first["put_bytes"] + 3_000_000

    # Nobody looks, and the pool is written to.
    sh("systemctl", "stop", "zvaultd")
    sh("zfs", "set", "org.zvault.lab:written=now", "cold")
    sh("zpool", "sync", "cold")
    sh("systemctl", "start", "zvaultd")
    eventually("what was written meanwhile", lambda: (the_cost() or after)["put"] > after["put"])
    eventually(lambda: f"nothing is missed: {left_out()}, {never_seen}", nothing_missed)
    later = the_cost()
    assert later is not None
    assert later["put"] > after["put"]
    requests = ((later["put"] + later["list"]) * 5.0 + later["get"] * 0.4) / 1000
    assert later["cost"] == pytest.approx(requests + later["get_bytes"] / 2**30 * 90, abs=0.001)
    assert later["forecast"] is None, "nothing is known of a day"

    # The last of its requests are those that end it; they are few.
    ok("vault", "down", "cold")
    assert the_cost() is not None
    ok("vault", "up", "cold")
    eventually("the next server tells", lambda: (the_cost() or later)["get"] > later["get"])
    few = tuple(was + 20 for was in never_seen)
    eventually(
        lambda: f"few are left out: {left_out()}, {never_seen}",
        lambda: all(is_now <= most for is_now, most in zip(left_out(), few, strict=True)),
    )
    text = ok("vault", "status", "cold").out
    assert re.search(r"cost: \$[\d.]+ this month; [\d,]+ put, ", text), text
    name = 'zvault_vault_month_cost{currency="$",vault="cold"}'
    eventually("its metric", lambda: metrics().get(name, 0) > later["cost"] - 0.001)
    ok("vault", "down", "cold")


@pytest.mark.timeout(600)
def test_a_server_killed_in_the_middle_of_a_run(world: Vault):
    noise(Path("/tank/home/noise"), 100)
    world.retries = 2
    # However fast the machine is, the stream is under way for long enough.
    world.backup_extra = 'retry_wait = "1s"\nlimit = "10M"'
    world.start()
    ok("vault", "up", "cold")
    run = subprocess.Popen(
        ["zvaultctl", "run", "tank"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    eventually("bytes on their way", lambda: (engine("written_bytes") or 0) > 20_000_000, every=0.05)
    sh("systemctl", "kill", "-s", "KILL", UNIT)
    out, _ = run.communicate(timeout=300)
    print(out)
    if run.returncode != 0:
        out += ok("run", "tank").out
        print(out)
    unharmed()
    assert re.search(r"plan: .*\bresume", out + journal()), "what had arrived was sent again"
    ok("vault", "down", "cold")
    gone()


@pytest.mark.timeout(600)
def test_an_outage_longer_than_the_devices_timeout_suspends_the_pool_and_it_goes_on(
    world: Vault, cluster: ceph.Cluster
):
    world.start()
    ok("run", "tank")
    ok("vault", "up", "cold")
    cluster.kill("client.rgw")
    writer = subprocess.Popen(["zfs", "set", "org.zvault.test:x=y", "cold"])
    eventually("suspension", lambda: "SUSPENDED" in sh("zpool", "list", "-Ho", "health", "cold"), every=0.5)
    eventually(lambda: f"it is told: {ctl('vault', 'status', 'cold')}", lambda: its_status(1, "trouble: "))
    cluster.start_rgw()
    # The server's threads wait for the store, each try up to half a minute after the last, and only then find out that
    # the kernel has given up their connection. From then on it goes on by itself.
    began = time.monotonic()
    eventually("it to go on", lambda: ctl("vault", "up", "cold").code == 0, seconds=240, every=2)
    print(f"it goes on after {time.monotonic() - began:.1f} s")
    assert writer.wait(240) == 0
    unharmed()
    ok("vault", "down", "cold")
    gone()


def test_writeback_leaves_nothing_in_its_journal_and_an_outage_is_ridden_out(
    world: Vault, cluster: ceph.Cluster
):
    world.mode = (
        f"mode=writeback journal={JOURNAL} journal-size=512M cache={CACHE} cache-size=128M upload=64M"
    )
    world.start()
    ok("vault", "create", "cold", "--yes")
    # As before servers were users of their own.
    sh("chown", "-R", "root:root", str(JOURNAL), str(CACHE))
    ok("vault", "up", "cold")
    assert told()["engine"]["mode"] == "writeback"
    a_user_of_its_own(world)

    # Away for a while: writes go on, and somebody is told.
    cluster.kill("client.rgw")
    sh("zfs", "create", "-o", "mountpoint=/cold", "-o", "compression=off", "cold/own")
    noise(Path("/cold/noise"), 32)
    began = time.monotonic()
    sh("zpool", "sync", "cold")
    print(f"32 MiB in the journal after {time.monotonic() - began:.1f} s")
    eventually("trouble", lambda: told()["trouble"])
    eventually(lambda: f"it is told: {ctl('vault', 'status', 'cold')}", lambda: its_status(1, "trouble: "))
    eventually("it is in the journal", lambda: engine("journal_used") > 32 << 20)
    hashes = tree_hashes(Path("/cold"))
    cluster.start_rgw()
    ok("vault", "down", "cold")
    gone()
    assert sum(path.stat().st_size for path in JOURNAL.rglob("*") if path.is_file()) < 1 << 20

    # All of it was in the bucket: without the journal and the cache it is the same.
    sh("rm", "-rf", str(JOURNAL), str(CACHE))
    ok("vault", "up", "cold")
    sh("zfs", "mount", "cold/own", check=False)
    assert tree_hashes(Path("/cold")) == hashes
    sh("zpool", "scrub", "-w", "cold")
    assert "No known data errors" in sh("zpool", "status", "cold")
    sh("zfs", "unmount", "cold/own")
    ok("vault", "down", "cold")
    gone()


def test_what_keeps_it_from_coming_up_is_told(world: Vault):
    world.vault_extra = ""
    world.start()
    refused = ctl("vault", "up", "cold")
    said = " ".join(refused.err.split())
    assert refused.code == 2, said
    assert "there is no block store in s3://zvault/cold" in said
    assert "zvaultctl vault create" in said
    gone()
    assert [name for name in keys(world) if name != "cold.lease"] == []

    ok("vault", "create", "cold", "--yes")
    gone()
    seen = world.lease.read()
    other = replace(seen.lease, host="attic", machine="attic", boot="attic", held=True)
    world.lease.put(other, seen.etag)
    refused = ctl("vault", "up", "cold")
    assert refused.code == 1, refused
    assert "is held by attic" in " ".join(refused.err.split())
    gone()
    asked = ctl("vault", "take", "cold")
    assert "held by attic" in asked.out, asked
    seen = world.lease.read()
    world.lease.put(replace(seen.lease, bound=1.0), seen.etag)
    time.sleep(2)
    ok("vault", "take", "cold", "--yes")
    assert world.lease.read().lease.host != "attic"
    ok("vault", "down", "cold")
    gone()


MARKER = bytes.fromhex("5ea1ed") * 11 + b"what nobody may read in the bucket"
KEY = Path("/etc/credstore/zvault.seal")


def in_bucket(it: Vault, prefix: str, what: bytes) -> list[str]:
    """Objects that have these bytes in them."""
    objects = bucket(it.s3).objects.filter(Prefix=f"{prefix}/")
    return [item.key for item in objects if what in item.get()["Body"].read()]


def refused(words: str, *argv: str) -> None:
    """That zvaultctl says so, and nothing of the vault is up."""
    done = ctl(*argv)
    assert done.code != 0
    assert words in " ".join(done.err.split()), done.err
    gone()


def backed_up(name: str) -> None:
    """A run with a file more, that has the marker; all of it can be read."""
    Path(f"/tank/home/{name}").write_bytes(MARKER * 3000)
    ok("run", "tank")
    ok("vault", "up", "cold")
    unharmed()


@pytest.mark.timeout(900)
def test_an_encrypted_vault(world: Vault):
    """Nothing in its bucket can be read or changed without its key; keys come and go, and the data stays."""
    key, other = "c3" * 32, "d4" * 32
    world.mode = "encryption-credential=zvault.seal"
    KEY.touch(mode=0o600)
    KEY.write_text(key)
    sh("zfs", "set", "compression=off", "tank")
    world.start()
    refused("zvaultctl blockstore create", "run", "tank")
    made = ok("blockstore", "create", "cold").out
    recovery = re.search(r"recovery key: (zvault-recovery-\S+)", made)
    assert recovery is not None, made
    backed_up("first")
    a_user_of_its_own(world)
    ok("vault", "down", "cold")
    gone()
    assert any(one.startswith("cold/segments/") for one in keys(world))
    assert in_bucket(world, "cold", MARKER) == []
    assert in_bucket(world, "cold", b'"mark"') == [], "nor who writes"
    # The same bytes are seen where they are not encrypted.
    place = f"endpoint={world.s3.endpoint} region=default style=path credential=zvault.lab"
    ok("blockstore", "copy", "cold", f"zvault:{BUCKET}/bare {place}")
    assert in_bucket(world, "bare", MARKER) != []

    new_keys(key, other)
    assert in_bucket(world, "cold", MARKER) == []
    ok("blockstore", "check", "cold", "--all")

    # With the recovery key alone, on whichever host.
    KEY.write_text(recovery[1])
    ok("vault", "up", "cold")
    unharmed()
    said = journal() + journal(f"_SYSTEMD_UNIT={UNIT}") + command_lines()
    assert not any(one in said for one in (key, other, recovery[1]))
    ok("vault", "down", "cold")
    KEY.write_text(other)

    # Another object in the place of one, by whoever has the keys to the bucket.
    objects = bucket(world.s3)
    segments = sorted(one for one in keys(world) if one.startswith("cold/segments/"))
    theirs = objects.Object(segments[0]).get()["Body"].read()
    for name in segments[1:]:
        objects.put_object(Key=name, Body=theirs)
    found = ctl("blockstore", "check", "cold", "--all")
    assert found.code == 1
    assert "is not what was put there under this name" in found.err, found
    KEY.unlink()


def new_keys(key: str, other: str) -> None:
    """A new data key while the vault is up; then another key for the owner, and keys that are wrong or missing."""
    ok("vault", "up", "cold")
    ok("blockstore", "rotate-key", "cold")
    backed_up("second")
    ok("vault", "down", "cold")
    new = Path("/root/new.key")
    new.write_text(other)
    ok("blockstore", "rotate-key", "cold", "--to", str(new))
    for wrong in (key, "e5" * 32):
        KEY.write_text(wrong)
        refused("cannot be opened with key", "vault", "up", "cold")
    KEY.unlink()
    refused("there is no credential zvault.seal", "vault", "up", "cold")
    KEY.write_text(other)
    backed_up("third")
    ok("vault", "down", "cold")
