"""Vaults on another host: pushed to as root and by a user whom `zfs allow` lets; restored from; and host to host."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from peer import (
    clean,
    daemon,
    hashes,
    install_zvault,
    introduce,
    let_in,
    peer,
    peer_daemon,
    peer_hashes,
    peer_pool,
    peer_snapshots,
)
from report_to_host import PEER_SSH
from world import ctl, eventually, fill, get, ok, sh, snapshots

LAB = {"mem": "4G", "timeout": 2500, "peer": True}

# Also in docs/how-to/ssh.md.
PUSH = "canmount,create,destroy,hold,mount,readonly,receive,release,userprop,volmode"
# Also in docs/how-to/against-ransomware.md.
ADD = "canmount,create,mount,readonly,receive:append,userprop,volmode"
OLDER = ADD.replace("receive:append", "receive")


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
    # One that goes on would look at what the next test makes, and keep pools busy that are to go.
    peer("systemctl stop zvaultd 2>/dev/null || true")
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
    marks = sh("zfs", "list", "-Ho", "name", "-t", "bookmark", "-d", "1", "desk/home").split()
    assert len(marks) == 2, "the base and the one before it"
    assert all(mark.startswith(f"desk/home#zvault_{guid:x}_") for mark in marks)
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
    assert "already exists" in again.out + again.err


def test_a_pool_that_is_not_imported_there_is_told(desk: None) -> None:
    daemon(config())
    # It is busy for as long as anybody asks it for anything, and the daemon does so now and then.
    eventually(
        "nobody to look at the pool", lambda: "gone" in peer("zpool export attic && echo gone", check=False)
    )
    failed = ctl("run", "home")
    assert failed.code == 1
    assert "not imported on ssh://root@peer" in failed.out + failed.err
    assert "zpool import attic" in failed.out + failed.err
    assert snapshots("desk/home"), "snapshotted all the same, and nothing was sent"
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


def zvaultctl(*argv: str) -> subprocess.CompletedProcess[str]:
    """The program itself: what it starts has to end with it."""
    return subprocess.run(["zvaultctl", *argv], capture_output=True, text=True, timeout=240)


def ask_other_hosts() -> None:
    """Its daemon from here, twice as two hosts, beside one that is not there; and as a user who may not ask it."""
    alias = "Host twin\n  HostName peer\n  HostKeyAlias peer\nHost gone\n  HostName 10.99.0.77\n"
    (Path("/root/.ssh") / "config").write_text(alias)
    asked = zvaultctl("--hosts", "peer,twin,gone", "status")
    assert asked.returncode == 3
    assert "gone could not be asked" in asked.stdout
    assert {"peer:desk", "twin:desk"} <= {line.split()[0] for line in asked.stdout.splitlines() if line}
    assert "peer:desk" in zvaultctl("--hosts", "peer", "run", "peer:desk").stdout
    top = zvaultctl("--hosts", "peer,twin", "top").stdout
    assert "twin:desk" in top
    let_in("guest")
    refused = zvaultctl("--hosts", "guest@peer", "status")
    assert refused.returncode == 2
    assert "must be root or in group zvault" in refused.stderr
    ways = "the ways to other hosts end with the command"
    eventually(ways, lambda: not sh("pgrep", "-f", "ssh -N", check=False))
    (Path("/root/.ssh") / "config").unlink()


def take_away(dataset: str) -> set[str]:
    """What the user zvault on the peer got done of all that could cost the vault something."""
    uid = peer("id -u zvault").strip()
    argv = f"attacks/take_away.py {uid} {dataset} attacks/older attacks/hostile attacks/hostile-full"
    return set(json.loads(peer(f"cd /tmp && python3 {argv}")))


def bring_attacks(dataset: str) -> None:
    """The script and its streams: an older increment of the dataset's own, which forced in gives up all after it."""
    first, second = snapshots(dataset)[-3:-1]
    sh("zfs", "clone", f"{dataset}@{first}", "desk/hostile")
    fill(Path("/desk/hostile"), 66, count=1)
    sh("zfs", "snapshot", "desk/hostile@hostile")
    sent = {
        "older": f"-i @{first} {dataset}@{second}",
        "hostile": f"-i {dataset}@{first} desk/hostile@hostile",
        "hostile-full": "desk/hostile@hostile",
    }
    sh("mkdir", "-p", "/tmp/attacks")
    for name, what in sent.items():
        sh("sh", "-c", f"zfs send {what} >/tmp/attacks/{name}")
    sh("cp", str(Path(__file__).parent / "take_away.py"), "/tmp/attacks")
    sh(
        "sh",
        "-c",
        f"tar -c -C /tmp attacks | {shlex.join(PEER_SSH)} 'tar -x -C /tmp; chmod -R a+rX /tmp/attacks'",
    )
    sh("zfs", "destroy", "-r", "desk/hostile")


