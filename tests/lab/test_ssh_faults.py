"""What goes wrong between two hosts: keys, logins, dead links. Each is told, and the next run takes up where it was."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from peer import KNOWN, clean, daemon, hashes, introduce, peer, peer_hashes, peer_pool, peer_snapshots
from world import command_lines, ctl, events, eventually, journal, noise, ok, sh, snapshots

LAB = {"mem": "4G", "timeout": 2250, "peer": True}
SIZE = 32 << 20


def config(source: str = "ssh://root@peer/tank", more: str = 'limit = "1M"') -> str:
    return f"""
[vault.cold]
pool = "cold"

[vault.attic]
pool = "attic"
host = "ssh://root@peer"

[backup.filer]
source = "{source}"
vault = "cold"
retries = 0
{more}

[backup.push]
source = "cold/src"
vault = "attic"
retries = 0
{more}
"""


@pytest.fixture
def pools() -> Iterator[None]:
    clean()
    introduce()
    peer_pool("tank")
    peer_pool("attic")
    peer(f"zfs create tank/big; head -c {SIZE} /dev/urandom >/tank/big/noise; sync")
    sh("truncate", "-s", "1G", "/cold.img")
    sh("zpool", "create", "-O", "mountpoint=/cold", "cold", "/cold.img")
    sh("zfs", "create", "cold/src")
    noise(Path("/cold/src/noise"), SIZE >> 20)
    yield
    peer("nft flush ruleset", check=False)
    clean()


def backup(name: str) -> dict[str, Any]:
    """A backup's row of the daemon's state."""
    said = sh("curl", "-sS", "--unix-socket", "/run/zvault/zvaultd.sock", "http://zvaultd/v1/status")
    return next(row for row in json.loads(said)["backups"] if row["name"] == name)


def begin(name: str) -> None:
    """Start a run, and return once a quarter of its big stream went through: the rest takes another 24 s."""
    ctl("run", name, "--no-wait")
    # Until a buffer tells what it passed on, it is what the sender read, which may be all at once.
    eventually("a quarter", lambda: SIZE // 4 < backup(name)["bytes_done"] < SIZE * 3 // 4, every=0.1)


def lost(name: str, *, within: float) -> None:
    """The run finds out that it has lost its link, in no more time than it must take."""
    eventually("the run to end", lambda: backup(name)["state"] == "idle", seconds=within)
    row = backup(name)
    assert row["last_result"] == "failed"
    assert row["last_error"]["reason"] == "unreachable", row["last_error"]


def resumes(name: str) -> None:
    """The next run, without a limit, sends only what had not gone through."""
    daemon(config(more=""))
    done = ok("run", name, "-j").json()["run"]
    started = [one for one in events(done["id"]) if one["event"] == "transfer-started"]
    resumed = next(one for one in started if one["kind"] == "resume")
    assert resumed["bytes"] < SIZE * 9 // 10, started


def kill(*words: str) -> None:
    """Kill the processes here that have all these words on their command line; there must be one."""
    lines = sh("ps", "-eo", "pid=,args=", "-ww").splitlines()
    found = [int(line.split()[0]) for line in lines if all(word in line for word in words)]
    assert found, lines
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def quiet() -> bool:
    """Whether nobody sends or receives over there."""
    return not peer("pgrep -x zfs", check=False)


def pulled() -> None:
    snapname = peer_snapshots("tank/big")[-1]
    assert hashes(f"cold/peer/tank/big@{snapname}") == peer_hashes(f"tank/big@{snapname}")


def pushed() -> None:
    snapname = snapshots("cold/src")[-1]
    assert peer_hashes(f"attic/lab/cold/src@{snapname}") == hashes(f"cold/src@{snapname}")


def test_a_host_key_that_is_not_known_or_not_the_same(pools: None) -> None:
    known = KNOWN.read_text()
    KNOWN.write_text("")
    daemon(config())
    said = ctl("run", "filer")
    assert said.code == 1
    assert "the host key of ssh://root@peer is not known" in said.out + said.err
    assert "'ssh root@peer'" in said.out + said.err

    sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/tmp/other")
    other = Path("/tmp/other.pub").read_text().split()
    KNOWN.write_text(f"peer {other[0]} {other[1]}\n")
    said = ctl("run", "filer")
    assert said.code == 1
    assert "shows another host key than before" in said.out + said.err
    assert "ssh-keygen -R peer" in said.out + said.err

    (KNOWN.parent / "id_ed25519").unlink()
    KNOWN.write_text(known)
    said = ctl("run", "filer")
    assert said.code == 1
    assert "does not let root of this host in" in said.out + said.err
    assert not peer_snapshots("tank/big"), "nothing was begun"


def test_a_host_that_does_not_answer_is_told_soon(pools: None) -> None:
    daemon(config("ssh://root@10.99.0.77/tank"))
    began = time.monotonic()
    said = ctl("run", "filer")
    assert time.monotonic() - began < 60
    assert said.code == 1
    assert "cannot reach ssh://root@10.99.0.77" in said.out + said.err
    assert "No route to host" in said.out + said.err
    listed = ok("list", "-j").json()["datasets"]
    assert {row["backup"] for row in listed} == {"push"}, "the other backup is none the worse"


def test_a_stream_whose_ssh_is_killed_is_taken_up_again(pools: None) -> None:
    daemon(config())
    begin("filer")
    kill("ssh -T", "zfs send", "tank/big@")
    eventually("the run to end", lambda: backup("filer")["state"] == "idle")
    assert backup("filer")["last_result"] in {"failed", "partial"}
    eventually("the send over there to end", quiet)
    resumes("filer")
    pulled()


def test_a_push_whose_ssh_is_killed_is_taken_up_again(pools: None) -> None:
    daemon(config())
    begin("push")
    kill("ssh -T", "zfs receive", "attic/")
    eventually("the run to end", lambda: backup("push")["state"] == "idle")
    assert backup("push")["last_result"] == "failed"
    eventually("the receive over there to end", quiet)
    resumes("push")
    pushed()


def test_a_link_that_drops_every_packet_is_noticed_and_taken_up_again(pools: None) -> None:
    daemon(config())
    begin("filer")
    peer(
        "nft add table inet cut; nft 'add chain inet cut in { type filter hook input priority 0; }';"
        "nft add rule inet cut in tcp dport 22 drop"
    )
    lost("filer", within=200)
    assert "lost the link to ssh://root@peer" in journal()
    peer("nft flush ruleset")
    resumes("filer")
    pulled()
    # The send over there finds out only when TCP tries again, and keeps its pool busy for so long.
    peer("pkill -x zfs", check=False)
    eventually("it to end", quiet)


def test_connections_whose_masters_died_are_made_anew(pools: None) -> None:
    daemon(config(more=""))
    ok("run", "filer")
    kill("ssh: /run/zvault/ssh/")
    ok("run", "filer")
    pulled()
    peer("systemctl restart ssh; pkill -f sshd-session", check=False)
    eventually("this end to hear of it", lambda: "ssh: /run/zvault/ssh/" not in command_lines())
    ok("run", "filer")
    pulled()
