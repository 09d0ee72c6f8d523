"""Secrets: where they are kept, and kept out of what is told. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote, urlsplit

LEAST = 6
"""Characters of a part of a URL that may be a secret: a shorter one is none, and would make holes in any text."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A value, or where it is kept: by the name of a credential of systemd, or in a file."""

    kept: Literal["here", "credential", "file"]
    text: str = field(repr=False)


def redacted(text: str, secrets: Iterable[str]) -> str:
    """A text without secrets, nor any part of a URL among them that may be one; on one line, and short."""
    for part in sorted({part for secret in secrets for part in _parts(secret)}, key=len, reverse=True):
        text = text.replace(part, "…")
    return "".join(char if char.isprintable() else " " for char in text)[:300].strip()


def _parts(secret: str) -> Iterable[str]:
    if secret:
        yield secret
    if "://" not in secret:
        return
    try:
        url = urlsplit(secret)
    except ValueError:
        return
    path = [one for one in url.path.split("/") if len(one) >= LEAST]
    pairs = [one.partition("=")[2] for one in url.query.split("&")]
    # Only of the web's URLs is the host an address: in apprise's it may be a token.
    host = "" if url.scheme in {"http", "https"} else url.netloc
    for one in (*path, *pairs, host, url.query, url.username or "", url.password or "", url.fragment):
        if len(one) >= LEAST:
            yield one
            yield unquote(one)
