"""Verification finds what differs though every checksum is right, tells what it cannot, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from peer import clean as clean_peer
from peer import daemon, introduce, peer, peer_pool
from world import World, ctl, events, eventually, get, main_pid, metrics, nothing_left, ok, sh, status

LAB = {"mem": "4G", "timeout": 2500, "peer": True}

NAME = "spaces and\nünïcode\\n"
LOOKS = Path("/run/zvault/look")


@pytest.fixture
def tank() -> Iterator[World]:
    it = World()
    it.clean()
    it.source()
    yield it
    it.clean()


def odd_file(path: Path) -> bytes:
    """A file whose bytes are nowhere else; returns some of them."""
    data = os.urandom(300_000)
    path.write_bytes(data)
    return data[4096:4160]


def place(image: Path, bytes_: bytes) -> int:
    """Where in a device's image some bytes of a file lie."""
    with image.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as all_of_it:
        at = all_of_it.find(bytes_)
    assert at > 0, "it is not on the device as it is in the file"
    return at


def flip(image: Path, at: int) -> None:
    """Change a bit of it, or change it back."""
    with image.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def test_a_file_that_differs_is_found_and_named_with_both_hashes(tank: World) -> None:
    # Without checksums the vault cannot know that a byte is not what it was: so it is with damage above ZFS.
    mark = odd_file(Path("/tank/home") / NAME)
    tank.exclude = '["tank/scratch", "tank/big"]'
    tank.start()
    ok("vault", "up", "cold")
    sh("zfs", "set", "checksum=off", "cold")
    ok("vault", "down", "cold")
    ok("run", "tank")
    same = ok("verify", "tank", "--level", "full")
    assert "the same on both sides" in same.out
    nothing_left()
    proofs = status()["backups"][0]["proofs"]
    assert proofs["full"]["result"] == proofs["guids"]["result"] == "ok"
    assert (
        metrics()['zvault_verified_timestamp_seconds{backup="tank",level="full"}'] == proofs["full"]["proven"]
    )

    at = place(tank.image, mark)
    flip(tank.image, at)
    found = ctl("verify", "tank")
    told = found.out + found.err
    assert found.code == 1, told
    assert r"tank/home: spaces and\nünïcode\\n: source " in told
    hashes = re.findall(r"source ([0-9a-f]{64}), vault ([0-9a-f]{64})", told)
    assert hashes
    assert all(mine != its for mine, its in hashes)
    assert metrics()['zvault_verify_failures_total{backup="tank",level="sample"}'] == 1
    health = ctl("status")
    assert health.code == 1
    assert "tank differs" in health.out
    # What is known is on the vault, not in the daemon.
    sh("systemctl", "stop", "zvaultd")
    sh("rm", "-rf", "/var/lib/zvault")
    sh("systemctl", "start", "zvaultd")
    ok("vault", "up", "cold")
    assert "result=differs" in get("cold/lab/tank", "org.zvault:verified-sample")
    eventually("the proofs are read", lambda: status()["backups"][0]["proofs"])
    assert ctl("status").code == 1
    ok("vault", "down", "cold")

    flip(tank.image, at)
    ok("verify", "tank")
    assert ctl("status").code == 0
    assert ctl("verify", "tank", "--level", "half").code == 2
    nothing_left()


