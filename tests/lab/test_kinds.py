"""Every operation × every kind of dataset, and what ZFS refuses of them. Real ZFS decides.

``KINDS`` are the rows: filesystems with and without a child, an encrypted root with a child and a volume below it (sent
raw), a volume, and clones of a filesystem and a volume. Each test is one operation, done to all rows or to those that
differ in it, and looks at contents and GUIDs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from planner_world import Small, guid, names, plan, run, said
from world import (
    DISK,
    ctl,
    destroy_held,
    events,
    eventually,
    get,
    ok,
    sh,
    shell,
    snapshot_hashes,
    snapshots,
    status,
    tamper,
)

from zvault.core.replication.stream_flags import SentFlags

LAB = {"mem": "3G", "timeout": 1200, "in_order": True}

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


@pytest.mark.parametrize(
    ("name", "below"), [("crypt", True), ("crypt/kid", False), ("crypt/vm", False), ("plain", False)]
)
def test_each_is_restored_beside_the_live_one_and_its_key_opens_it(
    tank: Small, name: str, below: bool
) -> None:
    """An encrypted root with all below it, an encrypted child and volume by themselves, and what was sent as raw and
    is not encrypted.
    """
    unlock()
    run()
    back = f"tank/{name.replace('/', '-')}-opened"
    ok("restore", "tank", f"tank/{name}", back, *(["-r"] if below else []))
    restored = {one.replace(f"tank/{name}", back, 1): one for one in KINDS_BELOW[name]}
    if name != "plain":
        assert {get(one, "encryptionroot") for one in restored} == {back}
        assert get(back, "keystatus") == "unavailable", "it came as it lies on the vault"
        sh("zfs", "load-key", "-L", f"file://{KEY}", back)
    for one, source in restored.items():
        snapname = snapshots(one)[-1]
        assert get(f"{one}@{snapname}", "guid") == get(f"{source}@{snapname}", "guid")
        if source.endswith("/vm"):
            assert read_volume(one.removeprefix("tank/")) == pattern("crypt/vm")
        else:
            assert snapshot_hashes(f"{one}@{snapname}") == snapshot_hashes(f"{source}@{snapname}") != {}
    destroy_held(back)


def unlock() -> None:
    """The source's key is loaded: one that was imported anew has it not."""
    if get("tank/crypt", "keystatus") != "available":
        sh("zfs", "load-key", "tank/crypt")
        sh("zfs", "mount", "-a")


KINDS_BELOW = {
    "crypt": ["tank/crypt", "tank/crypt/kid", "tank/crypt/vm"],
    **{name: [f"tank/{name}"] for name in ("crypt/kid", "crypt/vm", "plain")},
}


def test_an_encrypted_child_takes_the_place_of_the_live_one_and_inherits_its_key(tank: Small) -> None:
    """Restore --replace; and the next run goes on from it."""
    unlock()
    run()
    before = guid(f"{VAULT}/tank/crypt/kid")
    done = ok("restore", "tank", "tank/crypt/kid", "tank/crypt/kid", "--replace", "--yes")
    assert "encryption root" not in done.out
    assert get("tank/crypt/kid", "encryptionroot") == "tank/crypt"
    snapname = newest("tank/crypt/kid")
    [aside] = [one for one in names("tank") if one.startswith("tank/crypt/kid_zvault-before-")]
    assert snapshot_hashes(f"tank/crypt/kid@{snapname}") == snapshot_hashes(f"{aside}@{snapname}") != {}
    destroy_held(aside)
    time.sleep(1.1)
    _, sent = run()
    assert sent < LITTLE
    assert guid(f"{VAULT}/tank/crypt/kid") == before
    assert_followed("crypt/kid")


