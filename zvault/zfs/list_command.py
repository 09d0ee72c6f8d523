"""``zfs list`` and ``zfs get`` of many datasets on one host, as lines that were checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from operator import ne

from zvault.core.errors import NotFound, ToolFailed
from zvault.core.names import parse_name, split_point
from zvault.core.refusals import find_cure
from zvault.system.process.runner import ProcessResult
from zvault.system.side_threads import compute_aside, split_lines
from zvault.zfs import parse_listing
from zvault.zfs.host import ZfsHost
from zvault.zfs.listing_cache import NONE, DatasetPoints
from zvault.zfs.partial_listing import PartlyKnown, format_snapshot_lines, list_snapshots_to_ask
from zvault.zfs.pool.pool import make_suspended_error
from zvault.zfs.whole_listing import CUT_SHORT, PartialListing, list_whole

ZFS_LIST_DEADLINE = 300.0
"""Seconds: a listing of 65,000 snapshots takes minutes on a cold pool (zrepl issues 354 and 480)."""

SUSPENDED_WORDS = "I/O is currently suspended"
"""What the zfs command says of each dataset of such a pool (libzfs_util.c, zfs_standard_error)."""

SNAPSHOTS_IN_ARGV = 1000
"""Snapshots named in one command: the longest names still fit the kernel's limit of 2 MiB."""


MOST_LISTING_LINES = 1 << 21
"""Of a listing. Each becomes some hundred bytes of values, and the shortest are shorter than any that zfs prints: so
many more of them than of honest ones fit the bytes that a program may print (LONGEST_OUTPUT)."""


SHORTEST_LINE = 30
"""Bytes of the lines that zfs prints, nearly all of which are longer: how many there are is known well enough by it."""


