"""Every operation × every kind of dataset, and what ZFS refuses of them. Real ZFS decides.

``KINDS`` are the rows: filesystems with and without a child, an encrypted root with a child and a volume below it (sent
raw), a volume, and clones of a filesystem and a volume. Each test is one operation, done to all rows or to those that
differ in it, and looks at contents and GUIDs.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from planner_world import Small, guid, names, run, said
from world import (
    DISK,
    ctl,
    destroy_held,
    eventually,
    get,
    ok,
    sh,
    shell,
    snapshot_hashes,
    snapshots,
    status,
)

LAB = {"mem": "3G", "timeout": 1200}

VAULT = "cold/lab"
KEY = DISK / "key"
ENCRYPTED = ("-o", "encryption=on", "-o", "keyformat=passphrase", "-o", f"keylocation=file://{KEY}")
VOLUMES = ("vm", "vmclone", "crypt/vm")
FILESYSTEMS = ("plain", "parent", "parent/kid", "crypt", "crypt/kid", "clone")
KINDS = (*FILESYSTEMS, *VOLUMES)
LITTLE = 1 << 20
"""Bytes: less than any one of them has."""


@pytest.fixture(scope="module")
def tank() -> Iterator[Small]:
    it = Small(
        keep="{ source = { last = 20 } }", exclude="[]", backup_extra="send = { raw = true }\nretries = 0"
    )
    it.clean()
    it.source()
    KEY.write_text("a secret of some length")
    for name in FILESYSTEMS[:-1]:
        sh("zfs", "create", *(ENCRYPTED if name == "crypt" else ()), f"tank/{name}")
        Path(f"/tank/{name}/file").write_bytes(os.urandom(2 * LITTLE))
    sh("zfs", "create", "-V", "8M", "tank/vm")
    sh("zfs", "create", "-V", "8M", "tank/crypt/vm")
    for name in ("vm", "crypt/vm"):
        write_volume(name, name)
    sh("zfs", "snapshot", "tank/plain@origin", "tank/vm@origin")
    sh("zfs", "clone", "tank/plain@origin", "tank/clone")
    sh("zfs", "clone", "tank/vm@origin", "tank/vmclone")
    it.start()
    yield it
    for pool in ("tank", "cold"):
        destroy_all(pool)
    it.clean()


def destroy_all(pool: str) -> None:
    for line in sh("zfs", "list", "-rHt", "snapshot", "-o", "name,userrefs", pool, check=False).splitlines():
        name, held = line.split("\t")
        for hold in sh("zfs", "holds", "-H", name).splitlines() if held != "0" else ():
            sh("zfs", "release", hold.split("\t")[1], name)


def device(name: str) -> Path:
    """A volume's device, once udev has made it what this name leads to."""
    path = Path(f"/dev/zvol/tank/{name}")
    eventually(lambda: f"{path} is the device of tank/{name}", path.exists)
    shell("udevadm settle")
    return path


def pattern(seed: str) -> bytes:
    return hashlib.shake_256(seed.encode()).digest(4 << 20)


def write_volume(name: str, seed: str) -> None:
    with device(name).open("r+b") as file:
        file.write(pattern(seed))
        os.fsync(file.fileno())


def read_volume(name: str) -> bytes:
    with device(name).open("rb") as file:
        return file.read(4 << 20)


def newest(name: str) -> str:
    return [one for one in snapshots(name) if one.startswith("zvault_")][-1]


def assert_followed(name: str, target: str = "") -> None:
    """The newest state of a dataset is on the vault, under the same GUID."""
    target, snapname = f"{VAULT}/tank/{target or name}", newest(f"tank/{name}")
    assert get(f"{target}@{snapname}", "guid") == get(f"tank/{name}@{snapname}", "guid")


def test_all_are_sent_and_then_followed(tank: Small) -> None:
    """Snapshot, hold, bookmark, full and incremental stream."""
    run()
    time.sleep(1.1)
    _, sent = run()
    assert sent < LITTLE
    for name in KINDS:
        assert_followed(name)
        held = sh("zfs", "holds", "-H", f"tank/{name}@{newest(f'tank/{name}')}")
        assert "zvault" in held
        assert sh("zfs", "list", "-Ht", "bookmark", "-o", "name", f"tank/{name}")


