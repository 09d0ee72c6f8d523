"""A report in words: as text, and as HTML for a mail. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from html import escape

from zvault.core.dates import reject_future
from zvault.core.notify.report import BackupReport, PeriodReport, VaultReport
from zvault.core.units import format_duration, format_size

MOST_ROWS = 100
"""Rows of each table: what is beyond them is counted."""

LEVEL_HTML_COLOURS = {"ok": "#1a7f37", "unknown": "#57606a", "warning": "#9a6700", "critical": "#cf222e"}
"""Of a level's word, on white: each has a contrast of 4.5 or more."""

BACKUP_HEADINGS = (
    "BACKUP",
    "STATE",
    "RUNS",
    "FAULTS",
    "LATE DAYS",
    "SENT",
    "WORST LAG",
    "LAG NOW",
    "MAX LAG",
    "TO RESTORE",
    "PROVEN",
)
VAULT_HEADINGS = ("VAULT", "STATE", "SIZE", "FREE", "SENT TO IT", "FULL IN", "SCRUBBED", "DAMAGED")

UNKNOWN, NONE = "unknown", "-"

ReportRow = tuple[str, ...]


def write_report_title(report: PeriodReport) -> str:
    """Its first line, and the subject of its mail."""
    return f"zvault on {report.host}: {report.period.name}: {report.headlines[0]}"


def _backup(one: BackupReport, made: float) -> ReportRow:
    its = one.figures
    return (
        one.name,
        one.state,
        str(its.runs),
        str(its.faults),
        str(its.late_days) if one.sends and one.max_lag is not None else NONE,
        format_size(its.bytes) if one.sends else NONE,
        _duration(its.lag) if one.sends else NONE,
        _duration(one.lag) if one.sends else NONE,
        _duration(one.max_lag) if one.max_lag is not None else NONE,
        _restore(one),
        _proven(one, made),
    )


def _restore(one: BackupReport) -> str:
    """How long it takes to restore all of it, and how long it may: ``6h 20m of 8h``."""
    if not one.sends:
        return NONE
    limit = f" of {_duration(one.max_restore)}" if one.max_restore is not None else ""
    return f"{_duration(one.restore)}{limit}"


def _proven(one: BackupReport, made: float) -> str:
    if not one.sends:
        return NONE
    if one.proven is None:
        return UNKNOWN
    told = [f"{level} {_ago(at, made)}" for level, at in one.proven if at is not None]
    return ", ".join(told) or "never"


def _vault(one: VaultReport, made: float) -> ReportRow:
    return (
        one.name,
        one.state,
        format_size(one.size) if one.size is not None else UNKNOWN,
        format_size(one.free) if one.free is not None else UNKNOWN,
        format_size(one.sent),
        _duration(one.full_in) if one.full_in is not None else NONE,
        _ago(one.scrubbed, made) if one.scrubbed is not None else UNKNOWN,
        str(one.damaged) if one.damaged is not None else UNKNOWN,
    )


