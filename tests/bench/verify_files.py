"""How fast a verification reads many small files out of slow storage: one side of it, listed and hashed.

Contenders: the threads that zvault reads with on this host, and the scripts with which it reads on others (find, then
sha256sum), as it read everywhere before. Before each run the pool is exported and imported, so nothing of it is cached.
FILES=10000 in the environment has so many.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "lab"))
import requests_seen
from report import chosen, finish, race, ratio, say
from restore_files import FILES, MODELS, ROOT, SIZE, SNAPSHOT, vault
from storage import REQUESTS, STORAGE, Model, storage
from world import sh

from zvault.core.integrity.verification import KeyRange, KeySpread, select_content_ranges
from zvault.ops.restore.side_reader import ScriptReader, SideReader, open_side_reader
from zvault.ops.restore.snapshot_reader import OpenSnapshot
from zvault.system import hash_files
from zvault.system.process.runner import HostRunner
from zvault.zfs.host import LocalHost

READERS = ("threads", "scripts")


def run(reader: str, model: Model, facts: dict[str, object], number: int) -> float:
    """Read it once with nothing cached; the seconds that took."""
    sh("zpool", "export", "cold", timeout=600)
    sh("zpool", "import", "-N", "cold", timeout=600)
    ROOT.mkdir(exist_ok=True)
    sh("mount", "-t", "zfs", SNAPSHOT, str(ROOT))
    began = time.monotonic()
    try:
        asyncio.run(verify(reader))
        took = time.monotonic() - began
    finally:
        sh("umount", str(ROOT))
    asked = len(requests_seen.read(REQUESTS, began, began + took))
    least = asked * model.latency / model.slots
    say(f"{reader}: {FILES / took:.0f} files/s, {asked} requests, {took / least:.2f} of the limit")
    facts[f"{reader}_files_of_limit"] = round(took / least, 2)
    return took


async def verify(reader: str) -> None:
    """As 'zvaultctl verify --level full' reads the vault."""
    side = OpenSnapshot(LocalHost(HostRunner()), str(ROOT))
    if reader == "scripts":
        await _hash_all(ScriptReader(side))
        return
    async with open_side_reader(side) as threaded:
        await _hash_all(threaded)


async def _hash_all(side: SideReader) -> None:
    mix = KeySpread.of(4711)
    files = await side.list_entries(mix, KeyRange(), everything=True)
    wanted = [*select_content_ranges(files, mix, KeyRange())]
    assert len(wanted) == FILES
    for batch in hash_files.split_in_hash_batches(wanted, side.batch_size):
        assert len((await side.hash_batch(batch)).hashes) == len(batch)


def main() -> None:
    """Race them on each model."""
    contenders = {f"{one} {model}": partial(print, model) for model in MODELS for one in READERS}
    wanted, rounds = chosen(contenders, rounds=1)
    seconds: dict[str, list[float]] = {}
    facts: dict[str, object] = {}
    with storage(2 * FILES * SIZE >> 20 | 64):
        for name in MODELS:
            model = STORAGE[name]
            assert isinstance(model, Model)
            readers = [one for one in READERS if f"{one} {name}" in wanted]
            found: dict[str, object] = {}
            with ExitStack() as stack:
                if readers:
                    stack.enter_context(vault(model))
                    some = {f"{one} {name}": partial(run, one, model, found) for one in readers}
                    seconds |= race(some, rounds)
            facts |= {f"{name}_{key}": value for key, value in found.items()}
    ratios = {
        f"scripts_over_threads_{name}": ratio(seconds, [f"scripts {name}"], f"threads {name}")
        for name in MODELS
    }
    finish("verify_files", seconds, ratios, files=FILES, **facts)


if __name__ == "__main__":
    main()
