"""Secrets: where they are kept, and kept out of what is told. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote, urlsplit

KEY_LENGTH = 16
"""Characters of a key that a service makes, at least: of healthchecks.io 22, of Slack 24, of ntfy's tokens 32."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"]+")
_USER = re.compile(r"[^/]*://[^/?#]*:[^/?#@]+@")
_KEY = re.compile(r"(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]+")

LEAST_SECRET_LENGTH = 6
"""Characters of a part of a URL that may be a secret: a shorter one is none, and would make holes in any text."""


@dataclass(frozen=True, slots=True)
class NotifySecret:
    """A value, or where it is kept: by the name of a credential of systemd, or in a file."""

    kept: Literal["here", "credential", "file"]
    text: str = field(repr=False)


def holds_secret(text: str) -> bool:
    """True if a text has a URL with what only its owner knows: a password, or a key as services make them.

    A key is long, and has letters and digits: ``https://example.org/zvault`` has none.
    """
    return any(
        _USER.match(url) is not None or any(_is_key(part) for part in _parts(url) if "/" not in part)
        for url in _URL.findall(text)
    )


def _is_key(part: str) -> bool:
    return any(len(word) >= KEY_LENGTH and not word.isdigit() for word in _KEY.findall(part))


def redact_secrets(text: str, secrets: Iterable[str]) -> str:
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
    path = [one for one in url.path.split("/") if len(one) >= LEAST_SECRET_LENGTH]
    pairs = [one.partition("=")[2] for one in url.query.split("&")]
    # Only of the web's URLs is the host an address: in apprise's it may be a token.
    host = "" if url.scheme in {"http", "https"} else url.netloc
    for one in (*path, *pairs, host, url.query, url.username or "", url.password or "", url.fragment):
        if len(one) >= LEAST_SECRET_LENGTH:
            yield one
            yield unquote(one)
