"""One call for what many ask at the same time: a change waits for a transaction group, however many names it has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from zvault.core.errors import NotFound, ToolFailed

NAMES_PER_CALL = 1000
"""Names in one call."""

Item = TypeVar("Item")


class Protects(Protocol):
    """The changes that protect a base, each as in zfs/changes.py."""

    async def hold(self, names: Sequence[str], tag: str) -> None:
        """Hold snapshots."""
        ...

    async def release(self, names: Sequence[str], tag: str) -> None:
        """Release holds."""
        ...

    async def bookmark(self, marks: Mapping[str, str]) -> None:
        """Make bookmarks, mark → snapshot."""
        ...

    async def destroy_bookmarks(self, names: Sequence[str]) -> None:
        """Destroy bookmarks."""
        ...


@dataclass(eq=False, slots=True)
class _Request(Generic[Item]):
    item: Item
    granted: bool = False
    error: Exception | None = None


class BatchedCall(Generic[Item]):
    """A call that takes several things at a time. What is asked while it runs goes together into the next one."""

    def __init__(self, call: Callable[[Sequence[Item]], Awaitable[None]]) -> None:
        self._call = call
        self._turn = asyncio.Lock()
        self._waiting: list[_Request[Item]] = []

    async def ask(self, item: Item) -> None:
        """Have it done. Raises what the call raises for this item alone."""
        request = _Request(item)
        self._waiting.append(request)
        try:
            async with self._turn:
                if not request.granted:
                    await self._grant()
        finally:
            if request in self._waiting:
                self._waiting.remove(request)
        if request.error is not None:
            raise request.error

    async def _grant(self) -> None:
        batch, self._waiting = self._waiting, []
        try:
            await self._carry_out(batch)
        except asyncio.CancelledError:
            # Whoever made the call was stopped; the next in turn makes it for the others.
            self._waiting = [request for request in batch if not request.granted] + self._waiting
            raise

    async def _carry_out(self, batch: list[_Request[Item]]) -> None:
        """One call for all or, when some of them are refused, one for each, to learn which."""
        try:
            await self._call([request.item for request in batch])
        except (NotFound, ToolFailed) as error:
            if len(batch) > 1:
                for request in batch:
                    await self._carry_out([request])
                return
            batch[0].error = error
        except Exception as error:
            # Also what nobody foresaw: to say that it was done could release a base that nothing protects.
            for request in batch:
                request.error = error
        for request in batch:
            request.granted = True


class BatchedChanges:
    """The changes to the protection of one pool's datasets, joined. The order in which one asks for them is kept."""

    def __init__(self, changes: Protects) -> None:
        self._changes = changes
        self._holds: BatchedCall[tuple[Sequence[str], str]] = BatchedCall(self._hold)
        self._releases: BatchedCall[tuple[Sequence[str], str]] = BatchedCall(self._release)
        self._marks: BatchedCall[Mapping[str, str]] = BatchedCall(self._bookmark)
        self._unmarks: BatchedCall[Sequence[str]] = BatchedCall(self._destroy_bookmarks)

    async def hold(self, names: Sequence[str], tag: str) -> None:
        await self._holds.ask((names, tag))

    async def release(self, names: Sequence[str], tag: str) -> None:
        await self._releases.ask((names, tag))

    async def bookmark(self, marks: Mapping[str, str]) -> None:
        await self._marks.ask(marks)

    async def destroy_bookmarks(self, names: Sequence[str]) -> None:
        await self._unmarks.ask(names)

    async def _hold(self, requests: Sequence[tuple[Sequence[str], str]]) -> None:
        for tag, names in _by_tag(requests).items():
            for some in _some(names):
                await self._changes.hold(some, tag)

    async def _release(self, requests: Sequence[tuple[Sequence[str], str]]) -> None:
        for tag, names in _by_tag(requests).items():
            for some in _some(names):
                await self._changes.release(some, tag)

    async def _bookmark(self, requests: Sequence[Mapping[str, str]]) -> None:
        marks = {mark: snapshot for request in requests for mark, snapshot in request.items()}
        for some in _some(list(marks)):
            await self._changes.bookmark({mark: marks[mark] for mark in some})

    async def _destroy_bookmarks(self, requests: Sequence[Sequence[str]]) -> None:
        for some in _some([name for names in requests for name in names]):
            await self._changes.destroy_bookmarks(some)


def _by_tag(requests: Sequence[tuple[Sequence[str], str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for names, tag in requests:
        found.setdefault(tag, []).extend(names)
    return found


def _some(names: Sequence[str]) -> list[Sequence[str]]:
    return [names[start : start + NAMES_PER_CALL] for start in range(0, len(names), NAMES_PER_CALL)]
