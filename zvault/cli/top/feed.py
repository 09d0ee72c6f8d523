"""Where the figures of ``zvaultctl top`` come from: threads that ask the daemon, so that the screen never waits."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from dataclasses import dataclass, field

from zvault.api import routes
from zvault.api.diagnosis import DoctorDocument
from zvault.api.events import RunEvent
from zvault.api.status import StatusDocument
from zvault.cli.daemon_client import DaemonClient
from zvault.cli.screen_news import ScreenNews
from zvault.cli.top.state import TopState
from zvault.core.errors import ZvaultError

STATUS_INTERVAL = 1.0
"""Seconds between two looks at the state of everything."""

DOCTOR_SECONDS = 2
"""Seconds for which a vault's devices are watched at a time."""

FEED_RETRY_PAUSE = 2.0
"""Seconds until what failed is tried again."""


@dataclass
class TopFeed:
    """Asks the daemon in threads of its own, and hands on what they hear. They end with the process."""

    client: DaemonClient
    news: ScreenNews[TopState] = field(default_factory=ScreenNews)
    _vaults: set[str] = field(default_factory=set)
    _up: set[str] = field(default_factory=set)

    def start(self, first: StatusDocument) -> None:
        """Begin to ask; ``first`` is what was answered already."""
        self._see(first)
        for work in (self._follow, self._look):
            threading.Thread(target=work, daemon=True).start()

    def _see(self, status: StatusDocument) -> None:
        now = time.time()
        self.news.put(lambda state: state.look(status, now))
        self._up = {vault["name"] for vault in status["vaults"] if vault["state"] == "up"}
        for name in self._up - self._vaults:
            self._vaults.add(name)
            threading.Thread(target=self._watch, args=(name,), daemon=True).start()

    def _look(self) -> None:
        while True:
            time.sleep(STATUS_INTERVAL)
            try:
                self._see(self.client.get(routes.STATUS, {}))
            except ZvaultError as error:
                self._lost(error)
                time.sleep(FEED_RETRY_PAUSE)

    def _lost(self, error: ZvaultError) -> None:
        text = f"{error.what}: {error.why}" if error.why else error.what

        def lose(state: TopState) -> None:
            state.trouble = text
            state.streams.clear()

        self.news.put(lose)

    def _follow(self) -> None:
        while True:
            try:
                with closing(self.client.all_events()) as events:
                    for event in events:
                        self._hear(event)
            except ZvaultError:
                pass  # the look at the state tells of it
            time.sleep(FEED_RETRY_PAUSE)

    def _hear(self, event: RunEvent) -> None:
        self.news.put(lambda state: state.hear(event))

    def _watch(self, vault: str) -> None:
        """A vault's devices, again and again, as long as it is up."""
        while True:
            found: DoctorDocument | None = None
            if vault in self._up:
                try:
                    found = self.client.get(routes.DOCTOR, {"vault": vault, "seconds": DOCTOR_SECONDS})
                except ZvaultError:
                    found = None
            self._watched(vault, found)
            if found is None:
                time.sleep(FEED_RETRY_PAUSE)

    def _watched(self, vault: str, found: DoctorDocument | None) -> None:
        def take(state: TopState) -> None:
            if found is not None:
                state.doctors[vault] = found
            else:
                state.doctors.pop(vault, None)

        self.news.put(take)
