"""One frame of ``zvaultctl top``: lines for a screen of so many columns and rows. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from zvault.api.diagnosis import DiskDocument, DoctorDocument
from zvault.api.headlines import write_status_headlines
from zvault.api.health import HealthLevel
from zvault.api.status import BackupDocument
from zvault.api.vaults import JudgedVault
from zvault.cli.health_text import LEVEL_COLOURS, find_state_word, find_worst_level
from zvault.cli.output import YELLOW, clean_line
from zvault.cli.plot import PlotInk, break_text, draw_bar
from zvault.cli.progress import format_fill, format_percent_done, format_remaining, format_speed
from zvault.cli.screen_columns import SCREEN_COLUMN_GAP, ScreenColumn, ScreenLine, fit_columns
from zvault.cli.tables import format_cell
from zvault.cli.top.state import StreamState, TopState
from zvault.core.cost.prices import format_money
from zvault.core.health.verdict import VERDICT_LEVELS
from zvault.core.units import format_duration, format_rate, format_size

TopSort = Literal["name", "health", "lag", "rate"]
TOP_SORTS: tuple[TopSort, ...] = ("name", "health", "lag", "rate")

STALE_AFTER = 5.0
"""Seconds after which it is told that what is shown is old."""


def draw_top_frame(
    state: TopState, columns: int, rows: int | None, sort: TopSort, ink: PlotInk, now: float
) -> list[ScreenLine]:
    """The lines, none longer than ``columns``, and no more than ``rows`` where those are given."""
    body = [ScreenLine(""), *_backups(state, columns, sort), *_streams(state, columns, sort, ink)]
    body += [*_vaults(state, columns), *_messages(state, columns, rows)]
    lines = [*_head(state, columns, sort, now), *body]
    if rows is not None and len(lines) > rows:
        hidden = len(lines) - rows + 1
        lines = [*lines[: rows - 1], ScreenLine(f"{hidden} lines more")]
    return [ScreenLine(line.text[:columns], line.colour) for line in lines]


def _head(state: TopState, columns: int, sort: TopSort, now: float) -> Iterator[ScreenLine]:
    clock = time.strftime("%H:%M:%S", time.localtime(now))
    keys = f"q quit{SCREEN_COLUMN_GAP}s sort: {sort}"
    room = columns - len(clock) - len(keys) - 2 * len(SCREEN_COLUMN_GAP)
    if room >= 0:
        yield ScreenLine(f"{clock}{SCREEN_COLUMN_GAP}{' ' * room}{SCREEN_COLUMN_GAP}{keys}")
    else:
        yield ScreenLine(clock)
        yield ScreenLine(keys)
    if state.trouble:
        told = clean_line(f"not known since {format_duration(max(0.0, now - state.seen))}: {state.trouble}")
        yield from (ScreenLine(piece, YELLOW) for piece in break_text(told, columns))
    elif now - state.seen > STALE_AFTER:
        yield ScreenLine(f"as of {format_duration(now - state.seen)} ago: zvaultd is slow to answer", YELLOW)
    if state.status is not None and not state.trouble:
        colour = LEVEL_COLOURS[find_worst_level(state.status)]
        for text in write_status_headlines(state.status):
            yield from (ScreenLine(piece, colour) for piece in break_text(clean_line(text), columns))


def _backups(state: TopState, columns: int, sort: TopSort) -> Iterator[ScreenLine]:
    found = list(state.status["backups"]) if state.status is not None else []
    found.sort(key=_order(state, sort))
    rates = [state.rate_of(one["name"]) for one in found]
    done = [one["bytes_done"] if one["run"] is not None else None for one in found]
    yield from _table(
        [
            ScreenColumn("BACKUP", [one["name"] for one in found], 0, right=False),
            ScreenColumn("STATE", [_activity(one) for one in found], 1, right=False),
            ScreenColumn("HEALTH", [find_state_word(one) for one in found], 2, right=False),
            ScreenColumn("RATE", [format_speed(rate) or "-" for rate in rates], 3),
            ScreenColumn("LAG", [_lag(one) for one in found], 4),
            ScreenColumn("DONE", [format_cell(size, "size", False) for size in done], 5),
            ScreenColumn("TOTAL", [format_cell(one["bytes_total"], "size", False) for one in found], 6),
            ScreenColumn("ETA", [_eta(one, rate) for one, rate in zip(found, rates, strict=True)], 5),
            ScreenColumn("MAX LAG", [_duration(one["max_lag_seconds"]) for one in found], 7),
            ScreenColumn("RESTORE", [_restore(one) for one in found], 9),
            ScreenColumn("VAULT", [one["vault"] or "-" for one in found], 8, right=False),
        ],
        [one["verdict"]["level"] for one in found],
        columns,
    )


def _lag(one: BackupDocument) -> str:
    """A backup that makes snapshots only has none."""
    return _duration(one["lag_seconds"], "-" if one["vault"] is None else "unknown")


def _restore(one: BackupDocument) -> str:
    """How long it takes to restore all of it."""
    return "-" if one["restore"] is None else _duration(one["restore"]["seconds"], "unknown")


def _order(state: TopState, sort: TopSort) -> Callable[[BackupDocument], tuple[float, str]]:
    def key(one: BackupDocument) -> tuple[float, str]:
        match sort:
            case "health":
                return -VERDICT_LEVELS.index(one["verdict"]["level"]), one["name"]
            case "lag":
                # What is not known may be the longest.
                return -(one["lag_seconds"] if one["lag_seconds"] is not None else 1e18), one["name"]
            case "rate":
                return -state.rate_of(one["name"]), one["name"]
        return 0.0, one["name"]

    return key


def _activity(one: BackupDocument) -> str:
    if one["state"] != "running":
        return str(one["state"])
    return f"running {format_percent_done(one['bytes_done'], one['bytes_total'])}".rstrip()


def _eta(one: BackupDocument, rate: float) -> str:
    return format_remaining(one["bytes_done"], one["bytes_total"], rate).removeprefix("eta ") or "-"


def _duration(seconds: float | None, unknown: str = "-") -> str:
    return unknown if seconds is None else format_duration(max(0.0, seconds))


def _streams(state: TopState, columns: int, sort: TopSort, ink: PlotInk) -> Iterator[ScreenLine]:
    found = list(state.streams.values())
    found.sort(key=lambda one: (-one.rate if sort == "rate" else 0.0, one.dataset))
    yield ScreenLine("")
    if not found:
        yield ScreenLine("no streams")
        return
    wide = max(0, min(30, columns - 70))
    bars = [draw_bar(float(one.done), float(one.total or 0), wide, ink) for one in found]
    figures = [
        ScreenColumn("STREAM", [one.dataset for one in found], 0, right=False),
        ScreenColumn("", [format_percent_done(one.done, one.total) or "-" for one in found], 1),
        ScreenColumn("RATE", [format_speed(one.rate) or "-" for one in found], 2),
        ScreenColumn("DONE", [format_size(one.done) for one in found], 3),
        ScreenColumn("TOTAL", ["-" if one.total is None else format_size(one.total) for one in found], 4),
        ScreenColumn("ETA", [_stream_eta(one) for one in found], 5),
        ScreenColumn("BUFFER", [format_fill(one.marks).removeprefix("buffer ") or "-" for one in found], 6),
    ]
    if wide >= 10:
        figures.insert(1, ScreenColumn("", bars, 7))
    yield from _table(figures, ["ok"] * len(found), columns)


def _stream_eta(one: StreamState) -> str:
    return format_remaining(one.done, one.total, one.rate).removeprefix("eta ") or "-"


def _vaults(state: TopState, columns: int) -> Iterator[ScreenLine]:
    found = state.status["vaults"] if state.status is not None else []
    yield ScreenLine("")
    doctors = [state.doctors.get(one["name"]) for one in found]
    stores = [state.stores.get(one["name"]) for one in found]
    yield from _table(
        [
            ScreenColumn("VAULT", [one["name"] for one in found], 0, right=False),
            ScreenColumn("STATE", [one["state"] for one in found], 1, right=False),
            ScreenColumn("HEALTH", [find_state_word(one) for one in found], 2, right=False),
            ScreenColumn(
                "WRITES", [_sum(doctor, lambda disk: disk["writes"], "/s") for doctor in doctors], 3
            ),
            ScreenColumn("WRITTEN", [_rate(doctor, "written") for doctor in doctors], 3),
            ScreenColumn("READ", [_rate(doctor, "read") for doctor in doctors], 8),
            ScreenColumn("WAIT", [_wait(doctor) for doctor in doctors], 4),
            ScreenColumn("QUEUE", [_queue(doctor) for doctor in doctors], 6),
            ScreenColumn("BUSY", [_busy(doctor) for doctor in doctors], 7),
            ScreenColumn(
                "BOUND BY", [one["verdict"]["bound"] if one else "-" for one in doctors], 9, right=False
            ),
            ScreenColumn("REQUESTS", [f"{one.requests:.1f}/s" if one else "-" for one in stores], 5),
            ScreenColumn("ERRORS", [f"{one.errors:.1f}/s" if one else "-" for one in stores], 10),
            ScreenColumn("REQ WAIT", [_milliseconds(one.wait if one else None) for one in stores], 10),
            ScreenColumn("COST", [_cost(one) for one in found], 11),
            ScreenColumn("FREE", [format_cell(one["free"], "size", False) for one in found], 11),
        ],
        [one["verdict"]["level"] for one in found],
        columns,
    )


def _disks(doctor: DoctorDocument | None) -> list[DiskDocument]:
    return [disk for disk in doctor["devices"] if disk["role"] == "vault"] if doctor is not None else []


def _sum(doctor: DoctorDocument | None, of: Callable[[DiskDocument], int], unit: str) -> str:
    disks = [disk for disk in _disks(doctor) if disk["seconds"] > 0]
    return f"{sum(of(disk) / disk['seconds'] for disk in disks):.0f}{unit}" if disks else "-"


def _rate(doctor: DoctorDocument | None, what: Literal["written", "read"]) -> str:
    disks = [disk for disk in _disks(doctor) if disk["seconds"] > 0]
    return format_rate(sum(disk[what] / disk["seconds"] for disk in disks)) if disks else "-"


def _wait(doctor: DoctorDocument | None) -> str:
    """How long a request took at the slowest device."""
    known = [disk["latency"] for disk in _disks(doctor) if disk["latency"] is not None]
    return _milliseconds(max(known, default=None))


def _cost(vault: JudgedVault) -> str:
    """What it has cost this month; with a plus where not all of it is counted."""
    cost = vault["cost"]
    if cost is None or cost["cost"] is None:
        return "not counted" if vault["uncounted"] else "-"
    return format_money(cost["cost"], cost["currency"]) + ("+" if vault["uncounted"] else "")


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.0f}ms" if seconds < 10 else format_duration(seconds)


def _queue(doctor: DoctorDocument | None) -> str:
    queue = doctor["queue"] if doctor is not None else None
    return "-" if queue is None else f"{queue['pending']:.0f}+{queue['active']:.0f}"


def _busy(doctor: DoctorDocument | None) -> str:
    known = [disk["busy"] for disk in _disks(doctor)]
    return f"{min(1.0, max(known)):.0%}" if known else "-"


def _messages(state: TopState, columns: int, rows: int | None) -> Iterator[ScreenLine]:
    """What happened last, the newest last: all on a screen that scrolls, else as many as may fit."""
    if state.messages:
        yield ScreenLine("")
    newest = list(state.messages)[-(rows or len(state.messages) or 1) :]
    yield from (ScreenLine(clean_line(text)) for text in newest[-8:])


def _table(
    figures: Sequence[ScreenColumn], levels: Sequence[HealthLevel], columns: int
) -> Iterator[ScreenLine]:
    yield from fit_columns(figures, [LEVEL_COLOURS[level] for level in levels], columns)
