"""The terminal of ``zvaultctl browse``: the whole screen, and keys."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
from collections.abc import Callable

from zvault.cli.browser.feed import BrowseFeed
from zvault.cli.browser.frame import count_page_lines, draw_browse_frame
from zvault.cli.browser.state import BrowseWalk, WantedDifference, WantedPast, WantedRestore
from zvault.cli.terminal import open_keys, read_key, render_lines

BROWSE_KEY_WAIT = 0.25
"""Seconds to wait for a key before looking for news."""


def run_browse_screen(feed: BrowseFeed, walk: BrowseWalk, restore: Callable[[WantedRestore], None]) -> None:
    """Walk until somebody presses q, or Ctrl-C. The terminal is left as it was, and lent to ``restore`` meanwhile.

    Raises what keeps the first path from being looked at.
    """
    feed.start()
    walk.busy = "asking zvaultd"
    while (wanted := _walked(feed, walk)) is not None:
        restore(wanted)


def _walked(feed: BrowseFeed, walk: BrowseWalk) -> WantedRestore | None:
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
            feed.news.take(walk)
            if walk.view is None and feed.error is not None:
                raise feed.error
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
                case WantedPast() as wanted:
                    walk.busy = "looking"
                    feed.look(wanted)
                case WantedDifference() as wanted:
                    walk.busy = "comparing"
                    feed.compare(wanted)
                case WantedRestore() as wanted:
                    return wanted
    return None
