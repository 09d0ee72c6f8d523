"""The settings of zvault's block store: their names, and which values are right. Pure."""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from zvault.config.device_specs.secret_words import is_secret
from zvault.core.policy.object_lock import ObjectLock
from zvault.core.policy.retention import KeepRules
from zvault.core.units import parse_duration, parse_size

SIZE_UNIT = 4096
"""Bytes; the size of a device is a multiple."""

MIN_JOURNAL = 64 << 20
"""Bytes: some segments on their way to the bucket, and those that are gathered meanwhile."""
MIN_MEMORY = 64 << 20
LEAST_CACHE_SIZE = 64 << 20
MAX_UPLOADS = 64

HISTORY_RULES = ("last", "hourly", "daily", "weekly", "monthly", "yearly")
MAX_MOMENTS = 1000

KEY_SOURCES = ("encryption-key", "encryption-credential", "encryption-command")
"""What names the key that objects are encrypted with: a file, a systemd credential, a program that prints it."""

MIN_LOCK, MAX_LOCK = 86400.0, 10 * 365 * 86400.0
"""Seconds. Of a lock that is set by mistake for ever nobody is rid."""

ACCESS_KEYS = frozenset(["access-key", "access-key-id"])
"""What is not written here either: it belongs to the secret, in one file."""

_SETTING = re.compile(r"(?P<name>[A-Za-z0-9_-]+)=(?P<value>[^\x00-\x1f\x7f]+)")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def parse_history(text: str) -> KeepRules:
    """Rules as ``hourly:24,daily:30``; "none": none. Raises ValueError."""
    if text == "none":
        return KeepRules()
    rules: dict[str, Any] = {}
    for word in text.split(","):
        name, _, number = word.partition(":")
        if name not in HISTORY_RULES or name in rules:
            raise ValueError(f'"{word}" is no rule of its own: there are {", ".join(HISTORY_RULES)}')
        if not (number.isascii() and number.isdecimal()) or not 1 <= int(number) <= MAX_MOMENTS:
            raise ValueError(f"{name} must be a whole number from 1 to {MAX_MOMENTS}")
        rules[name] = int(number)
    return KeepRules(**rules)


def parse_lock(text: str) -> ObjectLock:
    """A lock as ``compliance:30d``. Raises ValueError."""
    mode, _, long = text.partition(":")
    if mode not in ("governance", "compliance"):
        raise ValueError(f'"{mode}" is no mode of a lock: there are compliance and governance')
    try:
        seconds = parse_duration(long)
    except ValueError:
        raise ValueError(f'"{long}" is no time') from None
    if not MIN_LOCK <= seconds <= MAX_LOCK:
        raise ValueError("it must be for a day at least, and for ten years at most")
    return ObjectLock("governance" if mode == "governance" else "compliance", seconds)


def check_setting(word: str) -> tuple[str, str]:
    """The name and the value of a setting as it is written. Raises ValueError: what is wrong and what is right."""
    match = _SETTING.fullmatch(word)
    name = match["name"] if match else word.partition("=")[0]
    if is_secret(name) or name.lower().replace("_", "-") in ACCESS_KEYS:
        raise ValueError(
            f"{name}=… would show the secret in the process list; put both keys into a file as ~/.aws/credentials"
            " has them, and name it by keys=/etc/zvault/s3.keys, or by credential=zvault.s3 as systemd has it"
        )
    if name not in STORE_SETTINGS:
        near = difflib.get_close_matches(name.lower().replace("_", "-"), STORE_SETTINGS, n=1, cutoff=0.6)
        hint = f"; did you mean {near[0]}=…?" if near else f"; there are {', '.join(sorted(STORE_SETTINGS))}"
        raise ValueError(f'"{name}" is no setting of the block store{hint}')
    if match is None:
        raise ValueError(f"{name} has no value, as in {name}={_EXAMPLES.get(name, '…')}")
    STORE_SETTINGS[name](name, match["value"])
    return name, match["value"]


def check_together(seen: dict[str, str]) -> None:
    """See that settings, by name, go together. Raises ValueError."""
    if seen.get("mode") == "writeback" and "journal" not in seen:
        raise ValueError(
            "mode=writeback needs journal=/path, a folder on a disk of this host: what was written is there until it is"
            " in the bucket"
        )
    if ("cache" in seen) != ("cache-size" in seen):
        lacks = "cache-size=20G" if "cache" in seen else "cache=/var/cache/zvault/cold"
        raise ValueError(f"cache= and cache-size= belong together: add {lacks}")
    if "credential" in seen and "keys" in seen:
        raise ValueError("credential= and keys= both name the keys to the store: remove one")
    if len(named := [name for name in KEY_SOURCES if name in seen]) > 1:
        raise ValueError(f"{'= and '.join(named)}= each name the key that encrypts: leave one")
    if "sse-kms-key-id" in seen and seen.get("sse") != "aws:kms":
        raise ValueError("sse-kms-key-id= needs sse=aws:kms beside it")
    if "lock" in seen and "lease-bucket" not in seen:
        raise ValueError(
            "lock= needs lease-bucket=NAME, a bucket without versions: in one that locks objects each renewal of the"
            " lease would stay, and not all stores keep to conditions there"
        )
    folders = {name: posixpath.normpath(seen[name]) for name in ("journal", "cache") if name in seen}
    if len(folders) == 2 and is_nested(*folders.values()):
        raise ValueError("journal= and cache= must be folders apart: each is emptied by its own rules")


