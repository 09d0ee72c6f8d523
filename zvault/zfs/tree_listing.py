"""The datasets below a root with all they have, of which only what may have changed is listed."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import replace
from operator import attrgetter
from typing import cast

from zvault.core.errors import DeadlineExceeded, NotFound, ToolFailed
from zvault.core.model import Tree
from zvault.core.names import DatasetName
from zvault.system.side_threads import compute_aside
from zvault.zfs import parse_listing
from zvault.zfs.cached_datasets import CachedDatasets, ComparedListing, ListedAt
from zvault.zfs.change_feed import ChangeFeed
from zvault.zfs.list_command import ListCommand, split_in_batches
from zvault.zfs.listing_cache import SINGLY_LISTED_DATASETS, DatasetPoints, ListingCache
from zvault.zfs.listing_cache_files import ListingCacheFiles
from zvault.zfs.parse_listing import ListedDataset
from zvault.zfs.partial_listing import PartlyKnown
from zvault.zfs.pool.event_reader import ChangedDatasets
from zvault.zfs.whole_listing import PartialListing

LISTINGS = 3
"""How often a tree is listed that is renamed or destroyed in part while that is done."""

MOST_ROOTS = 32
"""Roots whose last listing is remembered."""

MOST_AT_ONCE = 2000
"""Datasets of which one ``zfs list`` tells all snapshots."""

DATASETS_BEFORE_TELLING = 500
"""Datasets, of more than that, of which one tells them: what it prints, and what becomes of that, has to fit in memory.
The longest names fit the kernel's limit of 2 MiB for what a program is given."""

NamesLister = Callable[[str], Awaitable[tuple[list[str], dict[str, str]]]]


