"""A source on another host whose root is hostile: it costs the vault none of its snapshots, and rules nothing there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import crafted_package
import pytest
from hostile import be_honest, lie
from peer import clean, daemon, hashes, introduce, peer, peer_hashes, peer_pool, peer_snapshots
from world import Done, ctl, get, ok, sh, snapshots

from zvault.core.replication.receive_properties import COMES_IN

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


IN_FORCE: dict[str, int | str] = {
    **{
        "snapdev": 1,
        "zoned": 1,
        "snapdir": 1,
        "sharenfs": "on",
        "mountpoint": "/evil",
        "canmount": 1,
        "readonly": 0,
    },
    **{"context": "system_u:object_r:tmp_t:s0", "fscontext": "system_u:object_r:tmp_t:s0"},
    **{"defcontext": "system_u:object_r:tmp_t:s0", "rootcontext": "system_u:object_r:tmp_t:s0"},
    **{
        "filesystem_limit": 1,
        "snapshot_limit": 1,
        "quota": 1 << 20,
        "refquota": 1 << 20,
        "refreservation": 1 << 20,
    },
    **{
        "volmode": 1,
        "sync": 2,
        "copies": 3,
        "checksum": 2,
        "exec": 1,
        "setuid": 1,
        "devices": 1,
        "overlay": 1,
    },
    **{"org.zvault:placeholder": "cold/peer/tank", "org.zvault:scratch": "cold", "com.example:own": "a b"},
}
"""As ZFS stores them: what mounts, shares, shows, fills, labels or stops a dataset that has it."""

OF_VOLUMES = (
    "snapdev",
    "volmode",
    "readonly",
    "refreservation",
    "snapshot_limit",
    "sync",
    "copies",
    "checksum",
)


@pytest.mark.parametrize("kind", ["filesystem", "volume"])
def test_of_a_crafted_package_only_what_is_listed_comes_in(new: str, kind: str) -> None:
    """The stream itself is what was ordered; its header brings properties that come into force where they come in."""
    crafted_package.install()
    properties = IN_FORCE
    if kind == "volume":
        peer(f"zfs destroy -r tank/{new}; zfs create -V 8M tank/{new}")
        labels = [name for name in IN_FORCE if name.endswith("context") or ":" in name]
        properties = {name: IN_FORCE[name] for name in (*OF_VOLUMES, *labels)}
    snap = f"$(/usr/sbin/zfs list -Ho name -t snapshot -d1 tank/{new} | tail -1)"
    lie(send={f"tank/{new}": crafted_package.crafted(f"/usr/sbin/zfs send -Lcep {snap}", properties)})
    ok("run", "filer")
    target = f"{VAULT}/{new}"
    assert len(snapshots(target)) == 1
    native = [name for name in properties if ":" not in name and get(target, name) != "-"]
    set_here = {"readonly": "on", "canmount": "noauto", "volmode": "none"}
    if kind == "filesystem":
        del set_here["volmode"]
    wanted = {name: get("cold", name) for name in native} | {"mountpoint": f"/{target}"} | set_here
    found = {name: get(target, name) for name in native}
    assert found == {name: wanted[name] for name in native}
    assert {"snapdev", "snapshot_limit", "context"} <= set(native)
    own = {
        name: sh("zfs", "get", "-Ho", "value,source", name, target).strip()
        for name in properties
        if ":" in name
    }
    assert own.pop("com.example:own") == "a b\treceived"
    assert all("received" not in one and "local" not in one for one in own.values()), own
    received = set(sh("zfs", "get", "-Ho", "property", "-s", "received", "all", target).split())
    assert received <= {*COMES_IN, "com.example:own"}
    sh("zfs", "mount", "-a")
    assert "/evil" not in sh("cat", "/proc/mounts")
    assert not list(Path("/dev/zvol").glob(f"cold/**/{new}*"))


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"encryption": 8}, "encryption"),
        ({"keyformat": 3}, "keyformat"),
        ({"version": 4}, "version"),
        ({"userquota@root": "1"}, "userquota@"),
    ],
)
def test_a_crafted_package_with_what_cannot_be_left_out_is_refused(
    new: str, properties: dict[str, int | str], why: str
) -> None:
    crafted_package.install()
    snap = f"$(/usr/sbin/zfs list -Ho name -t snapshot -d1 tank/{new} | tail -1)"
    lie(send={f"tank/{new}": crafted_package.crafted(f"/usr/sbin/zfs send -Lcep {snap}", properties)})
    before = everything()
    done = ctl("run", "filer")
    refused(done)
    assert f"brings the property '{why}'" in done.out + done.err or f"brings '{why}" in done.out + done.err
    assert f"{VAULT}/{new}" not in sh("zfs", "list", "-Ho", "name", "-r", "cold").split()
    assert before.items() <= everything().items()
    lie()
    ok("run", "filer")
    newest = peer_snapshots(f"tank/{new}")[-1]
    assert hashes(f"{VAULT}/{new}@{newest}") == peer_hashes(f"tank/{new}@{newest}")


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
