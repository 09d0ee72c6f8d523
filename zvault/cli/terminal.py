"""The terminal of a full screen: its keys one by one, and lines drawn on it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING

from zvault.cli.screen_columns import ScreenLine
from zvault.core.printable import make_printable

if TYPE_CHECKING:
    from rich.console import Group

ESCAPE_WAIT = 0.05
"""Seconds in which the rest of a key's escape sequence comes: a terminal sends it in one go."""

LONGEST_KEY = 16
"""Bytes of a key's escape sequence."""

_COLOURS = {"31": "red", "33": "yellow"}


def is_usable_terminal() -> bool:
    """True if there is a terminal to read keys from and to draw on."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") not in (None, "", "dumb")


def render_lines(lines: Sequence[ScreenLine]) -> Group:
    """Lines as rich draws them."""
    from rich.console import Group
    from rich.text import Text

    return Group(
        *(
            Text(make_printable(line.text, keep=""), style=_style(line), no_wrap=True, overflow="crop")
            for line in lines
        )
    )


def _style(line: ScreenLine) -> str:
    return " ".join([*["reverse"] * line.chosen, _COLOURS.get(line.colour or "", "")]).strip()


@contextlib.contextmanager
def open_keys() -> Iterator[list[int]]:
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


def read_key(seconds: float) -> str | None:
    """A key, if one is pressed within that time: a character, or an escape sequence. Empty: the terminal is gone."""
    fd = sys.stdin.fileno()
    try:
        if not select.select([fd], [], [], seconds)[0]:
            return None
        key = os.read(fd, 1)
        if key == b"\x1b" and select.select([fd], [], [], ESCAPE_WAIT)[0]:
            key += os.read(fd, LONGEST_KEY)
        elif key >= b"\xc0":  # the first of several bytes of a character
            key += os.read(fd, 1 + (key >= b"\xe0") + (key >= b"\xf0"))
        return key.decode(errors="replace")
    except OSError:
        return ""
