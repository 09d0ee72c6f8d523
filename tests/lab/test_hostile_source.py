"""A source on another host whose root is hostile: it costs the vault none of its snapshots, and rules nothing there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hostile import be_honest, lie
from peer import clean, daemon, hashes, introduce, peer, peer_hashes, peer_pool, peer_snapshots
from world import Done, ctl, get, ok, sh, snapshots

LAB = {"mem": "4G", "timeout": 2500, "peer": True}

VAULT = "cold/peer/tank"


def config(more: str = "") -> str:
    return f"""
[vault.cold]
pool = "cold"

[backup.filer]
source = "ssh://root@peer/tank"
exclude = ["tank/own", "tank/own/**"]
vault = "cold"
on_conflict = "stop"
retries = 0
{more}
"""


def set_up() -> None:
    """Both pools, and a daemon that has run nothing yet."""
    clean()
    introduce()
    be_honest()
    peer_pool("tank", options="-O compression=off")
    peer(
        "zfs create tank/home; zfs create tank/work; zfs create tank/own; zfs create tank/own/evil;"
        "zfs create -o canmount=on -o mountpoint=/evil tank/own/evil/kid; cp /bin/true /evil/su; chmod 4755 /evil/su;"
        "zfs snapshot -r tank/own/evil@one; date >/evil/x; zfs snapshot -r tank/own/evil@two;"
        "head -c 3000000 /dev/urandom >/tank/home/x; head -c 100000 /dev/urandom >/tank/work/y"
    )
    sh("truncate", "-s", "1G", "/cold.img")
    sh("zpool", "create", "cold", "/cold.img")
    daemon(config())


@dataclass
class Kept:
    """The pools and the daemon that tests with a dataset of their own share, None where there are none."""

    datasets: int | None = None


@pytest.fixture(scope="module")
def kept() -> Iterator[Kept]:
    yield Kept()
    be_honest()
    clean()


@pytest.fixture
def tank(kept: Kept) -> None:
    """Pools of its own."""
    kept.datasets = None
    set_up()


@pytest.fixture
def new(kept: Kept) -> Iterator[str]:
    """A new dataset of the source's, which the vault has not got."""
    if kept.datasets is None:
        set_up()
        kept.datasets = 0
    kept.datasets += 1
    name = f"new{kept.datasets}"
    peer(f"zfs create tank/{name}; head -c 3000000 /dev/urandom >/tank/{name}/x")
    yield name
    be_honest()


def everything() -> dict[str, str]:
    """Every snapshot that the vault has, by GUID."""
    lines = sh("zfs", "list", "-Hp", "-t", "snapshot", "-o", "guid,name", "-r", "cold").splitlines()
    return {guid: name for guid, _, name in (line.partition("\t") for line in lines)}


def refused(done: Done) -> None:
    """It failed, and said that it was the stream, in a form that leaves no question."""
    assert done.code == 1, done.out
    assert "not what was ordered" in done.out + done.err
    assert "Traceback" not in done.out + done.err


def test_a_package_over_a_placeholder_takes_no_history_with_it(tank: None) -> None:
    """It claims that its datasets are below a new parent now, and sends a whole tree instead of that one."""
    for _ in range(3):
        ok("run", "filer")
        peer("date >>/tank/work/y")
    before = everything()
    assert len(snapshots(f"{VAULT}/work")) == 3
    peer("zfs create tank/new; zfs rename tank/work tank/new/work")
    lie(hide=["tank/new"])
    ok("run", "filer")
    assert get(f"{VAULT}/new", "org.zvault:placeholder") == f"{VAULT}/new"
    lie(send={"tank/new": "exec /usr/sbin/zfs send -R -I tank/own/evil@one tank/own/evil@two"})
    refused(ctl("run", "filer"))
    after = everything()
    assert (
        before.items() - {(guid, name.replace("/new/work", "/work")) for guid, name in after.items()} == set()
    )
    assert len(snapshots(f"{VAULT}/new/work")) >= 4

    lie()
    ok("run", "filer")
    assert len(snapshots(f"{VAULT}/new")) >= 1, "an honest stream goes over the placeholder"
    newest = peer_snapshots("tank/new/work")[-1]
    assert hashes(f"{VAULT}/new/work@{newest}") == peer_hashes(f"tank/new/work@{newest}")
    assert everything().keys() >= before.keys(), "and what is below it stays"