def _duration(seconds: float | None) -> str:
    return (
        UNKNOWN
        if seconds is None
        else format_duration(max(0.0, seconds // 60 * 60 if seconds >= 600 else seconds))
    )


def _ago(at: float | None, made: float) -> str:
    if at is None:
        return "never"
    when = reject_future(at, made)
    return "at a time later than now" if when is None else f"{_duration(made - when)} ago"


def _limited(rows: Sequence[ReportRow]) -> tuple[Sequence[ReportRow], str]:
    left = len(rows) - MOST_ROWS
    return rows[:MOST_ROWS], f"and {left} more: 'zvaultctl status' has all" if left > 0 else ""


def _notes(report: PeriodReport, zone: tzinfo) -> Iterator[str]:
    if report.since is not None:
        since = datetime.fromtimestamp(report.since, UTC).astimezone(zone)
        yield f"The history begins {since:%Y-%m-%d %H:%M}: what was before is not in these figures."
    made = datetime.fromtimestamp(report.made, UTC).astimezone(zone)
    yield (
        "Runs, faults, late days, worst lag and what was sent are of the period, by the runs that ended in it; all "
        f"else is of {made:%Y-%m-%d %H:%M}, when this was made."
    )


def write_report_text(report: PeriodReport, zone: tzinfo) -> str:
    """The report as plain text."""
    parts = [f"{write_report_title(report)}\n" + "\n".join(report.headlines[1:])]
    if report.needs:
        parts.append(
            "\n".join(["What needs you", *(_need(report, index) for index in range(len(report.needs)))])
        )
    for head, rows in _tables(report):
        shown, more = _limited(rows)
        parts.append("\n".join([*_aligned([head, *shown]), *([more] if more else [])]))
    parts.append("\n".join(_notes(report, zone)))
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _tables(report: PeriodReport) -> Iterator[tuple[ReportRow, Sequence[ReportRow]]]:
    if report.backups:
        yield BACKUP_HEADINGS, [_backup(one, report.made) for one in report.backups]
    if report.vaults:
        rows = [_vault(one, report.made) for one in report.vaults]
        if any(one.cost for one in report.vaults):
            yield (
                (*VAULT_HEADINGS, "COST"),
                [(*row, it.cost or NONE) for row, it in zip(rows, report.vaults, strict=True)],
            )
        else:
            yield VAULT_HEADINGS, rows


def _need(report: PeriodReport, index: int) -> str:
    one = report.needs[index]
    return f"  {one.whose} {one.what} ({one.level}): {one.why}\n    next: {one.next}"


def _aligned(rows: Sequence[ReportRow]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def write_report_html(report: PeriodReport, zone: tzinfo) -> str:
    """The report as a page of HTML that needs nothing else: no script, no picture, no address."""
    body = [f"<h1>{_of_level(report.level, write_report_title(report))}</h1>"]
    body += [f"<p>{escape(one)}</p>" for one in report.headlines[1:]]
    if report.needs:
        body.append("<h2>What needs you</h2><ul>")
        for one in report.needs:
            words = _of_level(one.level, f"{one.whose} {one.what} ({one.level})")
            body.append(f"<li>{words}: {escape(one.why)}<br>Next: {escape(one.next)}</li>")
        body.append("</ul>")
    levels = [one.level for one in report.backups], [one.level for one in report.vaults]
    for (head, rows), theirs in zip(_tables(report), filter(None, levels), strict=True):
        body += _html_table(head, rows, theirs)
    body += [f"<p>{escape(note)}</p>" for note in _notes(report, zone)]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>'
        f"{escape(write_report_title(report))}</title></head>"
        '<body style="font-family: sans-serif; color: #1f2328; background: #ffffff">'
        + "".join(body)
        + "</body></html>\n"
    )


def _html_table(head: ReportRow, rows: Sequence[ReportRow], levels: Sequence[str]) -> Iterator[str]:
    shown, more = _limited(rows)
    cell = 'style="padding: 0.2em 0.7em; text-align: left; vertical-align: top"'
    yield '<table style="border-collapse: collapse; margin: 1em 0"><thead><tr>'
    yield "".join(f'<th scope="col" {cell}>{escape(one.capitalize())}</th>' for one in head)
    yield "</tr></thead><tbody>"
    for row, level in zip(shown, levels, strict=False):
        name, state, *rest = row
        yield f'<tr><th scope="row" {cell}>{escape(name)}</th><td {cell}>{_of_level(level, state)}</td>'
        yield "".join(f"<td {cell}>{escape(one)}</td>" for one in rest) + "</tr>"
    yield "</tbody></table>"
    if more:
        yield f"<p>{escape(more)}</p>"


def _of_level(level: str, words: str) -> str:
    return f'<span style="color: {LEVEL_HTML_COLOURS[level]}">{escape(words)}</span>'