def is_nested(one: str, other: str) -> bool:
    """True if two folders, as posixpath.normpath gives them, are the same or one lies in the other."""
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")


def _bytes(least: int, multiple: int = 1) -> Callable[[str, str], None]:
    def check(name: str, value: str) -> None:
        try:
            size = parse_size(value)
        except ValueError:
            raise ValueError(f"{name} must be a size, as in {name}={_EXAMPLES[name]}") from None
        if size < least:
            raise ValueError(f"{name} must be at least {least >> 20}M")
        if size % multiple:
            raise ValueError(f"{name} must be a multiple of {multiple >> 10}K")

    return check


def _rate(name: str, value: str) -> None:
    try:
        right = parse_size(value.removesuffix("/s")) >= 1 << 10
    except ValueError:
        right = False
    if not right:
        raise ValueError(f"{name} must be bytes a second, at least 1K, as in {name}={_EXAMPLES[name]}")


def _requests(name: str, value: str) -> None:
    text = value.removesuffix("/s")
    if not re.fullmatch(r"\d+(\.\d+)?", text) or float(text) < 1:
        raise ValueError(f"{name} must be requests a second, at least 1, as in {name}={_EXAMPLES[name]}")


def _count(name: str, value: str) -> None:
    if not value.isascii() or not value.isdecimal() or not 1 <= int(value) <= MAX_UPLOADS:
        raise ValueError(f"{name} must be a whole number from 1 to {MAX_UPLOADS}")


def _history(name: str, value: str) -> None:
    try:
        parse_history(value)
    except ValueError as error:
        raise ValueError(f"{name} is not right: {error}, as in {name}={_EXAMPLES[name]}") from None


def _lock(name: str, value: str) -> None:
    try:
        parse_lock(value)
    except ValueError as error:
        raise ValueError(f"{name} is not right: {error}, as in {name}={_EXAMPLES[name]}") from None


def _one_of(*known: str) -> Callable[[str, str], None]:
    def check(name: str, value: str) -> None:
        if value not in known:
            near = difflib.get_close_matches(value, known, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            raise ValueError(f"{name} must be {' or '.join(known)}, not {value}{hint}")

    return check


def _folder(name: str, value: str) -> None:
    if not value.startswith("/") or posixpath.normpath(value) == "/":
        raise ValueError(f"{name} must be an absolute path, as in {name}={_EXAMPLES[name]}")


def _endpoint(name: str, value: str) -> None:
    try:
        url = urlsplit(value)
        right = url.scheme in ("http", "https") and bool(url.hostname) and (url.port or 1) > 0
    except ValueError:
        right = False
    if not right or url.path.strip("/") or url.query or url.fragment or "@" in url.netloc:
        raise ValueError(
            f"{name} must be https://host[:port] and nothing more, as in {name}={_EXAMPLES[name]}"
        )


def _word(name: str, value: str) -> None:
    if not _WORD.fullmatch(value):
        raise ValueError(f"{name} must be a word of letters, digits, '.', '_' and '-'")


def _kms_key(name: str, value: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9:/_-]+", value):
        raise ValueError(f"{name} must be a key's id or ARN")


_EXAMPLES = {
    "size": "10T",
    "mode": "strict",
    "journal": "/var/lib/zvault-journal/cold",
    "journal-size": "8G",
    "cache": "/var/cache/zvault/cold",
    "cache-size": "20G",
    "memory": "256M",
    "endpoint": "https://s3.example.org",
    "keys": "/etc/zvault/s3.keys",
    "encryption-key": "/etc/zvault/cold.key",
    "encryption-command": "/usr/local/sbin/cold-key",
    "history": "hourly:24,daily:30,monthly:6",
    "lock": "compliance:30d",
    "gc": "elsewhere",
    "requests": "100/s",
    "upload": "20M/s",
    "download": "100M/s",
}

STORE_SETTINGS: dict[str, Callable[[str, str], None]] = {
    "size": _bytes(1 << 20, SIZE_UNIT),
    "mode": _one_of("strict", "writeback"),
    "journal": _folder,
    "journal-size": _bytes(MIN_JOURNAL),
    "cache": _folder,
    "cache-size": _bytes(LEAST_CACHE_SIZE),
    "memory": _bytes(MIN_MEMORY),
    "endpoint": _endpoint,
    "region": _word,
    "style": _one_of("path", "virtual"),
    "profile": _word,
    "credential": _word,
    "keys": _folder,
    "storage-class": _word,
    "sse": _one_of("AES256", "aws:kms"),
    "sse-kms-key-id": _kms_key,
    "encryption-key": _folder,
    "encryption-credential": _word,
    "encryption-command": _folder,
    "uploads": _count,
    "history": _history,
    "lock": _lock,
    "gc": _one_of("here", "elsewhere"),
    "lease-bucket": _word,
    "requests": _requests,
    "upload": _rate,
    "download": _rate,
}
"""What can be set, and what sees that a value is right."""
