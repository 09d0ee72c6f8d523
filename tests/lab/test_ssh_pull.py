"""Sources on another host: pulled as root, by a user whom `zfs allow` lets, and by one with sudo."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from peer import (
    clean,
    daemon,
    hashes,
    introduce,
    let_in,
    logins,
    peer,
    peer_hashes,
    peer_pool,
    peer_snapshots,
)
from world import ctl, get, journal, ok, sh, snapshots
from wounds import hurt

LAB = {"mem": "4G", "timeout": 2500, "peer": True}

# Also in docs/how-to/ssh.md.
PULL = "bookmark,destroy,hold,mount,release,send,snapshot"


def config(source: str = "ssh://root@peer/tank", more: str = "", host: str = "") -> str:
    return f"""
[vault.cold]
pool = "cold"
{host}
[backup.filer]
source = "{source}"
exclude = ["tank/scratch"]
vault = "cold"
{more}
"""


@pytest.fixture
def tank() -> Iterator[None]:
    clean()
    introduce()
    peer_pool("tank", options="-O compression=off")
    peer(
        "zfs create tank/home; zfs create 'tank/my files'; zfs create tank/scratch; zfs create -V 8M tank/vol;"
        "head -c 6000000 /dev/urandom >'/tank/home/a b'; head -c 100000 /dev/urandom >'/tank/my files/ünï'"
    )
    sh("truncate", "-s", "1G", "/cold.img")
    sh("zpool", "create", "cold", "/cold.img")
    yield
    clean()


def same_on_both_sides() -> None:
    """Every dataset's newest snapshot on the vault holds what it holds on the peer."""
    for name in ("tank", "tank/home", "tank/my files"):
        snapname = peer_snapshots(name)[-1]
        there = peer_hashes(f"{name}@{snapname}")
        assert hashes(f"cold/peer/{name}@{snapname}") == there
        assert there or name == "tank"
    snapname = peer_snapshots("tank/vol")[-1]
    guid = peer(f"zfs get -Hpo value guid tank/vol@{snapname}").strip()
    assert get(f"cold/peer/tank/vol@{snapname}", "guid") == guid


def write_more() -> None:
    peer("head -c 300000 /dev/urandom >/tank/home/$(cat /proc/uptime | tr -d ' .')")


def test_root_pulls_over_two_connections_and_prunes_over_there(tank: None) -> None:
    daemon(config(more="keep = { source = { last = 9 }, vault = { last = 9 } }"))
    before = logins()
    ok("run", "filer")
    same_on_both_sides()
    assert logins() - before <= 2, "one connection for commands, one for small streams"
    for _ in range(2):
        write_more()
        ok("run", "filer")
    same_on_both_sides()
    assert logins() - before <= 2, "later runs use the same"
    assert "scratch" not in sh("zfs", "list", "-Ho", "name")

    guid = int(sh("zpool", "get", "-Hpo", "value", "guid", "cold"))
    newest = peer_snapshots("tank/home")[-1]
    held = peer("zfs list -Ho name -t snapshot -r tank | tr '\\n' '\\0' | xargs -0 zfs holds -H").splitlines()
    assert {line.split("\t")[1] for line in held} == {f"zvault:{guid:x}"}
    assert {line.split("\t")[0].partition("@")[2] for line in held} == {newest}
    marks = peer("zfs list -Ho name -t bookmark -d 1 tank/home").split()
    snapshot_guid = int(peer(f"zfs get -Hpo value guid tank/home@{newest}"))
    assert f"tank/home#zvault_{guid:x}_{snapshot_guid:x}" in marks
    assert len(marks) == 2, "the base and the one before it"
    listed = ok("holds", "-j").json()["holds"]
    assert {one["state"] for one in listed} == {"in use"}
    assert {one["host"] for one in listed if one["dataset"].startswith("tank")} == {"ssh://root@peer"}
    assert {one["host"] for one in listed if one["dataset"].startswith("cold")} == {None}

    daemon(config(more='keep = { source = { last = 1 }, vault = { last = 2 } }\nprune_limit = "100%"'))
    planned = ok("prune", "filer", "-n", "-j").json()
    freed = [row for row in planned["prune"] if row["side"] == "source" and not row["keep"]]
    assert len(freed) == 8, "two of each dataset"
    assert sum(row["bytes"] for row in freed) == planned["freed"]["source"]
    ok("prune", "filer", "--yes")
    assert peer_snapshots("tank/home") == [newest]
    assert len(snapshots("cold/peer/tank/home")) == 2
    destroys = re.findall(r"zfs destroy tank/home@(\S+)", peer("zpool history tank"))
    assert destroys == [",".join(sorted(destroys[0].split(",")))], "both in one command"
    assert destroys[0].count(",") == 1


