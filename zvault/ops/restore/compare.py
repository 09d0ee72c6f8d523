"""Compare two open snapshots that should hold the same: files by hash, in full also their traits, volumes by pieces.

The hashing runs where the data is, on both sides at the same time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from zvault.api.emit import Emit
from zvault.core.integrity.verification import (
    HASHED_PIECE,
    KEY_SPACE,
    ContentDifference,
    ContentRange,
    KeyRange,
    KeySpread,
    TreeEntry,
    VerificationFindings,
    cut_content_ranges,
    list_hash_differences,
    list_trait_differences,
    select_content_ranges,
    select_sample_keys,
)
from zvault.ops.restore.snapshot_reader import OpenSnapshot, run_script
from zvault.system import hash_files

FILES_PER_LISTING = 20_000
"""Files listed together: so many names are in memory, of each side."""

SAID = 5
"""Complaints of the tools that are told, of each batch."""

GiveWay = Callable[[], Awaitable[None]]
"""Waits while a backup wants the vault."""


async def never_give_way() -> None:
    """Give way to nobody."""


@dataclass
class SnapshotComparison:
    """Two open snapshots. ``name`` is what the dataset is called when it is told of; ``seed`` mixes the sample."""

    name: str
    seed: int
    source: OpenSnapshot
    vault: OpenSnapshot
    found: VerificationFindings
    emit: Emit
    give_way: GiveWay = never_give_way
    started: float = field(default_factory=time.monotonic)

    async def compare(self, start: int, share: float, budget: int | None, *, everything: bool) -> KeyRange:
        """Compare a range of keys from ``start`` on, and return it. Raises what keeps it from being read."""
        mix, size = KeySpread.of(self.seed), self.source.size
        if size is not None:
            # Of ten pieces at least, as of a hundred files.
            keys = select_sample_keys(
                start, share, files=10 * -(-size // HASHED_PIECE), bytes_=size, budget=budget
            )
            if size != self.vault.size:
                self._tell(
                    [ContentDifference(self.name, "the volume's size", str(size), str(self.vault.size))]
                )
            await self._hash(cut_content_ranges(b"", size, mix, keys), size)
            return keys
        count, bytes_ = hash_files.parse_count(
            await run_script(self.source, hash_files.count_argv(self.source.root))
        )
        keys = select_sample_keys(start, share, files=count, bytes_=bytes_, budget=budget)
        for part in keys.parts(1 + count * keys.length // KEY_SPACE // FILES_PER_LISTING):
            if everything:
                mine, its = await asyncio.gather(*(self._list(side, mix, part, True) for side in self._sides))
                own = ([one for one in side if part.has(mix.key(one.number))] for side in (mine, its))
                self._tell(list_trait_differences(self.name, *own))
                there = {one.path for one in its}
                mine = [one for one in mine if one.path in there]
            else:
                mine = await self._list(self.source, mix, part, False)
            await self._hash(select_content_ranges(mine, mix, part), bytes_ * keys.length // KEY_SPACE)
        return keys

    @property
    def _sides(self) -> tuple[OpenSnapshot, OpenSnapshot]:
        return self.source, self.vault

    async def _list(
        self, side: OpenSnapshot, mix: KeySpread, keys: KeyRange, everything: bool
    ) -> list[TreeEntry]:
        await self.give_way()
        argv = hash_files.list_argv(side.root, mix, keys, everything=everything)
        return hash_files.parse_list(await run_script(side, argv, hash_files.LIST_FILES_DEADLINE))

    async def _hash(self, wanted: Sequence[ContentRange], total: int) -> None:
        for batch in hash_files.split_in_hash_batches(wanted):
            await self.give_way()
            mine, its = await asyncio.gather(*(self._hashes(side, batch) for side in self._sides))
            self.found.files += len(batch)
            self.found.bytes += sum(one.size for one in batch)
            self._tell(list_hash_differences(self.name, batch, mine, its))
            self._report(total)

    async def _hashes(self, side: OpenSnapshot, batch: Sequence[ContentRange]) -> dict[ContentRange, str]:
        """The hashes of a batch, without those of what cannot be read there."""
        argv = hash_files.hash_argv(side.root, batch)
        size = sum(one.size for one in batch)
        result = await side.host.run(argv, deadline=hash_files.estimate_hash_deadline(size), check=False)
        self.found.vault_seconds += result.seconds if side is self.vault else 0.0
        said = hash_files.list_read_complaints(result.stderr)
        if batch[0].length is not None and said and len(batch) > 1:
            # A piece that could not be read to its end has a hash all the same: see which it was.
            return {piece: one for each in batch for piece, one in (await self._hashes(side, [each])).items()}
        for text in said[:SAID]:
            self.emit("warning", text=f"{self.name}: {text}")
        return {} if batch[0].length is not None and said else hash_files.parse_hashes(batch, result.stdout)

    def _tell(self, differences: Sequence[ContentDifference]) -> None:
        for one in self.found.add(differences):
            self.emit("warning", text=f"differs: {one}")

    def _report(self, total: int) -> None:
        done = self.found.bytes
        self.emit(
            "progress",
            dataset=self.name,
            bytes=done,
            total=total,
            rate=done / max(0.001, time.monotonic() - self.started),
            buffer=None,
            run_bytes=done,
            run_total=max(done, total),
        )
