"""The datasets below a root with all they have, of which only what may have changed is listed."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence

from zvault.core.errors import NotFound, ToolFailed
from zvault.core.model import Tree
from zvault.core.names import DatasetName
from zvault.zfs import parse
from zvault.zfs.change_feed import ChangeFeed
from zvault.zfs.known_datasets import KnownDatasets, Listed
from zvault.zfs.list_command import ListCommand
from zvault.zfs.listing_cache import FEW, Cache, DatasetPoints
from zvault.zfs.pool.change_reader import Changed

LISTINGS = 3
"""How often a tree is listed that is renamed or destroyed in part while that is done."""


class TreeListing:
    """Trees of one host. With a ``feed`` of its events, what did not change since it was listed is not listed again."""

    def __init__(self, lister: ListCommand, feed: ChangeFeed | None = None, key_root: str = "") -> None:
        self.key_root = key_root
        self.cache = Cache()
        self._lister = lister
        self._known = KnownDatasets()
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._feed = feed
        if feed is not None:
            feed.follow(self)

    def note(self, changed: Changed) -> None:
        """Take in what the feed tells."""
        self._known.note(changed)
        if changed.missed:
            self.cache.clear()
        for name in changed.datasets:
            self.cache.forget(name)

    async def tree(self, root: str, *, sizes: bool = True) -> Tree:
        """See Zfs.tree.

        What surely did not change since the last listing is not listed again. Who comes while another lists the same
        pool waits, and then lists but what has changed since. Without ``sizes``, ``used`` and ``written`` may be of
        any earlier listing: no event tells of them.
        """
        async with self._turns[DatasetName(root).pool]:
            try:
                await self._collect()
                known = None if sizes else await self._known_tree(root)
                return await self._tree(root) if known is None else known
            except (ValueError, KeyError) as error:
                raise ToolFailed(f"the listing of '{root}' cannot be understood", str(error)) from None

    async def _collect(self) -> None:
        if self._feed is not None:
            await self._feed.collect()

    async def _known_tree(self, root: str) -> Tree | None:
        """The tree as it is known, once what changed was listed again; None where all has to be listed."""
        found = self._known.changed(root)
        stale = found if found is None else found | self._known.unfinished(root)
        for _ in range(LISTINGS):
            if stale is None or len(stale) > FEW:
                return None
            if not stale:
                break
            await self._list_again(sorted(stale))
            # What changed while it was listed may have been seen in part.
            await self._collect()
            stale = self._known.changed(root)
        known = self._known.below(root)
        if stale is None or root not in known.points:
            return None
        return parse.tree(known.lines, known.points, known.own, self.key_root)

    async def _list_again(self, names: Sequence[str]) -> None:
        """List some datasets by name: they changed, came, or went."""
        moment, began, gone = self._known.moment, self.cache.now(), set[str]()
        lines = await self._lister.lines(names, "-d0", "filesystem,volume", parse.DATASET_COLUMNS, gone)
        if here := [line.partition("\t")[0] for line in lines]:
            points = await self._lister.points(here, "-d1", gone)
            own = await self._lister.own(here, "-d0", gone)
            lines = [line for line in lines if line.partition("\t")[0] not in gone]
            stamps = parse.stamps(lines)
            self.cache.keep(list(stamps), stamps, points, began)
            self._known.keep_some(names, Listed(moment, lines, points, own))
        else:
            self._known.keep_some(names, Listed(moment, (), {}, {}))

    async def _tree(self, root: str) -> Tree:
        """As ``tree``. Two listings make one: what is renamed or destroyed between them has both made again, for a
        dataset seen without its snapshots would be taken for another. What moves each time is left out.
        """
        for _ in range(LISTINGS):
            moment = self._known.moment
            datasets, points, moved = await self._listed(root)
            if not moved:
                break
            await self._collect()
        if root in moved:
            raise NotFound(f"there is no dataset '{root}'", "it went while it was listed")
        left = [line for line in datasets if line.partition("\t")[0] not in moved]
        own = self._known_own(left)
        listed = Listed(moment, left, points, await self._lister.own([root]) if own is None else own)
        if self._feed is not None and not moved:
            self._known.keep(root, listed)
        return parse.tree(left, points, listed.own, self.key_root)

    def _known_own(self, lines: Sequence[str]) -> dict[str, Mapping[str, str]] | None:
        """zvault's own properties of these datasets, where no event tells of a change of any; else None."""
        known = self._known.unchanged(parse.stamps(lines))
        return {name: one.own for name, one in known.items()} if len(known) == len(lines) else None

    async def _listed(self, root: str) -> tuple[list[str], dict[str, DatasetPoints], set[str]]:
        """The lines of the datasets, what each has, and the names under which datasets came or went meanwhile."""
        began = self.cache.now()
        datasets = await self._lister.lines([root], "-r", "filesystem,volume", parse.DATASET_COLUMNS)
        stamps = parse.stamps(datasets)
        known = self._known.unchanged(stamps)
        stale = [name for name in self.cache.stale(stamps) if name not in known]
        fresh = stamps.keys() - set(stale)
        kept = {name: one.points for name, one in known.items()}
        kept |= self.cache.points(fresh - known.keys())
        if not stale:
            return datasets, kept, set()
        moved: set[str] = set()
        whole = len(stale) > FEW or not fresh
        where, depth = ([root], "-r") if whole else (stale, "-d1")
        listed = await self._lister.points(where, depth, None if whole else moved)
        if whole:
            stale, kept = list(stamps), {}
            moved |= listed.keys() - stamps.keys()
            moved |= await self._lister.gone(
                [name for name in stale if name not in listed and stamps[name][1] != "-"]
            )
        # The stamps are by the clock of their host: by that of another nobody can tell what they prove.
        if self._lister.host.address is None:
            self.cache.keep([name for name in stale if name not in moved], stamps, listed, began)
        return datasets, kept | listed, moved
