"""A block that is stopped when the ground below it goes, and only then."""

import asyncio

import pytest

from zvault.core.errors import DeviceGone, NotFound, ZvaultError
from zvault.ops import watch
from zvault.ops.watch import to_its_end, watched

GONE = DeviceGone("the device is gone")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "WATCH_EVERY", 0.02)


async def gone() -> ZvaultError | None:
    return GONE


async def well() -> ZvaultError | None:
    return None


async def test_trouble_stops_the_block_and_is_raised() -> None:
    with pytest.raises(DeviceGone) as failure:
        async with asyncio.timeout(5), watched(gone):
            await asyncio.sleep(60)
    assert failure.value is GONE
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)  # nothing is left that would cancel us now


async def test_a_block_that_ends_by_itself_is_left_in_peace() -> None:
    async with watched(well):
        await asyncio.sleep(0.1)
    with pytest.raises(NotFound):
        async with watched(well):
            raise NotFound("its own error")
    async with watched(gone):
        pass
    await asyncio.sleep(0.1)


async def test_a_cancellation_from_outside_stays_one() -> None:
    async def block() -> None:
        async with watched(well):
            await asyncio.sleep(60)

    task = asyncio.create_task(block())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_must_end_ends_though_it_is_cancelled() -> None:
    done = []

    async def work() -> str:
        await asyncio.sleep(0.1)
        done.append(True)
        return "result"

    async def caller() -> str:
        return await to_its_end(work())

    task = asyncio.create_task(caller())
    for _ in range(3):
        await asyncio.sleep(0.02)
        task.cancel()
    assert await task == "result"
    assert done


async def test_what_must_end_may_fail() -> None:
    async def work() -> None:
        raise NotFound("it is not there")

    with pytest.raises(NotFound):
        await to_its_end(work())
