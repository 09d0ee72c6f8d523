"""How fast the same files come back out of one bucket: zvault's block store, restic and rclone, over 20 ms.

A real RGW, with the programs that read from it in a place of their own whose round trips take 20 ms longer (far.py).
FILES files of 8 KiB, and one of LARGE MiB, were backed up by each: into a pool on a block store by zvault, and into
the same bucket by restic and rclone. zvault imports the pool anew, mounts the snapshot, plans, copies with hashes and
compares the copies; restic restores and rclone copies, with 32 connections each and nothing in a cache. The pool's
import is in zvault's seconds, and the reading of its repository in restic's.

restic and rclone take part where get-peers could fetch them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

# boto3 wants the library requests, and would find the benchmark of that name.
sys.path.append(sys.path.pop(0))
sys.path.insert(0, str(Path(__file__).parent.parent / "lab"))
from blockstore_lab import BUCKET, FOLDER, Bucket, store
from buckets import FarDisk, zvault
from far import ENTER, HERE, away, place
from programs import find_program, run_program
from report import chosen, finish, race, ratio, say
from restore import parameters, read_profile
from restore_files import say_parts
from world import sh

from zvault.system.file_trees.tree_worker import start_tree_worker

FILES, LARGE = int(os.environ.get("FILES", "1500")), int(os.environ.get("MIB", "64"))
SIZE = 8 << 10
AWAY = 20
"""Milliseconds."""
CONNECTIONS = 32
DISK = ("zvault", "size=16G")
SNAPSHOT, ROOT, TARGET = "cold/data@s", Path("/mnt/snapshot"), Path("/mnt/target")
PASSWORD = FOLDER / "restic-password"


def keys(bucket: Bucket) -> dict[str, str]:
    """What restic and rclone are told of the store."""
    remote = "RCLONE_CONFIG_FAR_"
    return {
        "AWS_ACCESS_KEY_ID": bucket.s3.access_key,
        "AWS_SECRET_ACCESS_KEY": bucket.s3.secret_key,
        "RESTIC_REPOSITORY": f"s3:{bucket.s3.endpoint}/{BUCKET}/restic",
        "RESTIC_PASSWORD_FILE": str(PASSWORD),
        f"{remote}TYPE": "s3",
        f"{remote}PROVIDER": "Ceph",
        f"{remote}ENDPOINT": bucket.s3.endpoint,
        f"{remote}ACCESS_KEY_ID": bucket.s3.access_key,
        f"{remote}SECRET_ACCESS_KEY": bucket.s3.secret_key,
    }


def restic(bucket: Bucket, *words: str) -> None:
    """restic, far away."""
    options = ("-o", f"s3.connections={CONNECTIONS}", "--no-cache", "--quiet")
    run_program(find_program("restic") or "restic", *options, *words, env=keys(bucket), enter=ENTER)


def rclone(bucket: Bucket, *words: str) -> None:
    """rclone, far away."""
    options = (f"--transfers={CONNECTIONS}", f"--checkers={CONNECTIONS}", "--quiet")
    run_program(find_program("rclone") or "rclone", *words, *options, env=keys(bucket), enter=ENTER)


def back_up(bucket: Bucket, disk: FarDisk, names: list[str]) -> None:
    """The files onto the pool, and from there into the bucket by the others."""
    with parameters(read_profile("blockstore")):
        sh("zpool", "create", "-o", "ashift=12", "-O", "mountpoint=/cold", "cold", disk.device, timeout=600)
        sh("zfs", "create", "-o", "compression=off", "cold/data")
        for number in range(FILES):
            folder = Path("/cold/data") / f"d{number % 40}"
            folder.mkdir(exist_ok=True)
            (folder / f"f{number}").write_bytes(os.urandom(SIZE))
        (Path("/cold/data") / "large").write_bytes(os.urandom(LARGE << 20))
        sh("zfs", "snapshot", SNAPSHOT)
        PASSWORD.write_text("password")
        if "restic" in names:
            restic(bucket, "init")
            restic(bucket, "backup", "/cold/data")
        if "rclone" in names:
            rclone(bucket, "copy", "/cold/data", f"far:{BUCKET}/rclone")
        sh("zpool", "export", "cold", timeout=600)


@contextmanager
def target() -> Iterator[None]:
    """An empty folder in memory; afterwards all files were in it."""
    TARGET.mkdir()
    try:
        yield
        found = [path for path in TARGET.rglob("*") if path.is_file()]
        assert len(found) == FILES + 1, len(found)
        assert sum(path.stat().st_size for path in found) == FILES * SIZE + (LARGE << 20)
    finally:
        shutil.rmtree(TARGET)


async def copy_all(parts: dict[str, float]) -> None:
    """As 'zvaultctl restore' does it, from the mounted snapshot on; adds the moment at which each part ended."""
    async with start_tree_worker(str(ROOT), str(TARGET)) as worker:
        plan = await worker.plan(None, keep_same=False)
        parts["plan"] = time.monotonic()
        assert (await worker.copy(plan.tops, overwrite=False)).failures == 0
        parts["copy"] = time.monotonic()
        assert not [one.unlike async for one in worker.compare(plan.tops) if one.unlike]
        parts["compare"] = time.monotonic()


def restore_vault(bucket: Bucket) -> float:
    """By zvault, whose server has nothing in memory; the seconds from the pool's import on."""
    with zvault(bucket, *DISK) as disk, parameters(read_profile("blockstore")):
        parts = {"begin": time.monotonic()}
        sh("zpool", "import", "-N", "-d", disk.device, "cold", timeout=600)
        parts["import"] = time.monotonic()
        ROOT.mkdir(exist_ok=True)
        sh("mount", "-t", "zfs", SNAPSHOT, str(ROOT))
        parts["mount"] = time.monotonic()
        asyncio.run(copy_all(parts))
        took = time.monotonic() - parts["begin"]
        sh("umount", str(ROOT))
        sh("zpool", "export", "cold", timeout=600)
    say_parts(parts)
    return took


def restore(what: str, bucket: Bucket, facts: dict[str, object], _: int) -> float:
    """One restore; its seconds."""
    with target():
        began = time.monotonic()
        if what == "restic":
            restic(bucket, "restore", "latest", "--target", str(TARGET))
        elif what == "rclone":
            rclone(bucket, "copy", f"far:{BUCKET}/rclone", str(TARGET))
        took = restore_vault(bucket) if what == "zvault" else time.monotonic() - began
    say(f"{what}: {(FILES + 1) / took:.0f} files/s")
    facts[f"{what}_files_per_second"] = round((FILES + 1) / took)
    return took


def main() -> None:
    """Race them."""
    names = ["zvault", *(name for name in ("restic", "rclone") if find_program(name))]
    wanted, rounds = chosen({name: partial(print, name) for name in names}, rounds=1)  # type: ignore[misc]
    facts: dict[str, object] = {}
    with place(), store(address=HERE) as bucket, away(AWAY):
        with zvault(bucket, *DISK) as disk:
            back_up(bucket, disk, list(wanted))
        seconds = race({name: partial(restore, name, bucket, facts) for name in wanted}, rounds)
    ratios = {f"{name}_over_zvault": ratio(seconds, [name], "zvault") for name in names[1:]}
    finish("restore_bucket", seconds, ratios, files=FILES, large_mib=LARGE, away_ms=AWAY, **facts)


if __name__ == "__main__":
    main()
