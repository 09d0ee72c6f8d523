"""Two hosts and one vault: one wins, the other is told who has it, and a takeover shuts the last host out first."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import ceph
import pytest
from peer import FILES, daemon, install_zvault, introduce, peer, peer_daemon
from report_to_host import PEER_SSH
from world import ctl, eventually, journal, ok, sh

from zvault.devices.s3_lease.lease_object import BucketPlace, LeaseObjectStore

LAB = {"mem": "4G", "timeout": 900, "peer": True, "in_order": True}

ADDRESS = {"lab": "10.99.0.1", "peer": "10.99.0.2"}
BUCKET, KEY = "zvault", Path("/etc/s3.key")
LONG = 180
"""Seconds of a lease that nobody waits for to its end."""
BOUND = 20
NBD_PORT = 10809
STORAGE = f"{{ 6789, 6800-7300, {ceph.RGW_PORT}, {NBD_PORT} }}"
CUT = f"""nft -f - <<'END'
table inet cut {{
    chain out {{
        type filter hook output priority 0
        tcp dport {STORAGE} drop
    }}
    chain in {{
        type filter hook input priority 0
        tcp sport {STORAGE} drop
    }}
}}
END
"""
CLEAR_IN_VAIN = """
refused() { dmesg | grep -c "Pool 'cold' has encountered"; }
before=$(refused)
zpool clear cold >/dev/null 2>&1 &
until [ "$(refused)" -gt "$before" ]; do sleep 0.5; done
until grep -q SUSPENDED /proc/spl/kstat/zfs/cold/state; do sleep 0.5; done
"""
"""What was written is tried once more, and refused once more."""
RECONNECT = "nft delete table inet cut"


@pytest.fixture(scope="module")
def cluster() -> Iterator[ceph.Cluster]:
    """Storage on this guest that both reach, and the same vaults on both."""
    introduce()
    install_zvault()
    peer("zgenhostid -f 0badcafe")  # the guests come from one tree, as clones do
    with ceph.cluster(rgw=True, address=ADDRESS["lab"]) as it:
        keyring = it.client("zvault", mon="profile rbd", osd="profile rbd")
        s3 = it.s3()
        s3.bucket(BUCKET).create()
        KEY.write_text(s3.secret_key)
        shutil.copy(keyring, ceph.ETC / "ceph.client.zvault.keyring")
        subprocess.run(
            f"tar -C / -c etc/ceph/ceph.conf etc/ceph/ceph.client.zvault.keyring {str(KEY)[1:]}"
            f" | {shlex.join(PEER_SSH)} 'tar -x -C /'",
            shell=True,
            check=True,
        )
        text = config(s3)
        daemon(text)
        peer_daemon(text)
        yield it
        for name in sh("zpool", "list", "-Ho", "name").split():
            ctl("vault", "down", name)


def config(s3: ceph.S3) -> str:
    image = 'rbd = "rbd_meta/cold"\nsize = "1G"\ntimeout = "10s"\nceph = { user = "zvault" }'
    store = f"nbdkit:S3 size=256M object-size=32K {params(s3, 'cloud')}"
    devices = {
        "cold": image,
        "cloud": f'nbd = "{store}"\nlease = "{BOUND}s"',
        "attic": f'nbd = "tcp:{ADDRESS["lab"]}:{NBD_PORT}/attic"\ntimeout = "10s"',
    }
    return "".join(
        f'[vault.{name}]\npool = "{name}"\n[[vault.{name}.device]]\n{device}\n'
        for name, device in devices.items()
    )


def params(s3: ceph.S3, key: str) -> str:
    """What nbdkit's plugin, and a guard by it, is told of the store."""
    place = f"bucket={BUCKET} key={key} endpoint-url={s3.endpoint}"
    return f"{place} access-key={s3.access_key} secret-key=+{KEY}"


@pytest.fixture(scope="module")
def lease(cluster: ceph.Cluster) -> LeaseObjectStore:
    """The lease of the vault ``cloud``, which is made for it."""
    ok("vault", "create", "cloud", "--yes")
    return LeaseObjectStore(BucketPlace.of(params(cluster.s3(), "cloud").split()))


