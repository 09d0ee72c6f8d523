"""Turns what ``zfs list -Hp`` prints into values. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from operator import attrgetter
from typing import Any

from zvault.core.cached_results import list_new_ones
from zvault.core.model import DATASET_TYPES, Bookmark, Dataset, DatasetType, Tree
from zvault.core.name_rules import MAX_DATASET_NAME
from zvault.core.names import DatasetName, SnapshotName, parse_snapname_time, split_point
from zvault.core.replication.receive_properties import RECEIVE_RECORD_PROPERTY
from zvault.core.replication.snapshot_refusal import SnapshotFacts
from zvault.core.replication.source_properties import SOURCE_RECORD_PROPERTY
from zvault.core.snapshot_list import SnapshotList
from zvault.core.units import is_number
from zvault.zfs.listing_cache import NONE, DatasetPoints
from zvault.zfs.trial_dataset import SCRATCH_NAMES, TRIAL_MARK

PLACEHOLDER = "org.zvault:placeholder"
"""User property of a filesystem that zvault made only to hold others. Its value is that one's own name: what is
below inherits the property, and must not be taken for a placeholder."""

SENT = "org.zvault:sent"
"""User property of a vault's dataset: the flags it was sent with (core/replication/send_record.py)."""

DATASET_COLUMNS = (
    "name",
    "type",
    "guid",
    "used",
    "written",
    "receive_resume_token",
    "encryptionroot",
    "origin",
    "snapshots_changed",
)
"""No user property: what is in one may look like another column, or another line."""

SNAPSHOT_FACTS = (
    "name",
    "type",
    "inconsistent",
    "receive_resume_token",
    "refreservation",
    "usedbydataset",
    "usedbyrefreservation",
    "available",
)
"""What decides whether a snapshot can be made. ``inconsistent`` is in no manual."""

OWN_PROPERTIES = (PLACEHOLDER, SENT, TRIAL_MARK, SOURCE_RECORD_PROPERTY, RECEIVE_RECORD_PROPERTY)
"""zvault's own user properties of datasets. They count where they are set on the dataset itself: whatever came with a
stream was set by whoever sent it."""

POINT_COLUMNS = ("name", "guid", "createtxg")
"""Of snapshots and bookmarks. ``zfs list`` is half again as fast if asked for nothing but these (and a few more:
zfs_list_only_by_fast in cmd/zfs/zfs_iter.c): the kernel then need not open each snapshot."""


class UnknownType(ValueError):
    """A dataset is neither a filesystem nor a volume."""


def find_unknown_property(complaint: str) -> str | None:
    """The property that this OpenZFS does not know, from what ``zfs list`` says of a column it lacks."""
    found = re.search(r"invalid property '([^']+)'", complaint)
    return found[1] if found else None


def parse_settable(usage: str) -> set[str]:
    """The properties that an OpenZFS can set, from what ``zfs get`` prints of how it is used."""
    return {
        found[1]
        for line in usage.splitlines()
        if (found := re.fullmatch(r"\t([a-z0-9_]+)\s+(YES|NO)\s+(YES|NO)\s+.*", line)) is not None
        and "YES" in (found[2], found[3])
    }


def is_only_missing(complaints: str) -> bool:
    """True if all that ``zfs list`` complains of is that what it was asked for by name does not exist."""
    lines = complaints.splitlines()
    return bool(lines) and all("does not exist" in line for line in lines)


def list_missing(complaints: str) -> set[str]:
    """Return the names of which ``zfs list`` says that they do not exist."""
    return set(re.findall(r"^cannot open '(.+)': .*does not exist", complaints, re.MULTILINE))


_LISTED = re.compile(r"[A-Za-z0-9_.: /%-]+([@#][A-Za-z0-9_.: %-]+)?")