class ListCommand:
    """Listings of one host. What its OpenZFS is too old for is found out once."""

    def __init__(self, host: ZfsHost) -> None:
        self.host = host
        self._unknown: set[str] = set()

    async def lines(
        self,
        names: Sequence[str],
        depth: str,
        types: str,
        columns: Sequence[str],
        gone: set[str] | None = None,
        known: Sequence[str] = (),
    ) -> list[str]:
        """A listing; a column that this host's OpenZFS is too old for is ``-`` in every line.

        What is named and does not exist (any more) is added to ``gone``. Without that it is an error. ``known`` are the
        lines of an earlier listing of the same, which were checked then.
        """
        asked = [column for column in columns if column not in self._unknown]
        result = await list_whole(
            self.host,
            ["zfs", "list", "-Hp", depth, "-t", types, "-o", ",".join(asked), *names],
            ZFS_LIST_DEADLINE,
        )
        if result.returncode != 0:
            unknown = parse_listing.find_unknown_property(result.stderr)
            if unknown in asked:
                self._unknown.add(unknown)
                return await self.lines(names, depth, types, columns, gone, known)
            if gone is None or not parse_listing.is_only_missing(result.stderr):
                raise make_list_error(names[0], result)
            gone |= parse_listing.list_missing(result.stderr)
        size = len(result.stdout) // SHORTEST_LINE
        return await compute_aside(size, None, _checked_lines, result, names, known, asked, columns)

    async def points(
        self, where: Sequence[str], depth: str, gone: set[str] | None
    ) -> dict[str, DatasetPoints]:
        """The snapshots and bookmarks of datasets, by dataset; what does not exist is added to ``gone``."""
        lines = await self.lines(where, depth, "snapshot,bookmark", parse_listing.POINT_COLUMNS, gone)
        return await self._points_of(lines)

    async def _points_of(self, lines: Sequence[str]) -> dict[str, DatasetPoints]:
        """What these lines say, by dataset. When they were made is asked where they do not tell it."""
        made, unknown = await compute_aside(len(lines), None, parse_listing.date_points, lines)
        for names in split_in_batches(unknown):
            made |= await self.created(names)
        return await compute_aside(len(lines), None, parse_listing.parse_points, lines, made)

    async def changed_points(
        self, parts: Mapping[str, PartlyKnown], gone: set[str]
    ) -> dict[str, DatasetPoints]:
        """The snapshots and bookmarks of datasets of which most are known; a dataset that is gone is added to ``gone``.

        That a snapshot does not exist is no error: it is looked at because it may be gone. Raises ToolFailed, also
        where one is damaged: asked for by name it is opened, which a listing of all does not do.
        """
        lines, missing = list[str](), set[str]()
        asked = list_snapshots_to_ask(parts)
        for some in split_in_batches(asked):
            lines += await self.lines(some, "-d0", "snapshot", parse_listing.POINT_COLUMNS, missing)
        now = await self._points_of(lines)
        if missing:
            gone |= await self.gone(sorted({split_point(name)[0] for name in missing}))
        size = sum(len(part.had.snapshots) for part in parts.values())
        points, marked = await compute_aside(size, None, _with_changes, parts, now)
        return points | await self.with_bookmarks({name: points[name] for name in marked}, gone)

    async def with_bookmarks(
        self, of_each: Mapping[str, DatasetPoints], gone: set[str]
    ) -> dict[str, DatasetPoints]:
        """These with the bookmarks that the datasets have now; a dataset that is gone is added to ``gone``."""
        lines, names = list[str](), list(of_each)
        for some in split_in_batches(names):
            lines += await self.lines(some, "-d1", "bookmark", parse_listing.POINT_COLUMNS, gone)
        marked = {line.partition("#")[0] for line in lines}
        dated = {name: points for name, points in of_each.items() if name in marked}
        size = sum(len(points.snapshots) for points in dated.values())
        made, unknown = await compute_aside(
            size + len(lines),
            None,
            lambda: parse_listing.date_points([*format_snapshot_lines(dated), *lines]),
        )
        for some in split_in_batches([name for name in unknown if "#" in name]):
            made |= await self.created(some)
        marks = await compute_aside(len(lines), None, parse_listing.parse_points, lines, made)
        return {
            name: DatasetPoints(points.snapshots, marks.get(name, NONE).bookmarks)
            for name, points in of_each.items()
        }

    async def created(self, points: Sequence[str]) -> dict[str, int]:
        """Return when snapshots and bookmarks were made, by name; one that is gone by now is left out."""
        made: dict[str, int] = {}
        for names in split_in_batches(points):
            result = await self.host.run(
                ["zfs", "list", "-Hp", "-t", "snapshot,bookmark", "-o", "name,creation", *names],
                deadline=ZFS_LIST_DEADLINE,
                check=False,
            )
            if result.returncode != 0 and not parse_listing.is_only_missing(result.stderr):
                raise make_list_error(names[0], result)
            for line in split_listing(result, names[0]):
                name, _, creation = line.partition("\t")
                made[name] = parse_listing.parse_u64(creation)
        return made

    async def gone(self, names: Sequence[str]) -> set[str]:
        """Which of these datasets do not exist any more: one that once had snapshots and has none now is asked."""
        gone: set[str] = set()
        for some in split_in_batches(names):
            await self.lines(some, "-d0", "filesystem,volume", ("name",), gone)
        return gone

    async def own(
        self, where: Sequence[str], depth: str = "-r", gone: set[str] | None = None
    ) -> dict[str, dict[str, str]]:
        """zvault's own properties of datasets and all below them, where they are set on the dataset itself.

        What does not exist (any more) is added to ``gone``. Without that it is an error.
        """
        of = ["-t", "filesystem,volume", "-o", "name,property,value", ",".join(parse_listing.OWN_PROPERTIES)]
        result = await list_whole(
            self.host, ["zfs", "get", "-Hp", depth, "-s", "local", *of, *where], ZFS_LIST_DEADLINE
        )
        if result.returncode != 0:
            if gone is None or not parse_listing.is_only_missing(result.stderr):
                raise make_list_error(where[0], result)
            gone |= parse_listing.list_missing(result.stderr)
        size = len(result.stdout) // SHORTEST_LINE
        return await compute_aside(
            size, None, lambda: parse_listing.parse_own_properties(split_listing(result, where[0]))
        )


