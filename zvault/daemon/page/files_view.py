"""A folder of a mounted snapshot in words, and the command that restores what lies there. Pure."""

from __future__ import annotations

import shlex
from base64 import b64decode, urlsafe_b64encode
from datetime import tzinfo
from typing import Any

from zvault.core.integrity.verification import escape_path
from zvault.daemon.page.page_model import FilesPage
from zvault.daemon.page.page_words import show_moment, show_size

RESTORE_FOLDER = "/root/restored"
"""The folder that the command restores to."""


def show_files(found: FilesPage, zone: tzinfo) -> dict[str, Any]:
    """The folder, the folders that it lies in, and its entries."""
    path, now = b64decode(found["path"]), found["now"]
    parts = [part for part in path.split(b"/") if part]
    last = found["first"] + len(found["entries"])
    return {
        "backup": found["backup"],
        "mount": found["mount"]["id"],
        "snapshot": found["mount"]["snapshot"],
        "folder": found["mount"]["folder"],
        "since": show_moment(found["mount"]["since"], now, zone),
        "path": _link(path),
        "way": [
            {"name": escape_path(part), "path": _link(b"/".join(parts[: number + 1]))}
            for number, part in enumerate(parts)
        ],
        "command": make_restore_command(found, b"/".join(parts)),
        "entries": [
            {
                "name": escape_path(name),
                "kind": one["kind"],
                "path": _link(b"/".join([*parts, name])),
                "size": show_size(one["size"]) if one["size"] is not None else "",
                "at": show_moment(one["mtime"], now, zone),
                "link": escape_path(b64decode(one["link"])),
                "command": make_restore_command(found, b"/".join([*parts, name])),
            }
            for one in found["entries"]
            for name in [b64decode(one["name"])]
        ],
        "begin": found["first"] + 1,
        "end": last,
        "total": found["total"],
        "more": found["more"],
        "before": max(0, found["first"] - len(found["entries"])) if found["first"] else None,
        "after": last if last < found["total"] else None,
        "error": found["error"],
    }


def make_restore_command(found: FilesPage, path: bytes) -> str:
    """Return the command that restores a file or folder of the snapshot, or all of it, beside what there is."""
    words = ["zvaultctl", "restore", found["backup"], found["mount"]["snapshot"], RESTORE_FOLDER]
    told = [quote_shell_word(word.encode(errors="surrogateescape")) for word in words]
    chosen = [f"--file={quote_shell_word(path)}"] if path else []
    return " ".join([f"mkdir -p {RESTORE_FOLDER} &&", *told, *chosen])


def quote_shell_word(word: bytes) -> str:
    """A word of any bytes as bash and zsh read it, on one line and with nothing that a terminal does not show."""
    text = word.decode(errors="surrogateescape")
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(_escaped(char) for char in text) + "'"


def _escaped(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    if char.isprintable():
        return char
    # In octal, of which a shell takes three figures and no more: what follows may be a figure itself.
    return "".join(f"\\{byte:03o}" for byte in char.encode(errors="surrogateescape"))


def _link(path: bytes) -> str:
    return urlsafe_b64encode(path).decode("ascii")
