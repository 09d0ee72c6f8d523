"""Paths of any bytes as text that nobody's terminal obeys, and back. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from zvault.core.integrity.verification import escape_path

_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.))", re.DOTALL)
_NAMED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}


def parse_shown_path(text: str) -> bytes:
    """The bytes of which ``escape_path`` made a text. Raises ValueError for a text that it makes of nothing."""
    found, at = bytearray(), 0
    for match in _ESCAPE.finditer(text):
        found += text[at : match.start()].encode()
        at = match.end()
        found += _escaped(match)
    found += text[at:].encode()
    if escape_path(bytes(found)) != text:
        raise ValueError(f"{text!r} is no path as it is shown")
    return bytes(found)


def _escaped(match: re.Match[str]) -> bytes:
    byte, short, long, char = match.groups()
    if byte is not None:
        return bytes([int(byte, 16)])
    if short or long:
        return chr(int(short or long, 16)).encode(errors="surrogatepass")
    if char not in _NAMED:
        raise ValueError(f"\\{char} is no escape")
    return _NAMED[char].encode()


def quote_path(path: bytes) -> str:
    """A path as a word for a shell; what would control a terminal is escaped as bash, ksh and zsh understand it."""
    try:
        text = path.decode()
    except UnicodeDecodeError:
        text = "\0"
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(_ansi(byte) for byte in path) + "'"


def _ansi(byte: int) -> str:
    char = chr(byte)
    if char in "\\'":
        return f"\\{char}"
    return char if " " <= char <= "~" else f"\\x{byte:02x}" if byte not in b"\n\t" else repr(char)[1:-1]


def escape_file_line(line: str) -> str:
    """A line of a file for a terminal: tabs are spaces, other control characters are escaped."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in line.expandtabs())


def decode_octal_path(text: str) -> bytes:
    r"""A path as 'zfs diff' prints it, in which blanks, backslashes and what is no ASCII stand as ``\0040``.

    Raises ValueError for a backslash that begins nothing of that form (lib/libzfs/libzfs_diff.c, stream_bytes).
    """
    parts = re.split(r"\\(0[0-3][0-7]{2})", text)
    if any("\\" in part for part in parts[::2]):
        raise ValueError(f"{text!r} is no path of 'zfs diff'")
    plain = (part.encode(errors="surrogateescape") for part in parts[::2])
    return b"".join(_alternated(plain, (bytes([int(part, 8)]) for part in parts[1::2])))


def _alternated(plain: Iterator[bytes], codes: Iterator[bytes]) -> Iterator[bytes]:
    for text in plain:
        yield text
        yield next(codes, b"")


def format_restore_command(backup: str, snapshot: str, path: bytes, to: str) -> str:
    """The command that restores a path of a snapshot into a folder."""
    words: Sequence[str] = ("zvaultctl", "restore", backup, snapshot, to)
    file = ["--file", quote_path(path)] if path else []
    return " ".join([*map(shlex.quote, words), *file])