def race(vault: str) -> tuple[str, str]:
    """Both hosts bring a vault up at the same moment: which one has it, and what the other was told."""
    command = ["zvaultctl", "vault", "up", vault]
    argv = {"peer": [*PEER_SSH, shlex.join(command)], "lab": command}
    began = {
        name: subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for name, words in argv.items()
    }
    said = {
        name: " ".join(" ".join(process.communicate(timeout=240)).split()) for name, process in began.items()
    }
    print(said)
    winners = [name for name, process in began.items() if process.returncode == 0]
    assert len(winners) == 1, said
    (loser,) = set(began) - set(winners)
    return winners[0], said[loser]


def both_take(vault: str) -> tuple[str, str]:
    """On both hosts somebody is shown who has a vault and asked, and then both say yes.

    The result is who has it now, and what the other was told.
    """
    command = f"script -qec 'zvaultctl vault take {vault}' /dev/null"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    began = {
        "peer": subprocess.Popen([*PEER_SSH, command], **pipes),
        "lab": subprocess.Popen(command, shell=True, **pipes),
    }
    for process in began.values():
        assert "held by attic" in asked(process)
    for process in began.values():
        process.stdin.write(b"y\n")
        process.stdin.flush()
    said = {name: process.communicate(timeout=240)[0].decode() for name, process in began.items()}
    print(said)
    (winner,) = [name for name, process in began.items() if process.returncode == 0]
    (loser,) = set(began) - {winner}
    return winner, " ".join(said[loser].split())


def asked(process: subprocess.Popen[bytes]) -> str:
    """What a command says until it asks."""
    said = b""
    while b"[y/N]" not in said:
        more = os.read(process.stdout.fileno(), 4096)
        assert more, said
        said += more
    return said.decode()


def on(host: str, script: str) -> str:
    """What a shell script prints on one of the two; it must succeed."""
    return peer(script) if host == "peer" else sh("sh", "-c", script)


def fill(host: str, vault: str, count: int, size: int) -> list[str]:
    """Write files into a vault that is up on a host; their hashes and paths."""
    on(
        host,
        f"zfs create -p -o mountpoint=/{vault} -o readonly=off -o canmount=on {vault}/data; zfs mount {vault}/data;"
        f" for i in $(seq {count}); do head -c {size} /dev/urandom >/{vault}/$i; done; zpool sync {vault}",
    )
    return on(host, f"cd /{vault} && {FILES}").splitlines()


def write_late(host: str, vault: str) -> None:
    """Have a host write more, which cannot reach the storage: nobody waits for it."""
    on(host, f"systemd-run -q sh -c 'head -c 2000000 /dev/urandom >/{vault}/late; zpool sync {vault}'")


def well(host: str, vault: str) -> list[str]:
    """See that the pool is whole; the files in it, as ``fill`` tells of them."""
    found = on(host, f"zpool scrub -w {vault}; zpool status {vault}")
    assert "No known data errors" in found, found
    assert on(host, f"zpool list -Ho health {vault}") == "ONLINE\n"
    mount = f"zfs mount {vault}/data; cd /{vault}"
    return on(host, f"{mount} && {FILES}; cd /; zfs unmount {vault}/data").splitlines()


def pool_state(host: str, vault: str) -> str:
    """By the kernel's own word, which waits for nothing."""
    return on(host, f"cat /proc/spl/kstat/zfs/{vault}/state").strip()


