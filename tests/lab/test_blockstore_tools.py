"""zvaultctl blockstore on the S3 of a real Ceph cluster: made, filled, damaged, repaired, copied, and looked at."""

from __future__ import annotations

import random
import subprocess
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from blockstore_lab import BUCKET, MIB, Bucket, Direct, Disk, nothing_left
from bucket_states import (
    MOUNT,
    Locked,
    Writing,
    bucket_for_test,  # noqa: F401
    clear,
    ctl,
    locked_bucket,  # noqa: F401
    refused_to_write,
    seen,
    told_once,
    words,
)
from world import eventually, sh, tree_hashes

from zvault.blockstore.attach import attach_store
from zvault.blockstore.format import BLOCK_SIZE
from zvault.blockstore.locked_bucket import open_bare_store
from zvault.blockstore.maintenance.repair import quiet_options
from zvault.blockstore.maintenance.version_gc import remove_versions
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.reached_store import make_s3_settings
from zvault.blockstore.recovery import create_store
from zvault.cli.verbs import blockstore_place
from zvault.core.policy.object_lock import ObjectLock
from zvault.object_store.s3 import S3Store

LAB = {"mem": "4G", "timeout": 900}


def test_a_life(bucket: Bucket, tmp_path: Path):
    objects, more = bucket.s3.bucket(BUCKET), words(bucket)
    place, other = f"zvault:{BUCKET}/cold {more}", f"zvault:{BUCKET}/warm/copy {more}"
    probed = ctl("probe", place, "--quick")
    good = {one["use"]: one["good"] for one in probed["verdicts"]}
    assert (good["one host"], good["several hosts"], good["history"]) == (True, True, True), probed["tries"]
    assert probed["left"] == []
    assert not list(objects.objects.filter(Prefix="cold.probe"))
    assert ctl("create", place, "--size", "1G")["size"] == 1 << 30
    ctl("create", place, "--size", "1G", status=2)

    engine = attach_store(
        blockstore_place.reach_objects(blockstore_place.find_store(place)),
        "cold",
        quiet_options(EngineOptions(tmp_path / "journal")),
        "lab",
    )
    for tag in range(1, 5):
        engine.write(0, bytes([tag]) * (3000 * BLOCK_SIZE))
        engine.write(1000 * tag * BLOCK_SIZE, b"k" * (900 * BLOCK_SIZE))
        engine.flush()
        engine.checkpoint()
    during = ctl("check", place, "--all")
    assert during["well"]
    engine.write(0, b"z" * BLOCK_SIZE)
    truth = engine.read(0, 5000 * BLOCK_SIZE)
    engine.close()

    told = ctl("info", place)
    assert told["live_bytes"] == 4800 * BLOCK_SIZE
    assert told["owner"] == "lab"
    found = ctl("check", place, "--all")
    assert (found["well"], found["strays"]) == (True, [])

    ctl("gc", place, status=2)
    done = ctl("gc", place, "--yes")
    assert done["after"] <= 1.1 * done["live"]

    ctl("copy", place, other)
    assert ctl("check", other, "--all")["well"]
    ctl("copy", place, other, status=2)

    for item in objects.objects.filter(Prefix="cold/maps/"):
        item.delete()
    objects.put_object(Key="cold/maps/0000000001-00000000", Body=b"stray")
    found = ctl("check", place, status=1)
    assert {problem["why"] for problem in found["problems"]} >= {
        "1 of its parts of the map cannot be used: it is missing"
    }
    ctl("check", place, "--repair", "--yes", "--doubtful", "data")
    found = ctl("check", place, "--all")
    assert (found["well"], found["strays"]) == (True, [])
    for where, key in ((place, "cold"), (other, "warm/copy")):
        engine = attach_store(
            blockstore_place.reach_objects(blockstore_place.find_store(where)),
            key,
            quiet_options(EngineOptions(tmp_path / key)),
            "lab",
        )
        assert engine.read(0, 5000 * BLOCK_SIZE) == truth
        engine.close()


