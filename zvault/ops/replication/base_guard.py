"""Keeps the last base sacred: every base is held and bookmarked on the source, for each vault (invariant 2).

Holds and bookmarks are keyed by the vault pool's GUID and the snapshot's GUID, never by names. The order of the
calls is such that a crash between any two leaves too much protected, never too little:
hold the snapshots to be sent, send, bookmark the last, release the others, destroy the bookmarks before the former one.

The base before the newest stays bookmarked: a vault that goes back by one run (an older image of its storage, a
checkpoint) ends with that one, and nothing else may be left of it on the source.

While a vault is down its bookmarks are all that tells what it has (ops/replication/lag.py). So one named as by
``make_mark_name`` is made only once the vault is known to have the snapshot. What is only about to be sent is
bookmarked as by ``make_unsent_mark_name``, and what the vault turns out not to have any more as by
``base_names.make_disproved_mark_name``: that it had it must not be forgotten, for then its loss would look as if it
was never sent. All protect alike.

A listing shows bookmarks, but not holds: to ask thousands of snapshots for theirs takes as long as to list them. So
nothing is ever held for a vault from before the oldest of its bookmarks, which is made first where there is none, and
only what came since needs to be asked (``list_perhaps_held``).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from zvault.core.model import Bookmark, Dataset, Snapshot
from zvault.core.names import BookmarkName, DatasetName
from zvault.core.replication.base_names import (
    DISPROVED_MARK,
    MARK_PREFIX,
    group_marks_by_vault,
    make_hold_tag,
    make_mark_name,
    make_unsent_mark_name,
)
from zvault.core.snapshot_list import list_newer_snapshots
from zvault.ops.replication.batched_changes import Protects
from zvault.zfs.changes import NamesGone


def list_perhaps_held(dataset: Dataset, vault_guid: int) -> Sequence[Snapshot]:
    """The snapshots of a source dataset that may carry a vault's hold; all others do not.

    ``zfs promote`` takes the bookmarks up to the origin along with the snapshots. So of a clone, which is what a
    dataset becomes that had to give them, the oldest bookmark left proves nothing.
    """
    marks = group_marks_by_vault(dataset).get(vault_guid)
    if not marks or dataset.origin is not None:
        return dataset.snapshots
    oldest = min(mark.createtxg for mark in marks)
    return list_newer_snapshots(dataset.snapshots, oldest - 1)


@dataclass
class BaseGuard:
    """The protection of one source dataset's base for one vault.

    ``held`` are its snapshots that carry this vault's hold, by name; ``marks`` its bookmarks for this vault, each
    with the transaction group of what it marks.
    """

    lzc: Protects
    vault_guid: int
    dataset: DatasetName
    held: dict[str, Snapshot] = field(default_factory=dict)
    marks: dict[BookmarkName, int] = field(default_factory=dict)
    _before: dict[BookmarkName, int] | None = None
    """The bookmarks as they were before this run advanced anything: the former base is among them."""

    @classmethod
    def of(cls, lzc: Protects, vault_guid: int, dataset: Dataset, holds: Mapping[str, set[str]]) -> BaseGuard:
        """Build it from what a listing saw, and the holds of what is perhaps held."""
        tag = make_hold_tag(vault_guid)
        return cls(
            lzc,
            vault_guid,
            dataset.name,
            {
                snap.name: snap
                for snap in list_perhaps_held(dataset, vault_guid)
                if tag in holds.get(snap.name, ())
            },
            {mark.name: mark.createtxg for mark in group_marks_by_vault(dataset).get(vault_guid, [])},
        )

    async def cover(self, *snapshots: Snapshot) -> None:
        """Hold snapshots that are about to be sent: each may be the base when the stream breaks off.

        Raises NamesGone when some of them are gone; perhaps none is held then.
        """
        if new := self._not_held(snapshots):
            await self._reach(new)
            try:
                await self.lzc.hold(sorted(new), make_hold_tag(self.vault_guid))
            except NamesGone as error:
                self._note_held(new, error)
                raise
            self.held |= new

    def _note_held(self, asked: Mapping[str, Snapshot], error: NamesGone) -> None:
        """Those that are still there are held now, and are to be released in their time."""
        gone = error.among(asked)
        self.held |= {name: snap for name, snap in asked.items() if name not in gone}

    @staticmethod
    async def cover_all(wanted: Sequence[tuple[BaseGuard, Sequence[Snapshot]]]) -> None:
        """The same for many datasets of one pool and one vault, in one call.

        What is gone of one keeps no other from being held; nothing is raised of it.
        """
        guards = [guard for guard, _ in wanted]
        new = [guard._not_held(snaps) for guard, snaps in wanted]
        reached = await asyncio.gather(
            *(guard._reach(found) for guard, found in zip(guards, new, strict=True)), return_exceptions=True
        )
        for error in reached:
            if error is not None and not isinstance(error, NamesGone):
                raise error
        able = [
            (guard, found)
            for guard, found, error in zip(guards, new, reached, strict=True)
            if error is None and found
        ]
        if names := sorted(name for _, found in able for name in found):
            gone = NamesGone("", "", ())
            try:
                await guards[0].lzc.hold(names, make_hold_tag(guards[0].vault_guid))
            except NamesGone as error:
                gone = error
            for guard, found in able:
                guard._note_held(found, gone)

    def _not_held(self, snapshots: Sequence[Snapshot]) -> dict[str, Snapshot]:
        return {snap.name: snap for snap in snapshots if snap.name not in self.held}

    async def _reach(self, held: Mapping[str, Snapshot]) -> None:
        """Bookmark the oldest of what is or is about to be held, should it be older than all bookmarks.

        That is so where there are none, and where the vault has gone back to what was its base once.
        """
        if all_held := [*self.held.values(), *held.values()]:
            oldest = min(all_held, key=_age)
            if oldest.createtxg < min(self.marks.values(), default=math.inf):
                await self._bookmark(oldest, make_unsent_mark_name)

    async def distrust(self, on_vault: Collection[int]) -> None:
        """Have no bookmark tell that the vault has what it turns out not to have; it goes on protecting.

        ``on_vault`` are the GUIDs of the snapshots of the dataset that follows this one there. What is older than a
        bookmark that is right may be pruned there by now: it tells nothing more, and may stay.
        """
        wrong = find_disproved(self.marks, on_vault)
        if not wrong:
            return
        for name in wrong:
            other = self.dataset.bookmark(name.markname.replace(MARK_PREFIX, DISPROVED_MARK, 1))
            await self.lzc.bookmark({other: name})
            self.marks[other] = self.marks[name]
        await self.lzc.destroy_bookmarks(wrong)
        for name in wrong:
            del self.marks[name]

    async def borrow(self, base: Snapshot) -> Bookmark:
        """Bookmark in this dataset a snapshot that another owns since one was promoted: a stream may start there."""
        await self._bookmark(base)
        mark = self._mark(base)
        return Bookmark(self.dataset, mark.markname, base.guid, base.createtxg, base.creation)

    def protects_only(self, base: Snapshot) -> bool:
        """True if ``base``, and nothing else but what is to stay, is protected."""
        protected = base.name in self.held and self._mark(base) in self.marks
        return protected and not self._held_before(base) and not self._marks_before(base)

    def _held_before(self, base: Snapshot) -> list[str]:
        """What is held and need not be once ``base`` is."""
        return sorted(self.held.keys() - {base.name})

    def _marks_before(self, base: Snapshot) -> list[BookmarkName]:
        """The bookmarks that are not needed once there is one of ``base``: all but that of the base before."""
        before = self.marks if self._before is None else self._before
        former = max(
            ((txg, name) for name, txg in before.items() if txg < base.createtxg and _told(name) is not None),
            default=(0, None),
        )[1]
        return sorted(self.marks.keys() - {self._mark(base), former})

    def _mark(self, base: Snapshot) -> BookmarkName:
        return self.dataset.bookmark(make_mark_name(self.vault_guid, base.guid))

    async def _bookmark(self, snapshot: Snapshot, name: Callable[[int, int], str] = make_mark_name) -> None:
        """Bookmark it, if it is not yet. Unless another name is given, that says that the vault has it."""
        mark = self.dataset.bookmark(name(self.vault_guid, snapshot.guid))
        if mark not in self.marks:
            await self.lzc.bookmark({mark: snapshot.name})
            self.marks[mark] = snapshot.createtxg

    async def advance(self, base: Snapshot) -> None:
        """The vault has ``base`` now: protect it, then release the former base. Does nothing if that is so already.

        The former base stays bookmarked.
        """
        if self._before is None:
            self._before = dict(self.marks)
        await self.cover(base)
        await self._reach({})
        await self._bookmark(base)
        if old := self._held_before(base):
            await self.lzc.release(old, make_hold_tag(self.vault_guid))
            self.held = {base.name: base}
        if old_marks := self._marks_before(base):
            await self.lzc.destroy_bookmarks(old_marks)
            self.marks = {name: txg for name, txg in self.marks.items() if name not in old_marks}


def find_disproved(marks: Mapping[BookmarkName, int], on_vault: Collection[int]) -> list[BookmarkName]:
    """Which bookmarks, each with the transaction group of what it marks, tell of what the vault does not have.

    Only the newest that is right counts for anything; what is older is not gone through.
    """
    wrong: list[BookmarkName] = []
    for name in sorted(marks, key=lambda one: marks[one], reverse=True):
        guid = _told(name)
        if guid in on_vault:
            break
        if guid is not None:
            wrong.append(name)
    return wrong


def _told(mark: BookmarkName) -> int | None:
    """The GUID of the snapshot that a bookmark's name says the vault has; None where it says no such thing."""
    return int(mark.rpartition("_")[2], 16) if mark.markname.startswith(MARK_PREFIX) else None


def _age(snapshot: Snapshot) -> int:
    return snapshot.createtxg