def test_renames_on_the_source_are_followed(tank: Small) -> None:
    """One by one, below another, and the names of two volumes and of two filesystems swapped."""
    before = {name: guid(f"{VAULT}/tank/{name}") for name in KINDS}
    sh("zfs", "rename", "tank/crypt/vm", "tank/crypt/disk")
    sh("zfs", "rename", "tank/parent", "tank/crypt-not")
    for one, other in (("vm", "vmclone"), ("plain", "clone")):
        sh("zfs", "rename", f"tank/{one}", "tank/swap")
        sh("zfs", "rename", f"tank/{other}", f"tank/{one}")
        sh("zfs", "rename", "tank/swap", f"tank/{other}")
    time.sleep(1.1)
    _, sent = run()
    assert sent < LITTLE, said()
    moved = {
        **{"crypt/vm": "crypt/disk", "parent": "crypt-not", "parent/kid": "crypt-not/kid"},
        **{"vm": "vmclone", "vmclone": "vm", "plain": "clone", "clone": "plain"},
    }
    for name in KINDS:
        now = moved.get(name, name)
        assert guid(f"{VAULT}/tank/{now}") == before[name]
        assert_followed(now)
    for now, then in (("tank/crypt/disk", "tank/crypt/vm"), ("tank/crypt-not", "tank/parent")):
        sh("zfs", "rename", now, then)
    for one, other in (("vm", "vmclone"), ("plain", "clone")):
        sh("zfs", "rename", f"tank/{one}", "tank/swap")
        sh("zfs", "rename", f"tank/{other}", f"tank/{one}")
        sh("zfs", "rename", "tank/swap", f"tank/{other}")
    time.sleep(1.1)
    run()
    assert {name: guid(f"{VAULT}/tank/{name}") for name in KINDS} == before


@pytest.mark.parametrize("name", ["plain", "vm", "parent", "vmclone"])
def test_each_takes_the_place_of_the_live_one(tank: Small, name: str) -> None:
    """Restore, and restore --replace."""
    ok("restore", "tank", f"tank/{name}", f"tank/{name}-back", *(["-r"] if name == "parent" else []))
    replace = ["restore", "tank", f"tank/{name}", f"tank/{name}", "--replace", "--yes"]
    done = ok(*replace, *(["-r"] if name == "parent" else []))
    assert "the same as in the snapshot" in done.out
    if name.startswith("vm"):
        assert read_volume(name) == pattern("vm")
        assert read_volume(f"{name}-back") == pattern("vm")
    else:
        snapname = newest(f"tank/{name}")
        assert snapshot_hashes(f"tank/{name}@{snapname}") == snapshot_hashes(
            f"{VAULT}/tank/{name}@{snapname}"
        )
    asides = [one for one in names("tank") if one.startswith(f"tank/{name}_zvault-before-")]
    assert asides
    assert guid(f"tank/{name}") != guid(asides[0])


def test_a_volume_that_is_mounted_is_not_set_aside_below_its_user(tank: Small) -> None:
    live, place = guid("tank/vmclone"), str(device("vmclone"))
    sh("mkfs.ext4", "-q", place)
    sh("mount", place, "/mnt")
    try:
        done = ctl("restore", "tank", "tank/vmclone", "tank/vmclone", "--replace", "--yes")
    finally:
        sh("umount", "/mnt")
    told = done.err + done.out
    assert done.code == 1
    assert "cannot be set aside" in told
    assert "is mounted at /mnt" in told
    assert "end what has it open first" in told
    assert guid("tank/vmclone") == live
    sh("zfs", "destroy", "-r", "tank/vmclone_zvault-restore")


def test_what_comes_again_under_its_name_is_left_out_or_makes_room(tank: Small) -> None:
    tank.reload(backup_extra='send = { raw = true }\nretries = 0\nalso = ["nightly"]')
    sh("zfs", "snapshot", "tank/plain@nightly", "tank/vm@nightly")
    run()
    first = get(f"{VAULT}/tank/vm@nightly", "guid")
    for snap in ("tank/plain@nightly", "tank/vm@nightly"):
        sh("zfs", "destroy", snap)
    sh("zfs", "snapshot", "tank/plain@nightly", "tank/vm@nightly")
    time.sleep(1.1)
    _, sent = run()
    assert sent < LITTLE
    assert "left out: tank/plain@nightly, tank/vm@nightly" in said()
    assert get(f"{VAULT}/tank/vm@nightly", "guid") == first
    assert {one["name"]: one["verdict"]["level"] for one in status()["backups"]} == {"tank": "ok"}
    tank.reload(
        backup_extra='send = { raw = true }\nretries = 0\nalso = ["nightly"]\nsnapshot = { make = false }'
    )
    for snap in ("tank/plain@nightly", "tank/vm@nightly"):
        sh("zfs", "destroy", snap)
    sh("zfs", "snapshot", "tank/plain@nightly", "tank/vm@nightly")
    _, sent = run()
    assert sent < LITTLE
    for name in ("plain", "vm"):
        assert get(f"{VAULT}/tank/{name}@nightly", "guid") == get(f"tank/{name}@nightly", "guid")
        assert any(one.startswith("nightly_zvault-replaced-") for one in snapshots(f"{VAULT}/tank/{name}"))
    for name in ("plain", "vm"):
        shell(
            f"zfs holds -H tank/{name}@nightly | while read n t d; do zfs release $t tank/{name}@nightly; done"
        )
    tank.reload(backup_extra="send = { raw = true }\nretries = 0")


