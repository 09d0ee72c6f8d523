"""Parses times as people write them: a date, a date with a time, or how long ago."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta

import typer

from zvault.core.units import parse_duration

_WRITTEN = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)"
    r"(?:[T ](?P<minute>\d\d:\d\d)(?P<second>:\d\d)?(?P<fraction>[.,]\d{1,6})? ?(?P<zone>Z|[+-]\d\d:?\d\d)?)?",
    re.ASCII,
)
_TICK = timedelta(microseconds=1)


def parse_last_moment(text: str, option: str = "--at") -> float:
    """The last moment of ``2026-11-21``, ``2026-11-21 09:30``, ``2026-11-21T09:30:00Z`` or ``2d ago``, since the epoch.

    A date reaches to the end of its day, a minute to the end of that minute: lists show times by the minute, so what
    is shown with a time is found with it. Without a zone it is this host's time. Raises typer.BadParameter.
    """
    return _seconds(text, option, until_its_end=True)


def parse_first_moment(text: str, option: str) -> float:
    """The first moment of the same: what is older than that was there before it. Raises typer.BadParameter."""
    return _seconds(text, option, until_its_end=False)


def _seconds(text: str, option: str, *, until_its_end: bool) -> float:
    words = text.strip()
    try:
        if words.endswith("ago"):
            seconds = time.time() - parse_duration(words.removesuffix("ago"))
        else:
            seconds = _written(words, option, until_its_end=until_its_end)
        if seconds < 0:
            raise ValueError("before 1970")
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"'{text}' is not a time: write for example '2026-11-21 09:30', 2026-11-21T09:30Z or '2d ago'",
            param_hint=option,
        ) from None
    return seconds


def _written(words: str, option: str, *, until_its_end: bool) -> float:
    """Raises ValueError, OverflowError and typer.BadParameter."""
    found = _WRITTEN.fullmatch(words)
    if found is None or (found["fraction"] and not found["second"]):
        raise ValueError(words)
    at = datetime.fromisoformat(words.replace(" Z", "Z").replace(" +", "+").replace(" -", "-"))
    if found["minute"] is None:
        # By the calendar: where the clocks change the day has not 24 hours, and its last hour may come twice.
        return (
            (at + timedelta(days=1)).timestamp() - _TICK.total_seconds() if until_its_end else at.timestamp()
        )
    if found["zone"] is None:
        _see_that_it_was_once(at, words, option)
    if until_its_end and found["fraction"] is None:
        at += (timedelta(seconds=1) if found["second"] else timedelta(minutes=1)) - _TICK
    return at.timestamp()


def _see_that_it_was_once(at: datetime, words: str, option: str) -> None:
    """Raises typer.BadParameter for a time that this host's clocks had twice, or never, as they were changed."""
    offsets = [at.replace(fold=fold).astimezone().strftime("%z") for fold in (0, 1)]
    if offsets[0] == offsets[1]:
        return
    one, other = (f"'{words}{offset[:3]}:{offset[3:]}'" for offset in offsets)
    there = at.replace(fold=0).timestamp() < at.replace(fold=1).timestamp()
    how = "twice" if there else "never"
    raise typer.BadParameter(
        f"'{words}' was {how}, as the clocks of this host were changed then: write {one} or {other}",
        param_hint=option,
    )
