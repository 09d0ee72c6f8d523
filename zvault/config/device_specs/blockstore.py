"""zvault's own block store as the configuration names it: ``zvault:BUCKET/KEY size=10T mode=writeback …``."""

from __future__ import annotations

import hashlib
import posixpath
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from zvault.config.device_specs.blockstore_settings import (
    KEY_SOURCES,
    check_setting,
    check_together,
    parse_history,
    parse_lock,
)
from zvault.core.policy.object_lock import ObjectLock
from zvault.core.policy.retention import KeepRules
from zvault.core.units import parse_size

StoreMode = Literal["strict", "writeback"]

JOURNAL_SIZES: dict[StoreMode, int] = {"strict": 256 << 20, "writeback": 8 << 30}
"""Bytes of the journal where ``journal-size`` is left out. That of ``strict`` is in memory (/run)."""
DEFAULT_MEMORY = 256 << 20
DEFAULT_UPLOADS = 4
SERVER_USER_IDS = range(0x78000000, 0x7FFE0000)
"""User ids, and groups of the same numbers, for servers alone: unused by systemd's UIDS-GIDS, and above those that SSSD
makes up by itself."""

_PLACE = re.compile(r"(?P<bucket>[A-Za-z0-9][A-Za-z0-9._-]*)/(?P<key>[A-Za-z0-9][A-Za-z0-9._/-]*)")
_EXAMPLE = "zvault:attic/cold size=10T"


@dataclass(frozen=True, slots=True)
class BlockstoreServer:
    """A server zvault starts itself: a block device kept in a bucket, below ``key``.

    ``settings`` are words ``NAME=VALUE``, each name once and each value right: see parse_blockstore.
    """

    bucket: str
    key: str
    settings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "zvault:" + " ".join([f"{self.bucket}/{self.key}", *map(shlex.quote, self.settings)])

    def setting(self, name: str) -> str:
        """The value of a setting; "" where it is left out."""
        return dict(word.split("=", 1) for word in self.settings).get(name, "")

    @property
    def size(self) -> int | None:
        """Bytes of the device that is made; None where there must be one already."""
        return self._size("size")

    @property
    def mode(self) -> StoreMode:
        """The mode, which says when a flush is answered: once all is in the bucket, or once it is in the journal on
        disk.
        """
        return "writeback" if self.setting("mode") == "writeback" else "strict"

    @property
    def journal(self) -> str | None:
        """The folder of its journal; None for one in memory (see journal_name), with ``strict`` only."""
        return self.setting("journal") or None

    @property
    def journal_size(self) -> int:
        """Bytes."""
        return self._size("journal-size") or JOURNAL_SIZES[self.mode]

    @property
    def cache(self) -> str | None:
        """The folder of its cache."""
        return self.setting("cache") or None

    @property
    def cache_size(self) -> int:
        """Bytes; 0 without a cache."""
        return self._size("cache-size") or 0

    @property
    def memory(self) -> int:
        """Bytes for the map and for what is read ahead."""
        return self._size("memory") or DEFAULT_MEMORY

    @property
    def endpoint(self) -> str | None:
        """The URL of the store; None for Amazon's."""
        return self.setting("endpoint").rstrip("/") or None

    @property
    def uploads(self) -> int:
        """The number of segments that are put at the same time."""
        return int(self.setting("uploads") or DEFAULT_UPLOADS)

    @property
    def requests(self) -> float | None:
        """Requests a second, at most."""
        return float(self.setting("requests").removesuffix("/s") or 0) or None

    @property
    def history(self) -> KeepRules | None:
        """Which moments of the past are kept; None: those that are, and no more; without any rule: none."""
        text = self.setting("history")
        return parse_history(text) if text else None

    @property
    def encryption(self) -> dict[str, str]:
        """The source of the key that its objects are encrypted with, by setting; empty where they are not."""
        return {name: self.setting(name) for name in KEY_SOURCES if self.setting(name)}

    @property
    def lock(self) -> ObjectLock | None:
        text = self.setting("lock")
        return parse_lock(text) if text else None

    @property
    def gc_elsewhere(self) -> bool:
        """True if its server leaves removing to 'zvaultctl blockstore gc'."""
        return self.setting("gc") == "elsewhere"

    @property
    def lease_bucket(self) -> str:
        """The bucket of the objects that say who writes."""
        return self.setting("lease-bucket") or self.bucket

    def bandwidth(self, way: Literal["upload", "download"]) -> int | None:
        """Bytes a second, at most."""
        return parse_size(self.setting(way).removesuffix("/s")) if self.setting(way) else None

    def _size(self, name: str) -> int | None:
        return parse_size(self.setting(name)) if self.setting(name) else None

    @property
    def identity(self) -> tuple[str, ...]:
        return ("zvault", (self.endpoint or "").lower(), self.bucket, self.key)

    @property
    def user(self) -> int:
        """Whom its server runs as: always the same, and of a thousand stores hardly ever two the same."""
        digest = hashlib.sha256("\0".join(self.identity).encode()).digest()
        return SERVER_USER_IDS[int.from_bytes(digest[:8], "big") % len(SERVER_USER_IDS)]

    @property
    def folders(self) -> dict[str, str]:
        """The folders on this host that it has for itself, by setting."""
        named = {"journal": self.journal, "cache": self.cache}
        return {name: posixpath.normpath(path) for name, path in named.items() if path is not None}


def parse_blockstore(rest: str) -> BlockstoreServer:
    """Parse what stands after ``zvault:``. Raises ValueError: what is wrong and what is right."""
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise ValueError(f"cannot be split into words as a shell would: {str(error).lower()}") from None
    match = _PLACE.fullmatch(words[0].rstrip("/")) if words else None
    if match is None or "//" in match["key"]:
        raise ValueError(f"names no bucket and key, as in {_EXAMPLE}: below that key are its objects")
    return _server(match["bucket"], match["key"], words[1:])


def parse_store_words(words: Sequence[str]) -> BlockstoreServer:
    """The same from ``bucket=…``, ``key=…`` and settings, as its server is told. Raises ValueError."""
    named = dict(word.split("=", 1) for word in words if "=" in word)
    settings = [word for word in words if word.partition("=")[0] not in ("bucket", "key")]
    return _server(named.get("bucket", ""), named.get("key", ""), settings)


def _server(bucket: str, key: str, words: Sequence[str]) -> BlockstoreServer:
    seen: dict[str, str] = {}
    for word in words:
        name, value = check_setting(word)
        if name in seen:
            raise ValueError(f"{name}= stands there twice: remove one")
        seen[name] = value
    check_together(seen)
    if "lock" in seen and seen["lease-bucket"] == bucket:
        raise ValueError(f"lease-bucket={bucket} is the bucket that locks its objects: name another one")
    return BlockstoreServer(bucket, key, tuple(f"{name}={value}" for name, value in seen.items()))
