"""What was stopped is started again, but for what runs by then or may not start."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from zvault.core.errors import Busy, Refused
from zvault.daemon.run_resumer import RunResumer


class Runs:
    """``refused`` has the error of each backup that cannot start."""

    def __init__(self) -> None:
        self.started: list[tuple[str, str]] = []
        self.refused: dict[str, Exception] = {}
        self.runner = SimpleNamespace(running={"home": "its time had come"}.get)

    def start(self, backup: str, trigger: str) -> None:
        if backup in self.refused:
            raise self.refused[backup]
        self.started.append((backup, trigger))


class Times:
    """A scheduler that counts how often it looked at the times anew, once it is let."""

    def __init__(self) -> None:
        self.looked, self.given_up, self.may = 0, 0, asyncio.Event()

    async def reschedule(self) -> None:
        try:
            await self.may.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        self.looked += 1


def test_each_is_started_once_and_one_that_cannot_keeps_no_other_from_it() -> None:
    runs: Any = Runs()
    runs.refused = {"b": Busy("it runs"), "c": Refused("the host goes to sleep")}
    RunResumer(runs).resume_runs({"d", "c", "b", "home", "a"})
    assert runs.started == [("a", "catch-up"), ("d", "catch-up")]


async def test_after_a_sleep_every_scheduler_looks_at_its_times_anew() -> None:
    runs: Any = Runs()
    times: list[Any] = [Times(), Times()]
    resumer = RunResumer(runs, *times)
    resumer.wake_up({"a"})
    assert runs.started == [("a", "catch-up")], "and waits for no source"
    times[0].may.set()
    await asyncio.sleep(0.01)
    resumer.close()
    await asyncio.sleep(0.01)
    assert [(one.looked, one.given_up) for one in times] == [(1, 0), (0, 1)]
