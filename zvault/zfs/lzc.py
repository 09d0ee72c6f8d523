"""Changes to snapshots, holds and bookmarks through libzfs_core: atomic, batched, without a fork each."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zvault.core.errors import DeadlineExceeded, ToolFailed, ToolMissing
from zvault.core.names import DatasetName, parse_name
from zvault.system.process.json_child import JsonChild
from zvault.system.process.kernel_waits import KERNEL_WAITS, LIBZFS_CORE, WaitingProgram
from zvault.zfs.changes import ChangeFailure, LzcFailure, list_some_names, make_change_error

__all__ = ["Lzc", "LzcFailure"]

LZC_CALL_DEADLINE = 600.0
"""Seconds: a batch of destroys waits for several txg syncs, each slow on a slow vault."""


LZC_READ_DEADLINE = 300.0
"""Seconds: as long as a listing may take."""

DATASETS_PER_REQUEST = 100
"""Datasets whose properties are asked for in one request: another one need not wait long for its turn."""

SET_AT_ONCE = 500
"""Datasets that get a property in one request: it runs while a transaction group is written, and delays that."""


MOST_IDLE = 2
"""Child processes that are kept for the next call: of two pools that both have work none is started for each call."""


class Lzc:
    """Changes on this host, in child processes in which libzfs_core runs.

    A call on a pool waits for the one before it on that pool, and for no other's: one that hangs in the kernel holds
    up nobody else. Children are started when needed.
    """

    def __init__(self) -> None:
        self._idle: list[JsonChild] = []
        self._closed = False
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def snapshot(self, names: Sequence[str], properties: Mapping[str, str]) -> None:
        await self._call(
            f"snapshot {list_some_names(names)}",
            "snapshot",
            names,
            names=list(names),
            properties=dict(properties),
        )

    async def destroy(self, names: Sequence[str]) -> None:
        """See Changes.destroy; here it is all of them or none."""
        await self._call(f"destroy {list_some_names(names)}", "destroy", names, names=list(names))

    async def hold(self, names: Sequence[str], tag: str) -> None:
        await self._call(f"hold {list_some_names(names)}", "hold", names, names=list(names), tag=tag)

    async def release(self, names: Sequence[str], tag: str) -> None:
        await self._call(f"release {list_some_names(names)}", "release", names, names=list(names), tag=tag)

    async def tagged(self, names: Sequence[str], tag: str) -> list[str]:
        """Which of these snapshots a tag holds: one call into the kernel each, in which no snapshot is opened."""
        value = await self._call(
            f"ask for the holds of {list_some_names(names)}", "tagged", names, names=list(names), tag=tag
        )
        return [str(name) for name in value]

    async def bookmark(self, marks: Mapping[str, str]) -> None:
        await self._call(f"bookmark {list_some_names(list(marks))}", "bookmark", marks, marks=dict(marks))

    async def destroy_bookmarks(self, names: Sequence[str]) -> None:
        await self._call(f"destroy {list_some_names(names)}", "destroy_bookmarks", names, names=list(names))

    async def send_space(self, snapshot: str, base: str | None, flags: Sequence[str]) -> int:
        value = await self._call(
            f"estimate {snapshot}",
            "send_space",
            [snapshot],
            snapshot_name=snapshot,
            base=base,
            flags=list(flags),
        )
        return int(value)

    async def range_space(self, ranges: Sequence[tuple[str, str]]) -> list[int]:
        if not ranges:
            return []
        value = await self._call(
            f"size {ranges[0][0]}", "range_space", ranges[0], ranges=[list(one) for one in ranges]
        )
        return [int(size) for size in value]

    async def settings(self, names: Sequence[str]) -> dict[str, Any]:
        """Read what is set on datasets and snapshots, as libzfs.py reads it; without those of which that cannot be
        told.

        Raises ToolMissing where libzfs cannot be used.
        """
        found: dict[str, Any] = {}
        for start in range(0, len(names), DATASETS_PER_REQUEST):
            asked = names[start : start + DATASETS_PER_REQUEST]
            what = f"read the properties of {list_some_names(asked)}"
            value = await self._call(what, "settings", asked, deadline=LZC_READ_DEADLINE, names=list(asked))
            if value is None:
                raise ToolMissing("libzfs cannot be used", "it is of a version that zvault does not know")
            found |= value
        return found

    async def set_user_property(self, name: str, values: Mapping[str, str]) -> list[str]:
        """Set a user property on datasets of one pool, on each its own value, in one transaction group for as many as
        one request has. Returns those on which it could not be set.
        """
        refused: list[str] = []
        datasets = list(values)
        for start in range(0, len(datasets), SET_AT_ONCE):
            some_of_them = {one: values[one] for one in datasets[start : start + SET_AT_ONCE]}
            what = f"set {name} on {list_some_names(list(some_of_them))}"
            pool = DatasetName(datasets[0]).pool
            refused += await self._call(
                what, "set_user_property", [pool], pool=pool, name=name, values=some_of_them
            )
        return refused

    async def list_names(self, root: str) -> tuple[list[str], dict[str, str]]:
        """The names of a dataset and of all below it; and those that cannot be opened, with the kernel's words.

        What is below one of the latter is not known, unless it is the root. Raises ToolFailed.
        """
        found = await self._call(
            f"list the names below {root}", "list_names", [root], deadline=LZC_READ_DEADLINE, root=root
        )
        return found["names"], {name: os.strerror(code) for name, code in found["unlisted"].items()}

    async def inherit_key(self, dataset: str) -> None:
        await self._call(f"let {dataset} inherit its key", "inherit_key", [dataset], name=dataset)

    async def close(self) -> None:
        """End the children: those at work once that is done."""
        self._closed = True
        idle, self._idle = self._idle, []
        for child in idle:
            await child.close()

    async def _call(
        self,
        what: str,
        call: str,
        of: Iterable[str],
        *,
        deadline: float = LZC_CALL_DEADLINE,
        **arguments: Any,
    ) -> Any:
        """Make a call that concerns the names ``of`` one pool."""
        pool = parse_name(next(iter(of), "")).pool
        async with self._turns[pool]:
            # Behind what hangs in the kernel a call would only be the next to hang.
            KERNEL_WAITS.refuse_look(pool)
            self._idle = [child for child in self._idle if child.runs]
            child = self._idle.pop() if self._idle else await _started()
            try:
                answer = await child.ask({"call": call, "arguments": arguments}, deadline)
            except asyncio.CancelledError:
                # An answer may still be on its way; the next caller must not read it as its own.
                try:
                    await child.close()
                finally:  # also for who is cancelled once more
                    _leave_to_kernel(child, call, pool)
                raise
            except DeadlineExceeded:
                _leave_to_kernel(child, call, pool)
                raise
            await self._let_go(child)
        if "errors" in answer:
            raise make_change_error(
                what,
                [ChangeFailure(e["name"], e["kind"], e["errno"], e["message"]) for e in answer["errors"]],
            )
        return answer["value"]

    async def _let_go(self, child: JsonChild) -> None:
        if len(self._idle) < MOST_IDLE and not self._closed:
            self._idle.append(child)
        else:
            await child.close()


def _leave_to_kernel(child: JsonChild, call: str, pool: str) -> None:
    """Remember a child that was put down in the middle of a call, where it has not ended."""
    if child.runs:
        KERNEL_WAITS.leave(WaitingProgram((LIBZFS_CORE, call), pool, process=child.process))


async def _started() -> JsonChild:
    """A child that is ready. Raises ToolMissing."""
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
    return child
