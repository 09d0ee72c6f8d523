"""Asks the daemon all the time how it is while something happens to it: whether and how soon it answers, and what."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import world
from world import answer, ask

POOL_STATE = 'zvault_pool_state{pool="cold",state="suspended",vault="cold"}'
DEVICE_UP = 'zvault_device_up{device="cold-0",vault="cold"}'


class Watcher:
    """Asks the daemon all the time how it is; keeps the longest time an answer took, and what was told."""

    def __init__(self) -> None:
        self.worst = {"status": 0.0, "metrics": 0.0}
        self.vault: dict[str, Any] = {}
        self.samples: dict[str, float] = {}
        self.failed: list[str] = []
        self._stop = threading.Event()

    def __enter__(self) -> Watcher:
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(1):
            try:
                self._timed("status", self._status)
                self._timed("metrics", self._metrics)
            except Exception as error:
                self.failed.append(repr(error))

    def _timed(self, name: str, look: Callable[[], None]) -> None:
        began = time.monotonic()
        look()
        self.worst[name] = max(self.worst[name], time.monotonic() - began)

    def _status(self) -> None:
        told = answer(ask("GET", "/v1/status"))
        assert told is not None
        self.vault = told["vaults"][0]

    def _metrics(self) -> None:
        self.samples = world.metrics()

    def told(self) -> bool:
        """Whether status and metrics both show that the storage is gone."""
        shown = self.vault.get("state") == "gone" or self.vault.get("health") == "SUSPENDED"
        return shown and (self.samples.get(POOL_STATE) == 1 or self.samples.get(DEVICE_UP) == 0)

    def well(self) -> bool:
        """Whether the vault is up and nothing is wrong with it."""
        return (self.vault.get("state"), self.vault.get("health")) == ("up", "ONLINE")

    def down(self) -> bool:
        """Whether it is down."""
        return self.vault.get("state") == "down"