def find_foreign_name(lines: Iterable[str], roots: Sequence[str]) -> str | None:
    """The first name of a listing that is not one of ``roots``, nor below one, or is longer than ZFS allows: zfs lists
    no such, whoever lies may.
    """
    below = tuple(f"{root}{mark}" for root in roots for mark in "/@#")
    whole = set(roots)
    for line in lines:
        name = line.partition("\t")[0]
        inside = name in whole or name.startswith(below)
        if not (inside and len(name) <= MAX_DATASET_NAME and _LISTED.fullmatch(name)):
            return name[: MAX_DATASET_NAME + 1]
    return None


def fill_columns(lines: list[str], asked: Sequence[str], columns: Sequence[str]) -> list[str]:
    """The lines of a listing of ``asked`` columns, with ``-`` for those of ``columns`` that are not among them."""
    if len(asked) == len(columns):
        return lines
    full = []
    for line in lines:
        values = dict(zip(asked, line.split("\t"), strict=True))
        full.append("\t".join(values.get(column, "-") for column in columns))
    return full


def parse_number(text: str) -> int:
    """An exact number as ``-p`` prints it; ``-`` and an empty field are 0. Raises ValueError."""
    return parse_u64(text) if text not in {"-", ""} else 0


def parse_u64(text: str) -> int:
    """A number of 64 bits. Raises ValueError."""
    if not is_number(text) or (value := int(text)) >> 64:
        raise ValueError(f"{text[:40]!r} is no number of 64 bits")
    return value


def date_points(lines: Iterable[str]) -> tuple[dict[str, int], list[str]]:
    """Return when the points of a listing were made, by name, as far as it tells; and the names of those to be asked.

    A snapname of zvault's form tells it, and of a bookmark the snapshot beside it that it was made from.
    """
    known: dict[str, int] = {}
    by_guid: dict[tuple[str, str], int] = {}
    unknown: list[str] = []
    marks: list[tuple[str, str, str]] = []
    for line in lines:
        name, guid, _ = line.split("\t")
        dataset, sign, snapname = split_point(name)
        if sign != "@":
            marks.append((dataset, name, guid))
        elif (when := parse_snapname_time(snapname)) is not None:
            known[name] = by_guid[dataset, guid] = when
        else:
            unknown.append(name)
    for dataset, name, guid in marks:
        if (made := by_guid.get((dataset, guid))) is not None:
            known[name] = made
        else:
            unknown.append(name)
    return known, unknown


def parse_points(lines: Iterable[str], made: Mapping[str, int]) -> dict[str, DatasetPoints]:
    """Return what a listing of snapshots and bookmarks saw, by dataset; those that have none are left out.

    ``made`` is when each was made, by name. What is not in it was gone by the time that this was asked.
    """
    snapshots: dict[str, list[tuple[str, int, int, int]]] = defaultdict(list)
    bookmarks: dict[str, list[Bookmark]] = defaultdict(list)
    for line in lines:
        name, guid, createtxg = line.split("\t")
        creation = made.get(name)
        if creation is None:
            continue
        dataset, sign, rest = split_point(name)
        if sign == "@":
            snapshots[dataset].append((rest, parse_u64(guid), parse_u64(createtxg), creation))
        elif sign:
            point = Bookmark(DatasetName(dataset), rest, parse_u64(guid), parse_u64(createtxg), creation)
            bookmarks[dataset].append(point)
    return {
        name: DatasetPoints(
            SnapshotList.of(DatasetName(name), snapshots[name]) if name in snapshots else (),
            tuple(sorted(bookmarks.get(name, ()), key=lambda mark: mark.createtxg)),
        )
        for name in {**snapshots, **bookmarks}
    }


def parse_own_properties(lines: Iterable[str]) -> dict[str, dict[str, str]]:
    """By dataset, what ``zfs get`` printed of zvault's own properties (name, property, value).

    A value can hold anything, lines that look like others too: the first that is told of a property counts, and what
    counts for anything is looked at again (``_is_scratch``, ``build_tree``).
    """
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for line in lines:
        name, _, rest = line.partition("\t")
        key, tab, value = rest.partition("\t")
        if tab and key in OWN_PROPERTIES and value.isprintable():
            found[name].setdefault(key, value)
    return dict(found)


