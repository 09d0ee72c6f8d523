"""Calls that go wrong in a given order, and what is waited and told until they go well."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tests.unit.object_store.faulty_store import FaultyStore
from tests.unit.object_store.memory_store import MemoryStore
from zvault.object_store.interface import (
    StoreError,
    StoreUnreachable,
)
from zvault.object_store.retrying_store import RetryingStore

GONE = StoreUnreachable("one cannot be read", "the store answers 503", "")


class Story:
    """A store that fails as it is told, a clock that goes on while something sleeps, and what was said."""

    def __init__(self, chance: float = 1.0, **more: Any) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self.said: list[str] = []
        self.errors: list[StoreError] = []
        self.until: tuple[float, StoreError] | None = None
        self.after_sleep: Callable[[], object] = lambda: None
        self.memory = MemoryStore()
        self.stopping = threading.Event()
        self.faulty = FaultyStore(self.memory, hook=self._hook)
        self.store = RetryingStore(
            self.faulty,
            stopping=self.stopping,
            say=self.said.append,
            clock=lambda: self.now,
            sleep=self._sleep,
            chance=lambda: chance,
            **more,
        )

    def _hook(self, when: str, _: object) -> None:
        if when == "before":
            if self.errors:
                raise self.errors.pop(0)
            if self.until is not None and self.now < self.until[0]:
                raise self.until[1]

    def _sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.slept.append(seconds)
        self.now += seconds
        self.after_sleep()
