"""What reading a vault makes of a slow device: a send, a scrub, a file and a verification, against the device alone.

For each model of storage (storage.py): raw is fio, reading MIB MiB with 64 requests in flight, of 1 MiB or of 4 MiB,
whichever is faster. 'send' writes a snapshot of MIB MiB in records of 128 KiB to nowhere, 'scrub' is 'zpool scrub -w',
'file' is what zvault does to restore the one file in it from the mounted snapshot, into memory, and 'verify' hashes it
as a verification does. All with OpenZFS's parameters, and with those of zvault's profile for that kind of device, set
as they are while a vault is up and read. Before each the pool is exported and imported, so nothing of it is cached.
Compared are seconds for a GiB.

A last line has the share of raw that each reaches. MIB= in the environment is the size, EXTRA= has parameters in place
of the profile's.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "lab"))
import requests_seen
from receive import idle
from report import chosen, finish, race, say
from storage import NBD, REQUESTS, STORAGE, Model, storage
from world import sh

from zvault.config.profile import VaultProfile
from zvault.core.integrity.verification import KeyRange, KeySpread, select_content_ranges
from zvault.ops.restore.side_reader import ThreadedReader
from zvault.system import hash_files
from zvault.system.file_trees.tree_worker import start_tree_worker

MIB = int(os.environ.get("MIB", "512"))
EXTRA = os.environ.get("EXTRA", "")
"""Parameters to try in place of the profile's, as in 'zfs_vdev_nia_delay=5 zfs_send_queue_length=64M'."""
MODELS = ("hdd", "s3")
PARAMETERS = Path("/sys/module/zfs/parameters")
PROFILES = Path(__file__).parents[2] / "config" / "profiles"
PATIENCE = 1800.0


def read_profile(name: str) -> dict[str, str]:
    """The parameters of a vault that is up and read."""
    text = tomllib.loads((PROFILES / f"{name}.toml").read_text())
    words = (word.partition("=") for word in EXTRA.split())
    text["reading"] = {**text.get("reading", {}), **{key: value for key, _, value in words}}
    profile = VaultProfile.model_validate(text)
    return {**profile.module, **profile.reading}


@contextmanager
def parameters(values: Mapping[str, str]) -> Iterator[None]:
    """Parameters of OpenZFS for a block."""
    before = {name: (PARAMETERS / name).read_text() for name in values}
    try:
        for name, value in values.items():
            (PARAMETERS / name).write_text(value)
        yield
    finally:
        for name, value in before.items():
            (PARAMETERS / name).write_text(value)


@contextmanager
def vault(model: Model) -> Iterator[None]:
    """A pool on the model with a snapshot of so many MiB, written with the profile's parameters."""
    with model.raw():
        queue = Path("/sys/block") / Path(NBD).name / "queue"
        (queue / "scheduler").write_text("none")
        (queue / "max_sectors_kb").write_text("32768")
        with parameters(read_profile(model.profile)):
            sh(
                "zpool",
                "create",
                "-o",
                "ashift=12",
                "-O",
                "compression=off",
                "-O",
                "mountpoint=/cold",
                "cold",
                NBD,
            )
            sh("zfs", "create", "cold/data")
            noise = os.urandom(1 << 20)
            with Path("/cold/data/file").open("wb") as file:
                for _ in range(MIB):
                    file.write(noise)
            sh("zfs", "snapshot", "cold/data@s")
            sh("zpool", "export", "cold", timeout=PATIENCE)
        yield


def timed(action: Callable[[], None], model: Model, what: str) -> float:
    """The seconds for each GiB; what was asked of the device meanwhile is said."""
    slept, began = idle(), time.monotonic()
    action()
    took = time.monotonic() - began
    rested = (idle() - slept) / took
    time.sleep(1)
    seen = [one for one in requests_seen.read(REQUESTS, began, began + took) if one.kind == "read"]
    size = sum(one.size for one in seen) / len(seen) / (1 << 20) if seen else 0
    at_work = sum(one.done - one.begun for one in seen) / took
    say(
        f"{what}: {MIB / took:.1f} MiB/s in {len(seen)} reads of {size:.2f} MiB, {at_work:.1f} of {model.slots} slots"
        f" at work, the processor idle for {rested:.0%}"
    )
    return took / MIB * 1024


def read_raw(block: str) -> None:
    """The device alone."""
    argv = ("fio", "--name=raw", f"--filename={NBD}", "--rw=read", "--direct=1", "--ioengine=libaio")
    more = (f"--bs={block}", "--iodepth=64", f"--size={MIB}M", "--output-format=json")
    out = sh(*argv, *more, timeout=PATIENCE)
    assert json.loads(out[out.index("{") :])["jobs"][0]["error"] == 0


