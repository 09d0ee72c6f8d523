"""A source that was imported read-only, as a pool that is dying is: nothing in it can be held or bookmarked.

It is backed up all the same, from the snapshots that it has. The base is then protected by nothing but that nobody can
destroy anything in such a pool.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Mapping, Sequence

from zvault.ops.replication.batched_changes import Protects
from zvault.zfs.changes import LzcFailure


def is_read_only_refusal(error: Exception) -> bool:
    """True if a change was refused for no other reason than that the pool was imported read-only."""
    return isinstance(error, LzcFailure) and {code for _, _, code in error.errors} == {errno.EROFS}


class ProtectsWhereWritable:
    """Changes that protect a base, where the pool can be written to. ``read_only``: whether it turned out not to be."""

    def __init__(self, lzc: Protects) -> None:
        self._lzc = lzc
        self.read_only = False

    async def hold(self, names: Sequence[str], tag: str) -> None:
        await self._unless_read_only(self._lzc.hold(names, tag))

    async def release(self, names: Sequence[str], tag: str) -> None:
        await self._unless_read_only(self._lzc.release(names, tag))

    async def bookmark(self, marks: Mapping[str, str]) -> None:
        await self._unless_read_only(self._lzc.bookmark(marks))

    async def destroy_bookmarks(self, names: Sequence[str]) -> None:
        await self._unless_read_only(self._lzc.destroy_bookmarks(names))

    async def _unless_read_only(self, change: Awaitable[None]) -> None:
        try:
            await change
        except LzcFailure as failure:
            if not is_read_only_refusal(failure):
                raise
            self.read_only = True
