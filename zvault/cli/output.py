"""Output: results go to stdout, trouble to stderr; colour is used only for trouble and only on a terminal."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import IO

from zvault.core.errors import ConfigError, ErrorDocument, HostUnreachable, NotFound, Refused, ZvaultError
from zvault.core.printable import escape_json, make_printable

OK_STATUS = 0
TROUBLE_STATUS = 1
"""Something is late, degraded or failed."""
USAGE_STATUS = 2
"""The command cannot run: wrong usage, bad configuration, no permission, or no daemon."""

UNKNOWN_STATUS = 3
"""Nothing is known to be wrong, and not all is known to be well."""

OUTPUT_VERSION = (0, 1)
"""Version (major, minor) of the output of ``-j``. Major grows when something is renamed or removed."""

RED, YELLOW = "31", "33"
_COLOURS = {
    **dict.fromkeys(("failed", "gone", "damaged", "differs", "conflict", "full"), RED),
    **dict.fromkeys(("FAULTED", "SUSPENDED", "UNAVAIL", "REMOVED"), RED),
    **dict.fromkeys(
        (
            *("late", "partial", "interrupted", "held-back", "at-risk", "unproven", "unknown", "new"),
            *("troubled", "unscrubbed", "stalled", "drifting", "backlog", "DEGRADED", "OFFLINE"),
            *("waiting", "failing"),
        ),
        YELLOW,
    ),
}


def choose_exit_status(error: ZvaultError) -> int:
    """The exit status for an error that ends a verb."""
    return (
        USAGE_STATUS
        if isinstance(error, ConfigError | HostUnreachable | NotFound | Refused)
        else TROUBLE_STATUS
    )


def is_coloured(stream: IO[str]) -> bool:
    """True if to use colour on a stream (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint_text(text: str, colour: str | None, stream: IO[str]) -> str:
    """``text`` in an SGR colour if the stream gets colour, else unchanged."""
    return f"\x1b[{colour}m{text}\x1b[0m" if colour and is_coloured(stream) else text


def choose_colour(word: str) -> str | None:
    """The colour of a state; None for states without trouble."""
    return _COLOURS.get(word)


def clean_line(text: str) -> str:
    """``text`` on one line and without control characters, so that it cannot control the terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


def find_width(stream: IO[str]) -> int | None:
    """Columns to wrap at; None for files and pipes, which get unwrapped text."""
    if not stream.isatty():
        return None
    import shutil

    return shutil.get_terminal_size().columns


def wrap_text(text: str, indent: str, columns: int | None, later: str | None = None) -> Iterator[str]:
    """``text`` after ``indent``, wrapped at ``columns``; further lines start with ``later``.

    Words are never split, so a long name can still be copied.
    """
    later = " " * len(indent) if later is None else later
    if columns is None or columns - len(indent) < 20:
        yield indent + text
        return
    import textwrap

    yield from textwrap.wrap(
        text,
        columns,
        initial_indent=indent,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [indent.rstrip()]


def format_labelled(pairs: Iterable[tuple[str, str]], columns: int | None, room: int = 0) -> Iterator[str]:
    """Lines ``   label: text``, right-aligned as in ``zpool status``; empty ones are left out.

    ``room`` is the minimum width of the labels, to align several groups of lines.
    """
    kept = [(label, text) for label, text in pairs if text]
    room = max((room, *(len(label) for label, _ in kept)))
    for label, text in kept:
        first, *rest = text.splitlines()
        yield from wrap_text(clean_line(first), f"  {label:>{room}}: ", columns)
        for line in rest:
            yield from wrap_text(clean_line(line), " " * (room + 4), columns)


def clean_painted(text: str) -> str:
    """``text`` as a terminal gets it: of what controls one only the colours of ``paint_text`` stay as they are."""
    if text.isprintable():
        return text
    return "".join(
        piece if at % 2 else make_printable(piece) for at, piece in enumerate(_PAINTED.split(text))
    )


_PAINTED = re.compile(f"(\x1b\\[(?:{RED}|{YELLOW}|0)m)")


def print_line(text: str = "") -> None:
    """One line, or several, on stdout."""
    sys.stdout.write(f"{clean_painted(text)}\n")
    if not sys.stdout.isatty():
        # In a log or pipe a run's lines must appear when they happen, not when a buffer is full.
        sys.stdout.flush()


def print_lines(lines: Iterable[str]) -> None:
    """Many lines on stdout at once."""
    sys.stdout.write("".join(f"{clean_painted(line)}\n" for line in lines))


def print_trouble(text: str, colour: str | None = None) -> None:
    """One line on stderr."""
    sys.stderr.write(f"{paint_text(clean_painted(text), colour, sys.stderr)}\n")
    sys.stderr.flush()


def print_wrapped_trouble(text: str, colour: str | None = None) -> None:
    """One sentence on stderr, wrapped at the terminal's width; in a file or pipe it is one line."""
    for line in wrap_text(clean_line(text), "", find_width(sys.stderr), "    "):
        print_trouble(line, colour)


_expected: list[str] = []
"""The verb that must still print a document; empty if there is none."""


def expect_document(verb: str | None) -> None:
    """Record that a verb must print a document; if it fails, its error is printed as one. None: no document is due."""
    _expected[:] = [] if verb is None else [verb]


def print_error_document(error: ZvaultError) -> None:
    """Print the error that ended a verb as a document on stdout, if a document is expected. Raises OSError."""
    if _expected:
        print_document(_expected[0], {"error": error.as_dict()})
        sys.stdout.flush()


def print_error(error: ErrorDocument | ZvaultError, prefix: str = "zvaultctl: ") -> None:
    """Print an error on stderr: what failed, why, and what to do next."""
    trouble = error.as_dict() if isinstance(error, ZvaultError) else error
    columns = find_width(sys.stderr)
    for line in wrap_text(clean_line(trouble["what"]), prefix, columns, "  "):
        print_trouble(line, RED)
    for line in format_labelled([("why", trouble["why"]), ("next", trouble["next"])], columns):
        print_trouble(line)


def print_document(verb: str, body: Mapping[str, object]) -> None:
    """Print a JSON document on stdout. It begins with output_version, as ``-j`` output of OpenZFS ≥ 2.3 does."""
    expect_document(None)
    major, minor = OUTPUT_VERSION
    head = {"command": f"zvaultctl {verb}", "vers_major": major, "vers_minor": minor}
    # json escapes the control characters of ASCII; those above it would reach the terminal.
    print_line(escape_json(json.dumps({"output_version": head, **body}, indent=2, ensure_ascii=False)))
