"""bcache's superblocks: read those of two devices, and make blank ones a backing device and its cache."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from zvault.config.tables.device_parts import CacheTable
from zvault.core.errors import DeviceGone, Refused
from zvault.devices.blank_check import is_blank
from zvault.devices.layer import LayerJob
from zvault.system.process.runner import ProcessRunner

SUPERBLOCK_SECTOR = 512

DATA_OFFSET = 4 << 20
"""Bytes before the data of a backing device. With the default, 8 KiB, each aligned request would touch two objects of
a store. With this value, requests stay aligned to objects of up to 4 MiB."""

LEAST_CACHE_DEVICE = 1 << 30
"""Bytes. The kernel takes 257 MiB (513 buckets of make-bcache's 512 KiB; cache_alloc in drivers/md/bcache/super.c), but
a cache of 300 MiB stopped for half a minute at every fifth registration in the lab."""

TOOL_DEADLINE = 60.0


@dataclass(frozen=True, slots=True)
class BcacheSuperblock:
    """A superblock. ``kind``: ``backing device`` or ``cache device``. ``cset``: the cache set it belongs to.

    ``state``, of a backing device: ``detached``, ``clean``, ``dirty`` or ``inconsistent``.
    """

    kind: str
    cset: str
    state: str


def parse_superblock(text: str) -> BcacheSuperblock | None:
    """Parse the output of bcache-super-show(8); None if it shows no superblock."""
    lines = (line.split(None, 1) for line in text.splitlines())
    fields = {words[0]: words[1] for words in lines if len(words) == 2}
    kind, state = (
        re.search(r"\[(.+)\]", fields.get(name, "")) for name in ("sb.version", "dev.data.cache_state")
    )
    if fields.get("sb.magic") != "ok" or kind is None:
        return None
    return BcacheSuperblock(kind[1], fields.get("cset.uuid", ""), state[1] if state else "")


async def read_superblock(path: str, runner: ProcessRunner) -> BcacheSuperblock | None:
    """A device's superblock, None if it has none."""
    result = await runner.run(["bcache-super-show", path], deadline=TOOL_DEADLINE, check=False)
    return parse_superblock(result.stdout)


async def format_bcache(job: LayerJob, cache: CacheTable, runner: ProcessRunner) -> None:
    """Write superblocks to blank devices, if the vault may be created.

    Raises Refused if a device holds other data, NotFound if it is blank although the vault exists, DeviceGone if
    backing device and cache do not belong together.
    """
    behind, front = await read_superblock(job.below, runner), await read_superblock(cache.bcache, runner)
    attached = behind is not None and behind.state != "detached"
    if behind is not None and attached and front is None:
        raise _make_lost_cache_error(job.below, cache.bcache, behind)
    for path, found, kind in ((job.below, behind, "backing device"), (cache.bcache, front, "cache device")):
        if found is None:
            await _refuse_unless_blank(path, job, runner)
        elif found.kind != kind:
            raise Refused(
                f"{path} is no {kind} of bcache", f"it is a {found.kind}", "correct 'cache' in zvault.toml"
            )
    if behind is not None and attached and front is not None and front.cset != behind.cset:
        raise _wrong_cache(job.below, cache.bcache, behind)
    if front is None and (size := _bytes(cache.bcache)) < LEAST_CACHE_DEVICE:
        raise Refused(
            f"{cache.bcache} is too small for a cache",
            f"it has {size >> 20} MiB, and bcache needs {LEAST_CACHE_DEVICE >> 20}",
            "give it a larger partition",
        )
    for words in make_bcache_argvs(
        job.below if behind is None else None, cache.bcache if front is None else None
    ):
        job.say(f"running {' '.join(words)}")
        await runner.run(words, deadline=TOOL_DEADLINE)


def make_bcache_argvs(backing: str | None, cache: str | None) -> list[list[str]]:
    """Argvs that make a backing device and a cache; None stands for a device that is one already."""
    made = (
        [["make-bcache", "-B", "--data-offset", str(DATA_OFFSET // SUPERBLOCK_SECTOR), backing]]
        if backing
        else []
    )
    return [*made, ["make-bcache", "-C", cache]] if cache else made


async def _refuse_unless_blank(path: str, job: LayerJob, runner: ProcessRunner) -> None:
    empty, holds = await is_blank(path, runner)
    if not empty:
        raise Refused(
            f"{path} is not part of a bcache, and zvault will not overwrite what is on it",
            f"it holds {holds}",
            "correct 'cache' in zvault.toml; a cache can be put in front of a new vault only",
        )
    if not job.create:
        raise job.absence.error(f"{path} is blank and should be part of a bcache")


def _make_lost_cache_error(below: str, cache: str, behind: BcacheSuperblock) -> DeviceGone:
    """The error for a cache that is there and cannot be read, as one that broke, or has been wiped."""
    lost = (
        "it holds what was not written back, so the pool is damaged without it"
        if behind.state == "dirty"
        else "all was written back (docs/how-to/cache-a-slow-vault.md has how to go on without it)"
    )
    return DeviceGone(
        f"the cache {cache} of {below} cannot be read, was wiped, or is another device",
        f"{below} is {behind.state}: {lost}",
        f"see the kernel's log, and bring the device back that was {below}'s cache: zvault does not force it to run"
        " without",
    )


def _wrong_cache(below: str, cache: str, behind: BcacheSuperblock) -> DeviceGone:
    why = f"it is {behind.state}: without its cache the pool is damaged, so zvault does not force it to run"
    what_next = "bring back the device that was its cache"
    if behind.state == "clean":
        why = "it is clean: its cache holds no dirty data"
        what_next = "use that cache again, or detach it by hand: see bcache.rst in the kernel's admin-guide"
    return DeviceGone(
        f"{below} belongs to another cache than {cache}: to the set {behind.cset}", why, what_next
    )


def _bytes(path: str) -> int:
    try:
        size = Path("/sys/class/block", Path(path).resolve().name, "size").read_text(encoding="ascii")
    except OSError:
        return 0
    return int(size) * SUPERBLOCK_SECTOR
