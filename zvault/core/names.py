"""Names of datasets, snapshots and bookmarks, as small types, and the names of snapshots that zvault makes.

What ZFS and the configuration say becomes one of these types where it is read. Nothing else takes a name apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import MAXYEAR, UTC, datetime
from functools import lru_cache

_POOL = re.compile(r"[^/@#]*")
_STAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


class _Name(str):
    """A full name. It is a plain str to JSON, dicts and the command line, and is not checked when it is built."""

    __slots__ = ()

    @property
    def pool(self) -> DatasetName:
        """The pool it is in, which is the name of the pool's own dataset too."""
        match = _POOL.match(self)
        return DatasetName(match[0] if match else "")


class DatasetName(_Name):
    """The name of a filesystem or volume: ``pool/data``."""

    __slots__ = ()

    @property
    def parts(self) -> list[str]:
        """Its components, the pool's first. As a sort key they put a dataset right before what is below it."""
        return self.split("/")

    @property
    def parent(self) -> DatasetName | None:
        """The dataset that it lies in; None for a pool's own dataset."""
        above, slash, _ = self.rpartition("/")
        return DatasetName(above) if slash else None

    @property
    def name(self) -> str:
        return self.rpartition("/")[2]

    @property
    def ancestors(self) -> Iterator[DatasetName]:
        """The datasets that it lies in, the pool's own first."""
        ends = (at for at, char in enumerate(self) if char == "/")
        return (DatasetName(self[:end]) for end in ends)

    def is_below(self, root: str) -> bool:
        """True if it lies below another."""
        return self.startswith(root) and self[len(root) : len(root) + 1] == "/"

    def is_within(self, root: str) -> bool:
        """True if it is another, or lies below it."""
        return self == root or self.is_below(root)

    def relative_to(self, root: str) -> str:
        """Its path below another, empty for that one itself. Raises ValueError where it does not lie within it."""
        if not self.is_within(root):
            raise ValueError(f"{self} does not lie within {root}")
        return self[len(root) + 1 :]

    def child(self, path: str) -> DatasetName:
        """Return the dataset below it at a path; itself where the path is empty."""
        return DatasetName(f"{self}/{path}") if path else self

    def moved(self, old_root: str, new_root: DatasetName) -> DatasetName:
        """Its name once a dataset in which it lies, or it itself, was renamed. Raises ValueError as relative_to."""
        return new_root.child(self.relative_to(old_root))

    def add_suffix(self, ending: str) -> DatasetName:
        """The name beside it that goes on with ``ending``."""
        return DatasetName(f"{self}{ending}")

    def snapshot(self, snapname: str) -> SnapshotName:
        """The name of a snapshot of it."""
        return SnapshotName(f"{self}@{snapname}")

    def bookmark(self, markname: str) -> BookmarkName:
        """The name of a bookmark of it."""
        return BookmarkName(f"{self}#{markname}")


class SnapshotName(_Name):
    """The name of a snapshot: ``pool/data@snapname``."""

    __slots__ = ()

    @property
    def dataset(self) -> DatasetName:
        """The dataset that it is a snapshot of."""
        return DatasetName(self.partition("@")[0])

    @property
    def snapname(self) -> str:
        """The part after the ``@``."""
        return self.partition("@")[2]


class BookmarkName(_Name):
    """The name of a bookmark: ``pool/data#markname``."""

    __slots__ = ()

    @property
    def dataset(self) -> DatasetName:
        """The dataset that it is a bookmark of."""
        return DatasetName(self.partition("#")[0])

    @property
    def markname(self) -> str:
        """The part after the ``#``."""
        return self.partition("#")[2]


def parse_name(text: str) -> DatasetName | SnapshotName | BookmarkName:
    """A name that ZFS printed, by its sign; where that is missing it is a dataset's."""
    if "@" in text:
        return SnapshotName(text)
    return BookmarkName(text) if "#" in text else DatasetName(text)


def split_snapshot(text: str) -> tuple[DatasetName, str | None]:
    """The dataset and the snapname in the name of a dataset or snapshot; None where it names no snapshot."""
    dataset, at, snapname = text.partition("@")
    return DatasetName(dataset), snapname if at else None


def split_point(text: str) -> tuple[str, str, str]:
    """The dataset, the sign and what follows it in the name of a snapshot or bookmark; nothing after a dataset's.

    As plain text: a listing has millions of them.
    """
    parts = text.partition("@")
    return parts if parts[1] else text.partition("#")


def make_snapname(prefix: str, when: datetime) -> str:
    """A snapshot's part after ``@``, with ``when`` (aware) in UTC: ``zvault_2026-11-21T09:00:00Z``."""
    if when.utcoffset() is None:
        raise ValueError("the time of a snapshot needs a time zone")
    utc = when.astimezone(UTC).replace(microsecond=0, tzinfo=None)
    return f"{prefix}_{utc.isoformat()}Z"


@lru_cache(maxsize=1 << 16)
def parse_snapname(prefix: str, snapname: str) -> datetime | None:
    """Return when a snapshot of that prefix was made, in UTC; None unless the snapname has exactly the form we
    write.
    """
    stamp = snapname.removeprefix(f"{prefix}_")
    return _stamped(stamp) if len(stamp) < len(snapname) else None


@lru_cache(maxsize=1 << 16)
def parse_snapname_time(snapname: str) -> int | None:
    """The time in a snapname that has the form we write, whatever its prefix, in seconds since the epoch; else None.

    Years in which a time zone could lead out of the calendar are taken for no time.
    """
    prefix, _, stamp = snapname.rpartition("_")
    when = _stamped(stamp) if prefix else None
    return int(when.timestamp()) if when is not None and 1970 <= when.year < MAXYEAR else None


def _stamped(stamp: str) -> datetime | None:
    if not _STAMP.fullmatch(stamp):
        return None
    try:
        return datetime.fromisoformat(stamp)
    except ValueError:  # the form is right, the date is not: 2026-02-30
        return None