def send_all() -> None:
    """The snapshot to nowhere."""
    with Path("/dev/null").open("wb") as nowhere:
        subprocess.run(["zfs", "send", "-c", SNAPSHOT], stdout=nowhere, check=True, timeout=PATIENCE)


def scrub_all() -> None:
    """The pool from end to end."""
    sh("zpool", "scrub", "-w", "cold", timeout=PATIENCE)


SNAPSHOT, ROOT, TARGET = "cold/data@s", Path("/mnt/snapshot"), Path("/mnt/target")


@contextmanager
def mounted() -> Iterator[None]:
    """The snapshot at ROOT, and an empty TARGET in memory."""
    for folder in (ROOT, TARGET):
        folder.mkdir(exist_ok=True)
    sh("mount", "-t", "zfs", SNAPSHOT, str(ROOT))
    try:
        yield
    finally:
        sh("umount", str(ROOT))
        shutil.rmtree(TARGET)


def restore_file() -> None:
    """As 'zvaultctl restore' copies it, from the mounted snapshot on."""

    async def restore() -> None:
        async with start_tree_worker(str(ROOT), str(TARGET)) as worker:
            plan = await worker.plan(None, keep_same=False)
            assert plan.bytes == MIB << 20
            assert (await worker.copy(plan.tops, overwrite=False)).failures == 0

    with mounted():
        asyncio.run(restore())


def verify_all() -> None:
    """As a full verification reads it: pieces of large files, as many bytes in one go as there."""

    async def verify() -> None:
        async with start_tree_worker(str(ROOT), str(ROOT)) as worker:
            reader, mix = ThreadedReader(worker), KeySpread.of(0)
            found = await reader.list_entries(mix, KeyRange(), everything=False)
            wanted = select_content_ranges(found, mix, KeyRange())
            batches = hash_files.split_in_hash_batches(wanted, reader.batch_size)
            hashed = [await reader.hash_batch(batch) for batch in batches]
            assert sum(piece.size for one in hashed for piece in one.hashes) == MIB << 20

    with mounted():
        asyncio.run(verify())


ACTIONS = {"send": send_all, "scrub": scrub_all, "file": restore_file, "verify": verify_all}


def run(model: Model, what: str, settings: str, _: int) -> float:
    """One contender, with nothing cached; its seconds for each GiB."""
    if what == "raw":
        return min(timed(partial(read_raw, block), model, f"raw, {block}") for block in ("1M", "4M"))
    with parameters(read_profile(model.profile) if settings == "zvault" else {}):
        sh("zpool", "import", "-N", "cold", timeout=PATIENCE)
        try:
            return timed(ACTIONS[what], model, f"{what}, {settings}")
        finally:
            sh("zpool", "export", "cold", timeout=PATIENCE)


def main() -> None:
    """Race them on each model."""
    kinds = {"raw": ("raw", "")} | {
        f"{what}-{settings}": (what, settings) for what in ACTIONS for settings in ("defaults", "zvault")
    }
    contenders = {f"{name}/{kind}": print for name in STORAGE for kind in kinds if name != "rbd"}
    seldom = [one for one in contenders if one.partition("/")[0] not in MODELS]
    wanted, rounds = chosen(contenders, rounds=1, seldom=seldom)  # type: ignore[arg-type]
    seconds: dict[str, list[float]] = {}
    with storage(2 * MIB):
        for name, model in STORAGE.items():
            mine = {kind: pair for kind, pair in kinds.items() if f"{name}/{kind}" in wanted}
            with ExitStack() as stack:
                if mine and isinstance(model, Model):
                    stack.enter_context(vault(model))
                    runs = {f"{name}/{kind}": partial(run, model, *pair) for kind, pair in mine.items()}
                    seconds |= race(runs, rounds)
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    ratios = {
        f"{name}_{kind.replace('-', '_')}_of_raw": middle[f"{name}/raw"] / middle[f"{name}/{kind}"]
        for name in STORAGE
        for kind in kinds
        if kind != "raw" and {f"{name}/raw", f"{name}/{kind}"} <= middle.keys()
    }
    mib_per_s = {name: round(1024 / value, 1) for name, value in middle.items()}
    finish("restore", seconds, ratios, mib=MIB, mib_per_s=mib_per_s, extra=EXTRA)


if __name__ == "__main__":
    main()