def test_drills_go_round_and_a_key_lets_them_compare_what_is_encrypted(tank: World) -> None:
    key = Path("/root/key")
    key.write_text("correcthorse\n")
    sh(
        "zfs",
        "create",
        "-o",
        "encryption=on",
        "-o",
        "keyformat=passphrase",
        f"-okeylocation=file://{key}",
        "tank/secret",
    )
    (Path("/tank/secret") / "diary").write_bytes(os.urandom(50_000))
    tank.exclude = '["tank/scratch", "tank/big", "tank/home"]'
    tank.backup_extra = f'verify = {{ key = "{key}" }}'
    tank.start()
    ok("run", "tank")
    ok("vault", "up", "cold")
    full = ctl("verify", "tank", "--level", "full")
    assert full.code == 1, "not everything was proven"
    assert "tank/secret is not proven" in full.err
    assert "its key is not loaded" in full.err
    assert "tank/my files is not proven" not in full.err
    drilled = set()
    for _ in range(4):
        done = ok("verify", "tank", "--level", "drill")
        drilled |= set(re.findall(r"drill: (.+) came back as", done.out))
        assert "the same on both sides" in done.out
    assert drilled == {"tank", "tank/my files", "tank/vol", "tank/secret"}
    assert "zvault-" not in sh("zfs", "list", "-Ho", "name")
    ok("vault", "down", "cold")
    nothing_left()


def test_what_a_killed_daemon_was_reading_is_closed(tank: World) -> None:
    tank.delay = "filter=delay rdelay=10ms"
    tank.exclude = '["tank/scratch", "tank/big"]'
    tank.start()
    ok("run", "tank")
    for kind in ("mount", "dataset"):
        ok("verify", "tank", "--level", "full", "--no-wait")
        eventually(f"a {kind} is written down", partial(looks, kind), every=0.02)
        os.kill(main_pid(), signal.SIGKILL)
        eventually("a new daemon", lambda: sh("systemctl", "is-active", "zvaultd", check=False) == "active\n")
        eventually(
            "it was taken away", lambda: not looks() and str(LOOKS) not in Path("/proc/mounts").read_text()
        )
        assert "zvault-look" not in sh("zfs", "list", "-Ho", "name")
        eventually("zvaultctl is served", lambda: ctl("status").code != 2)
    ok("verify", "tank")


def looks(kind: str = "") -> list[str]:
    """The leases of what is open for reading."""
    texts = []
    for one in Path("/run/zvault/lease/look").glob("[!.]*"):
        with contextlib.suppress(FileNotFoundError):  # given back between two looks
            texts.append(one.read_text())
    return [text for text in texts if kind in text]


def test_over_ssh_each_side_hashes_its_own(tank: World) -> None:
    tank.clean()
    clean_peer()
    introduce()
    peer_pool("tank", options="-O compression=off")
    peer(
        "zfs create tank/home; zfs create -V 8M tank/vol; udevadm settle;"
        "head -c 6000000 /dev/urandom >'/tank/home/a b';"
        "head -c 3000000 /dev/urandom >/dev/zvol/tank/vol; printf x >\"$(printf '/tank/home/\\377 odd\\n.')\""
    )
    # It tells what is hashed there.
    tool = "/usr/local/bin/sha256sum"
    peer(
        "printf '%s\\n' '#!/bin/sh' 'echo hashed >>/run/hashed' 'exec /usr/bin/sha256sum \"$@\"'"
        f" >{tool}; chmod 755 {tool}"
    )
    sh("truncate", "-s", "1G", "/cold.img")
    sh("zpool", "create", "-O", "checksum=on", "cold", "/cold.img")
    daemon('[vault.cold]\npool = "cold"\n[backup.filer]\nsource = "ssh://root@peer/tank"\nvault = "cold"\n')
    ok("run", "filer")
    before = peer("cat /proc/net/dev | awk '/vec0/ {print $10}'").strip()
    run = ok("verify", "filer", "--level", "full", "--no-wait", "-j").json()["run"]["id"]
    ok("follow", run)
    verified = next(event for event in events(run) if event["event"] == "verified")
    assert (verified["result"], verified["datasets"], verified["unproven"]) == ("ok", 3, {})
    assert verified["bytes"] > 14_000_000
    assert "hashed" in peer("cat /run/hashed")
    sent = int(peer("cat /proc/net/dev | awk '/vec0/ {print $10}'")) - int(before or 0)
    assert sent < 1_000_000, "hashes travel, not the data"
    clean_peer()
