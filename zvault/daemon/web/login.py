"""Who may see the page: whoever knows its name and password, or whom a proxy lets through.

zvaultd hands over no password: only a keyed digest of it, made anew each time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

MOST_MISTAKES, MISTAKE_WINDOW = 10, 60.0
"""Wrong passwords that an address may send within so many seconds; then it is not listened to for that long."""

ADDRESSES = 1024
"""Addresses whose mistakes are remembered."""

LONGEST_HEADER = 1024
"""Characters of a header that names who asks."""


def seal_login(user: str, password: str) -> dict[str, str]:
    """Return what the process that serves the page needs to know a name and password again."""
    key = secrets.token_bytes(32)
    return {"key": key.hex(), "digest": _digest(key, user, password).hex()}


def _digest(key: bytes, user: str, password: str) -> bytes:
    text = user.encode(errors="surrogateescape") + b"\0" + password.encode(errors="surrogateescape")
    return hmac.digest(key, text, hashlib.sha256)


def matches_login(login: Mapping[str, str], authorization: str) -> bool:
    """True if an Authorization header (RFC 7617) has the name and password."""
    scheme, _, text = authorization.partition(" ")
    if scheme.lower() != "basic" or len(text) > LONGEST_HEADER:
        return False
    try:
        user, colon, password = base64.b64decode(text.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return False
    digest = _digest(bytes.fromhex(login["key"]), user, password)
    return bool(colon) and hmac.compare_digest(digest, bytes.fromhex(login["digest"]))


@dataclass
class LoginMistakes:
    """Counts wrong passwords by the address that they come from."""

    clock: Callable[[], float] = time.monotonic
    _made: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict)

    def too_many(self, address: str) -> bool:
        """True if an address is not listened to at this time."""
        made = self._made.get(address)
        if made is None:
            return False
        while made and made[0] <= self.clock() - MISTAKE_WINDOW:
            made.popleft()
        return len(made) >= MOST_MISTAKES

    def count(self, address: str) -> None:
        """Count one more mistake of an address."""
        self._made.setdefault(address, deque(maxlen=MOST_MISTAKES)).append(self.clock())
        self._made.move_to_end(address)
        while len(self._made) > ADDRESSES:
            self._made.popitem(last=False)