def test_a_user_whom_zfs_allow_lets_pulls_and_prunes(tank: None) -> None:
    let_in("zvault")
    daemon(config("ssh://zvault@peer/tank", "keep = { source = { last = 1 }, vault = { last = 2 } }"))
    refused = ctl("run", "filer")
    assert refused.code == 1
    assert "permission denied" in refused.out + refused.err
    assert "zfs allow" in refused.out + refused.err
    peer(f"zfs allow -u zvault {PULL} tank")
    ok("run", "filer")
    write_more()
    ok("run", "filer")
    same_on_both_sides()
    assert len(peer_snapshots("tank/home")) == 1
    assert ok("holds", "-j").json()["holds"]


def test_a_user_with_sudo_pulls(tank: None) -> None:
    let_in("backup-reader")
    host = "[host.peer]\nsudo = true\n"
    daemon(config("ssh://backup-reader@peer/tank", host=host))
    refused = ctl("run", "filer")
    assert refused.code == 1
    assert "sudo" in refused.out + refused.err
    assert "password" in refused.out + refused.err
    rule = "backup-reader ALL=(root) NOPASSWD: /usr/sbin/zfs, /usr/sbin/zpool"
    peer(f"echo '{rule}' >/etc/sudoers.d/zvault")
    try:
        ok("run", "filer")
        same_on_both_sides()
    finally:
        peer("rm /etc/sudoers.d/zvault")


def test_what_is_lacking_over_there_is_told_and_done_without(tank: None) -> None:
    """No mbuffer, no zstd, and an OpenZFS that knows neither snapshots_changed (2.2) nor -j (2.3)."""
    peer(
        "mv /usr/bin/mbuffer /usr/bin/zstd /root/; cat >/usr/local/bin/zfs <<'END'\n"
        "#!/bin/sh\n"
        'case "$*" in *snapshots_changed*)\n'
        "    echo \"bad property list: invalid property 'snapshots_changed'\" >&2; exit 2;; esac\n"
        'for word; do [ "$word" != -j ] || { echo "invalid option \'j\'" >&2; exit 2; }; done\n'
        'exec /usr/sbin/zfs "$@"\n'
        "END\nchmod +x /usr/local/bin/zfs; mv /usr/local/bin/zfs /usr/local/sbin/"
    )
    try:
        daemon(config(more="send = { compressed = false }"))
        done = ok("run", "filer")
        same_on_both_sides()
        assert "mbuffer is not installed on peer" in done.out + done.err
        assert "zstd is not installed on peer" in done.out + done.err
        write_more()
        ok("run", "filer")
        same_on_both_sides()
    finally:
        peer("mv /root/mbuffer /root/zstd /usr/bin/; rm /usr/local/sbin/zfs")


def received() -> int:
    """Bytes that came over the wire."""
    return int(sh("cat", "/sys/class/net/vec0/statistics/rx_bytes"))


def test_a_stream_that_is_not_compressed_yet_is_on_the_way(tank: None) -> None:
    peer("yes 'a line like all the others' | head -c 20000000 >/tank/home/lines")
    daemon(config(more="send = { compressed = false }"))
    before = received()
    ok("run", "filer")
    same_on_both_sides()
    # 6 MB of noise, and 20 MB that shrink to next to nothing.
    assert 6_000_000 < received() - before < 9_000_000


def test_blocks_of_another_host_are_believed_by_their_checksum_or_by_a_person(tank: None) -> None:
    """Another host can make other bytes that fit fletcher's sums, and none that fit SHA-256's."""
    peer("zfs create tank/signed")
    files = {"home": "a b", "signed": "a"}
    sh("zpool", "destroy", "cold")
    sh("truncate", "-s", "1G", "/srv/cold.img")
    device = '[[vault.cold.device]]\nnbd = "nbdkit:file /srv/cold.img"\nsize = "1G"\n'
    daemon(config(host=f"create = true\n{device}"))
    ok("run", "filer")
    ok("vault", "up", "cold")
    sh("zfs", "set", "checksum=sha256", "cold/peer/tank/signed")
    peer("cp '/tank/home/a b' /tank/signed/a; zpool sync tank")
    ok("run", "filer")
    wounds = []
    for name, file in files.items():
        place = f"cold/peer/tank/{name}@{snapshots(f'cold/peer/tank/{name}')[-1]}"
        wounds.append((place, int(peer(f"stat -c %i '/tank/{name}/{file}'")), 0, 1))
    hurt(Path("/srv/cold.img"), *wounds)
    assert ctl("scrub", "cold").code == 1
    refused = ctl("heal", "cold", "-j")
    assert refused.code == 1, refused.out + refused.err
    left = refused.json()["healed"]["left"]
    assert {one["dataset"] for one in left} == {"cold/peer/tank/home"}
    assert all("one other host alone sends bytes for it" in one["why"] for one in left)
    assert "heal cold --trust-hosts" in journal()
    assert "healed 2 of 2 files" in ok("heal", "cold", "--trust-hosts").out
    ok("vault", "up", "cold")
    same_on_both_sides()