def test_each_that_somebody_wrote_to_on_the_vault_is_set_aside_and_followed_again(tank: Small) -> None:
    """``on_conflict = "new-dataset"``: what was written stays, and what both sides share is not sent again."""
    run()
    for name in KINDS:
        write_on_vault(name)
    time.sleep(1.1)
    run(code=1)
    for name in KINDS:
        assert snapshots(f"{VAULT}/tank/{name}")[-1] == "by-hand", "stop is the default"
    tank.reload(backup_extra='send = { raw = true }\nretries = 0\non_conflict = "new-dataset"')
    time.sleep(1.1)
    _, sent = run()
    assert sent < LITTLE, said()
    there = names(VAULT)
    for name in KINDS:
        target = f"{VAULT}/tank/{name}"
        [aside] = [one for one in there if one.startswith(f"{target}_zvault-conflict-")]
        assert snapshots(aside)[-1] == "by-hand"
        assert "by-hand" not in snapshots(target)
        assert_followed(name)
    for name in ("plain", "parent/kid", "clone"):
        snapname = newest(f"tank/{name}")
        assert snapshot_hashes(f"tank/{name}@{snapname}") == snapshot_hashes(
            f"{VAULT}/tank/{name}@{snapname}"
        )
    time.sleep(1.1)
    _, sent = run()
    assert sent < LITTLE
    tank.reload(backup_extra="send = { raw = true }\nretries = 0")
    for one in reversed(names(VAULT)):
        if "_zvault-conflict-" in one:
            destroy_held(one)


def write_on_vault(name: str) -> None:
    """Somebody who has the key, where there is one, writes to a dataset on the vault and makes a snapshot."""
    target = f"{VAULT}/tank/{name}"
    with opened(target):
        if name not in VOLUMES:
            tamper(target, "by-hand")
            return
        sh("zfs", "set", "readonly=off", "volmode=default", target)
        path = Path(f"/dev/zvol/{target}")
        eventually(f"{path} is there", path.exists)
        shell("udevadm settle")
        with path.open("r+b") as file:
            file.write(pattern("by hand"))
            os.fsync(file.fileno())
        sh("zfs", "snapshot", f"{target}@by-hand")
        sh("zfs", "set", "readonly=on", "volmode=none", target)


@pytest.mark.parametrize("given_up", [False, True])
def test_each_that_is_half_received_goes_on_or_begins_anew(tank: Small, given_up: bool) -> None:
    """Cut off in the first stream of each kind: the next run resumes it, or after ``zfs receive -A`` sends it anew."""
    unlock()
    run()
    end = "anew" if given_up else "half"
    filesystems = [f"{end}", f"parent/{end}", f"{end}-root", f"crypt/{end}", f"{end}-clone"]
    volumes = [f"{end}-vm", f"crypt/{end}-vm"]
    for name in filesystems[:-1]:
        sh("zfs", "create", *(ENCRYPTED if name == f"{end}-root" else ()), f"tank/{name}")
    origin = f"tank/plain@{newest('tank/plain')}"
    sh("zfs", "clone", origin, f"tank/{filesystems[-1]}")
    for name in filesystems:
        Path(f"/tank/{name}/new").write_bytes(os.urandom(4 * LITTLE))
    for name in volumes:
        sh("zfs", "create", "-V", "8M", f"tank/{name}")
        write_volume(name, name)
    every = [*filesystems, *volumes]
    for name in every:
        cut_off(name, origin if name == filesystems[-1] else "")
        if given_up:
            sh("zfs", "receive", "-A", f"{VAULT}/tank/{name}")
    shown = {name: row["action"] for name, row in plan().items()}
    begun = dict.fromkeys(every, "full" if given_up else "resume")
    if given_up:
        begun[filesystems[-1]] = "incremental"
    assert {name: shown[f"tank/{name}"] for name in every} == begun
    _, sent = run()
    number = json.loads(ctl("history", "-j", "-l", "1").out)["runs"][0]["id"]
    kinds: dict[str, list[str]] = {}
    for one in events(str(number)):
        if one["event"] == "transfer-started":
            kinds.setdefault(one["dataset"].removeprefix("tank/"), []).append(one["kind"])
    assert {name: kinds[name][0] for name in every} == begun
    assert (sent > 4 * LITTLE * len(every)) == given_up, "of what is resumed only the rest"
    for name in every:
        assert get(f"{VAULT}/tank/{name}", "receive_resume_token") == "-"
        assert_followed(name)
        if name in filesystems:
            snapname = newest(f"tank/{name}")
            with opened(f"{VAULT}/tank/{name}"):
                there = snapshot_hashes(f"{VAULT}/tank/{name}@{snapname}")
            assert there == snapshot_hashes(f"tank/{name}@{snapname}") != {}


