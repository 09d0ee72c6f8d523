"""Vaults on another host: pushed to as root and by a user whom `zfs allow` lets; restored from; and host to host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from peer import clean, daemon, hashes, introduce, let_in, peer, peer_hashes, peer_pool, peer_snapshots
from world import ctl, fill, get, ok, sh, snapshots

LAB = {"mem": "4G", "timeout": 2500, "peer": True}

# Also in docs/how-to/ssh.md.
PUSH = "canmount,create,destroy,hold,mount,readonly,receive,release,userprop,volmode"


def config(host: str = "ssh://root@peer", source: str = "desk", more: str = "") -> str:
    return f"""
[vault.attic]
pool = "attic"
host = "{host}"

[backup.home]
source = "{source}"
vault = "attic"
retries = 0
{more}
"""


@pytest.fixture
def desk() -> Iterator[None]:
    clean()
    introduce()
    peer_pool("attic")
    sh("truncate", "-s", "1G", "/desk.img")
    sh("zpool", "create", "-O", "mountpoint=/desk", "desk", "/desk.img")
    sh("zfs", "create", "desk/home")
    sh("zfs", "create", "desk/my files")
    sh("zfs", "create", "-V", "8M", "desk/vol")
    fill(Path("/desk/home"), 1)
    fill(Path("/desk/my files"), 2, count=3)
    yield
    clean()


def same_on_both_sides(host: str = "lab") -> None:
    for name in ("desk/home", "desk/my files"):
        snapname = snapshots(name)[-1]
        here = hashes(f"{name}@{snapname}")
        assert here
        assert peer_hashes(f"attic/{host}/{name}@{snapname}") == here
    snapname = snapshots("desk/vol")[-1]
    there = peer(f"zfs get -Hpo value guid attic/{host}/desk/vol@{snapname}").strip()
    assert get(f"desk/vol@{snapname}", "guid") == there


def test_root_pushes_and_prunes_over_there(desk: None) -> None:
    daemon(config(more="keep = { source = { last = 1 }, vault = { last = 9 } }\nmax_lag = '1h'"))
    for seed in range(3):
        fill(Path("/desk/home"), 10 + seed, count=2)
        ok("run", "home")
    same_on_both_sides()
    newest = snapshots("desk/home")
    assert len(newest) == 1
    guid = int(peer("zpool get -Hpo value guid attic"))
    assert sh("zfs", "holds", "-H", f"desk/home@{newest[0]}").split("\t")[1] == f"zvault:{guid:x}"
    (mark,) = sh("zfs", "list", "-Ho", "name", "-t", "bookmark", "-d", "1", "desk/home").split()
    assert mark.startswith(f"desk/home#zvault_{guid:x}_")
    assert {one["state"] for one in ok("holds", "-j").json()["holds"]} == {"in use"}
    rows = {row["dataset"]: row for row in ok("list", "-j").json()["datasets"]}
    assert rows["desk/home"]["snapshots_vault"] == 3
    assert rows["desk/home"]["lag_seconds"] is not None
    assert peer("zfs get -Hpo value readonly,canmount attic/lab/desk/home").split() == ["on", "noauto"]

    daemon(config(more='keep = { source = { last = 1 }, vault = { last = 1 } }\nprune_limit = "100%"'))
    ok("prune", "home", "--yes")
    assert peer_snapshots("attic/lab/desk/home") == newest
    assert re.search(r"zfs destroy attic/lab/desk/home@[^, ]+,\S+", peer("zpool history attic"))


def test_a_user_whom_zfs_allow_lets_is_pushed_to(desk: None) -> None:
    let_in("zvault")
    daemon(config("ssh://zvault@peer", more="keep = { source = { last = 1 }, vault = { last = 1 } }"))
    refused = ctl("run", "home")
    assert refused.code == 1
    assert "permission denied" in refused.out + refused.err
    peer(f"zfs allow -u zvault {PUSH} attic")
    ok("run", "home")
    fill(Path("/desk/home"), 5, count=3)
    ok("run", "home")
    same_on_both_sides()
    assert len(peer_snapshots("attic/lab/desk/home")) == 1
    assert peer("zfs get -Hpo value readonly,canmount attic/lab/desk/home").split() == ["on", "noauto"]
    newest = peer_snapshots("attic/lab/desk/home")[0]
    assert peer(f"zfs holds -H attic/lab/desk/home@{newest}").split("\t")[1] == "zvault:keep"


def test_a_restore_comes_back_from_there(desk: None) -> None:
    daemon(config())
    ok("run", "home")
    ok("restore", "home", "desk/home", "desk/back")
    snapname = snapshots("desk/home")[-1]
    assert hashes(f"desk/back@{snapname}") == hashes(f"desk/home@{snapname}")
    ok("restore", "home", "desk/my files", "ssh://root@peer/attic/back")
    assert peer_hashes(f"attic/back@{snapname}") == hashes(f"desk/my files@{snapname}")
    again = ctl("restore", "home", "desk/my files", "ssh://root@peer/attic/back")
    assert again.code == 1
    assert "exists already" in again.out + again.err


def test_a_pool_that_is_not_imported_there_is_told(desk: None) -> None:
    daemon(config())
    peer("zpool export attic")
    failed = ctl("run", "home")
    assert failed.code == 1
    assert "not imported on ssh://root@peer" in failed.out + failed.err
    assert "zpool import attic" in failed.out + failed.err
    assert not snapshots("desk/home"), "nothing was begun"
    peer("zpool import -d / attic")
    ok("run", "home")
    same_on_both_sides()


def test_from_host_to_host_through_this_one(desk: None) -> None:
    peer_pool("tank")
    peer("zfs create tank/home; head -c 3000000 /dev/urandom >/tank/home/noise")
    daemon(config(source="ssh://root@peer/tank"))
    ok("run", "home")
    snapname = peer_snapshots("tank/home")[-1]
    assert peer_hashes(f"attic/peer/tank/home@{snapname}") == peer_hashes(f"tank/home@{snapname}")