@pytest.mark.parametrize(
    "answer",
    [
        "/usr/sbin/zfs send -R tank/own/evil@one",
        "/usr/sbin/zfs send -R -I tank/own/evil@one tank/own/evil@two",
        "/usr/sbin/zfs send -p tank/own/evil@one",
        "/usr/sbin/zfs send tank/NEW@SNAP; /usr/sbin/zfs send tank/own/evil/kid@one",
        "cat /dev/zero | head -c 5000000",
    ],
)
def test_no_package_brings_another_dataset(new: str, answer: str) -> None:
    snapname = f"$(/usr/sbin/zfs list -Ho name -t snapshot -d1 tank/{new} | tail -1 | cut -d@ -f2)"
    lie(send={f"tank/{new}": answer.replace("NEW", new).replace("SNAP", snapname)})
    done = ctl("run", "filer")
    refused(done)
    sh("zfs", "mount", "-a")
    assert "kid" not in sh("zfs", "list", "-Ho", "name", "-r", "cold")
    assert "/evil" not in sh("cat", "/proc/mounts")
    lie()
    ok("run", "filer")
    newest = peer_snapshots(f"tank/{new}")[-1]
    assert hashes(f"{VAULT}/{new}@{newest}") == peer_hashes(f"tank/{new}@{newest}")


def test_no_older_or_other_snapshot_comes_instead(new: str) -> None:
    ok("run", "filer")
    peer(f"date >/tank/{new}/more")
    lie(send={f"tank/{new}": "/usr/sbin/zfs send -Lcep -i tank/own/evil@one tank/own/evil@two"})
    before = everything()
    refused(ctl("run", "filer"))
    assert before.items() <= everything().items()
    newest = f"$(/usr/sbin/zfs list -Ho name -t snapshot -d1 tank/{new} | tail -1)"
    lie(send={f"tank/{new}": f"/usr/sbin/zfs send -Lcep {newest}"})
    refused(ctl("run", "filer"))
    assert before.items() <= everything().items()


def test_the_source_s_properties_do_not_rule_the_vault(new: str) -> None:
    peer(
        "zfs set checksum=off copies=3 dedup=on sync=always primarycache=none recordsize=64K compression=zstd"
        " snapdir=visible 'com.example:own=a b' tank/" + new
    )
    ok("run", "filer")
    names = ("checksum", "copies", "dedup", "sync", "primarycache", "snapdir")
    found = {name: get(f"{VAULT}/{new}", name) for name in names}
    assert found == {name: get("cold", name) for name in names}
    assert get(f"{VAULT}/{new}", "compression") == "zstd"
    assert get(f"{VAULT}/{new}", "recordsize") == "65536"
    assert get(f"{VAULT}/{new}", "com.example:own") == "a b"

    ok("restore", "filer", f"tank/{new}", "ssh://root@peer/tank/own/back")
    back = peer("zfs get -Hpo value checksum,copies,dedup,sync,primarycache,snapdir tank/own/back").split()
    assert back == ["off", "3", "on", "always", "none", "visible"]


def test_zvault_s_own_properties_count_only_where_zvault_set_them(tank: None) -> None:
    peer(
        "zfs set org.zvault:scratch=tank/home org.zvault:placeholder=cold/peer/tank/home"
        " org.zvault:sent=12:w org.zvault:restoring=7 tank/home;"
        r"""zfs set "$(printf 'org.zvault:scratch=a\tb\nc\td')" tank/work;"""
        r"""zfs set "$(printf 'org.zvault:sent=\t\t\t\n')" tank/work"""
    )
    for _ in range(2):
        peer("date >>/tank/home/x; date >>/tank/work/y")
        ok("run", "filer")
    for name in ("home", "work"):
        assert len(snapshots(f"{VAULT}/{name}")) == 2
        newest = peer_snapshots(f"tank/{name}")[-1]
        assert hashes(f"{VAULT}/{name}@{newest}") == peer_hashes(f"tank/{name}@{newest}")
        assert get(f"{VAULT}/{name}", "org.zvault:scratch") == "-"
        # What the placeholder above has is inherited; nothing came in with the stream.
        source = sh("zfs", "get", "-Ho", "source", "org.zvault:placeholder", f"{VAULT}/{name}").strip()
        assert source == "inherited from cold/peer", source
    ok("restore", "filer", "tank/home", "cold/back")
    assert get("cold/back", "org.zvault:restoring") == "-"
