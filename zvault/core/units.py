"""Sizes and durations as people write them and as zvault prints them.

Sizes are binary, as everywhere in ZFS: "K", "KB" and "KiB" all mean 1024 bytes. Every parser raises
ValueError with a text that says what would have been right.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

_SIZE_UNITS = "BKMGTPE"
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([BKMGTPE]?)(I?B)?", re.ASCII | re.IGNORECASE)
_SIZE_LIMIT = 1 << 64  # ZFS counts bytes in 64 bits

_SECONDS = {"w": Decimal(604800), "d": Decimal(86400), "h": Decimal(3600), "m": Decimal(60), "s": Decimal(1)}
_SECONDS["ms"] = Decimal("0.001")
_ORDER = list(_SECONDS)
_LONG = {
    **dict.fromkeys(("week", "weeks"), "w"),
    **dict.fromkeys(("day", "days"), "d"),
    **dict.fromkeys(("hr", "hour", "hours"), "h"),
    **dict.fromkeys(("min", "minute", "minutes"), "m"),
    **dict.fromkeys(("sec", "second", "seconds"), "s"),
}
_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")


def parse_size(text: str) -> int:
    """Bytes in a size such as ``90T``, ``1.5G``, ``128KiB`` or ``512``; part of a byte is cut off."""
    match = _SIZE.fullmatch(text.strip())
    number, unit, suffix = match.groups() if match else ("", "", None)
    if not number or (suffix and unit.upper() in {"", "B"}):
        raise ValueError(f"{text!r} is not a size: write a number and a unit, such as 512, 128K, 1.5G or 90T")
    if "." in number and unit.upper() in {"", "B"}:
        raise ValueError(f"{text!r} is not a size: there is no part of a byte")
    size = int(Decimal(number) * 1024 ** _SIZE_UNITS.index(unit.upper() or "B"))
    if size >= _SIZE_LIMIT:
        raise ValueError(f"{text!r} is too large: sizes end below 16E")
    return size


def format_size(size: int) -> str:
    """A size as ``zfs list`` prints it: ``0B``, ``512B``, ``1.50G``, ``128K``; five characters if possible.

    An even multiple of its unit has no decimals (zfs_nicebytes in OpenZFS's libzutil).
    """
    if size < 0:
        return f"-{format_size(-size)}"
    index = min(max(size.bit_length() - 1, 0) // 10, len(_SIZE_UNITS) - 1)
    scale = 1 << (10 * index)
    letter = _SIZE_UNITS[index]
    if size % scale == 0:
        return f"{size // scale}{letter}"
    value = size / scale
    texts = [f"{value:.{decimals}f}{letter}" for decimals in (2, 1, 0)]
    return next((text for text in texts if len(text) <= 5), texts[-1])


def format_rate(bytes_per_second: float) -> str:
    """A rate, such as ``102M/s``."""
    return f"{format_size(round(bytes_per_second))}/s"


def parse_duration(text: str) -> float:
    """Seconds in a duration such as ``15m``, ``2h30m``, ``1w``, ``1.5h`` or ``500ms``.

    Units are ``w d h m s ms`` (and ``min``, ``hours``…), the larger first, each once. Months and years are
    not accepted: their length differs.
    """
    total = Decimal(0)
    last_rank = -1
    rest = text.strip()
    if not rest:
        raise ValueError("an empty text is not a duration: write such as 15m, 2h30m or 1w")
    while rest:
        match = _PART.match(rest)
        if match is None:
            raise ValueError(f"{text!r} is not a duration: write such as 15m, 2h30m or 1w")
        number, written = match.groups()
        unit = _duration_unit(text, number, written)
        rank = _ORDER.index(unit)
        if rank <= last_rank:
            raise ValueError(
                f"{text!r} is not a duration: each unit comes once, the larger first, as in 1d12h"
            )
        total += Decimal(number) * _SECONDS[unit]
        last_rank = rank
        rest = rest[match.end() :].lstrip()
    seconds = float(total)
    if not math.isfinite(seconds):
        raise ValueError(f"{text!r} is too long")
    return seconds


def _duration_unit(text: str, number: str, written: str) -> str:
    if not written:
        raise ValueError(
            f"{text!r} has no unit after {number}: write {number}s, {number}m, {number}h or {number}d"
        )
    unit = _LONG.get(written, written)
    if unit in _SECONDS:
        return unit
    if unit.lower() in _SECONDS:
        raise ValueError(f"{text!r}: units of time are written small, as in {number}{unit.lower()}")
    known = ", ".join(_ORDER)
    raise ValueError(f"{text!r}: there is no unit of time {written!r}; known are {known}")


def format_duration(seconds: float) -> str:
    """A duration in its two largest units: ``12s``, ``3h 4m``, ``2d 3h``; under a second ``250ms``.

    What is smaller is cut off, never rounded up, so that a limit is not shown as reached before it is.
    """
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    if 0 < seconds < 1:
        return f"{int(seconds * 1000)}ms"
    whole = int(seconds)
    minutes, secs = divmod(whole, 60)
    hours, mins = divmod(minutes, 60)
    days, hrs = divmod(hours, 24)
    parts = [(days, "d"), (hrs, "h"), (mins, "m"), (secs, "s")]
    first = next((i for i, (count, _) in enumerate(parts) if count), len(parts) - 1)
    return " ".join(f"{count}{unit}" for count, unit in parts[first : first + 2] if count) or "0s"


_DIGITS = 20
"""Those of the largest number of 64 bits."""


def is_number(text: str) -> bool:
    """True if a text is a whole number as programs print one: ASCII digits, no more than 64 bits need.

    ``int`` takes more (signs, blanks, underscores, digits of other scripts), and raises for some thousand digits.
    """
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS
