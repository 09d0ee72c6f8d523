"""Figures for drawings: numbers only. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

from zvault.core.health.days import MOST_DAYS, STATE_LEVELS
from zvault.core.units import format_duration, format_size
from zvault.daemon.page.page_model import DayDocument

CALENDAR_CELL, CALENDAR_GAP = 11, 2
"""Size of a day, and the space between two."""

CHART_HEIGHT, CHART_LEFT = 120, 64
"""Of a chart, and the space beside it for its scale."""


def draw_calendar(days: Sequence[DayDocument]) -> dict[str, Any]:
    """A square for each day of the year that ends with the last one: a column a week, from Monday on."""
    if not days:
        return {"cells": [], "months": [], "width": 0, "height": 0}
    known = {one["date"]: one for one in days}
    last = date.fromisoformat(days[-1]["date"])
    first = last - timedelta(days=MOST_DAYS - 1)
    monday = first - timedelta(days=first.weekday())
    cells, months, month = [], [], 0
    for number in range(MOST_DAYS):
        day = first + timedelta(days=number)
        column, row = divmod((day - monday).days, 7)
        x = column * (CALENDAR_CELL + CALENDAR_GAP)
        if day.day <= 7 and day.month != month:
            month = day.month
            months.append({"x": x, "text": day.strftime("%b")})
        cells.append(
            {"x": x, "y": 14 + row * (CALENDAR_CELL + CALENDAR_GAP), **_told(day, known.get(day.isoformat()))}
        )
    weeks = (last - monday).days // 7 + 1
    return {
        "cells": cells,
        "months": months,
        "width": weeks * (CALENDAR_CELL + CALENDAR_GAP),
        "height": 14 + 7 * (CALENDAR_CELL + CALENDAR_GAP),
    }


def _told(day: date, found: DayDocument | None) -> dict[str, str]:
    if found is None:
        return {"level": "none", "text": f"{day.isoformat()}: nothing is known"}
    text = f"{day.isoformat()}: {found['state']}"
    if found["runs"]:
        faults = f", {found['faults']} with a fault" if found["faults"] else ""
        text += f"; runs: {found['runs']}{faults}; {format_size(found['bytes'])}"
    return {"level": STATE_LEVELS[found["state"]], "text": text}


def draw_lag_chart(days: Sequence[DayDocument], limit: float | None) -> dict[str, Any] | None:
    """Each day's largest lag as a line, with a line at the limit."""
    values = [one["lag"] for one in days]
    known = [value for value in values if value is not None]
    if not known:
        return None
    top = max(*known, (limit or 0.0) * 1.25, 1.0)
    step = 600.0 / max(1, len(values) - 1)
    points = [
        f"{CHART_LEFT + number * step:.1f},{CHART_HEIGHT - value / top * (CHART_HEIGHT - 10):.1f}"
        for number, value in enumerate(values)
        if value is not None
    ]
    return {
        "points": " ".join(
            points if len(points) > 1 else [*points, f"{CHART_LEFT + 600},{points[0].split(',')[1]}"]
        ),
        "limit": CHART_HEIGHT - limit / top * (CHART_HEIGHT - 10) if limit else None,
        "top": format_duration(top),
        "largest": format_duration(max(known)),
        "first": days[0]["date"],
        "last": days[-1]["date"],
    }


def draw_sent_chart(days: Sequence[DayDocument]) -> dict[str, Any] | None:
    """Draw what was sent on each day, as bars."""
    top = max((one["bytes"] for one in days), default=0)
    if top <= 0:
        return None
    step = 600.0 / len(days)
    bars = [
        {
            "x": round(CHART_LEFT + number * step, 2),
            "y": round(CHART_HEIGHT - one["bytes"] / top * (CHART_HEIGHT - 10), 2),
            "width": round(max(0.8, step - 0.6), 2),
            "height": round(one["bytes"] / top * (CHART_HEIGHT - 10), 2),
            "text": f"{one['date']}: {format_size(one['bytes'])}{_speed(one)}",
        }
        for number, one in enumerate(days)
        if one["bytes"]
    ]
    total = sum(one["bytes"] for one in days)
    return {
        "bars": bars,
        "top": format_size(top),
        "total": format_size(total),
        "first": days[0]["date"],
        "last": days[-1]["date"],
    }


def _speed(one: DayDocument) -> str:
    return (
        f", {format_size(round(one['bytes'] / one['seconds']))}/s over its runs"
        if one["seconds"] >= 1
        else ""
    )
