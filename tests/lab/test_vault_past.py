"""A vault in a block store, opened as it was at moments that the store keeps, while the vault itself goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ceph
import pytest
from blockstore_vaults import KEYS, Vault
from crash_world import SOCKET
from test_s3_nbd import bucket
from world import (
    ctl,
    destroy_held,
    eventually,
    fill,
    journal,
    leases,
    left,
    main_pid,
    nothing_left,
    ok,
    restarted,
    sh,
    snapshot_hashes,
    snapshots,
    tree_hashes,
)

LAB = {"mem": "4G", "timeout": 1200}

HOME = Path("/tank/home")
SPL_HOSTID = Path("/sys/module/spl/parameters/spl_hostid")


@pytest.fixture(scope="module")
def cluster() -> Iterator[ceph.Cluster]:
    with ceph.cluster(rgw=True) as it:
        yield it


@pytest.fixture
def world(cluster: ceph.Cluster) -> Iterator[Vault]:
    it = Vault(mode="history=last:20", keep="{ source = { last = 2 }, vault = { last = 9 } }")
    it.s3 = cluster.s3()
    clean(it)
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
    clean(it)


def clean(it: Vault) -> None:
    sh("systemctl", "stop", "zvaultd", check=False)
    for pool in (*pasts(), "cold"):
        sh("zpool", "export", "-f", pool, check=False)
    for number in range(8):
        sh("nbd-client", "-d", f"/dev/nbd{number}", check=False)
    it.clean()


def pasts() -> list[str]:
    """The pools of the vault as it was that are imported."""
    return [name for name in sh("zpool", "list", "-Ho", "name").split() if "_zvault-at-" in name]


def none_is_open() -> None:
    """Of the vault as it was nothing is on this host; the vault itself may be up."""

    def found() -> dict[str, object]:
        servers = sh("systemctl", "list-units", "--all", "--plain", "--no-legend", "zvault-*cold:*").split()
        files = [path for path in Path("/run/zvault").rglob("*cold:*") if not path.name.startswith(".")]
        files += Path("/var/lib/zvault/overlay").glob("*")
        held = [name for name in leases() if "/past/" in name or "cold:" in name]
        every = {"pools": pasts(), "servers": servers, "files": [*map(str, files)], "leases": held}
        return {kind: things for kind, things in every.items() if things}

    eventually(lambda: f"nothing of the past is open: {found()}", lambda: not found())


def runs(*seeds: int) -> list[tuple[float, dict[str, str], str]]:
    """Of each run: when all of it was in the bucket, what it backed up, and its snapshot."""
    done = []
    for seed in seeds:
        fill(HOME, seed, count=4)
        if seed == 12:
            (HOME / "plain" / "file 1 of 11").unlink()
        ok("run", "tank")
        nothing_left()  # the vault went down, with a checkpoint
        done.append((time.time(), tree_hashes(HOME), snapshots("tank/home")[-1]))
        time.sleep(1.1)  # moments are told apart by the second
    return done


def ago(at: float) -> str:
    """A time as one writes it, of the second that has ``at`` in it: that is meant to its end, before anything new."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at))}Z"


