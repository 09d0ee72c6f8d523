"""Where words go: results to stdout, troubles to stderr, colour only for trouble and only on a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import IO

from zvault.core.errors import ConfigError, ErrorDocument, HostUnreachable, NotFound, Refused, ZvaultError

OK = 0
TROUBLE = 1
"""Something is late, degraded or failed."""
USAGE = 2
"""The call cannot be served: wrong usage, bad configuration, not allowed, or no daemon."""

OUTPUT_VERSION = (0, 1)
"""Version (major, minor) of what ``-j`` prints. Major grows when something is renamed or removed."""

RED, YELLOW = "31", "33"
_COLOURS = {
    **dict.fromkeys(("failed", "gone", "damaged", "differs", "conflict"), RED),
    **dict.fromkeys(("FAULTED", "SUSPENDED", "UNAVAIL", "REMOVED"), RED),
    **dict.fromkeys(
        ("late", "partial", "interrupted", "held-back", "troubled", "DEGRADED", "OFFLINE"), YELLOW
    ),
}


def exit_status(error: ZvaultError) -> int:
    """The exit status for an error that ends a verb."""
    return USAGE if isinstance(error, ConfigError | HostUnreachable | NotFound | Refused) else TROUBLE


def coloured(stream: IO[str]) -> bool:
    """Whether colour is welcome there (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str | None, stream: IO[str]) -> str:
    """``text`` in an SGR colour where colour is welcome, else unchanged."""
    return f"\x1b[{colour}m{text}\x1b[0m" if colour and coloured(stream) else text


def colour_of(word: str) -> str | None:
    """The colour a state word is shown in; None for words that tell of no trouble."""
    return _COLOURS.get(word)


def clean(text: str) -> str:
    """``text`` on one line and without control characters, so that no text can steer a terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


def width(stream: IO[str]) -> int | None:
    """Columns to wrap at, None where nothing shall be wrapped: a file, a pipe."""
    if not stream.isatty():
        return None
    import shutil

    return shutil.get_terminal_size().columns


def wrapped(text: str, indent: str, columns: int | None, later: str | None = None) -> Iterator[str]:
    """``text`` behind ``indent``, wrapped at ``columns``; its further lines behind ``later``.

    Words are never cut, so a long name can still be copied whole.
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


def labelled(pairs: Iterable[tuple[str, str]], columns: int | None, room: int = 0) -> Iterator[str]:
    """Lines ``   label: text``, right-aligned as in ``zpool status``; empty ones are left out.

    ``room`` is the least width of the labels, where several groups of lines shall align.
    """
    kept = [(label, text) for label, text in pairs if text]
    room = max((room, *(len(label) for label, _ in kept)))
    for label, text in kept:
        first, *rest = text.splitlines()
        yield from wrapped(clean(first), f"  {label:>{room}}: ", columns)
        for line in rest:
            yield from wrapped(clean(line), " " * (room + 4), columns)


def say(text: str = "") -> None:
    """One line, or several, on stdout."""
    sys.stdout.write(f"{text}\n")
    if not sys.stdout.isatty():
        # A log or a pipe shall show a run's lines when they happen, not when a buffer is full.
        sys.stdout.flush()


def say_all(lines: Iterable[str]) -> None:
    """Many lines on stdout at once."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def tell(text: str, colour: str | None = None) -> None:
    """One line on stderr."""
    sys.stderr.write(f"{paint(text, colour, sys.stderr)}\n")
    sys.stderr.flush()


_expected: list[str] = []
"""The verb that is to print a document and has not yet; empty if none is."""


def expect_document(verb: str | None) -> None:
    """A verb is to print a document: if it fails instead, its error is one. None: nothing is to be printed."""
    _expected[:] = [] if verb is None else [verb]


def report(error: ZvaultError) -> None:
    """The error that ended a verb, as a document on stdout where that is expected. Raises OSError."""
    if _expected:
        document(_expected[0], {"error": error.as_dict()})
        sys.stdout.flush()


def complain(error: ErrorDocument | ZvaultError, prefix: str = "zvaultctl: ") -> None:
    """An error on stderr: what failed, why, and what to do next."""
    trouble = error.as_dict() if isinstance(error, ZvaultError) else error
    columns = width(sys.stderr)
    for line in wrapped(clean(trouble["what"]), prefix, columns, "  "):
        tell(line, RED)
    for line in labelled([("why", trouble["why"]), ("next", trouble["next"])], columns):
        tell(line)


def document(verb: str, body: Mapping[str, object]) -> None:
    """A JSON document on stdout, led by the version that OpenZFS ≥ 2.3 prints in every ``-j`` output."""
    expect_document(None)
    major, minor = OUTPUT_VERSION
    head = {"command": f"zvaultctl {verb}", "vers_major": major, "vers_minor": minor}
    say(json.dumps({"output_version": head, **body}, indent=2, ensure_ascii=False))