def test_an_image_has_one_writer_and_a_host_cut_off_is_shut_out(cluster: ceph.Cluster) -> None:
    ok("vault", "create", "cold", "--yes")
    winner, told = race("cold")
    assert re.search(rf"{winner}, since 20\S+ \S+ UTC \(client\.\d+ at {ADDRESS[winner]}:0/\d+\)", told), told
    if winner == "lab":
        ok("vault", "down", "cold")
        peer("zvaultctl vault up cold")
    written = fill("peer", "cold", 20, 200_000)
    assert "the vault 'cold' is up on this host" in peer("zvaultctl vault take cold --yes 2>&1; true")

    peer(CUT)
    write_late("peer", "cold")
    asked = ctl("vault", "take", "cold")
    print(asked.out)
    assert asked.code == 2
    assert "held by peer, since" in asked.out
    assert "--yes" in asked.err
    assert "cold" not in sh("zpool", "list", "-Ho", "name").split()
    ok("vault", "take", "cold", "--yes")
    assert well("lab", "cold") == written
    peer(RECONNECT)
    eventually("the late writes refused", lambda: pool_state("peer", "cold") == "SUSPENDED")
    peer(CLEAR_IN_VAIN)
    assert well("lab", "cold") == written
    ok("vault", "down", "cold")
    # What it has in memory would be written over what was done since.
    assert peer("zvaultctl vault up cold >&2 && echo up; true").strip() != "up"
    ok("vault", "up", "cold")
    assert well("lab", "cold") == written


def left_by(lease: LeaseObjectStore, **host: object) -> None:
    """Put the lease that a host left which lost its power while it had the vault."""
    seen = lease.read()
    assert seen is not None
    lease.put(replace(seen.lease, held=True, **host), seen.etag)


def test_a_lease_outlives_a_reboot_and_of_two_who_take_it_over_at_once_one_has_it(
    lease: LeaseObjectStore,
) -> None:
    ok("vault", "up", "cloud")
    written = fill("lab", "cloud", 4, 100_000)
    ok("vault", "down", "cloud")
    left_by(lease, boot="before", bound=20.0)
    ok("vault", "up", "cloud")
    said = journal("_SYSTEMD_UNIT=zvault-device@cloud-0.service")
    assert "this host had the lease before it started anew: waiting" in said
    ok("vault", "down", "cloud")

    left_by(lease, host="attic", machine="attic", boot="attic", bound=1.0)
    winner, told = both_take("cloud")
    (loser,) = set(ADDRESS) - {winner}
    assert re.search(rf"held by {winner}\b", told), told
    on(loser, "! test -e /proc/spl/kstat/zfs/cloud")
    assert "zvault-device@cloud" not in on(
        loser, "systemctl list-units --plain --no-legend 'zvault-device@*'"
    )
    on(loser, "systemctl restart zvaultd")
    assert "was not finished" not in on(loser, "journalctl -o cat --no-pager -u zvaultd")
    assert well(winner, "cloud") == written
    seen = lease.read()
    assert seen is not None
    assert (seen.lease.host, seen.lease.held, seen.lease.shut_out) == (winner, True, "")
    on(winner, "zvaultctl vault down cloud")


def test_a_lease_has_one_holder_and_a_frozen_one_is_dead_before_it_ends(lease: LeaseObjectStore) -> None:
    first, told = race("cloud")
    held = (
        rf"is held by {first} why: {first} \({ADDRESS[first]}\) has held it since 20\S+ \S+ UTC, and renewed"
    )
    assert re.search(held, told), told
    (second,) = set(ADDRESS) - {first}
    written = fill(first, "cloud", 4, 100_000)
    on(first, "systemctl kill -s STOP --kill-whom=all zvault-device@cloud-0")
    write_late(first, "cloud")
    began = time.monotonic()
    on(second, "zvaultctl vault take cloud --yes")
    print(f"taken by {second} after {time.monotonic() - began:.1f} s")
    log = on(first, "journalctl --sync; journalctl -o cat --no-pager -u zvault-device@cloud-0")
    assert "Failed with result 'watchdog'" in log
    on(first, "! grep . /sys/block/nbd*/pid")
    assert well(second, "cloud") == written

    # Even when it is free again: what the first one's pool has in memory no longer fits it.
    on(second, "zvaultctl vault down cloud")
    refused = on(first, "zvaultctl vault up cloud 2>&1; true")
    assert "was another's meanwhile" in " ".join(refused.split()), refused
    eventually("the late writes given up", lambda: pool_state(first, "cloud") == "SUSPENDED")


