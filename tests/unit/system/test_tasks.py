"""A block that is stopped when the ground below it goes, and only then."""

import asyncio

import pytest

from tests.unit.patience import FOR_EVER, PATIENCE
from zvault.core.errors import DeviceGone, NotFound, ZvaultError
from zvault.system import tasks
from zvault.system.tasks import cancel_tasks, finish_work, watch_block

GONE = DeviceGone("the device is gone")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "WATCH_EVERY", 0.02)


async def gone() -> ZvaultError | None:
    return GONE


async def well() -> ZvaultError | None:
    return None


async def test_trouble_stops_the_block_and_is_raised() -> None:
    with pytest.raises(DeviceGone) as failure:
        async with asyncio.timeout(PATIENCE), watch_block(gone):
            await asyncio.sleep(FOR_EVER)
    assert failure.value is GONE
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)  # nothing is left that would cancel us now


async def test_a_block_that_ends_by_itself_is_left_in_peace() -> None:
    async with watch_block(well):
        await asyncio.sleep(0.1)
    with pytest.raises(NotFound):
        async with watch_block(well):
            raise NotFound("its own error")
    async with watch_block(gone):
        pass
    await asyncio.sleep(0.1)


async def test_a_cancellation_from_outside_stays_one() -> None:
    async def block() -> None:
        async with watch_block(well):
            await asyncio.sleep(FOR_EVER)

    task = asyncio.create_task(block())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def late(done: list[str], error: Exception | None = None) -> str:
    await asyncio.sleep(0.1)
    done.append("done")
    if error is not None:
        raise error
    return "result"


async def test_what_must_end_gives_its_result_or_fails() -> None:
    done: list[str] = []
    assert await finish_work(late(done)) == "result"
    with pytest.raises(NotFound):
        await finish_work(late(done, NotFound("it is not there")))
    assert done == ["done", "done"]


@pytest.mark.parametrize("error", [None, NotFound("it is not there")])
async def test_a_cancellation_waits_for_what_must_end_and_is_not_lost(error: Exception | None) -> None:
    done: list[str] = []
    task = asyncio.create_task(finish_work(late(done, error)))
    for _ in range(3):
        await asyncio.sleep(0.02)
        task.cancel()
    with pytest.raises(asyncio.CancelledError) as cancellation:
        await task
    assert done == ["done"]
    assert cancellation.value.__cause__ is error or error is None


async def test_trouble_that_comes_while_something_must_end_stops_the_block_after_it() -> None:
    done: list[str] = []

    async def block() -> None:
        async with asyncio.timeout(PATIENCE), watch_block(gone):
            await finish_work(late(done))
            await asyncio.sleep(FOR_EVER)

    with pytest.raises(DeviceGone):
        await block()
    assert done == ["done"]


async def test_a_timeout_that_comes_while_something_must_end_is_one() -> None:
    done: list[str] = []
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await finish_work(late(done))
    assert done == ["done"]


async def test_cancelled_tasks_are_waited_for() -> None:
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    ended: list[str] = []

    async def slow(error: Exception | None) -> None:
        try:
            await asyncio.sleep(FOR_EVER)
        finally:
            await finish_work(late(ended))
            if error is not None:
                raise error

    bug = ValueError("a bug")
    tasks = [asyncio.create_task(slow(error)) for error in (None, NotFound("it is not there"), bug)]
    await asyncio.sleep(0.01)
    await cancel_tasks(*tasks)
    assert ended == ["done"] * 3
    assert [context["exception"] for context in told] == [bug]
    await cancel_tasks()
