"""The terminal of ``zvaultctl top``: the whole screen, redrawn as news come, and keys."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import time
from typing import TYPE_CHECKING

from zvault.cli.plot import PlotInk, choose_ink
from zvault.cli.screen_columns import ScreenLine
from zvault.cli.terminal import open_keys, read_key, render_lines
from zvault.cli.top.feed import TopFeed
from zvault.cli.top.frame import TOP_SORTS, draw_top_frame
from zvault.cli.top.state import TopState

if TYPE_CHECKING:
    from rich.console import Group

TOP_KEY_WAIT = 0.25
"""Seconds to wait for a key before looking for news."""

AT_LEAST = 1.0
"""Seconds after which it is redrawn in any case: the clock runs, and the screen may have another size."""

TOP_QUIT_KEYS = ("q", "Q", "\x04", "")
"""Keys that end it: Ctrl-D and the end of the terminal, too. Ctrl-C is a signal."""


def run_top_screen(feed: TopFeed, state: TopState) -> None:
    """Show the state until somebody presses q, or Ctrl-C. The terminal is left as it was."""
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False, markup=False, emoji=False)
    drawn, sort, at = choose_ink(sys.stdout.encoding), 0, 0.0
    with (
        contextlib.suppress(KeyboardInterrupt),
        open_keys() as signals,
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
            key = read_key(TOP_KEY_WAIT)
            if key in TOP_QUIT_KEYS:
                return
            if key in ("s", "S"):
                sort, at = (sort + 1) % len(TOP_SORTS), 0.0


def make_frame_once(state: TopState, columns: int) -> list[ScreenLine]:
    """One frame, as long as it takes."""
    return draw_top_frame(state, columns, None, TOP_SORTS[0], choose_ink(sys.stdout.encoding), time.time())


def _rendered(state: TopState, sort: int, drawn: PlotInk) -> Group:
    columns, rows = shutil.get_terminal_size()
    return render_lines(draw_top_frame(state, columns, rows, TOP_SORTS[sort], drawn, time.time()))
