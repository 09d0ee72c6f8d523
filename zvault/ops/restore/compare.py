"""Compare two open snapshots that should hold the same: files by hash, in full also their traits, volumes by pieces.

The hashing runs where the data is, on both sides at the same time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from zvault.api.events import Emit, ProgressMade, WarningEvent
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
from zvault.ops.restore.side_reader import SideReader, open_side_reader
from zvault.ops.restore.snapshot_reader import OpenSnapshot, run_script
from zvault.system import hash_files

FILES_PER_LISTING = 20_000
"""Files listed together: so many names are in memory, of each side."""

SAID = 5
"""Complaints of the tools that are told, of each batch."""

Sides = tuple[SideReader, SideReader]
"""What reads the source and the vault."""

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
        async with open_side_reader(self.source) as mine, open_side_reader(self.vault) as its:
            return await self._compare((mine, its), (start, share, budget), everything=everything)

    async def _compare(
        self, sides: Sides, sample: tuple[int, float, int | None], *, everything: bool
    ) -> KeyRange:
        (start, share, budget), mix, size = sample, KeySpread.of(self.seed), self.source.size
        if size is not None:
            # Of ten pieces at least, as of a hundred files.
            keys = select_sample_keys(
                start, share, files=10 * -(-size // HASHED_PIECE), bytes_=size, budget=budget
            )
            if size != self.vault.size:
                self._tell(
                    [ContentDifference(self.name, "the volume's size", str(size), str(self.vault.size))]
                )
            await self._hash(sides, cut_content_ranges(b"", size, mix, keys), size)
            return keys
        count, bytes_ = hash_files.parse_count(
            await run_script(self.source, hash_files.count_argv(self.source.root))
        )
        keys = select_sample_keys(start, share, files=count, bytes_=bytes_, budget=budget)
        for part in keys.parts(1 + count * keys.length // KEY_SPACE // FILES_PER_LISTING):
            if everything:
                mine, its = await asyncio.gather(*(self._list(side, mix, part, True) for side in sides))
                own = ([one for one in side if part.has(mix.key(one.number))] for side in (mine, its))
                self._tell(list_trait_differences(self.name, *own))
                there = {one.path for one in its}
                mine = [one for one in mine if one.path in there]
            else:
                mine = await self._list(sides[0], mix, part, False)
            await self._hash(sides, select_content_ranges(mine, mix, part), bytes_ * keys.length // KEY_SPACE)
        return keys

    async def _list(
        self, side: SideReader, mix: KeySpread, keys: KeyRange, everything: bool
    ) -> list[TreeEntry]:
        await self.give_way()
        return await side.list_entries(mix, keys, everything=everything)

    async def _hash(self, sides: Sides, wanted: Iterable[ContentRange], total: int) -> None:
        most = min(side.batch_size for side in sides)
        for batch in hash_files.split_in_hash_batches(wanted, most):
            await self.give_way()
            mine, its = await asyncio.gather(*(side.hash_batch(batch) for side in sides))
            for text in [*mine.unread[:SAID], *its.unread[:SAID]]:
                self.emit(WarningEvent(text=f"{self.name}: {text}"))
            self.found.files += len(batch)
            self.found.bytes += sum(one.size for one in batch)
            self.found.vault_seconds += its.seconds
            self._tell(list_hash_differences(self.name, batch, mine.hashes, its.hashes))
            self._report(total)

    def _tell(self, differences: Sequence[ContentDifference]) -> None:
        for one in self.found.add(differences):
            self.emit(WarningEvent(text=f"differs: {one}"))

    def _report(self, total: int) -> None:
        done = self.found.bytes
        self.emit(
            ProgressMade(
                dataset=self.name,
                bytes=done,
                total=total,
                rate=done / max(0.001, time.monotonic() - self.started),
                buffer=None,
                run_bytes=done,
                run_total=max(done, total),
            )
        )
