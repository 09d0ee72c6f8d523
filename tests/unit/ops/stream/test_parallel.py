"""Several datasets at once: never more than there are slots for, in order, and down together."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from tests.unit.patience import PATIENCE
from zvault.core.replication.run_order import RunOrder
from zvault.ops.stream import parallel
from zvault.ops.stream.parallel import ParallelWork, tell_while_waiting
from zvault.ops.stream.stream_slots import StreamSlots, TakenSlots


@dataclass
class Work:
    """Carries out by waiting until it is told to go on; keeps what happened."""

    begun: list[str] = field(default_factory=list)
    at_once: int = 0
    most: int = 0
    go: dict[str, asyncio.Event] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    outcome: Callable[[str], bool] = lambda name: True

    async def __call__(self, name: str) -> bool:
        self.begun.append(name)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await self.go.setdefault(name, asyncio.Event()).wait()
            return self.outcome(name)
        finally:
            self.at_once -= 1

    async def end(self, *names: str) -> None:
        for name in names:
            self.go.setdefault(name, asyncio.Event()).set()
        await settle()


class Queue(ParallelWork):
    """Carries out such work; ``limits`` are those of one."""

    def __init__(
        self,
        order: RunOrder,
        slots: StreamSlots,
        owner: str,
        work: Work,
        limits: Callable[[str], Mapping[str, int]],
    ) -> None:
        super().__init__(order, slots, owner)
        self.work, self.limits = work, limits

    def list_limits(self, name: str) -> Mapping[str, int]:
        return self.limits(name)

    async def carry_out(self, name: str) -> bool:
        return await self.work(name)

    def tell(self, text: str) -> None:
        self.work.told.append(text)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def vault(slots: int) -> Callable[[str], Mapping[str, int]]:
    return lambda name: {} if name.startswith("still") else {"vault": slots}


@asynccontextmanager
async def running(
    order: RunOrder,
    slots: StreamSlots,
    work: Work,
    limits: Callable[[str], Mapping[str, int]],
    owner: str = "",
) -> AsyncIterator[asyncio.Task[None]]:
    owner = owner or f"backup {id(work)}"
    task = asyncio.create_task(Queue(order, slots, owner, work, limits).execute())
    await settle()
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task}, timeout=PATIENCE)


def plain(*names: str) -> RunOrder:
    return RunOrder(dict.fromkeys(names, ()), {name: 100 - place for place, name in enumerate(names)})


async def test_as_many_at_once_as_there_are_places() -> None:
    work, slots = Work(), StreamSlots()
    async with running(plain("a", "b", "c", "d"), slots, work, vault(2)) as task:
        assert work.begun == ["a", "b"]
        await work.end("b")
        assert work.begun == ["a", "b", "c"]
        await work.end("a", "c", "d")
        await asyncio.wait_for(task, PATIENCE)
    assert work.most == 2


async def test_what_sends_nothing_takes_no_place() -> None:
    order = RunOrder({"still 1": (), "a": (), "still 2": ()}, {"a": 1})
    work = Work()
    async with running(order, StreamSlots(), work, vault(1)):
        assert work.begun == ["still 1", "still 2", "a"]


async def test_a_slow_one_blocks_none_but_what_needs_it() -> None:
    order = RunOrder(
        {"slow": (), "slow/child": ("slow",), "a": (), "b": (), "c": ()}, dict.fromkeys("abc", 1)
    )
    work = Work()
    async with running(order, StreamSlots(), work, vault(2)) as task:
        for name in ("a", "b", "c"):
            await work.end(name)
        assert work.begun == ["slow", "a", "b", "c"]
        await work.end("slow", "slow/child")
        await asyncio.wait_for(task, PATIENCE)


async def test_what_waits_in_one_lane_holds_up_no_other() -> None:
    """Nor does a lane end while what the other carries out may give it more."""
    needs = {"a": (), "b": (), "x": (), "y": (), "b/child": ("b",)}
    order = RunOrder(needs, dict.fromkeys(needs, 1), dict.fromkeys(("x", "y", "b/child"), "small"))
    work = Work()

    def limits(name: str) -> Mapping[str, int]:
        return {"small": 2} if name in {"x", "y", "b/child"} else {"large": 1}

    async with running(order, StreamSlots(), work, limits) as task:
        assert sorted(work.begun) == ["b", "x", "y"], "b is the longest way"
        await work.end("x", "y")
        assert (sorted(work.begun), task.done()) == (["b", "x", "y"], False)
        await work.end("b")
        assert sorted(work.begun) == ["a", "b", "b/child", "x", "y"]
        await work.end("a", "b/child")
        await asyncio.wait_for(task, PATIENCE)


async def test_two_runs_share_a_vault_by_turns() -> None:
    slots, first, second = StreamSlots(), Work(), Work()
    async with (
        running(plain("a", "b", "c", "d"), slots, first, vault(2)),
        running(plain("x", "y", "z"), slots, second, vault(2)),
    ):
        assert (first.begun, second.begun) == (["a", "b"], [])
        await first.end("a")
        await first.end("b")
        assert (first.begun, second.begun) == (["a", "b", "c"], ["x"])
        await first.end("c")
        await second.end("x")
        assert (first.begun, second.begun) == (["a", "b", "c", "d"], ["x", "y"])
        assert first.at_once + second.at_once == 2


async def test_who_has_least_of_a_vault_gets_the_next_place_however_late_it_came() -> None:
    """A backup of many datasets asks anew as soon as one of its streams ends; one that came later has none yet."""
    slots, many, late = StreamSlots(), Work(), Work()
    async with running(plain("a", "b", "c", "d", "e"), slots, many, vault(3), "many"):
        assert many.begun == ["a", "b", "c"]
        assert slots.describe_wait("many") is None, "it waits for its own streams"
        async with running(plain("x", "y"), slots, late, vault(3), "late"):
            assert slots.describe_wait("late") == (
                "one of the 3 streams that may go at once (vault); they are taken by: many 3"
            )
            assert slots.is_wanted_by_others("many")
            assert not slots.is_wanted_by_others("late")
            await many.end("a")
            assert (many.begun, late.begun) == (["a", "b", "c"], ["x"])
            await many.end("b")
            assert (many.begun, late.begun) == (["a", "b", "c", "d"], ["x"]), (
                "each has one: who waited longest"
            )
            assert slots.describe_wait("late") is None
        await settle()
        assert not slots.is_wanted_by_others("many")


async def test_a_long_wait_for_a_place_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "WAIT_TOLD_AFTER", 0.01)
    slots, first, second = StreamSlots(), Work(), Work()
    async with (
        running(plain("a", "b"), slots, first, vault(1), "first"),
        running(plain("x"), slots, second, vault(1), "second"),
    ):
        async with asyncio.timeout(PATIENCE):
            while not second.told:
                await asyncio.sleep(0.01)
        told = "waiting for one of the 1 streams that may go at once (vault); they are taken by: first 1"
        assert second.told == [told]
        assert first.told == []


async def test_a_full_vault_keeps_nobody_from_another() -> None:
    slots, cold, warm = StreamSlots(), Work(), Work()
    async with (
        running(plain("a", "b"), slots, cold, lambda _: {"vault cold": 1, "host far": 8}),
        running(plain("x", "y"), slots, warm, lambda _: {"vault warm": 1, "host far": 8}),
    ):
        assert (cold.begun, warm.begun) == (["a"], ["x"])


async def test_a_host_has_its_own_limit() -> None:
    slots, one, two = StreamSlots(), Work(), Work()
    async with (
        running(plain("a", "b"), slots, one, lambda _: {"vault cold": 4, "host far": 1}),
        running(plain("x", "y"), slots, two, lambda _: {"vault warm": 4, "host far": 1}),
    ):
        assert one.at_once + two.at_once == 1
        await one.end("a")
        assert one.at_once + two.at_once == 1


async def test_more_places_are_used_as_soon_as_one_ends() -> None:
    limit = 1
    work = Work()
    async with running(plain("a", "b", "c"), StreamSlots(), work, lambda _: {"vault": limit}):
        assert work.begun == ["a"]
        limit = 3
        await work.end("a")
        assert work.begun == ["a", "b", "c"]


async def test_cancelled_all_go_down_and_every_place_is_given_back() -> None:
    work, slots = Work(), StreamSlots()
    async with running(plain("a", "b", "c"), slots, work, vault(2)) as task:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert work.at_once == 0
    async with asyncio.timeout(PATIENCE):
        await slots.take(lambda: {"vault": 2}, "b")
        await slots.take(lambda: {"vault": 2}, "b")


async def test_cancelled_before_its_first_step_it_gives_its_place_back_too() -> None:
    work, slots = Work(), StreamSlots()
    task = asyncio.create_task(Queue(plain("a"), slots, "b", work, vault(1)).execute())
    while not slots._taken["vault"]:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.begun in ([], ["a"])
    async with asyncio.timeout(PATIENCE):
        await slots.take(lambda: {"vault": 1}, "b")


async def test_who_gives_up_waiting_takes_no_place() -> None:
    slots = StreamSlots()
    taken = await slots.take(lambda: {"vault": 1}, "b")
    waiting = asyncio.create_task(slots.take(lambda: {"vault": 1}, "b"))
    await settle()
    slots.give(taken)
    waiting.cancel()  # it has been served, but does not know yet
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(PATIENCE):
        await slots.take(lambda: {"vault": 1}, "b")


async def test_limits_that_can_no_longer_be_told_are_the_trouble_of_who_waits() -> None:
    known = {"vault": 1}
    slots = StreamSlots()
    taken = await slots.take(lambda: known, "b")
    waiting = asyncio.create_task(slots.take(lambda: {"vault": known["vault"]}, "b"))
    behind = asyncio.create_task(slots.take(lambda: {"vault": 1}, "b"))
    await settle()
    known.clear()
    slots.give(taken)
    with pytest.raises(KeyError):
        await waiting
    assert await asyncio.wait_for(behind, PATIENCE) == TakenSlots("b", ("vault",))


async def test_a_bug_in_one_ends_all_and_is_told_as_it_is() -> None:
    work = Work(outcome=lambda name: 1 // 0 == 1)
    async with running(plain("a", "b"), StreamSlots(), work, vault(2)) as task:
        await work.end("a")
        with pytest.raises(ZeroDivisionError):
            await task
    assert work.at_once == 0


async def test_a_stream_that_waits_long_for_another_to_end_says_for_what(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parallel, "WAIT_TOLD_AFTER", 0.01)
    lock, told = asyncio.Lock(), list[str]()

    @asynccontextmanager
    async def turn() -> AsyncIterator[None]:
        async with lock:
            yield

    await lock.acquire()

    async def work() -> None:
        async with tell_while_waiting(turn(), lambda: "the heal" if lock.locked() else None, told.append):
            assert lock.locked()

    task = asyncio.create_task(work())
    await asyncio.sleep(0.05)
    assert told == ["waiting for the heal"]
    lock.release()
    await asyncio.wait_for(task, PATIENCE)
    assert not lock.locked()
    await work()
    await asyncio.sleep(0.05)
    assert told == ["waiting for the heal"], "where nothing is waited for nothing is told"