def cut_off(name: str, origin: str) -> None:
    """A first receive as zvault begins it, cut off after two of its four MiB."""
    source, target = f"tank/{name}", f"{VAULT}/tank/{name}"
    first = f"{source}@zvault_2026-01-01T00:00:00Z"
    sh("zfs", "snapshot", first)
    flags = ["-L", "-c", "-w", "-p", *(["-i", origin] if origin else []), first]
    with subprocess.Popen(["zfs", "send", *flags], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as send:
        assert send.stdout is not None
        beginning = send.stdout.read(2 * LITTLE)
        send.stdout.close()
    letters = SentFlags(large_blocks=True, compressed=True, embedded=False, raw=True).letters
    kept = "canmount=noauto" if get(source, "type") == "filesystem" else "volmode=none"
    own = ["readonly=on", kept, f"org.zvault:sent={int(guid(source)):x}:{letters}"]
    if origin:
        own.append(f"origin={VAULT}/{origin}")
    options = [word for one in own for word in ("-o", one)]
    subprocess.run(["zfs", "receive", "-s", "-u", *options, target], input=beginning, capture_output=True)
    assert get(target, "receive_resume_token").startswith("1-"), target


@contextlib.contextmanager
def opened(target: str) -> Iterator[None]:
    """Somebody has the key of a dataset on the vault loaded, where it is encrypted."""
    locked = get(target, "encryption") != "off"
    if locked:
        sh("zfs", "load-key", "-L", f"file://{KEY}", target)
    yield
    if locked:
        shell("udevadm settle")
        eventually(f"nobody uses the key of {target}", lambda: not refusal_to_lock(target))


def refusal_to_lock(target: str) -> str:
    return shell(f"zfs unload-key {target} 2>&1", check=False)


def test_pruning_keeps_the_base_of_each_and_destroys_the_rest_on_both_sides(tank: Small) -> None:
    """Hold, release and destroy: the source keeps its base and what follows it, later its newest; the vault its two."""
    for _ in range(2):
        run()
        time.sleep(1.1)
    base = {name: newest(f"tank/{name}") for name in KINDS}
    later = []
    for _ in range(2):
        later.append(time.strftime("zvault_%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        sh("zfs", "snapshot", "-r", f"tank@{later[-1]}")
        time.sleep(1.1)
    tank.reload(
        keep="{ source = { last = 1 }, vault = { last = 2 } }",
        backup_extra='send = { raw = true }\nretries = 0\nprune_limit = "100%"',
    )
    ok("prune", "tank", "--yes", "--over-limit")
    for name in KINDS:
        left = [one for one in snapshots(f"tank/{name}") if one.startswith("zvault_")]
        cloned = {one for one in left if get(f"tank/{name}@{one}", "clones") not in {"", "-"}}
        assert set(left) - cloned == {base[name], *later} - cloned, (
            f"{name}: its base, and what is to be sent yet"
        )
        assert get(f"{VAULT}/tank/{name}@{base[name]}", "guid") == get(f"tank/{name}@{base[name]}", "guid")
    _, sent = run()
    assert sent < LITTLE, said()
    for name in KINDS:
        assert_followed(name)
        now = newest(f"tank/{name}")
        held = {line.split("\t")[0] for line in holds_of(f"tank/{name}")}
        assert held == {f"tank/{name}@{now}"}, "the old base is released"
        for place, last in ((f"tank/{name}", 1), (f"{VAULT}/tank/{name}", 2)):
            ours = [one for one in snapshots(place) if one.startswith("zvault_")]
            rest = [one for one in ours[:-last] if get(f"{place}@{one}", "clones") in {"", "-"}]
            assert rest == [], place
    tank.reload(keep="{ source = { last = 20 } }", backup_extra="send = { raw = true }\nretries = 0")


def holds_of(dataset: str) -> list[str]:
    every = [f"{dataset}@{one}" for one in snapshots(dataset)]
    return [line for line in sh("zfs", "holds", "-H", *every).splitlines() if "\tzvault:" in line]


def time_of(snapname: str) -> float:
    return float(shell(f"date -ud '{snapname.removeprefix('zvault_')}' +%s"))
