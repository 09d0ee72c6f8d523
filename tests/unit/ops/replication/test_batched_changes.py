"""Changes that many datasets ask for at the same time go together, and each asker learns of its own alone."""

import asyncio
from collections.abc import Sequence

import pytest

from zvault.core.errors import DeadlineExceeded, NotFound
from zvault.ops.replication.batched_changes import BatchedCall, BatchedChanges


class Slow:
    """A call that waits until the test lets it continue, and refuses what is ``bad``."""

    def __init__(self, *bad: str) -> None:
        self.bad = bad
        self.calls: list[list[str]] = []
        self.go = asyncio.Event()

    async def __call__(self, items: Sequence[str]) -> None:
        self.calls.append(list(items))
        await self.go.wait()
        if wrong := [item for item in items if item in self.bad]:
            raise NotFound(f"cannot hold {wrong[0]}", "it is gone")


async def asked(joined: BatchedCall[str], *items: str) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(joined.ask(item)) for item in items]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


async def test_what_is_asked_during_a_call_goes_together_into_the_next_one() -> None:
    slow = Slow()
    joined = BatchedCall(slow)
    tasks = await asked(joined, "a") + await asked(joined, "b", "c")
    slow.go.set()
    await asyncio.gather(*tasks)
    assert slow.calls == [["a"], ["b", "c"]]


async def test_one_that_is_refused_spoils_it_for_no_other() -> None:
    slow = Slow("b")
    joined = BatchedCall(slow)
    tasks = await asked(joined, "a") + await asked(joined, "b", "c")
    slow.go.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [type(None), NotFound, type(None)]
    assert slow.calls == [["a"], ["b", "c"], ["b"], ["c"]]


async def test_a_host_that_does_not_answer_is_not_asked_for_each_again() -> None:
    async def hung(_: Sequence[str]) -> None:
        raise DeadlineExceeded("zfs did not answer", "the pool may hang", "")

    joined = BatchedCall(hung)
    results = await asyncio.gather(*(joined.ask(name) for name in "abc"), return_exceptions=True)
    assert [type(result) for result in results] == [DeadlineExceeded] * 3


async def test_when_the_one_who_calls_is_stopped_the_others_are_served_all_the_same() -> None:
    slow = Slow()
    joined = BatchedCall(slow)
    first = await asked(joined, "a")
    calling, other = await asked(joined, "b", "c")
    let_first, slow.go = slow.go, asyncio.Event()
    let_first.set()
    await asyncio.gather(*first)
    await asyncio.sleep(0.001)
    assert slow.calls[-1] == ["b", "c"]
    calling.cancel()
    slow.go.set()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await other
    assert slow.calls[-1] == ["c"]


class Changes:
    """Writes down the calls; each takes a moment, as one that waits for a transaction group."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    async def hold(self, names: Sequence[str], tag: str) -> None:
        await self._note("hold", sorted(names), tag)

    async def release(self, names: Sequence[str], tag: str) -> None:
        await self._note("release", sorted(names), tag)

    async def bookmark(self, marks: object) -> None:
        await self._note("bookmark", marks)

    async def destroy_bookmarks(self, names: Sequence[str]) -> None:
        await self._note("destroy", sorted(names))

    async def _note(self, *call: object) -> None:
        self.calls.append(call)
        await asyncio.sleep(0.001)


async def test_two_vaults_holds_are_kept_apart_and_a_thousand_names_are_one_call() -> None:
    changes = Changes()
    together = BatchedChanges(changes)
    names = [f"tank@{number:04}" for number in range(1001)]
    await asyncio.gather(
        together.hold(["tank@first"], "zvault:1"),
        *(together.hold([name], "zvault:1") for name in names),
        together.hold(["tank@s"], "zvault:2"),
        together.bookmark({"tank#a": "tank@s"}),
    )
    assert changes.calls[:2] == [("hold", ["tank@first"], "zvault:1"), ("bookmark", {"tank#a": "tank@s"})]
    rest = [(len(call[1]), call[2]) for call in changes.calls[2:]]  # type: ignore[arg-type]
    assert rest == [(1000, "zvault:1"), (1, "zvault:1"), (1, "zvault:2")]


async def test_what_nobody_foresaw_is_told_to_every_asker_as_not_done() -> None:
    started = asyncio.Event()

    async def broken(items: Sequence[str]) -> None:
        started.set()
        await asyncio.sleep(0)
        if items != ["first"]:
            raise RuntimeError("a bug")

    joined = BatchedCall(broken)
    results = await asyncio.gather(
        *(joined.ask(name) for name in ("first", "b", "c")), return_exceptions=True
    )
    assert [type(result) for result in results] == [type(None), RuntimeError, RuntimeError]
