"""The terminal of ``zvaultctl top``: the whole screen, redrawn as news come, and keys."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import time
from typing import TYPE_CHECKING

from zvault.cli.fitting import Line
from zvault.cli.plot import Ink, ink
from zvault.cli.terminal import keys, pressed, rendered
from zvault.cli.top.feed import Feed
from zvault.cli.top.frame import SORTS, frame
from zvault.cli.top.state import TopState

if TYPE_CHECKING:
    from rich.console import Group

WAIT = 0.25
"""Seconds to wait for a key before looking for news."""

AT_LEAST = 1.0
"""Seconds after which it is redrawn in any case: the clock runs, and the screen may have another size."""

QUIT = ("q", "Q", "\x04", "")
"""Keys that end it: Ctrl-D and the end of the terminal, too. Ctrl-C is a signal."""


def run(feed: Feed, state: TopState) -> None:
    """Show the state until somebody presses q, or Ctrl-C. The terminal is left as it was."""
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False, markup=False, emoji=False)
    drawn, sort, at = ink(sys.stdout.encoding), 0, 0.0
    with (
        contextlib.suppress(KeyboardInterrupt),
        keys() as signals,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            if signals:
                if signals[0] == signal.SIGINT:
                    return
                sys.exit(128 + signals[0])
            if feed.news.take(state) or time.monotonic() - at >= AT_LEAST:
                live.update(_rendered(state, sort, drawn), refresh=True)
                at = time.monotonic()
            key = pressed(WAIT)
            if key in QUIT:
                return
            if key in ("s", "S"):
                sort, at = (sort + 1) % len(SORTS), 0.0


def lines_once(state: TopState, columns: int) -> list[Line]:
    """One frame, as long as it takes."""
    return frame(state, columns, None, SORTS[0], ink(sys.stdout.encoding), time.time())


def _rendered(state: TopState, sort: int, drawn: Ink) -> Group:
    columns, rows = shutil.get_terminal_size()
    return rendered(frame(state, columns, rows, SORTS[sort], drawn, time.time()))
