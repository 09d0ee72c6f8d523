"""What changes snapshots, holds and bookmarks on a host: one interface, one kind of refusal.

On this host it is libzfs_core (zfs/lzc.py), on another one the zfs command over ssh (zfs/remote.py).
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from zvault.core.errors import NotFound, ToolFailed, ZvaultError
from zvault.core.names import split_snapshot
from zvault.core.refusals import Duration, describe_errnos


class Changes(Protocol):
    """The changes zvault makes to snapshots, holds and bookmarks, and the sizes it asks for."""

    async def snapshot(self, names: Sequence[str], properties: Mapping[str, str]) -> None:
        """Make all snapshots in one transaction group, or none. All in one pool.

        ``properties`` are user properties (``org.zvault:run``) set on each.
        """
        ...

    async def destroy(self, names: Sequence[str]) -> None:
        """Destroy snapshots, of each dataset all or none; one that is gone already is no error.

        Raises LzcFailure naming those that are busy.
        """
        ...

    async def hold(self, names: Sequence[str], tag: str) -> None:
        """Hold snapshots against destruction. Raises NamesGone when some of them are gone; the others are held then."""
        ...

    async def release(self, names: Sequence[str], tag: str) -> None:
        """Release holds; those already gone are no error."""
        ...

    async def bookmark(self, marks: Mapping[str, str]) -> None:
        """Make bookmarks, mark → snapshot; one that exists already is no error.

        Raises NamesGone when some of the snapshots are gone; the other bookmarks are made then.
        """
        ...

    async def destroy_bookmarks(self, names: Sequence[str]) -> None:
        """Destroy bookmarks; those already gone are no error."""
        ...

    async def send_space(self, snapshot: str, base: str | None, flags: Sequence[str]) -> int:
        """Estimate a stream in bytes. ``flags``: large_blocks, compress, embedded_data, raw."""
        ...

    async def range_space(self, ranges: Sequence[tuple[str, str]]) -> list[int]:
        """Return the exact bytes that destroying each range of neighbouring snapshots, first to last, would free.

        It is more than the sum of their ``used``: what only snapshots of the range share goes too.
        """
        ...

    async def inherit_key(self, dataset: str) -> None:
        """Have an encrypted dataset inherit its parent's wrapping key, which has to be the same already.

        Neither key is needed: this is what ``zfs receive`` does for a tree that was sent with ``-R``. Of another key
        nothing would be lost, but the dataset could not be unlocked. Raises ToolFailed where it cannot be done there.
        """
        ...

    async def close(self) -> None:
        """Release what it holds of the host."""
        ...


@dataclass(frozen=True, slots=True)
class ChangeFailure:
    """The obstacle to a change of one name: libzfs_core's kind of it (``SnapshotIsHeld``), errno, and words."""

    name: str
    kind: str
    errno: int
    message: str


class LzcFailure(ToolFailed):
    """A change was refused; ``errors`` holds (name, kind, errno) a name."""

    def __init__(self, what: str, why: str, errors: Sequence[tuple[str, str, int]], next: str = "") -> None:
        super().__init__(what, why, next)
        self.errors = list(errors)


class NamesGone(NotFound):
    """Some of what a change was asked for does not exist any more; ``names`` are those, as ZFS told them.

    The next look at the datasets shows what there is instead.
    """

    retryable = True

    def __init__(self, what: str, why: str, names: Collection[str]) -> None:
        super().__init__(what, why)
        self.names = frozenset(names)

    def among(self, asked: Iterable[str]) -> set[str]:
        """Which of the snapshots asked for are gone; where ZFS named a dataset, all of that one's."""
        return {name for name in asked if name in self.names or split_snapshot(name)[0] in self.names}


def make_change_error(what: str, troubles: Sequence[ChangeFailure], advice: str = "") -> ZvaultError:
    """The error for a change that was refused, with the first few names in words."""
    why = "; ".join(f"{one.name}: {one.message}" if one.name else one.message for one in troubles[:3])
    if len(troubles) > 3:
        why += f"; and {len(troubles) - 3} more"
    kinds = {one.errno for one in troubles}
    if kinds == {errno.ENOENT}:
        return NamesGone(f"cannot {what}", why, {one.name for one in troubles})
    # It may be the source that is full, so this is not VaultFull: that is a receive that found no room.
    duration, known = describe_errnos(kinds)
    failure = LzcFailure(
        f"cannot {what}", why, [(one.name, one.kind, one.errno) for one in troubles], advice or known
    )
    failure.retryable = duration is Duration.TRANSIENT
    return failure


def list_some_names(names: Sequence[str]) -> str:
    """Names in words: the first, and how many more."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
