"""Changes to snapshots, holds and bookmarks through libzfs_core: atomic, batched, without a fork each."""

from __future__ import annotations

import asyncio
import errno
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from zvault.core.errors import (
    Busy,
    DeadlineExceeded,
    NotFound,
    ToolFailed,
    ToolMissing,
    ZvaultError,
)
from zvault.system.conversation import Conversation

CALL_DEADLINE = 600.0
"""Seconds: a batch of destroys waits for several txg syncs, each slow on a slow vault."""


class LzcFailure(ToolFailed):
    """libzfs_core refused; ``errors`` holds (name, kind, errno) a name."""

    def __init__(self, what: str, why: str, errors: Sequence[tuple[str, str, int]], next: str = "") -> None:
        super().__init__(what, why, next)
        self.errors = list(errors)


class Lzc:
    """A child process in which libzfs_core runs, started when first needed and again after it was killed."""

    def __init__(self) -> None:
        self._child: Conversation | None = None
        self._turn = asyncio.Lock()

    async def snapshot(self, names: Sequence[str], properties: Mapping[str, str]) -> None:
        """Make all snapshots in one transaction group, or none. All in one pool.

        ``properties`` are user properties (``org.zvault:run``) set on each.
        """
        await self._call(
            f"snapshot {_some(names)}", "snapshot", names=list(names), properties=dict(properties)
        )

    async def destroy(self, names: Sequence[str]) -> None:
        """Destroy all snapshots named, or none. Raises LzcFailure naming those that are busy."""
        await self._call(f"destroy {_some(names)}", "destroy", names=list(names))

    async def hold(self, names: Sequence[str], tag: str) -> None:
        """Hold snapshots against destruction. Raises when one of them is gone; the others are held then."""
        await self._call(f"hold {_some(names)}", "hold", names=list(names), tag=tag)

    async def release(self, names: Sequence[str], tag: str) -> None:
        """Release holds; those already gone are no error."""
        await self._call(f"release {_some(names)}", "release", names=list(names), tag=tag)

    async def bookmark(self, marks: Mapping[str, str]) -> None:
        """Make bookmarks, mark → snapshot."""
        await self._call(f"bookmark {_some(list(marks))}", "bookmark", marks=dict(marks))

    async def destroy_bookmarks(self, names: Sequence[str]) -> None:
        """Destroy bookmarks; those already gone are no error."""
        await self._call(f"destroy {_some(names)}", "destroy_bookmarks", names=list(names))

    async def send_space(self, snapshot: str, base: str | None, flags: Sequence[str]) -> int:
        """Estimate a stream in bytes. ``flags``: large_blocks, compress, embedded_data, raw."""
        value = await self._call(
            f"estimate {snapshot}", "send_space", snapshot_name=snapshot, base=base, flags=list(flags)
        )
        return int(value)

    async def range_space(self, ranges: Sequence[tuple[str, str]]) -> list[int]:
        """What destroying each range of neighbouring snapshots, first to last, would free, exactly, in bytes.

        It is more than the sum of their ``used``: what only snapshots of the range share goes too.
        """
        if not ranges:
            return []
        value = await self._call(f"size {ranges[0][0]}", "range_space", ranges=[list(one) for one in ranges])
        return [int(size) for size in value]

    async def close(self) -> None:
        """End the child."""
        if self._child is not None:
            await self._child.close()
            self._child = None

    async def _call(self, what: str, call: str, **arguments: Any) -> Any:
        async with self._turn:
            child = await self._ready_child()
            try:
                answer = await child.ask({"call": call, "arguments": arguments}, CALL_DEADLINE)
            except (DeadlineExceeded, ToolFailed):
                self._child = None
                raise
            except asyncio.CancelledError:
                # An answer may still be on its way; the next caller must not read it as its own.
                self._child = None
                await child.close()
                raise
        if "errors" in answer:
            _raise(what, answer["errors"])
        return answer["value"]

    async def _ready_child(self) -> Conversation:
        if self._child is None:
            child = await Conversation.start([sys.executable, "-m", "zvault.zfs.lzc_child"])
            try:
                await child.read(deadline=30.0)
            except ToolFailed as error:
                raise ToolMissing(
                    "libzfs_core cannot be used from Python",
                    error.why,
                    "install python3-pyzfs of the same version as zfsutils-linux",
                ) from None
            except asyncio.CancelledError:
                await child.close()
                raise
            self._child = child
        return self._child


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


_KINDS: dict[int, type[ZvaultError]] = {
    errno.ENOENT: NotFound,
    errno.EBUSY: Busy,
}
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


def _raise(what: str, errors: list[dict[str, Any]]) -> NoReturn:
    why = "; ".join(
        f"{error['name']}: {error['message']}" if error["name"] else error["message"] for error in errors[:3]
    )
    if len(errors) > 3:
        why += f"; and {len(errors) - 3} more"
    kinds = {error["errno"] for error in errors}
    # It may be the source that is full, so this is not VaultFull: that is a receive that found no room.
    advice = "make room in that pool, or raise its quota or reservation" if kinds & _NO_ROOM else ""
    if len(kinds) == 1 and (kind := _KINDS.get(kinds.pop())) and kind is not Busy:
        raise kind(f"cannot {what}", why)
    raise LzcFailure(f"cannot {what}", why, [(e["name"], e["kind"], e["errno"]) for e in errors], advice)
