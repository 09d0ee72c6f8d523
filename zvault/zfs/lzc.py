"""Changes to snapshots, holds and bookmarks through libzfs_core: atomic, batched, without a fork each."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from zvault.core.errors import DeadlineExceeded, ToolFailed, ToolMissing
from zvault.system.process.json_child import JsonChild
from zvault.zfs.changes import ChangeFailure, LzcFailure, refusal, some

__all__ = ["Lzc", "LzcFailure"]

CALL_DEADLINE = 600.0
"""Seconds: a batch of destroys waits for several txg syncs, each slow on a slow vault."""


class Lzc:
    """Changes on this host, in a child process in which libzfs_core runs.

    The child is started when first needed, and again after it was killed.
    """

    def __init__(self) -> None:
        self._child: JsonChild | None = None
        self._turn = asyncio.Lock()

    async def snapshot(self, names: Sequence[str], properties: Mapping[str, str]) -> None:
        """See Changes.snapshot."""
        await self._call(
            f"snapshot {some(names)}", "snapshot", names=list(names), properties=dict(properties)
        )

    async def destroy(self, names: Sequence[str]) -> None:
        """See Changes.destroy; here it is all of them or none."""
        await self._call(f"destroy {some(names)}", "destroy", names=list(names))

    async def hold(self, names: Sequence[str], tag: str) -> None:
        """See Changes.hold."""
        await self._call(f"hold {some(names)}", "hold", names=list(names), tag=tag)

    async def release(self, names: Sequence[str], tag: str) -> None:
        """See Changes.release."""
        await self._call(f"release {some(names)}", "release", names=list(names), tag=tag)

    async def tagged(self, names: Sequence[str], tag: str) -> list[str]:
        """Which of these snapshots a tag holds: one call into the kernel each, in which no snapshot is opened."""
        value = await self._call(f"ask for the holds of {some(names)}", "tagged", names=list(names), tag=tag)
        return [str(name) for name in value]

    async def bookmark(self, marks: Mapping[str, str]) -> None:
        """See Changes.bookmark."""
        await self._call(f"bookmark {some(list(marks))}", "bookmark", marks=dict(marks))

    async def destroy_bookmarks(self, names: Sequence[str]) -> None:
        """See Changes.destroy_bookmarks."""
        await self._call(f"destroy {some(names)}", "destroy_bookmarks", names=list(names))

    async def send_space(self, snapshot: str, base: str | None, flags: Sequence[str]) -> int:
        """See Changes.send_space."""
        value = await self._call(
            f"estimate {snapshot}", "send_space", snapshot_name=snapshot, base=base, flags=list(flags)
        )
        return int(value)

    async def range_space(self, ranges: Sequence[tuple[str, str]]) -> list[int]:
        """See Changes.range_space."""
        if not ranges:
            return []
        value = await self._call(f"size {ranges[0][0]}", "range_space", ranges=[list(one) for one in ranges])
        return [int(size) for size in value]

    async def inherit_key(self, dataset: str) -> None:
        """See Changes.inherit_key."""
        await self._call(f"let {dataset} inherit its key", "inherit_key", name=dataset)

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
            raise refusal(
                what,
                [ChangeFailure(e["name"], e["kind"], e["errno"], e["message"]) for e in answer["errors"]],
            )
        return answer["value"]

    async def _ready_child(self) -> JsonChild:
        if self._child is None:
            child = await JsonChild.start([sys.executable, "-m", "zvault.zfs.lzc_child"])
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
