"""Turns what ``zfs list -Hp`` prints into values. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import cast

from zvault.core.model import Bookmark, Dataset, DatasetType, Snapshot, Tree

DATASET_COLUMNS = (
    "name",
    "type",
    "guid",
    "used",
    "written",
    "receive_resume_token",
    "encryption",
    "snapshots_changed",
)
POINT_COLUMNS = ("name", "guid", "createtxg", "creation", "userrefs")


def number(text: str) -> int:
    """An exact number as ``-p`` prints it; ``-`` and an empty field are 0."""
    return int(text) if text not in {"-", ""} else 0


def tree(dataset_lines: Iterable[str], point_lines: Iterable[str]) -> Tree:
    """Put a listing of datasets and one of snapshots and bookmarks together, parents before children."""
    snapshots: dict[str, list[Snapshot]] = defaultdict(list)
    bookmarks: dict[str, list[Bookmark]] = defaultdict(list)
    for line in point_lines:
        name, guid, createtxg, creation, userrefs = line.split("\t")
        dataset, at, tag = name.partition("@")
        if at:
            snapshots[dataset].append(
                Snapshot(dataset, tag, int(guid), int(createtxg), int(creation), number(userrefs))
            )
            continue
        dataset, _, tag = name.partition("#")
        bookmarks[dataset].append(Bookmark(dataset, tag, int(guid), int(createtxg), int(creation)))
    datasets: dict[str, Dataset] = {}
    for line in dataset_lines:
        name, kind, guid, used, written, token, encryption, _ = line.split("\t")
        datasets[name] = Dataset(
            name=name,
            guid=int(guid),
            type=cast(DatasetType, kind),
            used=number(used),
            written=number(written),
            resume_token=None if token in {"-", ""} else token,
            encrypted=encryption not in {"off", "-", ""},
            snapshots=tuple(sorted(snapshots[name], key=lambda snap: snap.createtxg)),
            bookmarks=tuple(sorted(bookmarks[name], key=lambda mark: mark.createtxg)),
        )
    return Tree(dict(sorted(datasets.items(), key=lambda item: item[0].split("/"))))


def stamps(dataset_lines: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Each dataset's guid and ``snapshots_changed``, which tell whether its snapshots are still those seen before."""
    found = {}
    for line in dataset_lines:
        fields = line.split("\t")
        found[fields[0]] = (fields[2], fields[-1])
    return found


def token_contents(text: str) -> dict[str, str]:
    """The fields that ``zfs send -nvt TOKEN`` prints of a resume token: ``toguid = 0x1f`` and the like."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.strip().partition(" = ")
        if equals:
            fields[key] = value
    return fields


def stream_size(text: str) -> int | None:
    """The estimate in bytes that ``zfs send -nP`` ends with (``size\\t1234``), None when it prints none."""
    for line in reversed(text.splitlines()):
        words = line.split()
        if len(words) == 2 and words[0] == "size":
            return int(words[1])
    return None
