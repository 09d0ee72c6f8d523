"""Where the source was imported read-only its base cannot be protected, and it is backed up all the same."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from zvault.ops.replication.read_only_source import ProtectsWhereWritable, is_read_only_refusal
from zvault.zfs.changes import LzcFailure


class Refuses:
    """A pool that refuses every change for these reasons."""

    def __init__(self, *codes: int) -> None:
        self.codes = codes

    def _refuse(self) -> None:
        if self.codes:
            raise LzcFailure("cannot", "no", [(f"tank@{code}", "", code) for code in self.codes])

    async def hold(self, names: Sequence[str], tag: str) -> None:
        self._refuse()

    async def release(self, names: Sequence[str], tag: str) -> None:
        self._refuse()

    async def bookmark(self, marks: Mapping[str, str]) -> None:
        self._refuse()

    async def destroy_bookmarks(self, names: Sequence[str]) -> None:
        self._refuse()


CHANGES: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("hold", (["tank@1"], "t")),
    ("release", (["tank@1"], "t")),
    ("bookmark", ({"tank#1": "tank@1"},)),
    ("destroy_bookmarks", (["tank#1"],)),
)


@pytest.mark.parametrize(("change", "arguments"), CHANGES)
async def test_only_that_it_is_read_only_is_passed_over(change: str, arguments: tuple[Any, ...]) -> None:
    read_only = ProtectsWhereWritable(Refuses(errno.EROFS, errno.EROFS))
    await getattr(read_only, change)(*arguments)
    assert read_only.read_only
    writable = ProtectsWhereWritable(Refuses())
    await getattr(writable, change)(*arguments)
    assert not writable.read_only
    for codes in ((errno.EROFS, errno.EBUSY), (errno.ENOSPC,)):
        other = ProtectsWhereWritable(Refuses(*codes))
        with pytest.raises(LzcFailure):
            await getattr(other, change)(*arguments)
        assert not other.read_only


def test_another_error_is_not_that() -> None:
    assert not is_read_only_refusal(ValueError("pool is read-only"))
    assert is_read_only_refusal(LzcFailure("cannot", "no", [("", "", errno.EROFS)]))
