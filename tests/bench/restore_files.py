"""How fast files come back from slow storage: many small ones, out of a snapshot into a folder in memory.

Contenders: what zvault does (plan, copy with hashes, compare the copies), with the parameters that are set while a
vault is read; and 'cp -a' and rsync from the mounted snapshot, which compare nothing, with OpenZFS's parameters. Before
each run the pool is exported and imported, so nothing of it is cached. FILES=10000 in the environment has so many.

A last line has each one's files a second, and its seconds over what the device's requests take at least (requests ×
latency ÷ slots). rsync takes part where get-peers could fetch it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "lab"))
import programs
import requests_seen
from programs import run_program
from receive import idle
from report import chosen, finish, race, ratio, say
from restore import parameters, read_profile
from storage import NBD, REQUESTS, STORAGE, Model, storage
from world import sh

from zvault.system.file_trees.tree_worker import start_tree_worker

FILES = int(os.environ.get("FILES", "1500"))
SIZE = 8 << 10
SNAPSHOT, ROOT, TARGET = "cold/data@s", Path("/mnt/snapshot"), Path("/mnt/target")
MODELS = ("s3", "hdd")
CONTENDERS = ("zvault", "cp", "rsync")


@contextmanager
def vault(model: Model) -> Iterator[None]:
    """A pool on the model, with the files in it and a snapshot of them."""
    with model.raw():
        sh("zpool", "create", "-O", "compression=off", "-O", "mountpoint=/cold", "cold", NBD)
        sh("zfs", "create", "cold/data")
        for number in range(FILES):
            folder = Path("/cold/data") / f"d{number % 40}"
            folder.mkdir(exist_ok=True)
            (folder / f"f{number}").write_bytes(os.urandom(SIZE))
        sh("zfs", "snapshot", SNAPSHOT)
        try:
            yield
        finally:
            sh("zpool", "export", "cold", timeout=600)


def run(copy: str, model: Model, facts: dict[str, object], number: int) -> float:
    """One restore with nothing cached; its seconds."""
    sh("zpool", "export", "cold", timeout=600)
    sh("zpool", "import", "-N", "cold", timeout=600)
    for folder in (ROOT, TARGET):
        folder.mkdir(exist_ok=True)
    sh("mount", "-t", "zfs", SNAPSHOT, str(ROOT))
    slept, began = idle(), time.monotonic()
    try:
        if copy == "cp":
            sh("cp", "-a", f"{ROOT}/.", str(TARGET), timeout=3600)
        elif copy == "rsync":
            run_program(programs.find_program("rsync") or "rsync", "-aHAX", f"{ROOT}/", f"{TARGET}/")
        else:
            with parameters(read_profile(model.profile)):
                asyncio.run(restore())
        took = time.monotonic() - began
        rested = (idle() - slept) / took
    finally:
        sh("umount", str(ROOT))
        shutil.rmtree(TARGET)
    asked = len(requests_seen.read(REQUESTS, began, began + took))
    least = asked * model.latency / model.slots
    say(
        f"{copy}: {FILES / took:.0f} files/s, {asked} requests, {took / least:.2f} of the limit,"
        f" the processor idle for {rested:.0%}"
    )
    facts[f"{copy}_files_of_limit"] = round(took / least, 2)
    facts[f"{copy}_files_per_second"] = round(FILES / took)
    return took


async def restore() -> None:
    """As 'zvaultctl restore' does it, from the mounted snapshot on; says what each part of it took."""
    parts = {"begin": time.monotonic()}
    async with start_tree_worker(str(ROOT), str(TARGET)) as worker:
        plan = await worker.plan(None, keep_same=False)
        assert plan.files == FILES
        parts["plan"] = time.monotonic()
        assert (await worker.copy(plan.tops, overwrite=False)).failures == 0
        parts["copy"] = time.monotonic()
        assert not [one.unlike async for one in worker.compare(plan.tops) if one.unlike]
        parts["compare"] = time.monotonic()
    say_parts(parts)


def say_parts(parts: Mapping[str, float]) -> None:
    """Say what each part took; ``parts`` has the moment at which each ended, the first the one at which all began."""
    ends = pairwise(parts.items())
    say(", ".join(f"{name} {end - begin:.2f} s" for (_, begin), (name, end) in ends))


def main() -> None:
    """Race them on each model."""
    every = [copy for copy in CONTENDERS if copy != "rsync" or programs.find_program("rsync")]
    contenders = {f"{copy} {model}": partial(print, model) for model in MODELS for copy in every}
    wanted, rounds = chosen(contenders, rounds=1)
    seconds: dict[str, list[float]] = {}
    facts: dict[str, object] = {}
    with storage(2 * FILES * SIZE >> 20 | 64):
        for name in MODELS:
            model = STORAGE[name]
            assert isinstance(model, Model)
            copies = [copy for copy in every if f"{copy} {name}" in wanted]
            found: dict[str, object] = {}
            with ExitStack() as stack:
                if copies:
                    stack.enter_context(vault(model))
                    seconds |= race(
                        {f"{copy} {name}": partial(run, copy, model, found) for copy in copies}, rounds
                    )
            facts |= {f"{name}_{key}": value for key, value in found.items()}
    ratios = {
        f"{copy}_over_zvault_{name}": ratio(seconds, [f"{copy} {name}"], f"zvault {name}")
        for name in MODELS
        for copy in CONTENDERS[1:]
    }
    finish("restore_files", seconds, ratios, files=FILES, **facts)


if __name__ == "__main__":
    main()