def test_what_zfs_refuses_for_good_is_tried_once_and_stops_nobody_else(tank: Small) -> None:
    """``retries``, and what is refused for good: the advice for it has the next run go on."""
    tank.reload(backup_extra='send = { raw = true }\nretries = 3\nretry_wait = "1s"')
    sh("zfs", "create", "tank/small")
    Path("/tank/small/file").write_bytes(os.urandom(2 * LITTLE))
    quota = int(get("cold", "used")) + LITTLE
    sh("zfs", "set", f"quota={quota}", "cold")
    time.sleep(1.1)
    run(code=1)
    last = json.loads(ctl("history", "-j", "-l", "1").out)["runs"][0]
    told = json.dumps(last)
    assert "raise the quota on the vault" in told
    assert "retry" not in said()
    assert_followed("plain")
    sh("zfs", "set", "quota=none", "cold")
    time.sleep(1.1)
    run()
    assert_followed("small")
    tank.reload(backup_extra="send = { raw = true }\nretries = 0")


def test_a_vault_that_is_read_only_says_so_and_can_be_restored_from(tank: Small) -> None:
    sh("systemctl", "stop", "zvaultd")
    sh("zpool", "export", "cold")
    sh("zpool", "import", "-N", "-d", str(DISK), "-o", "readonly=on", "cold")
    sh("systemctl", "start", "zvaultd")
    before = snapshots("tank/plain")
    done = ctl("run", "tank")
    assert done.code == 1
    assert "'zpool export cold', then 'zpool import cold'" in done.out + done.err
    assert not set(snapshots("tank/plain")) <= set(before), "the source gets its snapshot all the same"
    told = eventually("the verdict", lambda: [one for one in status()["vaults"] if one["readonly"]])[0]
    assert [one["condition"] for one in told["verdict"]["findings"]] == ["read-only"]
    done = ctl("scrub", "cold")
    assert done.code == 1
    assert "cannot be scrubbed" in done.out + done.err
    ok("restore", "tank", "tank/plain", "tank/from-read-only")
    sh("systemctl", "stop", "zvaultd")
    sh("zpool", "export", "cold")
    sh("zpool", "import", "-N", "-d", str(DISK), "cold")
    sh("systemctl", "start", "zvaultd")
    destroy_held("tank/from-read-only")
    run()


def test_a_source_that_is_read_only_is_backed_up_from_what_it_has(tank: Small) -> None:
    """As the pool of a disk that is dying. Afterwards, written to again, all goes on."""
    sh("zfs", "create", "tank/late")
    snapname = time.strftime("zvault_%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 5))
    sh("zfs", "snapshot", "-r", f"tank@{snapname}")
    sh("systemctl", "stop", "zvaultd")
    shell("udevadm settle")
    eventually("tank is exported", lambda: not sh("sh", "-c", "zpool export tank 2>&1", check=False))
    sh("zpool", "import", "-d", str(DISK), "-o", "readonly=on", "tank")
    sh("systemctl", "start", "zvaultd")
    run()
    assert "the pool tank is read-only" in said()
    for name in ("plain", "vm", "crypt/kid", "late"):
        assert get(f"{VAULT}/tank/{name}@{snapname}", "guid") == get(f"tank/{name}@{snapname}", "guid")
    sh("systemctl", "stop", "zvaultd")
    eventually("tank is exported", lambda: not sh("sh", "-c", "zpool export tank 2>&1", check=False))
    sh("zpool", "import", "-d", str(DISK), "tank")
    sh("systemctl", "start", "zvaultd")
    eventually("a later second than the name's", lambda: time.time() > time_of(snapname) + 1)
    run()
    assert "zvault" in sh("zfs", "holds", "-H", f"tank/plain@{newest('tank/plain')}")


def time_of(snapname: str) -> float:
    return float(shell(f"date -ud '{snapname.removeprefix('zvault_')}' +%s"))