def background(*argv: str) -> subprocess.Popen[bytes]:
    """zvaultctl, without waiting for its end."""
    return subprocess.Popen(["zvaultctl", *argv], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def asked_to_open(at: float) -> socket.socket:
    """zvaultd is asked to open it, for certain, and nobody waits for its answer."""
    body = json.dumps({"at": at})
    asked = socket.socket(socket.AF_UNIX)
    asked.connect(SOCKET)
    head = f"POST /v1/vaults/cold/past/open HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n"
    asked.sendall(f"{head}{body}".encode())
    return asked


def open_at(at: float) -> dict[str, Any]:
    found: dict[str, Any] = ok("vault", "open", "cold", "--at", ago(at), "-j").json()["past"]
    return found


@pytest.mark.timeout(900)
def test_a_vault_as_it_was_beside_the_vault(world: Vault):
    world.start()
    (first, files, name), (second, later_files, later_name), _ = runs(11, 12, 13)
    ok("vault", "up", "cold")
    guid = get_pool("cold", "guid")

    past = open_at(first)
    pool = past["pool"]
    assert pasts() == [pool]
    assert past["taken"] <= first
    assert get_pool(pool, "guid") != guid
    assert get_pool(pool, "readonly") == "on"
    assert snapshots(f"{pool}/lab/tank/home") == [name]
    assert snapshot_hashes(f"{pool}/lab/tank/home@{name}") == files
    assert "file 1 of 11" in str(files)

    # The vault goes on meanwhile, and what was opened stays as it was.
    fill(HOME, 14, count=4)
    ok("run", "tank")
    assert len(snapshots("cold/lab/tank/home")) == 4
    assert snapshots(f"{pool}/lab/tank/home") == [name]
    assert snapshot_hashes(f"{pool}/lab/tank/home@{name}") == files
    newest = snapshots("cold/lab/tank/home")[-1]
    assert snapshot_hashes(f"cold/lab/tank/home@{newest}") == tree_hashes(HOME)
    sh("zpool", "scrub", "-w", "cold")
    assert "No known data errors" in sh("zpool", "status", "cold")
    assert get_pool("cold", "guid") == guid

    # The same moment again is the same pool; another one is another.
    assert open_at(first)["pool"] == pool
    other = open_at(second)
    assert other["pool"] != pool
    assert snapshots(f"{other['pool']}/lab/tank/home") == [name, later_name]
    assert snapshot_hashes(f"{other['pool']}/lab/tank/home@{later_name}") == later_files
    (told,) = ok("vault", "status", "cold", "-j").json()["vaults"]
    assert [one["pool"] for one in told["past"]] == [pool, other["pool"]]
    assert all(one["opened"] and one["pinned"] for one in told["past"])
    assert pool in ok("vault", "status", "cold").out

    ok("vault", "close", "cold", "--at", ago(first))
    assert pasts() == [other["pool"]]
    ok("vault", "close", "cold")
    none_is_open()
    assert ctl("vault", "close", "cold").code != 0
    assert get_pool("cold", "health") == "ONLINE"
    ok("vault", "down", "cold")
    nothing_left()
    assert ok("blockstore", "check", "cold").code == 0


@pytest.mark.timeout(900)
def test_zvaultd_is_killed_while_it_is_open(world: Vault):
    world.start()
    ((first, files, name),) = runs(11)
    ok("vault", "up", "cold")
    pool = open_at(first)["pool"]
    before = main_pid()
    os.kill(before, signal.SIGKILL)
    restarted(before)
    none_is_open()
    assert left()["pools"] == ["cold"], "the vault stays up"

    # Also while it is being opened, wherever that stands.
    for wait in (0.3, 3.0, 6.0):
        before = main_pid()
        # zvaultctl, if it is slow to start, might ask the next daemon.
        with asked_to_open(first):
            time.sleep(wait)
            os.kill(before, signal.SIGKILL)
        restarted(before)
        none_is_open()

    # It can be opened after that; where its server dies, anew; and it ends with zvaultd.
    assert open_at(first)["pool"] == pool
    assert snapshot_hashes(f"{pool}/lab/tank/home@{name}") == files
    (server,) = re.findall(r"zvault-blockstore@cold:\S+", sh("systemctl", "list-units", "--plain"))
    sh("systemctl", "kill", "-s", "KILL", server)
    eventually("its server is dead", lambda: "failed" in sh("systemctl", "is-active", server, check=False))
    assert open_at(first)["pool"] == pool
    assert snapshot_hashes(f"{pool}/lab/tank/home@{name}") == files
    sh("systemctl", "stop", "zvaultd")
    none_is_open()
    sh("systemctl", "start", "zvaultd")
    assert "Traceback" not in journal()
    sh("zpool", "scrub", "-w", "cold")
    assert "No known data errors" in sh("zpool", "status", "cold")


@pytest.mark.timeout(600)
def test_what_is_refused(world: Vault):
    world.mode = ""
    world.start()
    runs(10)
    told = ctl("vault", "open", "cold", "--at", "1s ago").err
    assert "no moment of its past is kept" in told
    assert "history=hourly:24,daily:30" in told
    none_is_open()
    world.mode = "history=last:20"
    world.configure()
    sh("systemctl", "reload", "zvaultd")
    ((first, _, _),) = runs(11)
    told = ctl("vault", "open", "cold", "--at", "2020-01-01").err
    assert "cannot be opened as it was then" in told
    assert "the oldest that is kept is of" in told
    assert ctl("vault", "close", "cold").err.count("nothing of it is open") == 1

    # While somebody reads in it, it stays.
    pool = open_at(first)["pool"]
    Path("/mnt/in").mkdir(exist_ok=True)
    sh("mount", "-t", "zfs", f"{pool}/lab/tank/home@{snapshots(f'{pool}/lab/tank/home')[0]}", "/mnt/in")
    with next(path for path in Path("/mnt/in").rglob("*") if path.is_file()).open("rb"):
        refused = ctl("vault", "close", "cold")
        assert refused.code != 0
        assert "busy" in refused.err
        assert pasts() == [pool]
    ok("vault", "close", "cold")
    none_is_open()


def mount_until_it_is_there(at: float) -> subprocess.Popen[bytes]:
    Path("/mnt/look").mkdir(exist_ok=True)
    mounting = background("mount", "tank", "tank/home", "/mnt/look", "--vault-at", ago(at))
    eventually("it is mounted", lambda: os.path.ismount("/mnt/look"))
    return mounting


@pytest.mark.timeout(900)
def test_restored_and_mounted_out_of_it(world: Vault):
    sh("zfs", "create", "-V", "8M", "tank/vol")
    eventually("the volume's device", lambda: Path("/dev/zvol/tank/vol").exists())
    data = os.urandom(1 << 20)
    with Path("/dev/zvol/tank/vol").open("r+b") as device:
        device.write(data)
    world.start()
    ((first, files, name),) = runs(11)
    ok("vault", "up", "cold")
    destroy_held("cold/lab/tank")
    sh("zpool", "sync", "cold")
    assert "has nothing of that backup" in ctl("restore", "tank", "tank/home", "tank/back").err

    words = ("restore", "tank", "tank/home", "tank/back", "--vault-at", ago(first))
    plan = ok(*words, "-n", "-j").json()["plan"]
    assert [(one["to"], one["snapshot"]) for one in plan["datasets"]] == [("tank/back", name)]
    none_is_open()
    told = ok(*words).out
    assert "the same as in the snapshot" in told
    assert tree_hashes(Path("/tank/back")) == files
    none_is_open()

    told = ok("restore", "tank", "tank/vol", "tank/vol-back", "--vault-at", ago(first)).out
    assert "a snapshot of a volume gets no device in a pool that is imported read-only" in told
    eventually("the restored volume's device", lambda: Path("/dev/zvol/tank/vol-back").exists())
    with Path("/dev/zvol/tank/vol-back").open("rb") as back:
        assert back.read(1 << 20) == data

    one = "plain/file 1 of 11"
    rescue = Path("/root/rescue")
    rescue.mkdir(exist_ok=True)
    ok("restore", "tank", "tank/home", str(rescue), "--file", one, "--vault-at", ago(first))
    assert list(tree_hashes(rescue).values()) == [files[one]]
    none_is_open()

    mounting = mount_until_it_is_there(first)
    assert tree_hashes(Path("/mnt/look")) == files
    refused = ctl("vault", "close", "cold")
    assert "by mount at /mnt/look" in refused.err
    sh("umount", "/mnt/look")
    assert mounting.wait(240) == 0
    none_is_open()

    # Whoever kills zvaultd ends it, too.
    mounting = mount_until_it_is_there(first)
    before = main_pid()
    os.kill(before, signal.SIGKILL)
    restarted(before)
    mounting.wait(240)
    assert not os.path.ismount("/mnt/look")
    none_is_open()
    assert left()["pools"] == ["cold"]


def allow_to_read_only(it: Vault, user: ceph.S3) -> None:
    """A user can read what is in the bucket and do nothing else; it is whom zvault is from now on."""
    here = f"arn:aws:s3:::{it.bucket}"
    said = {
        "Effect": "Allow",
        "Principal": {"AWS": ["arn:aws:iam:::user/reader"]},
        "Action": ["s3:GetObject", "s3:ListBucket"],
        "Resource": [here, f"{here}/*"],
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [said]})
    bucket(it.s3).meta.client.put_bucket_policy(Bucket=it.bucket, Policy=policy)
    keys = f"aws_access_key_id = {user.access_key}\naws_secret_access_key = {user.secret_key}\n"
    KEYS.write_text(f"[default]\n{keys}")


@pytest.mark.timeout(900)
def test_with_a_key_that_only_reads_on_another_host(world: Vault, cluster: ceph.Cluster):
    world.start()
    (first, files, _), _ = runs(11, 12)
    sh("systemctl", "stop", "zvaultd")
    sh("rm", "-rf", "/run/zvault", "/var/lib/zvault")
    allow_to_read_only(world, cluster.s3("reader"))
    there = {item.key: item.e_tag for item in bucket(world.s3).objects.all()}
    was = SPL_HOSTID.read_text()
    SPL_HOSTID.write_text("0x0badcafe")
    try:
        sh("systemctl", "start", "zvaultd")
        assert ctl("vault", "up", "cold").code != 0, "it cannot write"
        told = ok("restore", "tank", "tank/home", "tank/back", "--vault-at", ago(first)).out
    finally:
        SPL_HOSTID.write_text(was)
    assert "the same as in the snapshot" in told
    assert tree_hashes(Path("/tank/back")) == files
    none_is_open()
    assert {item.key: item.e_tag for item in bucket(world.s3).objects.all()} == there


def get_pool(pool: str, prop: str) -> str:
    return sh("zpool", "get", "-Hpo", "value", prop, pool).strip()
