"""Keeps the last base sacred: every base is held and bookmarked on the source, for each vault (invariant 2).

Holds and bookmarks are keyed by the vault pool's GUID and the snapshot's GUID, never by names. The order of the
calls is such that a crash between any two leaves too much protected, never too little:
hold the snapshots to be sent, send, bookmark the last, release the others, destroy the old bookmark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from zvault.core.model import Bookmark, Dataset, Snapshot
from zvault.ops.together import Protects

HOLD = "zvault:"
MARK = "zvault_"


def hold_tag(vault_guid: int) -> str:
    """The tag that holds a vault's base on the source."""
    return f"{HOLD}{vault_guid:x}"


def mark_name(vault_guid: int, snapshot_guid: int) -> str:
    """The name, after ``#``, of the bookmark of a vault's base."""
    return f"{MARK}{vault_guid:x}_{snapshot_guid:x}"


def marks_by_vault(dataset: Dataset) -> dict[int, list[Bookmark]]:
    """zvault's bookmarks of a source dataset, by the GUID of the vault they were made for."""
    found: dict[int, list[Bookmark]] = {}
    for mark in dataset.bookmarks:
        prefix, _, rest = mark.tag.partition("_")
        vault, _, _ = rest.partition("_")
        if f"{prefix}_" == MARK and vault:
            try:
                found.setdefault(int(vault, 16), []).append(mark)
            except ValueError:
                continue
    return found


@dataclass
class Guard:
    """The protection of one source dataset's base for one vault.

    ``held`` are the names of its snapshots that carry this vault's hold, ``marks`` its bookmarks for this vault.
    """

    lzc: Protects
    vault_guid: int
    dataset: str
    held: set[str] = field(default_factory=set)
    marks: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, lzc: Protects, vault_guid: int, dataset: Dataset, holds: Mapping[str, set[str]]) -> Guard:
        """Build it from what one listing saw."""
        tag = hold_tag(vault_guid)
        return cls(
            lzc,
            vault_guid,
            dataset.name,
            {snap.name for snap in dataset.snapshots if tag in holds.get(snap.name, ())},
            {mark.name for mark in marks_by_vault(dataset).get(vault_guid, [])},
        )

    async def cover(self, *snapshots: Snapshot) -> None:
        """Hold snapshots that are about to be sent: each may be the base when the stream breaks off."""
        if new := sorted({snap.name for snap in snapshots} - self.held):
            await self.lzc.hold(new, hold_tag(self.vault_guid))
            self.held.update(new)

    @staticmethod
    async def cover_all(wanted: Sequence[tuple[Guard, Sequence[Snapshot]]]) -> None:
        """The same for many datasets of one pool and one vault, in one call."""
        new = {guard.dataset: {snap.name for snap in snaps} - guard.held for guard, snaps in wanted}
        if names := sorted(name for found in new.values() for name in found):
            first = wanted[0][0]
            await first.lzc.hold(names, hold_tag(first.vault_guid))
            for guard, _ in wanted:
                guard.held |= new[guard.dataset]

    async def borrow(self, base: Snapshot) -> Bookmark:
        """Bookmark in this dataset a snapshot that another owns since one was promoted: a stream may start there."""
        mark = self._mark(base)
        if mark not in self.marks:
            await self.lzc.bookmark({mark: base.name})
            self.marks.add(mark)
        return Bookmark(self.dataset, mark.partition("#")[2], base.guid, base.createtxg, base.creation)

    def settled(self, base: Snapshot) -> bool:
        """Whether ``base``, and nothing else, is protected."""
        return self.held == {base.name} and self.marks == {self._mark(base)}

    def _mark(self, base: Snapshot) -> str:
        return f"{self.dataset}#{mark_name(self.vault_guid, base.guid)}"

    async def settle(self, base: Snapshot) -> None:
        """The vault has ``base`` now: protect it, then let the former base go. Does nothing when all is so."""
        await self.cover(base)
        mark = self._mark(base)
        if mark not in self.marks:
            await self.lzc.bookmark({mark: base.name})
            self.marks.add(mark)
        if old := sorted(self.held - {base.name}):
            await self.lzc.release(old, hold_tag(self.vault_guid))
            self.held = {base.name}
        if old := sorted(self.marks - {mark}):
            await self.lzc.destroy_bookmarks(old)
            self.marks = {mark}