@dataclass(frozen=True, slots=True)
class ListedDataset:
    """A dataset with its line of a listing; ``scratch``: one that zvault made for a while, as is all below it.

    ``key_root``: as of ``join_listings``.
    """

    line: str
    dataset: Dataset
    scratch: bool = False
    key_root: str = ""

    def again(self, line: str) -> ListedDataset:
        """The same with a line of now: another ``used``, ``written`` or resume token. Nothing else of it may differ."""
        fields = _of_line(line, self.key_root)
        return replace(self, line=line, dataset=replace(self.dataset, **fields))


def join_listings(
    dataset_lines: Iterable[str],
    of_each: Mapping[str, DatasetPoints],
    own: Mapping[str, Mapping[str, str]],
    key_root: str = "",
) -> dict[str, ListedDataset]:
    """Put a listing of datasets, what each has, and zvault's own properties of each together, by name.

    What is encrypted by the key of ``key_root`` counts as not encrypted: as it was sent, and as it is sent back.
    """
    return {line.partition("\t")[0]: _listed(line, of_each, own, key_root) for line in dataset_lines}


def _listed(
    line: str, of_each: Mapping[str, DatasetPoints], own: Mapping[str, Mapping[str, str]], key_root: str
) -> ListedDataset:
    fields = _of_line(line, key_root)
    name = fields["name"]
    has, marks = of_each.get(name, NONE), own.get(name, _NOTHING)
    dataset = Dataset(
        **fields,
        snapshots=has.snapshots,
        bookmarks=has.bookmarks,
        placeholder=marks.get(PLACEHOLDER) == name and not has.snapshots,
        sent=marks.get(SENT, ""),
        source_record=marks.get(SOURCE_RECORD_PROPERTY, ""),
        receive_properties=marks.get(RECEIVE_RECORD_PROPERTY, ""),
    )
    return ListedDataset(line, dataset, _is_scratch(name, marks.get(TRIAL_MARK, "")), key_root)


_NOTHING: Mapping[str, str] = {}


def _of_line(line: str, key_root: str) -> dict[str, Any]:
    """What a line of a listing of datasets says, by the fields of a Dataset. Raises ValueError."""
    name, kind, guid, used, written, token, root, origin, _ = line.split("\t")
    return {
        "name": DatasetName(name),
        "guid": parse_u64(guid),
        "type": parse_dataset_type(name, kind),
        "used": parse_number(used),
        "written": parse_number(written),
        "resume_token": None if token in {"-", ""} else _plain(name, token),
        "encrypted": root not in {"off", "-", "", key_root},
        "origin": None if origin in {"-", ""} else _origin(name, origin),
        "key_root": "" if root in {"off", "-"} else root,
    }


def _plain(name: str, token: str) -> str:
    """A resume token as it is written: its meaning is looked at where it is used. Raises ValueError."""
    if not (token.isascii() and token.isprintable()):
        raise ValueError(f"{name} has a resume token that is none")
    return token


def _origin(name: str, origin: str) -> SnapshotName:
    """The snapshot that a clone is one of. Raises ValueError."""
    if len(origin) > MAX_DATASET_NAME or "@" not in origin or not _LISTED.fullmatch(origin):
        raise ValueError(f"{name} is a clone of {origin[:40]!r}, which is no snapshot")
    return SnapshotName(origin)


def split_unknown(lines: Iterable[str]) -> tuple[list[str], dict[DatasetName, str]]:
    """The lines of a listing of datasets that can be understood; and the datasets of a type that nobody knows, with it.

    What lies below one of those is left out with it.
    """
    unknown: dict[DatasetName, str] = {}
    known: list[str] = []
    for line in lines:
        name, kind, _ = line.split("\t", 2)
        if kind in DATASET_TYPES:
            known.append(line)
        else:
            unknown[DatasetName(name)] = f"it is of type {kind[:40]!r}, which zvault does not know"
    if unknown:
        below = tuple(f"{name}/" for name in unknown)
        known = [line for line in known if not line.startswith(below)]
    return known, unknown


