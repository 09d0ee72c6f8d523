import asyncio
import logging
from typing import Any

import pytest

from tests.unit import patience
from tests.unit.events import make_event
from zvault.api.events import RunEvent, RunFinished
from zvault.daemon import event_publisher as module
from zvault.daemon.event_publisher import (
    MOST_UNREAD_EVENTS,
    REMEMBERED_EVENTS,
    REMEMBERED_RUNS,
    EventPublisher,
)


def event(kind: str, run: str = "r1", **fields: Any) -> RunEvent:
    return make_event(kind, run, **fields)


async def collect(events: EventPublisher, run: str | None, into: list[RunEvent]) -> None:
    async for heard in events.follow(run):
        into.append(heard)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def kinds(heard: list[RunEvent]) -> list[str]:
    return [event.name for event in heard]


async def test_one_who_comes_late_hears_all_of_a_run_and_then_the_rest() -> None:
    events, heard = EventPublisher(), []
    events.publish(event("run-started"))
    events.publish(event("plan"))
    following = asyncio.create_task(collect(events, "r1", heard))
    await settle()
    assert kinds(heard) == ["run-started", "plan"]
    events.publish(event("message", run="another"))
    events.publish(event("run-finished"))
    await asyncio.wait_for(following, patience.PATIENCE)
    assert kinds(heard) == ["run-started", "plan", "run-finished"]


async def test_a_run_that_is_over_is_replayed_and_ends() -> None:
    events, heard = EventPublisher(), []
    for kind in ("run-started", "message", "run-finished"):
        events.publish(event(kind))
    await asyncio.wait_for(collect(events, "r1", heard), patience.PATIENCE)
    assert kinds(heard) == ["run-started", "message", "run-finished"]


async def test_nothing_is_lost_or_told_twice_between_replay_and_present() -> None:
    events, heard = EventPublisher(), []
    for number in range(50):
        events.publish(event("message", text=str(number)))
    stream = events.follow("r1")
    heard.append(await anext(stream))
    for number in range(50, 100):
        events.publish(event("message", text=str(number)))
    events.publish(event("run-finished"))
    heard += [event async for event in stream]
    assert [getattr(event, "text", "") for event in heard] == [*map(str, range(100)), ""]


async def test_following_everything_hears_what_comes_and_nothing_past() -> None:
    events, heard = EventPublisher(), []
    events.publish(event("message", run="old"))
    following = asyncio.create_task(collect(events, None, heard))
    await settle()
    for run in ("r1", "r2"):
        events.publish(event("run-finished", run=run))
    await settle()
    assert [event.run for event in heard] == ["r1", "r2"]
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    assert not events._listeners


async def test_of_progress_only_the_newest_is_remembered() -> None:
    events, heard = EventPublisher(), []
    events.publish(event("transfer-started"))
    for number in range(5000):
        events.publish(event("progress", bytes=number))
    events.publish(event("transfer-finished"))
    events.publish(event("run-finished"))
    await collect(events, "r1", heard)
    assert kinds(heard) == ["transfer-started", "progress", "transfer-finished", "run-finished"]
    assert getattr(heard[1], "bytes", None) == 4999


async def test_a_slow_follower_loses_progress_and_nothing_else() -> None:
    events = EventPublisher()
    stream = events.follow(None)
    first = asyncio.ensure_future(anext(stream))
    await settle()
    events.publish(event("run-started"))
    for number in range(3000):
        events.publish(event("progress", bytes=number))
        if number % 100 == 0:
            events.publish(event("message", text=str(number)))
    events.publish(event("run-finished"))
    heard = [await first]
    while not isinstance(heard[-1], RunFinished):
        heard.append(await anext(stream))
    assert kinds(heard).count("message") == 30
    assert kinds(heard).count("progress") <= 100
    await stream.aclose()  # type: ignore[attr-defined]


async def test_a_hung_follower_is_cut_off_and_costs_no_memory() -> None:
    events = EventPublisher()
    stream = events.follow(None)
    first = asyncio.ensure_future(anext(stream))
    await settle()
    events.publish(event("message", text="0"))
    assert getattr(await first, "text", None) == "0"
    for number in range(MOST_UNREAD_EVENTS + 10):
        events.publish(event("message", run=f"r{number // 100}", text=str(number)))
    assert not events._listeners
    assert [event async for event in stream] == []


async def test_another_follower_does_not_suffer_for_one_that_hangs() -> None:
    events, heard = EventPublisher(), []
    hung = events.follow(None)
    waiting = asyncio.ensure_future(anext(hung))
    following = asyncio.create_task(collect(events, None, heard))
    await settle()
    for number in range(MOST_UNREAD_EVENTS + 10):
        events.publish(event("message", run=f"r{number // 100}"))
        if number % 50 == 0:
            await settle()
    await settle()
    assert len(heard) == MOST_UNREAD_EVENTS + 10
    following.cancel()
    await waiting
    await hung.aclose()  # type: ignore[attr-defined]


def test_old_runs_are_forgotten_but_not_while_they_go_on() -> None:
    events = EventPublisher()
    events.publish(event("run-started", run="long"))
    for number in range(3 * REMEMBERED_RUNS):
        events.publish(event("run-started", run=f"r{number}"))
        events.publish(event("run-finished", run=f"r{number}"))
    assert events.knows("long")
    assert not events.knows("r0")
    assert events.knows(f"r{3 * REMEMBERED_RUNS - 1}")
    assert len(events._past) == REMEMBERED_RUNS
    assert not events.knows("never")


def test_of_a_run_of_very_many_datasets_the_newest_events_are_kept() -> None:
    events = EventPublisher()
    events.publish(event("run-finished", run="before"))
    for number in range(REMEMBERED_EVENTS + 100):
        events.publish(event("message", text=str(number)))
    assert not events.knows("before")
    assert len(events._past["r1"]) == REMEMBERED_EVENTS
    assert getattr(events._past["r1"][-1], "text", None) == str(REMEMBERED_EVENTS + 99)


async def test_a_long_replay_does_not_count_as_left_unread() -> None:
    events, heard = EventPublisher(), []
    for number in range(MOST_UNREAD_EVENTS + 10):
        events.publish(event("message", text=str(number)))
    following = asyncio.create_task(collect(events, "r1", heard))
    await asyncio.sleep(0)
    events.publish(event("run-finished"))
    await asyncio.wait_for(following, patience.PATIENCE)
    assert len(heard) == MOST_UNREAD_EVENTS + 11


async def test_a_hook_that_breaks_breaks_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    events, noted, heard = EventPublisher(), [], []

    def broken(_: RunEvent) -> None:
        raise OSError("the journal is gone")

    events.subscribe(RunEvent, broken)
    events.subscribe(RunEvent, lambda event: noted.append(event.name))
    following = asyncio.create_task(collect(events, "r1", heard))
    with caplog.at_level(logging.ERROR, module.__name__):
        events.publish(event("run-started"))
        events.publish(event("run-finished"))
    await asyncio.wait_for(following, patience.PATIENCE)
    assert noted == kinds(heard) == ["run-started", "run-finished"]
    assert "cannot note the event run-started of run r1" in caplog.text
    assert "the journal is gone" in caplog.text
