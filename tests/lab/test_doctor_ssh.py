"""What bounds a stream between two hosts: the network, the reading over there, the writing over there, or ssh."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from peer import SSH, clean, daemon, introduce, peer
from world import eventually, noise, ok, sh, status

LAB = {"mem": "4G", "timeout": 1200, "peer": True, "alone": True}

MIB = 300
"""More than goes by while it is looked at."""

NARROW = "root tbf rate 40mbit burst 64kb latency 100ms"
"""A way of 5 MB/s."""

SERVED = """
truncate -s 1G /far.img && echo 100G >/run/far.rate && modprobe nbd && udevadm settle &&
nbdkit -U /run/far.sock --filter=rate file /far.img rate-file=/run/far.rate burstiness=0.1 &&
nbd-client -unix /run/far.sock /dev/nbd0 -timeout 60 &&
zpool create -O compression=off -O mountpoint=/far far /dev/nbd0
"""
"""A pool on the peer whose device is as fast as a file says, in bits a second."""

COSTLY = """
Host peer
Compression yes
Ciphers aes128-gcm@openssh.com
"""
"""What costs who sends much, and who receives little: both guests share a CPU."""

HOST = """
[host.peer]
buffer = "4M"
compression = "off"
"""

PULL = f"""{HOST}
[vault.cold]
pool = "cold"
[backup.pull]
source = "ssh://root@peer/far"
vault = "cold"
"""

PUSH = f"""{HOST}
[vault.attic]
pool = "far"
host = "ssh://root@peer"
[backup.push]
source = "desk"
vault = "attic"
"""


@pytest.fixture
def far() -> Iterator[None]:
    clean()
    introduce()
    sh("modprobe", "sch_tbf")
    peer("modprobe sch_tbf")
    peer(SERVED)
    yield
    peer("echo 100G >/run/far.rate; tc qdisc del dev vec0 root 2>/dev/null", check=False)
    sh("tc", "qdisc", "del", "dev", "vec0", "root", check=False)
    clean()
    gone = "zpool destroy -f far; nbd-client -d /dev/nbd0; pkill -x nbdkit; while pgrep -x nbdkit; do sleep 0.1; done"
    peer(f"{gone}; rm -f /far.img /run/far.sock", check=False)


def begin(name: str) -> None:
    """A run, until its stream is under way. It ends with the daemon."""
    ok("run", name, "--no-wait", "-q")
    eventually("the stream", lambda: status()["backups"][0]["bytes_done"] > 0)


def told(vault: str, words: str) -> dict:
    """The verdict, once it is of that: what was under way before a change has to end first."""

    def verdict() -> dict | None:
        found = ok("doctor", "-j", vault, "--seconds", "2").json()["verdict"]
        print(found)
        return found if words in found["sentence"] else None

    return eventually(words, verdict)


def test_a_source_on_another_host(far: None) -> None:
    peer(f"head -c {MIB}M /dev/urandom >/far/noise")
    peer("zpool export far; zpool import -d /dev/nbd0 far")  # nothing of it is in memory
    sh("truncate", "-s", "1G", "/cold.img")
    sh("zpool", "create", "cold", "/cold.img")
    daemon(PULL)
    peer(f"tc qdisc add dev vec0 {NARROW}")
    begin("pull")
    verdict = told("cold", "the network from peer bounds vault cold")
    assert verdict["bound"] == "ssh"
    assert re.search(r"[\d.]+ in flight / \d+ms x [\d.]+K = [\d.]+M/s", verdict["sentence"])
    assert verdict["knob"]["where"] == "[host.peer]"

    peer("echo 32M >/run/far.rate; tc qdisc del dev vec0 root")
    verdict = told("cold", "reading the source bounds vault cold: peer delivers")
    assert verdict["bound"] == "source"
    assert verdict["knob"]["name"] == "schedule"


def test_a_vault_on_another_host(far: None) -> None:
    peer("echo $((16 << 20)) >/sys/module/zfs/parameters/zfs_dirty_data_max")
    sh("truncate", "-s", "1G", "/desk.img")
    sh("zpool", "create", "-O", "compression=off", "-O", "mountpoint=/desk", "desk", "/desk.img")
    noise(Path("/desk/noise"), MIB)
    daemon(PUSH)
    sh("tc", "qdisc", "add", "dev", "vec0", *NARROW.split())
    begin("push")
    verdict = told("attic", "the network to peer bounds vault attic")
    assert verdict["bound"] == "ssh"

    peer("echo 32M >/run/far.rate")
    sh("tc", "qdisc", "del", "dev", "vec0", "root")
    verdict = told("attic", "the vault's own host bounds vault attic")
    assert verdict["bound"] == "device"
    assert "'zvaultctl doctor' on peer" in verdict["why"]


def test_ssh_that_has_no_processor_left(far: None) -> None:
    sh("truncate", "-s", "1G", "/desk.img")
    sh("zpool", "create", "-O", "compression=off", "-O", "mountpoint=/desk", "desk", "/desk.img")
    Path("/desk/letters").write_bytes(base64.b64encode(os.urandom(200 << 20)))
    (SSH / "config").write_text(COSTLY)
    try:
        daemon(PUSH)
        begin("push")
        verdict = told("attic", "ssh bounds vault attic: it takes")
        assert verdict["bound"] == "ssh"
    finally:
        (SSH / "config").unlink()
