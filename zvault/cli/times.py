"""Parses times as people write them: a date, a date with a time, or how long ago."""

from __future__ import annotations

import time
from datetime import datetime

import typer

from zvault.core.units import parse_duration


def moment(text: str, option: str = "--at") -> float:
    """Seconds since the epoch of ``2026-11-21``, ``2026-11-21 09:30``, ``2026-11-21T09:30Z`` or ``2d ago``.

    Without a zone it is this host's time. Raises typer.BadParameter.
    """
    words = text.strip()
    try:
        if words.endswith("ago"):
            return time.time() - parse_duration(words.removesuffix("ago"))
        return datetime.fromisoformat(words).timestamp()
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"'{text}' is not a time: write for example '2026-11-21 09:30', 2026-11-21T09:30Z or '2d ago'",
            param_hint=option,
        ) from None
