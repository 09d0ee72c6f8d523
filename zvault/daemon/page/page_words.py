"""Times, sizes and states in the words of the page. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import NamedTuple

from zvault.core.units import format_duration, format_rate, format_size

SIGNS: dict[str, str] = {"ok": "✓", "unknown": "?", "warning": "!", "critical": "✕"}
"""Beside the words, so that neither colour nor reading is needed to see them."""

FARTHEST = 253402300799.0
"""The last second that has a date (the year 9999)."""


class ShownMoment(NamedTuple):
    """A time: for machines, as a clock shows it, and as it is from now."""

    iso: str
    clock: str
    relative: str


def show_moment(when: float | None, now: float, zone: tzinfo) -> ShownMoment | None:
    """A time, in seconds since the epoch; None where it is not known, or no time at all."""
    if when is None or not 0 <= when <= FARTHEST - 86400:
        return None
    local = datetime.fromtimestamp(when, UTC).astimezone(zone)
    here = datetime.fromtimestamp(now, UTC).astimezone(zone)
    form = "%H:%M" if local.date() == here.date() else "%a %d %b %H:%M"
    if abs(when - now) > 300 * 86400:
        form = "%Y-%m-%d %H:%M"
    return ShownMoment(
        local.isoformat(timespec="seconds"), local.strftime(form), format_relative_time(when - now)
    )


def format_relative_time(seconds: float) -> str:
    """``in 5m``, ``3h ago``, ``now``: in minutes at least, so that it does not change with every second."""
    if abs(seconds) < 1:
        return "now"
    return f"in {format_short_duration(seconds)}" if seconds > 0 else f"{format_short_duration(-seconds)} ago"


def format_short_duration(seconds: float) -> str:
    """A duration; its seconds only where it has no more than a few minutes."""
    if seconds >= 600:
        seconds = seconds // 60 * 60
    return format_duration(max(0.0, seconds))


def show_duration(seconds: float | None) -> str:
    """A duration, or that it is not known."""
    return "unknown" if seconds is None else format_short_duration(seconds)


def show_size(count: int | None) -> str:
    """Bytes, or that they are not known."""
    return "unknown" if count is None else format_size(count)


def show_rate(count: float | None) -> str:
    """Bytes a second; empty where that is not known."""
    return "" if count is None else format_rate(count)


def compute_percent(done: float, total: float | None) -> float | None:
    """Return how much of a total is done, from 0 to 100; None where there is none."""
    if not total or total <= 0:
        return None
    return max(0.0, min(100.0, 100.0 * done / total))
