"""What storage over a network, and people who look after it, do to a vault's pool.

Public reports of pools on NBD, RBD and iSCSI, each as small as it gets; what zvault says is part of each.
"""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import world
from vault_faults_world import PROFILE, status, tank_for_test  # noqa: F401
from world import DISK, ctl, eventually, ok, sh, snapshots

from zvault.system.record_store import RecordStore

LAB = {"mem": "3G", "timeout": 900}


def get_pool(prop: str) -> str:
    """A property of the vault's pool."""
    return sh("zpool", "get", "-Hpo", "value", prop, "cold").strip()


def findings() -> dict[str, dict[str, str]]:
    """What is wrong with the vault, by its condition."""
    (vault,) = status()["vaults"]
    return {one["condition"]: one for one in vault["verdict"]["findings"]}


def test_a_local_disk_added_to_the_pool_is_told_and_named_when_it_is_gone(tank):
    tank.start()
    ok("run", "tank")
    ok("vault", "up", "cold")
    local = DISK / "local.img"
    sh("truncate", "-s", "300M", str(local))
    sh("zpool", "add", "-f", "cold", str(local))
    eventually("it to be told", lambda: "foreign-device" in findings())
    assert str(local) in findings()["foreign-device"]["why"]
    done = ctl("run", "tank")
    assert str(local) in done.out + done.err, "a run says so"
    sh("zfs", "create", "cold/spread")
    assert ctl("status").code == 1

    ok("vault", "down", "cold")
    assert "foreign-device" in findings(), "also while the vault is down"
    ok("vault", "up", "cold")
    ok("vault", "down", "cold")
    # The host is lost, and its disk with it.
    away = DISK / "away.img"
    local.rename(away)
    refused = ctl("vault", "up", "cold")
    print(refused.out, refused.err)
    assert refused.code == 1
    said = refused.out + refused.err
    assert "devices of it are missing" in said
    assert str(local) in said
    world.nothing_left()

    away.rename(local)
    ok("vault", "up", "cold")
    sh("zpool", "remove", "-w", "cold", str(local))
    eventually("it to be well again", lambda: "foreign-device" not in findings())
    ok("run", "tank")
    ok("vault", "down", "cold")
    ok("vault", "up", "cold")
    ok("vault", "down", "cold")
    world.nothing_left()


def test_who_has_the_device_open_is_named_and_runs_go_on(tank):
    tank.start()
    ok("run", "tank")
    ok("vault", "up", "cold")
    reader = subprocess.Popen(["bash", "-c", "exec 3</dev/nbd0; exec sleep 9999"])
    try:
        eventually("it to be open", lambda: Path(f"/proc/{reader.pid}/fd/3").exists())
        ok("vault", "down", "cold")
        said = world.journal("VAULT=cold")
        assert f"it is open: sleep (process {reader.pid}, user root)" in said
        assert "no reboot is needed" in said
        assert status()["vaults"][0]["state"] == "down"
        ok("run", "tank")
        ok("vault", "up", "cold")
        assert "/dev/nbd1" in sh("zpool", "list", "-vHPL", "cold"), "another number"
        ok("vault", "down", "cold")
        assert ctl("status").code == 0, "nothing is wrong with the vault"
    finally:
        reader.kill()
        reader.wait()
    eventually("the kernel to give the number up", lambda: not world.connected(0))
    ok("run", "tank")
    world.nothing_left()


def test_a_store_that_is_read_only_is_restored_from(tank):
    tank.start()
    ok("run", "tank")
    sh("chattr", "+i", str(tank.image))
    try:
        up = ctl("vault", "up", "cold")
        assert (up.code, "vault cold is up" in up.out) == (1, True), "it is up, with a warning"
        assert "takes no writes" in findings()["read-only"]["why"]
        ok("restore", "tank", "tank/home", "tank/back")
        here = world.tree_hashes(Path("/tank/home"))
        assert here
        assert world.tree_hashes(Path("/tank/back")) == here
        refused = ctl("run", "tank")
        print(refused.out, refused.err)
        assert refused.code == 1
        assert "read-only" in refused.out + refused.err
        ok("vault", "down", "cold")
    finally:
        sh("chattr", "-i", str(tank.image))
    ok("run", "tank")
    world.nothing_left()


def test_a_store_that_was_cut_is_told_with_the_size_it_needs(tank):
    tank.start()
    ok("run", "tank")
    size = tank.image.stat().st_size
    sh("truncate", "-s", "400M", str(tank.image))
    refused = ctl("vault", "up", "cold")
    print(refused.out, refused.err)
    said = " ".join((refused.out + refused.err).split())
    assert "is too small for it" in said
    assert f"give the store its {size} bytes back" in said
    world.nothing_left()
    sh("truncate", "-s", str(size), str(tank.image))
    ok("vault", "up", "cold")
    ok("vault", "down", "cold")
    world.nothing_left()