def guard(verb: str, cluster: ceph.Cluster, key: str, bound: int) -> str:
    """A guard as a unit runs it, of a server that does nothing."""
    server = f"sh -c 'exec tail -f /dev/null' sh {params(cluster.s3(), key)}"
    return f"python3 -P -m zvault.devices.s3_lease.guard {verb} --bound={bound} -- {server}"


def servers() -> int:
    """How many of them the peer runs."""
    return int(peer("pidof tail | wc -w"))


def test_who_is_shut_out_says_when_it_has_stopped_and_who_is_cut_off_stops(cluster: ceph.Cluster) -> None:
    run = "systemd-run -q -p KillMode=mixed -p NotifyAccess=main --unit"
    peer(
        f"{run} told {guard('guard', cluster, 'told', LONG)}; {run} alone {guard('guard', cluster, 'alone', BOUND)}"
    )
    eventually("two servers", lambda: servers() == 2, every=1)
    began = time.monotonic()
    boot = peer("cat /proc/sys/kernel/random/boot_id").strip()
    take = guard(f"take --of={boot}", cluster, "told", LONG)
    took = subprocess.run(take, shell=True, capture_output=True, text=True)
    assert "etag" in took.stdout, took
    assert "peer has stopped its server, and says so" in took.stderr
    print(f"said after {time.monotonic() - began:.1f} s")
    assert time.monotonic() - began < LONG / 2, "it waited for the bound"
    assert "it was taken over: lab" in peer("journalctl --sync; journalctl -o cat --no-pager -u told")

    assert servers() == 1
    peer(CUT)
    try:
        eventually("it stopped", lambda: servers() == 0, seconds=BOUND, every=0.5)
        eventually(
            "why",
            lambda: "could not renew its lease for" in peer("journalctl -o cat --no-pager -u alone"),
        )
    finally:
        peer(RECONNECT)


@contextmanager
def served() -> Iterator[None]:
    """The attic's server, which takes whoever comes."""
    argv = ["nbdkit", "-f", "-i", ADDRESS["lab"], "-p", str(NBD_PORT), "-e", "attic", "file", "/attic.img"]
    server = subprocess.Popen(argv)
    try:
        yield
    finally:
        server.kill()
        server.wait()


def test_where_nothing_shuts_a_host_out_somebody_must_say_he_did(cluster: ceph.Cluster) -> None:
    sh("truncate", "-s", "512M", "/attic.img")
    with served():
        peer("zvaultctl vault create attic --yes >&2; zvaultctl vault up attic >&2")
        written = fill("peer", "attic", 10, 100_000)
        Path("/etc/hostid").rename("/etc/hostid.off")
        refused = ctl("vault", "up", "attic")
        said = " ".join(refused.err.split())
        assert refused.code == 2, said
        assert "last used by peer (hostid badcafe)" in said
        assert "this host has no hostid" in journal()
        Path("/etc/hostid.off").rename("/etc/hostid")
        refused = ctl("vault", "take", "attic", "--yes")
        assert refused.code == 2
        assert "--fenced-by-hand" in refused.err
        assert "attic" not in sh("zpool", "list", "-Ho", "name").split()
        peer(CUT)
        write_late("peer", "attic")
    with served():
        ok("vault", "take", "attic", "--yes", "--fenced-by-hand")
        assert well("lab", "attic") == written
        ok("vault", "down", "attic")
        # It is let in again once its kernel has given the device up, and may still not go on where it was.
        peer("until grep -q SUSPENDED /proc/spl/kstat/zfs/attic/state; do sleep 0.5; done")
        peer(RECONNECT)
        refused = peer("zvaultctl vault up attic 2>&1; true")
        assert "another host used the pool" in " ".join(refused.split()), refused
        ok("vault", "up", "attic")
        assert well("lab", "attic") == written
        ok("vault", "down", "attic")