def _checked_lines(
    result: ProcessResult,
    names: Sequence[str],
    known: Sequence[str],
    asked: Sequence[str],
    columns: Sequence[str],
) -> list[str]:
    """The lines of a listing, which tell of nothing but what was asked for. Raises ToolFailed."""
    lines = split_listing(result, names[0])
    new = list(compress(lines, map(ne, lines, known))) if len(lines) == len(known) else lines
    if (foreign := parse_listing.find_foreign_name(new, names)) is not None:
        raise ToolFailed(
            f"the listing of '{names[0]}' cannot be believed",
            f"it tells of {foreign!r}, which is nothing below it",
            "see what 'zfs list' is on that host",
        )
    try:
        return parse_listing.fill_columns(lines, asked, columns)
    except ValueError as error:
        raise ToolFailed(f"the listing of '{names[0]}' cannot be understood", str(error)) from None


def _with_changes(
    parts: Mapping[str, PartlyKnown], now: Mapping[str, DatasetPoints]
) -> tuple[dict[str, DatasetPoints], list[str]]:
    """What datasets have, by what they had and what is there ``now``; and those whose bookmarks have to be listed."""
    points = {name: part.with_snapshots(name, now.get(name, NONE)) for name, part in parts.items()}
    marked = [name for name, part in parts.items() if part.marks_may_differ(now.get(name, NONE))]
    return points, marked


def split_in_batches(names: Sequence[str], most: int = SNAPSHOTS_IN_ARGV) -> Iterator[Sequence[str]]:
    """The names in lists of so many: by default of as many snapshots as one command is given."""
    return (names[start : start + most] for start in range(0, len(names), most))


def split_listing(result: ProcessResult, name: str) -> list[str]:
    """The lines of a listing of ``name``. Raises ToolFailed for more than MOST_LINES, before any is looked at."""
    if (count := result.stdout.count("\n")) > MOST_LISTING_LINES:
        why = f"it has {count} lines, and {MOST_LISTING_LINES} are taken at most"
        raise ToolFailed(f"the listing of '{name}' is too long", why, "see what 'zfs list' is on that host")
    return split_lines(result.stdout)


DAMAGE_WORDS = ("I/O error", "checksum mismatch", "invalid exchange")
"""What zfs says of a dataset that it cannot read: EIO, and ECKSUM in its own words and in those of the C library."""


def make_list_error(name: str, result: ProcessResult) -> Exception:
    """The error for a listing that failed."""
    complaint = result.complaint()
    pool = parse_name(name).pool
    if SUSPENDED_WORDS in complaint:
        return make_suspended_error(pool)
    if "does not exist" in complaint or "no such pool" in complaint:
        return NotFound(
            f"there is no dataset '{name}'",
            complaint,
            f"'zfs list -r {pool}' shows what there is; 'zpool import' shows pools that are not imported",
        )
    if "invalid dataset name" in complaint:
        return NotFound(f"'{name}' is no dataset name", complaint)
    if CUT_SHORT in result.stderr:
        return PartialListing(
            f"'{name}' cannot be listed whole",
            next(line for line in result.stderr.splitlines() if CUT_SHORT in line),
            f"'zpool status {pool}' tells whether it is damaged; 'zfs list -d1' of the dataset that has what cannot be"
            " opened says the same",
        )
    if f"cannot open '{name}'" in complaint and any(words in complaint for words in DAMAGE_WORDS):
        return PartialListing(
            f"cannot list '{name}', which cannot be opened itself",
            complaint,
            f"'zpool status {pool}' tells whether it is damaged; where nothing below it can be listed either, back up"
            f" each dataset there by a backup of its own (source = \"{name}/…\"); 'zvaultctl restore' brings back what"
            f" the vault has of '{name}', under another name",
        )
    return ToolFailed(f"cannot list '{name}'", complaint, find_cure(complaint))
