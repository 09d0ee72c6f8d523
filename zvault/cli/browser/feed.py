"""Who is asked for the screen of ``zvaultctl browse``: threads, so that the screen never waits.

A session keeps the vault up and the snapshots held while somebody looks. It ends with the connection, so with the
process in any case.
"""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass, field

from zvault.api import routes
from zvault.api.browse import DiffBody, LookBody, SessionBody
from zvault.cli.browser.frame import format_difference_lines
from zvault.cli.browser.state import BrowseWalk, WantedDifference, WantedPast, parse_walk_path
from zvault.cli.daemon_client import HttpClient
from zvault.cli.screen_news import ScreenNews
from zvault.core.errors import ZvaultError


@dataclass
class BrowseFeed:
    """Asks the daemon, and hands on what it answers."""

    client: HttpClient
    first: LookBody
    error: ZvaultError | None = None
    """Why nothing could be looked into at all."""
    session: str = field(default_factory=lambda: secrets.token_hex(16))
    news: ScreenNews[BrowseWalk] = field(default_factory=ScreenNews)
    _begun: threading.Event = field(default_factory=threading.Event)
    _dataset: str | None = None
    _started: bool = False

    def start(self) -> None:
        """Open the session, and look at the path it was begun with."""
        self._started = True
        for work in (self._keep, self._look_first):
            threading.Thread(target=work, daemon=True).start()

    def look(self, wanted: WantedPast) -> None:
        """Ask for the past of a path."""
        body: LookBody = {
            "backup": self.first["backup"],
            "dataset": self._dataset,
            "path": parse_walk_path(wanted.path),
        }
        threading.Thread(target=self._look, args=(body,), daemon=True).start()

    def look_anew(self, dataset: str, wanted: WantedPast) -> None:
        """Ask for the past of a path of a dataset, after another vault was looked into; open the session if need be."""
        self.error = None
        if self._started and self._dataset is not None:
            self._dataset = dataset
            self.look(wanted)
            return
        self.first = {**self.first, "dataset": dataset, "path": parse_walk_path(wanted.path)}
        self._begun.clear()
        self.start()

    def compare(self, wanted: WantedDifference) -> None:
        """Ask, in a thread, what differs between two snapshots; ``news`` gets the answer."""
        body: DiffBody = {
            "backup": self.first["backup"],
            "old": wanted.old,
            "new": wanted.new,
            "path": parse_walk_path(wanted.path),
            "session": self.session,
        }
        threading.Thread(target=self._compare, args=(body,), daemon=True).start()

    def _keep(self) -> None:
        body: SessionBody = {"backup": self.first["backup"], "session": self.session}
        for key in ("dataset", "path", "side"):
            if key in self.first:
                body[key] = self.first[key]
        try:
            for text in self.client.followed(routes.BROWSE_SESSION, body):
                self._begun.set()
                self._busy(text)
        except ZvaultError as error:
            self._fail(error)
        finally:
            self._begun.set()

    def _look_first(self) -> None:
        self._begun.wait()
        self._look({**self.first})

    def _look(self, body: LookBody) -> None:
        body["session"] = self.session
        asked = self.client.followed(routes.BROWSE, body)
        try:
            while True:
                self._busy(next(asked))
        except StopIteration as end:
            past = end.value
            self._dataset = past["dataset"]
            self.news.put(lambda walk: walk.arrive(past))
        except ZvaultError as error:
            self._fail(error)

    def _compare(self, body: DiffBody) -> None:
        asked = self.client.followed(routes.DIFF, body)
        try:
            while True:
                self._busy(next(asked))
        except StopIteration as end:
            found = end.value
            self.news.put(lambda walk: walk.compared(found, format_difference_lines(found)))
        except ZvaultError as error:
            self._fail(error)

    def _busy(self, text: str) -> None:
        def say(walk: BrowseWalk) -> None:
            walk.busy = text if walk.busy else ""

        self.news.put(say)

    def _fail(self, error: ZvaultError) -> None:
        if self._dataset is None:
            self.error = self.error or error
        text = ": ".join(filter(None, (error.what, error.why)))
        self.news.put(lambda walk: walk.fail(text))
