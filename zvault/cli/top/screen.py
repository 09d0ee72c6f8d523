"""The terminal of ``zvaultctl top``: the whole screen, redrawn as news come, and keys."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

from zvault.cli.plot import Ink, ink
from zvault.cli.top.feed import Feed
from zvault.cli.top.frame import SORTS, Line, frame
from zvault.cli.top.state import TopState

if TYPE_CHECKING:
    from rich.console import Group

WAIT = 0.25
"""Seconds to wait for a key before looking for news."""

AT_LEAST = 1.0
"""Seconds after which it is redrawn in any case: the clock runs, and the screen may have another size."""

QUIT = ("q", "Q", "\x04", "")
"""Keys that end it: Ctrl-D and the end of the terminal, too. Ctrl-C is a signal."""

_COLOURS = {"31": "red", "33": "yellow"}


def can_show() -> bool:
    """Whether there is a terminal to read keys from and to draw on."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") not in (None, "", "dumb")


def run(feed: Feed, state: TopState) -> None:
    """Show the state until somebody presses q, or Ctrl-C. The terminal is left as it was."""
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False, markup=False, emoji=False)
    drawn, sort, at = ink(sys.stdout.encoding), 0, 0.0
    with (
        contextlib.suppress(KeyboardInterrupt),
        _keys() as signals,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            if signals:
                if signals[0] == signal.SIGINT:
                    return
                sys.exit(128 + signals[0])
            if feed.take(state) or time.monotonic() - at >= AT_LEAST:
                live.update(_rendered(state, sort, drawn), refresh=True)
                at = time.monotonic()
            pressed = _pressed()
            if pressed in QUIT:
                return
            if pressed in ("s", "S"):
                sort, at = (sort + 1) % len(SORTS), 0.0


def lines_once(state: TopState, columns: int) -> list[Line]:
    """One frame, as long as it takes."""
    return frame(state, columns, None, SORTS[0], ink(sys.stdout.encoding), time.time())


def _rendered(state: TopState, sort: int, drawn: Ink) -> Group:
    from rich.console import Group
    from rich.text import Text

    columns, rows = shutil.get_terminal_size()
    lines = frame(state, columns, rows, SORTS[sort], drawn, time.time())
    return Group(
        *(
            Text(line.text, style=_COLOURS.get(line.colour or "", ""), no_wrap=True, overflow="crop")
            for line in lines
        )
    )


@contextlib.contextmanager
def _keys() -> Iterator[list[int]]:
    """Keys come one by one and are not shown; the signals that came, which is for others to look at.

    An exception from a handler may be lost: one that comes while something is finalized is only printed.
    """
    came: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        came.append(number)

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: signal.signal(number, note) for number in ends}
    try:
        tty.setcbreak(fd)
        yield came
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _pressed() -> str | None:
    """A key, if one was pressed by now; empty where the terminal is gone."""
    fd = sys.stdin.fileno()
    try:
        if not select.select([fd], [], [], WAIT)[0]:
            return None
        return os.read(fd, 1).decode(errors="replace")
    except OSError:
        return ""
