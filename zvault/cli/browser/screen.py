"""The terminal of ``zvaultctl browse``: the whole screen, and keys."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
from collections.abc import Callable, Sequence

from zvault.cli.browser.feed import BrowseFeed
from zvault.cli.browser.frame import count_page_lines, draw_browse_frame
from zvault.cli.browser.state import BrowseWalk, DifferenceView, WantedDifference, WantedPast, WantedRestore
from zvault.cli.terminal import open_keys, read_key, render_lines

BROWSE_KEY_WAIT = 0.25
"""Seconds to wait for a key before looking for news."""


class FeedRing:
    """The feeds of a backup's vaults, of which one is looked at; each keeps its vault up from when it is asked."""

    def __init__(self, feeds: Sequence[BrowseFeed]) -> None:
        self._feeds = feeds
        self._at = self._before = 0
        self.feed.start()

    @property
    def feed(self) -> BrowseFeed:
        """That of the vault that is looked at."""
        return self._feeds[self._at]

    def ask_next(self, walk: BrowseWalk) -> None:
        """Look into the next vault, at the path that is on the screen."""
        view = walk.view
        if view is None or isinstance(view, DifferenceView):
            return
        self._before, self._at = self._at, (self._at + 1) % len(self._feeds)
        walk.anew, walk.told, walk.busy = True, "", "asking zvaultd"
        self.feed.look_anew(view.past["dataset"], WantedPast(view.past["path"]))

    def go_back_on_error(self, walk: BrowseWalk) -> None:
        """Stay with the vault before, where nothing could be looked into at all. Raises the error of the first one."""
        if self.feed.error is not None:
            if walk.view is None:
                raise self.feed.error
            self._at = self._before


def run_browse_screen(
    feeds: Sequence[BrowseFeed], walk: BrowseWalk, restore: Callable[[WantedRestore], None]
) -> None:
    """Walk until somebody presses q, or Ctrl-C. The terminal is left as it was, and lent to ``restore`` meanwhile.

    There is a feed for each vault of the backup, and the first one is looked into. Raises what keeps the first path
    from being looked at.
    """
    walk.busy, walk.several = "asking zvaultd", len(feeds) > 1
    ring = FeedRing(feeds)
    while (wanted := _walked(ring, walk)) is not None:
        restore(wanted)


def _walked(ring: FeedRing, walk: BrowseWalk) -> WantedRestore | None:
    """Walk until something is to be restored; None at the end."""
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False, markup=False, emoji=False)
    drawn: tuple[object, ...] = ()
    with (
        contextlib.suppress(KeyboardInterrupt),
        open_keys() as signals,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            if signals:
                if signals[0] == signal.SIGINT:
                    return None
                sys.exit(128 + signals[0])
            ring.feed.news.take(walk)
            ring.go_back_on_error(walk)
            columns, rows = shutil.get_terminal_size()
            lines = draw_browse_frame(walk, columns, rows)
            if (columns, rows, *lines) != drawn:
                live.update(render_lines(lines), refresh=True)
                drawn = (columns, rows, *lines)
            if (key := read_key(BROWSE_KEY_WAIT)) is None:
                continue
            match walk.press(key, count_page_lines(walk, columns, rows)):
                case "quit":
                    return None
                case "next vault":
                    ring.ask_next(walk)
                case WantedPast() as wanted:
                    walk.busy = "looking"
                    ring.feed.look(wanted)
                case WantedDifference() as wanted:
                    walk.busy = "comparing"
                    ring.feed.compare(wanted)
                case WantedRestore() as wanted:
                    return wanted
    return None