def test_a_store_that_was_grown_and_a_pool_that_was_changed_are_told(tank):
    tank.vault_extra += PROFILE
    tank.start()
    ok("run", "tank")
    sh("truncate", "-s", "700M", str(tank.image))
    ok("vault", "up", "cold")
    (command,) = re.findall(r"'zvaultctl ([^']+)' gives the pool", world.journal("VAULT=cold"))
    before = int(get_pool("size"))
    ok(*command.split())
    assert int(get_pool("size")) > before
    assert "there is nothing to give" in ctl(*command.split()).err
    sh("zpool", "set", "failmode=panic", "cold")
    sh("zpool", "set", "autotrim=on", "cold")
    eventually("the warning", lambda: "risky-properties" in findings())
    assert "failmode=panic" in findings()["risky-properties"]["why"]
    ctl("vault", "down", "cold")
    ctl("vault", "up", "cold")
    said = world.journal("VAULT=cold")
    for name, value in re.findall(r"'zpool set (\w+)=(\w+) cold' changes it", said):
        sh("zpool", "set", f"{name}={value}", "cold")
    assert (get_pool("failmode"), get_pool("autotrim")) == ("continue", "off")
    eventually("it to be well", lambda: "risky-properties" not in findings())
    ok("vault", "down", "cold")
    world.nothing_left()


def test_a_disk_of_90_tib_is_made_filled_and_comes_back(tank):
    tank.size, tank.delay = "90T", ""
    tank.start()
    began = time.monotonic()
    ok("run", "tank")
    print(f"made, run and down in {time.monotonic() - began:.1f} s")
    assert tank.image.stat().st_size == 90 << 40
    assert tank.image.stat().st_blocks * 512 < 200 << 20, "it takes room only as it is written to"
    began = time.monotonic()
    ok("vault", "up", "cold")
    print(f"up in {time.monotonic() - began:.1f} s")
    (vault,) = status()["vaults"]
    assert vault["size"] > 85 << 40
    assert world.snapshot_hashes(f"cold/lab/tank/home@{snapshots('tank/home')[-1]}")
    sh("zpool", "scrub", "-w", "cold")
    assert "errors: No known data errors" in sh("zpool", "status", "cold")
    ok("vault", "down", "cold")
    world.nothing_left()


GRABBER = """
while :; do
    size=$(cat /sys/block/nbd0/size 2>/dev/null)
    if [ "${size:-0}" -gt 0 ]; then %s; fi
    sleep 0.02
done
"""
"""As udev's rules do for LVM, multipath or a desktop: act on a device as soon as it has a size."""


def test_what_opens_a_device_as_it_appears_is_outlasted_or_named(tank):
    tank.start()
    ok("run", "tank")
    # udisks, or blkid of somebody's: it reads, and closes the device after a while.
    reads = subprocess.Popen(["bash", "-c", GRABBER % "exec 3</dev/nbd0; sleep 2; exec 3<&-"])
    try:
        for _ in range(2):
            ok("vault", "up", "cold")
            ok("vault", "down", "cold")
        assert ctl("status").code == 0
    finally:
        reads.kill()
        reads.wait()
    world.nothing_left()
    # multipath or LVM: a mapping of its own, which takes the device for itself alone.
    table = 'dmsetup create mpatha --table "0 $size linear /dev/nbd0 0" && exit'
    takes = subprocess.Popen(["bash", "-c", GRABBER % table])
    refused = ctl("vault", "up", "cold")
    print(refused.out, refused.err)
    assert takes.wait(60) == 0
    said = " ".join((refused.out + refused.err).split())
    assert refused.code != 0
    assert "mpatha" in said, "who has it"
    sh("dmsetup", "remove", "mpatha")
    eventually("it comes up", lambda: ctl("vault", "up", "cold").code == 0)
    ok("vault", "down", "cold")
    world.nothing_left()


def test_a_server_that_dies_under_an_import_leaves_no_import_in_the_kernel(tank):
    tank.start()
    ok("vault", "up", "cold")
    ok("vault", "down", "cold")
    quick, tank.delay = tank.delay, "filter=delay rdelay=400ms"
    tank.configure()
    sh("systemctl", "reload", "zvaultd")
    up = subprocess.Popen(["zvaultctl", "vault", "up", "cold"], stderr=subprocess.PIPE, text=True)

    def import_waits() -> bool:
        return "D" in sh("ps", "-o", "state=", "-C", "zpool", check=False)

    eventually("the import reads", import_waits)
    sh("systemctl", "kill", "--signal=KILL", "zvault-device@cold-0")
    said = up.communicate(timeout=60)[1]
    assert up.returncode != 0
    assert "lost its device" in said
    # Not at the device's timeout, 20 s after it was lost.
    eventually("no import is left", lambda: not import_waits(), seconds=5)
    tank.delay = quick
    tank.configure()
    sh("systemctl", "reload", "zvaultd")
    ok("vault", "up", "cold")
    ok("vault", "down", "cold")
    world.nothing_left()