def test_who_has_the_sender_adds_to_the_vault_and_takes_nothing_away(desk: None) -> None:
    let_in("zvault")
    peer(f"zfs allow -u zvault {ADD} attic")
    sends = 'prune = { vault = "elsewhere" }\nkeep = { source = { last = 9 } }'
    daemon(config("ssh://zvault@peer", more=sends))
    install_zvault()
    peer_daemon(
        """
[vault.attic]
pool = "attic"
up = "always"

[backup.desk]
source = "attic/lab"
snapshots_only = true
snapshot = { make = false }
keep = { source = { last = 3 } }
prune_limit = "100%"
"""
    )
    there = "attic/lab/desk/home"
    for seed in range(4):
        fill(Path("/desk/home"), 20 + seed, count=1)
        ran = ok("run", "home")
        assert "warning" not in ran.out + ran.err, "it needs no right that it has not got"
    assert peer_snapshots(there) == snapshots("desk/home"), "this host prunes nothing there"
    told = ctl("explain", f"{there}@{snapshots('desk/home')[0]}").out
    assert "the vault's own host prunes it" in told

    # The vault's host prunes by rules of its own, and holds the newest; the next increment follows on it.
    peer("zvaultctl run desk")
    assert peer_snapshots(there) == snapshots("desk/home")[-3:]
    assert peer(f"zfs holds -H {there}@{snapshots('desk/home')[-1]}").split("\t")[1] == "zvault:keep"
    ok("run", "home")
    same_on_both_sides()
    peer("zvaultctl run desk")
    assert len(peer_snapshots(there)) == 3
    assert "only prunes, and backs nothing up" in peer("zvaultctl status || true")
    ask_other_hosts()

    # All that this user may do takes nothing away, nor does any word of it alone.
    bring_attacks("desk/home")
    newest = f"{there}@{peer_snapshots(there)[-1]}"
    before = peer("zfs list -Hpo name,guid -t all -r attic"), peer_hashes(newest)
    for words in (OLDER, *OLDER.split(","), ADD):
        peer(f"zfs unallow -u zvault attic; zfs allow -u zvault {words} attic")
        assert take_away(there) == set(), words
        assert (peer("zfs list -Hpo name,guid -t all -r attic"), peer_hashes(newest)) == before, words

    # OpenZFS lets whoever may receive give up all that came after an older increment, unless some of it is held.
    peer(f"zfs release zvault:keep '{newest}'")
    assert take_away(there) == set(), "who may append only needs no hold against that"
    peer(f"zfs unallow -u zvault attic; zfs allow -u zvault {OLDER} attic")
    assert "receive older -F" in take_away(there)
    assert newest not in peer("zfs list -Ho name -t snapshot -r attic").splitlines()


def test_an_interrupted_receive_that_cannot_go_on_is_left_to_the_vaults_host(desk: None) -> None:
    let_in("zvault")
    peer(f"zfs allow -u zvault {ADD} attic")
    daemon(config("ssh://zvault@peer", more='prune = { vault = "elsewhere" }'))
    ok("run", "home")
    base = snapshots("desk/home")[-1]
    fill(Path("/desk/home"), 31, count=4)
    sh("zfs", "snapshot", "desk/home@gone")
    half = f"zfs send -i @{base} desk/home@gone | head -c 300000"
    sh("sh", "-c", f"{half} | ssh zvault@peer /usr/sbin/zfs receive -s -u attic/lab/desk/home 2>&1 || true")
    assert peer("zfs get -Ho value receive_resume_token attic/lab/desk/home").strip() != "-"
    sh("zfs", "destroy", "desk/home@gone")
    refused = ctl("run", "home")
    assert refused.code == 1
    assert "this host may not give it up" in refused.out + refused.err
    assert "zfs receive -A attic/lab/desk/home" in refused.out + refused.err
    peer("zfs receive -A attic/lab/desk/home")
    ok("run", "home")
    same_on_both_sides()
