"""A dataset's snapshots on a time line, as figures for a drawing: numbers only. Pure.

The line is logarithmic in age: what retention keeps gets sparser with age, so each part of it has room.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from zvault.daemon.page.page_model import TimelineMark

TIMELINE_LEFT, TIMELINE_RIGHT, TIMELINE_WIDTH = 70.0, 940.0, 960
"""Where the line begins and ends, and how wide the drawing is."""

SOURCE_LANE_TOP, VAULT_LANE_TOP, LANE_HEIGHT, TIMELINE_HEIGHT = 30.0, 86.0, 26.0, 122
"""The upper edge of each side's lane, how high a lane is, and the drawing."""

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0

TICKS = (
    (MINUTE, "1 min"),
    (10 * MINUTE, "10 min"),
    (HOUR, "1 hour"),
    (6 * HOUR, "6 hours"),
    (DAY, "1 day"),
    (2 * DAY, "2 days"),
    (7 * DAY, "1 week"),
    (30 * DAY, "1 month"),
    (91 * DAY, "3 months"),
    (365 * DAY, "1 year"),
    (2 * 365 * DAY, "2 years"),
    (5 * 365 * DAY, "5 years"),
    (10 * 365 * DAY, "10 years"),
    (30 * 365 * DAY, "30 years"),
)
"""Ages in seconds, and what they are called."""

TICK_DISTANCE = 62.0
"""Between two ticks, at least."""


class _Scale(NamedTuple):
    """``unit``: the age in seconds below which the line is nearly linear; ``oldest``: the age at its left end."""

    unit: float
    oldest: float

    def x(self, age: float) -> float:
        share = math.log1p(max(0.0, age) / self.unit) / math.log1p(self.oldest / self.unit)
        return round(TIMELINE_RIGHT - min(1.0, share) * (TIMELINE_RIGHT - TIMELINE_LEFT), 1)


def draw_timeline(drawn: Sequence[tuple[float, int]], now: float) -> dict[str, Any] | None:
    """Marks for snapshots, each given by when it was made and its Mark; None where there are none.

    Marks that would lie on each other are one, in each lane and of each kind.
    """
    if not drawn:
        return None
    oldest = max(MINUTE, *(now - made for made, _ in drawn)) * 1.05
    scale = _Scale(min(HOUR, max(MINUTE, oldest / 50)), oldest)
    marks: dict[tuple[float, str, str], dict[str, Any]] = {}
    links: dict[float, dict[str, Any]] = {}
    for made, bits in drawn:
        mark, x = TimelineMark(bits), scale.x(now - made)
        for side, there, goes, y in (
            ("source", TimelineMark.SOURCE, TimelineMark.GOES_ON_SOURCE, SOURCE_LANE_TOP),
            ("vault", TimelineMark.VAULT, TimelineMark.GOES_ON_VAULT, VAULT_LANE_TOP),
        ):
            if there in mark:
                kind = _kind(mark, goes, side)
                one = marks.setdefault((x, side, kind), {"x": x, "y": y, "kind": kind, "count": 0})
                one["count"] += 1
        if TimelineMark.SOURCE in mark and TimelineMark.VAULT in mark:
            link = links.setdefault(x, {"x": x, "base": False})
            link["base"] |= TimelineMark.BASE in mark
    return {
        "marks": list(marks.values()),
        "links": list(links.values()),
        "ticks": _ticks(scale),
        "width": TIMELINE_WIDTH,
        "height": TIMELINE_HEIGHT,
        "left": TIMELINE_LEFT,
        "right": TIMELINE_RIGHT,
        "source": SOURCE_LANE_TOP,
        "vault": VAULT_LANE_TOP,
        "lane": LANE_HEIGHT,
    }


def _kind(mark: TimelineMark, goes: TimelineMark, side: str) -> str:
    if goes in mark:
        return "goes"
    if TimelineMark.FOREIGN in mark:
        return "foreign"
    return "waiting" if side == "source" and TimelineMark.WAITING in mark else "kept"


def _ticks(scale: _Scale) -> list[dict[str, Any]]:
    found: list[dict[str, Any]]
    found, last = [{"x": TIMELINE_RIGHT, "text": "now"}], TIMELINE_RIGHT
    for age, text in TICKS:
        x = scale.x(age)
        if age < scale.oldest and last - x >= TICK_DISTANCE and x >= TIMELINE_LEFT + TICK_DISTANCE / 2:
            found.append({"x": x, "text": text})
            last = x
    return found