def put_in_place(image: Path, copy: Path) -> None:
    """Have another copy of the store where its server looks for it."""
    sh("cp", "--sparse=always", str(copy), str(image))


def list_vault() -> list[str]:
    """Every snapshot of the vault, which it has up for that."""
    ok("vault", "up", "cold")
    found = sh("zfs", "list", "-Ht", "snapshot", "-o", "name", "-r", "cold").splitlines()
    ok("vault", "down", "cold")
    return found


TXG_TIMEOUT = Path("/sys/module/zfs/parameters/zfs_txg_timeout")
KSTAT = Path("/proc/spl/kstat/zfs/cold/txgs")


def read_committed() -> int:
    """The newest transaction group that the kernel calls committed."""
    rows = [line.split() for line in KSTAT.read_text().splitlines()]
    return max(int(row[0]) for row in rows if len(row) > 2 and row[2] == "C")


def test_what_is_noted_of_an_idle_pool_is_on_its_device(tank):
    """An idle pool has transaction groups and writes no uberblock: after a cut of power it would count as put back."""
    usual = TXG_TIMEOUT.read_text()
    TXG_TIMEOUT.write_text("1")
    try:
        tank.start()
        ok("vault", "up", "cold")
        sh("zfs", "set", "org.zvault.test:x=y", "cold")
        sh("zpool", "sync", "cold")
        began = read_committed()
        eventually("idle transaction groups", lambda: read_committed() > began + 10)
        (noted,) = Path("/var/lib/zvault/progress").glob("*")
        txg = RecordStore(noted.parent).get(noted.name)["txg"]
        labels = sh("zdb", "-lu", "/dev/nbd0")
        newest = max(map(int, re.findall(r"^\s*txg = (\d+)$", labels, re.M)))
        print(f"committed {read_committed()}, on the device {newest}, noted {txg}")
        assert began - 5 < txg <= newest < read_committed()
    finally:
        TXG_TIMEOUT.write_text(usual)
    ok("vault", "down", "cold")
    world.nothing_left()


def test_a_store_that_was_put_back_is_told_and_nothing_is_begun_anew_over_it(tank):
    tank.keep = "{ source = { last = 1 }, vault = { last = 9 } }"
    tank.backup_extra = 'on_conflict = "new-dataset"'
    tank.start()
    ok("run", "tank")
    old, new = DISK / "old.img", DISK / "new.img"
    put_in_place(old, tank.image)
    for number in range(3):
        world.fill(Path(f"/tank/home/more{number}"), number, count=2)
        time.sleep(1.1)
        ok("run", "tank")
    put_in_place(new, tank.image)
    newest = list_vault()

    put_in_place(tank.image, old)
    before = snapshots("tank/home")
    refused = ctl("run", "tank")
    print(refused.out, refused.err)
    assert refused.code == 1
    assert "its store was put back" in refused.out + refused.err
    assert "zvaultctl vault accept-older cold" in refused.err
    assert set(before) < set(snapshots("tank/home")), "the source is snapshotted, and nothing of it pruned"
    told = findings()["put-back"]["why"]
    assert "the newest snapshot in it was made 20" in told
    (backup,) = status()["backups"]
    assert all("has nothing of" not in one["why"] for one in backup["verdict"]["findings"])
    assert len(list_vault()) == 3, "neither sent anew nor set aside"
    ok("restore", "tank", "tank/home", "tank/back")
    assert world.tree_hashes(Path("/tank/back"))
    sh("zfs", "destroy", "-r", "tank/back")

    put_in_place(tank.image, new)
    assert list_vault() == newest
    assert "put-back" not in findings(), "the store as it was needs nobody's word"
    ok("run", "tank")
    assert len(list_vault()) > len(newest)

    put_in_place(tank.image, old)
    assert ctl("run", "tank").code == 1
    assert ctl("vault", "accept-older", "cold").code == 2
    ok("vault", "accept-older", "cold", "--yes")
    assert "put-back" not in findings()
    ok("run", "tank")
    assert "_zvault-conflict-" in "".join(list_vault()), "as on_conflict says"
    world.nothing_left()