def test_what_was_before_an_attack_with_the_writers_key_is_brought_back(bucket: Bucket, locked: Locked):
    """Root on the writer's host, whose key may do all with objects, against a lock."""
    lock = ("lock=compliance:1d", "gc=elsewhere", f"lease-bucket={locked.LEASES}")
    writer, reader = locked.place("cold", "writer", *lock), locked.place("cold", "reader")
    with nothing_left():
        disk = Disk(
            bucket, "cold", "size=1G", "history=last:3", *lock, keys=locked.keys["writer"], place=locked.NAME
        ).start()
        sh("zpool", "create", "-f", "-o", "cachefile=none", "-O", f"mountpoint={MOUNT}", "tank", disk.device)
        for number in range(20):
            (MOUNT / f"f{number}").write_bytes(random.Random(number).randbytes(MIB))
        for _ in range(2):  # the writer has no right to remove anything: so it lives
            sh("zpool", "export", "tank")
            disk.stop()
            disk.start()
            sh("zpool", "import", "-d", disk.device, "-o", "cachefile=none", "tank")
            (MOUNT / f"more{time.time()}").write_bytes(random.Random(9).randbytes(MIB))
        eventually("all is locked", lambda: disk.status()["engine"]["locked_until"] > time.time() + 86400)
        assert disk.status()["trouble"] is None
        truth = tree_hashes(MOUNT)
        sh("zpool", "export", "tank")
        disk.stop()
        assert ctl("check", writer, "--all")["strays"] == []
        tried = ctl("drill", writer)["tried"]
        assert {one["well"] for one in tried} == {True}, tried
        assert len(tried) == 8
        collected = ctl("gc", locked.place("cold", "collector", *lock))
        assert (collected["removed"], collected["strange"]) == (0, [])
        assert collected["locked"] > 0
        then = time.time()

        disk.start()
        sh("blkdiscard", disk.device)
        with Direct(disk.device) as device:
            for at in range(0, 96, 3):
                device.write(at * MIB // BLOCK_SIZE, random.Random(at).randbytes(MIB))
            device.flush()
        disk.stop()
        locked.allow(locked.NAME, {**locked.RIGHTS, "writer": ("*Object*",)})
        locked.attack("cold")

        bring_back(bucket, reader, then, truth)


def bring_back(bucket: Bucket, reader: str, then: float, truth: dict[str, str]) -> None:
    """See it as it was, and copy it to where it can be written to."""
    moment = datetime.fromtimestamp(then, UTC).isoformat()
    with nothing_left():
        with seen(reader, "--before", moment, verb="recover") as view:
            sh(*(word.replace("POOL", "tank") for word in view.importing))
            sh("zfs", "mount", "tank-view")
            assert tree_hashes(MOUNT) == truth
            assert "No known data errors" in sh("zpool", "status", "tank-view")
            sh("zpool", "export", "tank-view")
            assert view.end() == 0
        found = ctl("recover", reader, f"zvault:{BUCKET}/back {words(bucket)}", "--before", moment)
        assert found["hidden"] > 0
        assert found["put"] <= then
        disk = Disk(bucket, "back").start()
        sh("zpool", "import", "-d", disk.device, "-o", "cachefile=none", "tank")
        assert tree_hashes(MOUNT) == truth
        sh("zpool", "scrub", "-w", "tank")
        assert "No known data errors" in sh("zpool", "status", "tank")
        sh("zpool", "export", "tank")
        disk.stop()


def test_a_lock_is_made_longer_and_what_nobody_needs_goes_when_it_ends(locked: Locked, tmp_path: Path):
    place = locked.place("short", "owner", "lock=governance:1d", f"lease-bucket={locked.LEASES}")
    found, lock = blockstore_place.find_store(place), ObjectLock("governance", 6.0)
    settings = replace(make_s3_settings(found.spec), lock=lock)
    bare, store = S3Store(settings), open_bare_store(settings, found.spec)
    create_store(store, "short", 1 << 30)
    options = quiet_options(EngineOptions(tmp_path / "journal", lock=lock))
    # What nobody needs is removed by whom this test asks for it, and not by the engine before that.
    engine = attach_store(store, "short", replace(options, keeps_locked=True, gc_elsewhere=True), "lab")
    engine.write(0, b"a" * (500 * BLOCK_SIZE))
    engine.flush()
    engine.checkpoint()
    (first,) = [one for one in locked.versions("short") if "/segments/" in one["Key"]]
    was = bare.lock_of(first["Key"], first["VersionId"])
    assert was is not None

    def longer() -> bool:
        now = bare.lock_of(first["Key"], first["VersionId"])
        return now is not None and now.until > was.until and now.mode == "governance"

    eventually("it is locked for longer", longer)
    engine.write(0, b"b" * (500 * BLOCK_SIZE))
    engine.flush()
    for _ in range(3):
        engine.checkpoint()
    # Nobody makes its lock longer any more. It is not to end before that was seen.
    bare.retain(first["Key"], first["VersionId"], "governance", time.time() + 600)
    with blockstore_place.start_workers(2) as pool:
        removed = remove_versions(store, "short", pool, do=True)
        assert removed.locked > 0
        assert first["VersionId"] in {one["VersionId"] for one in locked.versions("short")}
        ends = int(time.time()) + 5
        locked.owner.put_object_retention(
            Bucket=locked.NAME,
            Key=first["Key"],
            VersionId=first["VersionId"],
            Retention={"Mode": "GOVERNANCE", "RetainUntilDate": datetime.fromtimestamp(ends, UTC)},
            BypassGovernanceRetention=True,
        )

        went = 0

        def gone() -> bool:
            nonlocal went
            went += remove_versions(store, "short", pool, do=True).removed
            return first["VersionId"] not in {one["VersionId"] for one in locked.versions("short")}

        eventually("it goes", gone, every=1)
        assert time.time() > ends, "it went before its lock ended"
        assert went > 0
    assert engine.read(0, 500 * BLOCK_SIZE) == b"b" * (500 * BLOCK_SIZE)
    engine.close()
    # Whose bucket it is may bypass this mode; and what there is is locked for seconds only.
    tried = ctl("drill", place, status=1)["tried"]
    assert [one["what"] for one in tried if not one["well"]][:1] == ["remove it as one who may bypass a lock"]
    assert "at least" in tried[-1]["came"]
    assert tried[-1]["well"] is False


def test_buckets_that_do_not_lock_and_that_lock_by_themselves(bucket: Bucket, locked: Locked, tmp_path: Path):
    place = f"zvault:{BUCKET}/no-lock {words(bucket)} lock=compliance:1d lease-bucket={locked.LEASES}"
    ctl("create", place, "--size", "1G", status=2)
    ctl("drill", place, status=2)
    ctl("drill", f"zvault:{BUCKET}/no-lock {words(bucket)}", status=2)
    days = {"Mode": "GOVERNANCE", "Days": 1}
    locked.owner.put_object_lock_configuration(
        Bucket=locked.NAME,
        ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": days}},
    )
    found = blockstore_place.find_store(locked.place("default", "owner", f"lease-bucket={locked.LEASES}"))
    store = blockstore_place.reach_objects(found)
    create_store(store, "default", 1 << 30)
    engine = attach_store(store, "default", quiet_options(EngineOptions(tmp_path / "journal")), "lab")
    for tag in (b"a", b"b"):
        engine.write(0, tag * (100 * BLOCK_SIZE))
        engine.flush()
        for _ in range(3):
            engine.checkpoint()
    assert engine.read(0, 100 * BLOCK_SIZE) == b"b" * (100 * BLOCK_SIZE)
    engine.close()
    assert ctl("check", locked.place("default", "owner", f"lease-bucket={locked.LEASES}"))["well"]


def test_it_is_looked_at_while_it_is_written_to(bucket: Bucket, tmp_path: Path):
    place = f"zvault:{BUCKET}/busy {words(bucket)} memory=64M"
    with nothing_left():
        disk = Disk(bucket, "busy", "size=1G").start()
        sh("zpool", "create", "-f", "-o", "cachefile=none", "-O", f"mountpoint={MOUNT}", "tank", disk.device)
        for number in range(40):
            (MOUNT / f"f{number}").write_bytes(random.Random(number).randbytes(MIB))
        # A writer that closes takes a checkpoint. The second one after it is still far away: that removes what is seen.
        sh("zpool", "export", "tank")
        disk.stop()
        disk.start()
        sh("zpool", "import", "-d", disk.device, "-o", "cachefile=none", "tank")
        truth, epoch = tree_hashes(MOUNT), disk.status()["engine"]["epoch"]
        # What is seen has a pool that is in use, with a write on its way.
        busy = subprocess.Popen(["dd", "if=/dev/urandom", f"of={MOUNT}/growing", "bs=64k", "count=300"])
        with seen(place) as view:
            view.importing = [word.replace("POOL", "tank") for word in view.importing]
            assert busy.wait(240) == 0
            sh("zpool", "export", "tank")
            with Writing(disk, 96) as writer:
                eventually("the labels are written over", lambda: writer.written > 8)
                before = writer.written
                sh(*view.importing)
                sh("zfs", "mount", "tank-view")
                found = tree_hashes(MOUNT)
                found.pop("growing", None)
                assert found == truth
                eventually("it is written to", lambda: writer.written > before + 2)
                assert tree_hashes(MOUNT).items() >= truth.items()
                assert writer.thread.is_alive(), "all the while"
            refused_to_write(view.device)
            assert "No known data errors" in sh("zpool", "status", "tank-view")
            engine = disk.status()["engine"]
            assert (engine["fenced"], engine["trouble"], engine["epoch"]) == (False, None, epoch)
            sh("zpool", "export", "tank-view")
            disk.stop()
            clear(place, tmp_path)
            assert told_once(view) == 1
            assert view.end() == 0


def test_a_pool_that_was_destroyed_is_there_as_it_was(bucket: Bucket):
    """Whoever has root destroys the pool and writes over its device; the moment before that is kept."""
    place = f"zvault:{BUCKET}/past {words(bucket)} memory=64M"
    with nothing_left():
        disk = Disk(bucket, "past", "size=1G", "history=last:3").start()
        sh("zpool", "create", "-f", "-o", "cachefile=none", "-O", f"mountpoint={MOUNT}", "tank", disk.device)
        for number in range(20):
            (MOUNT / f"f{number}").write_bytes(random.Random(number).randbytes(MIB))
        truth = tree_hashes(MOUNT)
        sh("zpool", "export", "tank")
        disk.stop()
        assert ctl("history", place)["moments"] == []
        then = time.time()
        disk.start()
        sh("zpool", "import", "-d", disk.device, "-o", "cachefile=none", "tank")
        sh("sh", "-c", f"rm {MOUNT}/*")
        sh("zpool", "destroy", "tank")
        sh("blkdiscard", disk.device)
        with Direct(disk.device) as device:
            for at in range(32):
                device.write(at * MIB // BLOCK_SIZE, random.Random(at).randbytes(MIB))
            device.flush()
        disk.stop()
        found = ctl("history", place)
        assert [one["taken"] <= then for one in found["moments"]].count(True) == 1
        assert found["past_bytes"] > 20 * MIB
        assert ctl("check", place, "--all")["well"]
        ctl("gc", place, "--yes")
        with seen(place, "--at", datetime.fromtimestamp(then, UTC).isoformat()) as view:
            sh(*(word.replace("POOL", "tank") for word in view.importing))
            sh("zfs", "mount", "tank-view")
            assert tree_hashes(MOUNT) == truth
            assert "No known data errors" in sh("zpool", "status", "tank-view")
            refused_to_write(view.device)
            sh("zpool", "export", "tank-view")
            assert view.end() == 0
        back = datetime.fromtimestamp(then, UTC).isoformat()
        assert ctl("rewind", place, "--to", back)["rewound"] is False
        assert ctl("rewind", place, "--to", back, "--yes")["rewound"] is True
        disk.start()
        sh("zpool", "import", "-d", disk.device, "-o", "cachefile=none", "tank")
        assert tree_hashes(MOUNT) == truth
        sh("zpool", "scrub", "-w", "tank")
        assert "No known data errors" in sh("zpool", "status", "tank")
        sh("zpool", "export", "tank")
        disk.stop()
        assert ctl("check", place, "--all")["well"]
        assert [one["taken"] <= then for one in ctl("history", place)["moments"]].count(True) == 1
