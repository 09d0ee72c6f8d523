"""Text that came from another end, as it may be shown: nothing in it controls a terminal, a log or a page. Pure.

Error messages of object stores, complaints of programs on other hosts and names in their listings go into the journal,
onto terminals and the page. A control character there moves the cursor, colours or hides what stands beside it; one
that turns the direction of writing swaps what is read. So whatever is not printable is shown as an escape, at each
border where text leaves zvault.
"""

from __future__ import annotations

LONGEST_WORD = 500
"""Characters kept of what another end says about a failure."""


def make_printable(text: str, keep: str = "\n\t") -> str:
    """The text with what is not printable as ``\\x1b`` or ``\\u202e``; characters of ``keep`` stay as they are."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else repr(char)[1:-1] for char in text)


def quote_foreign(text: str) -> str:
    """Return what another end said, on one line and bounded: an answer may be as long as it likes."""
    line = make_printable(" ".join(text[: 2 * LONGEST_WORD].split()), keep="")
    return line if len(line) <= LONGEST_WORD and len(text) <= 2 * LONGEST_WORD else f"{line[:LONGEST_WORD]}…"


def escape_json(text: str) -> str:
    """A JSON document in which strings say the same and have printable characters only; its line breaks stay."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else _json_escape(char) for char in text)


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
