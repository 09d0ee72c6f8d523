"""A vault in a bucket by zvault's own block store: the whole tool on it, on the S3 of a real Ceph cluster."""

from __future__ import annotations

import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import ceph
import pytest
from blockstore_vaults import (
    CACHE,
    JOURNAL,
    MARKER,
    UNIT,
    Vault,
    a_user_of_its_own,
    backed_up,
    cluster_of_module,  # noqa: F401
    engine,
    gone,
    in_bucket,
    its_status,
    keys,
    looks_for_its_keys,
    no_secret_is_shown,
    passed_on,
    proxy_before_bucket,  # noqa: F401
    refused,
    the_cost,
    told,
    unharmed,
    world_with_vault,  # noqa: F401
)
from s3_proxy import Proxy
from test_s3_nbd import BUCKET, bucket
from world import (
    command_lines,
    ctl,
    eventually,
    fill,
    journal,
    main_pid,
    metrics,
    noise,
    ok,
    sh,
    tree_hashes,
)

LAB = {"mem": "4G", "timeout": 1200}


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

    eventually("no store that is slow", lambda: seen().get(f"zvault_blockstore_trouble{{{labels}}}") == 0)
    now = seen()
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
    eventually("all is well", lambda: told()["trouble"] is None)
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
    # However fast the machine is, and however slow the test, the stream is under way when the server is killed.
    world.backup_extra = 'retry_wait = "1s"\nlimit = "5M"'
    world.start()
    ok("vault", "up", "cold")
    run = subprocess.Popen(
        ["zvaultctl", "run", "tank"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    eventually("bytes on their way", lambda: (engine("written_bytes") or 0) > 20_000_000, every=0.05)
    sh("systemctl", "kill", "-s", "KILL", UNIT)
    world.backup_extra = 'retry_wait = "1s"'
    world.configure()
    sh("systemctl", "reload", "zvaultd")
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


def test_a_journal_that_is_missing_is_waited_for(world: Vault, cluster: ceph.Cluster):
    """Its disk drops off while the pool is imported, and the server dies: nothing goes on without it."""
    world.mode = f"mode=writeback journal={JOURNAL} journal-size=512M"
    world.start()
    ok("vault", "create", "cold", "--yes")
    ok("vault", "up", "cold")
    cluster.kill("client.rgw")
    sh("zfs", "create", "-o", "mountpoint=/cold", "-o", "compression=off", "cold/own")
    noise(Path("/cold/noise"), 8)
    sh("zpool", "sync", "cold")
    eventually("it is in the journal", lambda: (engine("journal_used") or 0) > 8 << 20)
    hashes = tree_hashes(Path("/cold"))
    away = JOURNAL.rename(JOURNAL.with_name("zvault-lab-away"))
    sh("systemctl", "kill", "-s", "KILL", UNIT)
    cluster.start_rgw()

    def critical() -> bool:
        (vault,) = ctl("vault", "status", "cold", "-j").json()["vaults"]
        return any(
            one["level"] == "critical" and "give-up-journal cold/0'" in one["next"]
            for one in vault["verdict"]["findings"]
        )

    eventually(lambda: f"it is told: {ctl('vault', 'status', 'cold')}", critical)
    said = ctl("vault", "up", "cold")
    assert said.code != 0
    assert f"is not in {JOURNAL}" in " ".join(said.err.split()), said
    assert sh("zpool", "list", "-Ho", "health", "cold").strip() == "SUSPENDED", "it is not cleared"
    shown = ok("blockstore", "give-up-journal", "cold").out
    assert re.search(r"on its disk: [\d,]+ writes? at least", shown), shown
    assert "is imported" in ctl("blockstore", "give-up-journal", "cold", "--yes").err

    # Its disk is back: all goes on, and nothing is missing.
    sh("rm", "-rf", str(JOURNAL))
    away.rename(JOURNAL)
    eventually("it goes on", lambda: ctl("vault", "up", "cold").code == 0, every=2)
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


KEY = Path("/etc/credstore/zvault.seal")


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