class TreeListing:
    """Trees of one host. With a ``feed`` of its events, what did not change since it was listed is not listed again.

    ``list_names`` is how the host's kernel is asked for names that 'zfs list' leaves out: Lzc.list_names, or over ssh
    RemoteChanges.list_names. Snapshots that are as in a listing that is ``kept`` are not listed again.
    """

    def __init__(
        self,
        lister: ListCommand,
        feed: ChangeFeed | None = None,
        key_root: str = "",
        list_names: NamesLister | None = None,
        kept: ListingCacheFiles | None = None,
    ) -> None:
        self._list_names = list_names
        self._kept = kept
        self.key_root = key_root
        self.cache = ListingCache(kept=kept)
        self._lister = lister
        self._known = CachedDatasets()
        self._made: dict[str, parse_listing.MadeTree] = {}
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._waiting: dict[str, set[DatasetName]] = defaultdict(set)
        self._feed = feed
        self._lapses = 0
        self._lapsed: dict[str, int] = defaultdict(int)
        if feed is not None:
            feed.follow(self)

    def followed(self) -> int:
        """Return how many datasets are known, and so need not be listed."""
        return len(self._known)

    def note(self, changed: ChangedDatasets) -> None:
        """Take in what the feed tells."""
        self._lapses += changed.lost or bool(changed.pools)
        for pool in changed.pools:
            self._lapsed[pool] += 1
        self._known.note(changed)
        if changed.missed:
            self.cache.clear()
        for name in changed.datasets:
            self.cache.forget(name)

    @property
    def lapses(self) -> int | None:
        return self._lapses if self._feed is not None else None

    async def tree(self, root: str, *, sizes: bool = True) -> Tree:
        """See Zfs.tree.

        What surely did not change since the last listing is not listed again. Who comes while another lists the same
        pool waits, and then lists but what has changed since. Without ``sizes``, ``used`` and ``written`` may be of
        any earlier listing: no event tells of them.
        """
        pool = DatasetName(root).pool
        self._waiting[pool].add(DatasetName(root))
        async with self._turns[pool]:
            try:
                await self._collect()
                await self._list_together(self._waiting.pop(pool, set()))
                known = None if sizes else await self._known_tree(root)
                return await self._tree(root) if known is None else known
            except parse_listing.UnknownType as error:
                raise PartialListing(f"the listing of '{root}' cannot be understood", str(error)) from None
            except (ValueError, KeyError) as error:
                raise ToolFailed(f"the listing of '{root}' cannot be understood", str(error)) from None

    async def tree_around_damage(self, root: str, why: PartialListing) -> Tree:
        """See Zfs.tree_around_damage. Nothing of it is remembered: what is damaged may be found whole at any time.

        What comes or goes while it is listed has it listed again, as in ``tree``.
        """
        async with self._turns[DatasetName(root).pool]:
            try:
                for _ in range(LISTINGS):
                    gone, lapses = set[str](), self._lapses_of(root)
                    tree = await self._around_damage(root, why, gone)
                    if not gone and await self._names_stand(root, lapses):
                        break
            except (ValueError, KeyError) as error:
                raise ToolFailed(f"the listing of '{root}' cannot be understood", str(error)) from None
        if not tree.datasets:
            raise why
        return tree

    async def names_around_damage(self, root: str, why: PartialListing) -> list[DatasetName]:
        """See Zfs.names_around_damage."""
        if self._list_names is None:
            raise why
        names, _ = await self._list_names(root)
        return list(map(DatasetName, names))

    async def _around_damage(self, root: str, why: PartialListing, gone: set[str]) -> Tree:
        """All that can be listed below a root, with what cannot; what went meanwhile is added to ``gone``."""
        lines, unlisted = await self._lines_around_damage(root, why, gone)
        lines, unknown = await compute_aside(len(lines), None, parse_listing.split_unknown, lines)
        own, points = dict[str, dict[str, str]](), dict[str, DatasetPoints]()
        names = [line.partition("\t")[0] for line in lines]
        for some in split_in_batches(names, DATASETS_BEFORE_TELLING):
            points |= await self._lister.points(some, "-d1", gone)
            own |= await self._lister.own(some, "-d0", gone)
        lines = [line for line in lines if line.partition("\t")[0] not in gone]
        found = await compute_aside(
            len(lines), None, parse_listing.join_listings, lines, points, own, self.key_root
        )
        said = {**{DatasetName(name): words for name, words in unlisted.items()}, **unknown}
        return replace(parse_listing.build_tree(found).tree, unlisted=said)

    async def _lines_around_damage(
        self, root: str, why: PartialListing, gone: set[str]
    ) -> tuple[list[str], dict[str, str]]:
        """The lines of all datasets below a root that can be opened; and those that cannot, with the kernel's words.

        Raises ``why`` where nobody can ask the host's kernel for more names than 'zfs list' prints.
        """
        columns = parse_listing.DATASET_COLUMNS
        try:
            return await self._lister.lines([root], "-r", "filesystem,volume", columns), {}
        except PartialListing:
            if self._list_names is None:
                raise why from None
        names, unlisted = await self._list_names(root)
        lines = list[str]()
        for some in split_in_batches(names, DATASETS_BEFORE_TELLING):
            lines += await self._lister.lines(some, "-d0", "filesystem,volume", columns, gone)
        return lines, unlisted

    async def _collect(self) -> None:
        if self._feed is not None:
            await self._feed.collect()

    async def _list_together(self, waiting: Set[DatasetName]) -> None:
        """List the roots of a pool that are waited for and of which nothing is known: all with one listing each of
        datasets, of what they have, and of their properties. zvaultd asks for each backup's source before it is ready.

        Nothing is known of them afterwards where that failed or took too long, or any dataset came or went meanwhile:
        each is listed by itself then, which tells why.
        """
        unknown = [root for root in sorted(waiting) if self._known.changed(root) is None]
        roots = [root for root in unknown if not any(root.is_below(other) for other in unknown)]
        if self._feed is None or not self._feed.works or len(roots) < 2:
            return
        moment, began, gone = self._known.moment, self.cache.now(), set[str]()
        lapses = self._lapses_of(roots[0])
        with contextlib.suppress(NotFound, ToolFailed, DeadlineExceeded, ValueError, KeyError):
            lines = await self._lister.lines(
                roots, "-r", "filesystem,volume", parse_listing.DATASET_COLUMNS, gone
            )
            there = [root for root in roots if root not in gone]
            if not lines or len(lines) > MOST_AT_ONCE:
                return
            stamps, went = await _stamps(lines), set[str]()
            points = await self._believed(DatasetName(roots[0]).pool, stamps, went)
            others = [name for name in stamps if name not in points]
            if points and len(others) <= SINGLY_LISTED_DATASETS:
                points |= await self._listed_whole(others, went)
            else:
                points = await self._lister.points(there, "-r", None)
            own = await self._lister.own(there)
            if went or await self._moved(points, stamps) or not await self._names_stand(roots[0], lapses):
                return
            self.cache.keep(list(stamps), stamps, points, began)
            found = parse_listing.join_listings(lines, points, own, self.key_root)
            for root in there:
                below = {name: one for name, one in found.items() if one.dataset.name.is_within(root)}
                self._known.keep(root, ListedAt(moment, below))

    async def _believed(
        self, pool: str, stamps: Mapping[str, tuple[str, str]], gone: set[str]
    ) -> dict[str, DatasetPoints]:
        """What those of some datasets of a pool of this host have whose snapshots are as they were kept. Bookmarks are
        listed; what is gone is added to ``gone``.
        """
        if self._kept is None or not stamps:
            return {}
        await self._kept.load_pool(pool, self._lister.host)
        found = self._kept.believe_snapshots(stamps, self.cache.now())
        return await self._lister.with_bookmarks(
            {name: DatasetPoints(snapshots) for name, snapshots in found.items()}, gone
        )

    async def _moved(
        self, points: Mapping[str, DatasetPoints], stamps: Mapping[str, tuple[str, str]]
    ) -> set[str]:
        """The names under which datasets came or went between a listing of them, with these stamps, and one of what
        each of them has.
        """
        bare = [name for name, (_, changed) in stamps.items() if name not in points and changed != "-"]
        return (points.keys() - stamps.keys()) | await self._lister.gone(bare)

    def _lapses_of(self, root: str) -> int:
        """How often names in the pool of a root came to mean something else, as far as events tell."""
        return self._lapsed[DatasetName(root).pool]

    async def _names_stand(self, root: str, lapses: int) -> bool:
        """True if they mean what they meant at so many lapses; what came to be known of a dataset since is noted."""
        await self._collect()
        return self._lapses_of(root) == lapses

    async def _known_tree(self, root: str) -> Tree | None:
        """The tree as it is known, once what changed was listed again; None where all has to be listed."""
        found = self._known.changed(root)
        stale = found if found is None else found | self._known.list_unfinished(root)
        for _ in range(LISTINGS):
            if stale is None or len(stale) > SINGLY_LISTED_DATASETS:
                return None
            if not stale:
                break
            await self._list_again(sorted(stale))
            # What changed while it was listed may have been seen in part.
            await self._collect()
            stale = self._known.changed(root)
        known = self._known.below(root)
        return None if stale is None or root not in known else self._tree_of(root, known)

    def _tree_of(self, root: str, found: Mapping[str, ListedDataset]) -> Tree:
        """The tree of what was found of a root. What is as it was when this was last listed is the same object: by
        that whoever works something out knows that it need not do so again.
        """
        anew = self._lister.host.address is not None
        made = parse_listing.build_tree(found, self._made.pop(root, None), anew=anew)
        self._made[root] = made
        if len(self._made) > MOST_ROOTS:
            del self._made[next(iter(self._made))]
        return made.tree

    async def _list_again(self, names: Sequence[str]) -> None:
        """List some datasets by name: they changed, came, or went."""
        moment, began, gone = self._known.moment, self.cache.now(), set[str]()
        lines = await self._lister.lines(
            names, "-d0", "filesystem,volume", parse_listing.DATASET_COLUMNS, gone
        )
        if here := {line.partition("\t")[0]: line for line in lines}:
            parts = self._known.partly(here)
            points = await self._changed_points(parts, gone)
            if others := [name for name in here if name not in parts]:
                points |= await self._lister.points(others, "-d1", gone)
            own = await self._lister.own(list(here), "-d0", gone)
            lines = [line for name, line in here.items() if name not in gone]
            stamps = await _stamps(lines)
            self.cache.keep(list(stamps), stamps, points, began)
            self._known.keep_some(
                names, ListedAt(moment, parse_listing.join_listings(lines, points, own, self.key_root))
            )
        else:
            self._known.keep_some(names, ListedAt(moment, {}))

    async def _changed_points(
        self, parts: Mapping[str, PartlyKnown], gone: set[str]
    ) -> dict[str, DatasetPoints]:
        """What datasets have of which most is known; what does not exist (any more) is added to ``gone``.

        What the events tell of them since is noted at once: then the cache does not take what was seen at two moments
        for what a stamp stands for. Where it was lost, or a snapshot may have got another name, all of them is listed.
        """
        if not any(part.snapshots or part.bookmarks for part in parts.values()):
            return {name: part.had for name, part in parts.items()}
        lapses = self._lapses
        with contextlib.suppress(ToolFailed):
            points = await self._lister.changed_points(parts, gone)
            await self._collect()
            if self._lapses == lapses:
                return points
        return await self._listed_whole(list(parts), gone)

    async def _listed_whole(self, names: Sequence[str], gone: set[str]) -> dict[str, DatasetPoints]:
        listed: dict[str, DatasetPoints] = {}
        for some in split_in_batches(names, DATASETS_BEFORE_TELLING):
            listed |= await self._lister.points(some, "-d1", gone)
        return listed

    async def _tree(self, root: str) -> Tree:
        """As ``tree``. Two listings make one: what is renamed or destroyed between them has both made again, for a
        dataset seen without its snapshots would be taken for another. What moves each time is left out.
        """
        for _ in range(LISTINGS):
            moment = self._known.moment
            lapses = self._lapses_of(root)
            compared, points, moved = await self._listed(root)
            if not moved and self._lapses_of(root) == lapses:
                break
            await self._collect()
        if root in moved:
            raise NotFound(f"there is no dataset '{root}'", "it went while it was listed")
        other = [line for name, line in compared.lines.items() if name not in moved]
        own = await self._own(root, other, some=len(compared.lines) < len(compared.datasets))
        listed = await compute_aside(
            len(other), None, parse_listing.join_listings, other, points, own, self.key_root
        )
        datasets = compared.datasets | listed
        for name in moved:
            datasets.pop(name, None)
        found = cast(dict[str, ListedDataset], datasets)
        if self._feed is not None and not moved:
            self._known.keep(root, ListedAt(moment, found))
        return self._tree_of(root, found)

    async def _own(self, root: str, lines: Sequence[str], *, some: bool) -> dict[str, dict[str, str]]:
        """zvault's own properties of the datasets of these lines, which are ``some`` of those below a root, or all."""
        if not some or len(lines) > SINGLY_LISTED_DATASETS:
            return await self._lister.own([root]) if lines else {}
        names = [line.partition("\t")[0] for line in lines]
        return await self._lister.own(names, "-d0", set()) if names else {}

    async def _listed(self, root: str) -> tuple[ComparedListing, dict[str, DatasetPoints], set[str]]:
        """The datasets, what each of those has that are not known to be the same; and the names under which datasets
        came or went meanwhile.
        """
        began, lapses = self.cache.now(), self._lapses_of(root)
        known = list(map(attrgetter("line"), self._known.below(root).values()))
        listing = await self._lister.lines(
            [root], "-r", "filesystem,volume", parse_listing.DATASET_COLUMNS, known=known
        )
        compared = self._known.compared(root, listing)
        stamps = await _stamps(list(compared.lines.values()))
        parts = self._known.partly(compared.lines)
        stale = [name for name in self.cache.stale(stamps) if name not in parts]
        kept = self.cache.points(stamps.keys() - parts.keys() - set(stale))
        moved: set[str] = set()
        stale_stamps = {name: stamps[name] for name in stale}
        believed = await self._believed(DatasetName(root).pool, stale_stamps, moved)
        stale = [name for name in stale if name not in believed]
        whole = len(stale) > SINGLY_LISTED_DATASETS or len(stale) == len(compared.datasets)
        if whole and len(compared.datasets) <= MOST_AT_ONCE:
            listed = await self._lister.points([root], "-r", None)
            stamps = await _stamps(listing)
            stale, kept, parts, compared = list(stamps), {}, {}, ComparedListing.anew(listing)
            believed = {}
            moved |= await self._moved(listed, stamps)
        else:
            listed = await self._listed_whole(stale, moved)
            listed |= await self._changed_points(parts, moved)
        # The stamps are by the clock of their host: by that of another nobody can tell what they prove.
        if self._lister.host.address is None and await self._names_stand(root, lapses):
            seen = [name for name in (*stale, *believed, *parts) if name not in moved]
            self.cache.keep(seen, stamps, believed | listed, began)
            if self._kept is not None:
                self._kept.drop_absent(root, compared.datasets)
        return compared, kept | believed | listed, moved


async def _stamps(lines: Sequence[str]) -> dict[str, tuple[str, str]]:
    return await compute_aside(len(lines), None, parse_listing.parse_stamps, lines)