def parse_dataset_type(name: str, kind: str) -> DatasetType:
    """The type that a listing has of a dataset. Raises UnknownType: what knows two types must not meet a third."""
    for known in DATASET_TYPES:
        if kind == known:
            return known
    raise UnknownType(f"{name} is of type {kind[:40]!r}, and datasets are {' or '.join(DATASET_TYPES)}")


def parse_snapshot_facts(line: str) -> SnapshotFacts:
    """Parse a line of SNAPSHOT_FACTS. Raises ValueError."""
    name, kind, inconsistent, token, *sizes = line.split("\t")
    return SnapshotFacts(
        DatasetName(name),
        kind,
        parse_number(inconsistent) != 0,
        token not in {"-", ""},
        *map(parse_number, sizes),
    )


@dataclass(frozen=True, slots=True)
class MadeTree:
    """A tree, and what it was made of; ``whole``: nothing of that was left out as zvault's own scratch."""

    listed: tuple[ListedDataset, ...]
    tree: Tree
    whole: bool


def build_tree(
    found: Mapping[str, ListedDataset], before: MadeTree | None = None, *, anew: bool = False
) -> MadeTree:
    """The tree of what was listed. What one made ``before`` has just so is taken from there, as the same object.

    Its snapshots have to be the same object too, by which others know them, unless they are listed ``anew`` each time.
    """
    known: Mapping[str, Dataset] = before.tree.datasets if before is not None else {}
    now = tuple(found.values())
    scratch = [one.dataset.name for one in compress(now, map(attrgetter("scratch"), now))]

    def kept(name: str, new: Dataset) -> Dataset:
        old = known.get(name)
        same = old is not None and (old is new or ((anew or old.snapshots is new.snapshots) and old == new))
        return old if same and old is not None else new

    if before is not None and before.whole and not scratch and known.keys() == found.keys():
        changed = [one.dataset for one in list_new_ones(before.listed, now)]
        return MadeTree(
            now, Tree({**known, **{one.name: kept(one.name, one) for one in changed}}), whole=True
        )
    there = {
        name: kept(name, one.dataset)
        for name, one in found.items()
        if not any(one.dataset.name.is_within(top) for top in scratch)
    }
    return MadeTree(
        now, Tree(dict(sorted(there.items(), key=lambda item: item[1].name.parts))), whole=not scratch
    )


def _is_scratch(name: str, mark: str) -> bool:
    """True if a dataset is one that zvault made for a while: by its mark, and by a name that only such have."""
    dataset = DatasetName(name)
    return mark in {name, dataset.pool} and dataset.name.startswith(SCRATCH_NAMES)


def split_columns(line: str) -> dict[str, str]:
    """The columns of a line of a listing of datasets, by their names. Raises ValueError."""
    return dict(zip(DATASET_COLUMNS, line.split("\t"), strict=True))


def parse_stamps(dataset_lines: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return what tells whether a dataset's snapshots are still those seen before: who it is, and
    ``snapshots_changed``.

    Its origin belongs to who it is: ``zfs promote`` moves snapshots from one dataset to another.
    """
    found = {}
    for line in dataset_lines:
        fields = split_columns(line)
        found[fields["name"]] = (f"{fields['guid']} {fields['origin']}", fields["snapshots_changed"])
    return found


def parse_stream_size(text: str) -> int | None:
    """The estimate in bytes that ``zfs send -nP`` ends with (``size\\t1234``), None when it prints none.

    Of the rest of a small stream ZFS says some 2^64: it subtracts what arrived from an estimate that was lower, without
    a sign (zfs_ioc_send_space, 2.3.9). How much is left is then unknown.
    """
    for line in reversed(text.splitlines()):
        words = line.split()
        if len(words) == 2 and words[0] == "size" and is_number(words[1]):
            size = int(words[1])
            return size if size < 1 << 63 else None
    return None
