"""Of which period a report is, when it is due, and what it says."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.health.days import DaySummary
from zvault.core.notify.report import (
    REPORT_PERIODS,
    BackupReport,
    NeededAction,
    PeriodFigures,
    PeriodReport,
    ReportEvery,
    ReportPeriod,
    VaultReport,
    choose_reported_until,
    find_last_period,
    is_due,
    sum_period,
)
from zvault.core.notify.report_text import MOST_ROWS, write_report_html, write_report_text, write_report_title

VIENNA = ZoneInfo("Europe/Vienna")
ZONES = st.sampled_from([UTC, VIENNA, ZoneInfo("Pacific/Kiritimati"), ZoneInfo("America/St_Johns")])


def at(*numbers: int) -> float:
    return datetime(*numbers, tzinfo=VIENNA).timestamp()


@pytest.mark.parametrize(
    ("every", "now", "name"),
    [
        ("weekly", at(2026, 11, 23, 6), "16 to 22 November 2026"),
        ("weekly", at(2026, 11, 23, 5, 59), "9 to 15 November 2026"),
        ("weekly", at(2026, 11, 29, 23), "16 to 22 November 2026"),
        ("weekly", at(2026, 12, 7, 6), "30 November to 6 December 2026"),
        ("weekly", at(2027, 1, 4, 6), "28 December 2026 to 3 January 2027"),
        ("monthly", at(2026, 12, 1, 6), "November 2026"),
        ("monthly", at(2026, 12, 1, 5, 59), "October 2026"),
        ("monthly", at(2027, 1, 31, 12), "December 2026"),
        # On the day on which clocks are put forward, six in the morning is five hours after midnight.
        ("monthly", at(2027, 3, 28, 6), "February 2027"),
    ],
)
def test_which_period_is_reported(every: ReportEvery, now: float, name: str) -> None:
    period = find_last_period(every, now, VIENNA)
    assert period.name == name
    assert datetime.fromtimestamp(period.begin, VIENNA).hour == 0
    assert datetime.fromtimestamp(period.end, VIENNA).hour == 0


@given(st.sampled_from(REPORT_PERIODS), st.integers(0, 4_000_000_000), st.integers(1, 86400 * 80), ZONES)
def test_each_period_is_reported_once_whenever_one_looks(
    every: ReportEvery, begin: int, step: int, zone: ZoneInfo
) -> None:
    """Whatever the steps between looks, all periods that end meanwhile are told once, or skipped for a later one."""
    reported: float | None = None
    told: list[ReportPeriod] = []
    for look in range(8):
        now = float(begin + look * step)
        period = find_last_period(every, now, zone)
        assert period.begin < period.end <= now
        assert period.last - period.first <= timedelta(days=31)
        if is_due(period, reported):
            told.append(period)
            reported = period.end
        else:
            reported = choose_reported_until(period, reported, now)
    ends = [one.end for one in told]
    assert ends == sorted(set(ends))
    if step <= 86400 * 7:
        assert all(one.begin == before.end for before, one in pairwise(told))


def test_a_new_target_is_told_of_nothing_before_and_a_clock_that_was_ahead_keeps_nothing_back() -> None:
    now = at(2026, 11, 25, 12)
    period = find_last_period("weekly", now, VIENNA)
    assert not is_due(period, None)
    assert choose_reported_until(period, None, now) == period.end
    assert not is_due(period, at(2099, 1, 1))
    assert choose_reported_until(period, at(2099, 1, 1), now) == period.end
    assert is_due(find_last_period("weekly", now + 7 * 86400, VIENNA), period.end)


def test_figures_are_of_the_period_only() -> None:
    period = find_last_period("weekly", at(2026, 11, 23, 6), VIENNA)
    days = [
        DaySummary(date(2026, 11, 10) + timedelta(days=n), "late", 2, 1, 100, 5.0, 1000.0 + n)
        for n in range(20)
    ]
    assert sum_period(days, period) == PeriodFigures(14, 7, 700, 7, 1012.0)
    assert sum_period([], period) == PeriodFigures()


def made(**more: object) -> PeriodReport:
    period = find_last_period("weekly", at(2026, 11, 23, 6), VIENNA)
    its: dict[str, object] = {
        "headlines": ("1 backup is late: tank.", "1 vault is not known."),
        "needs": (
            NeededAction(
                "backup tank", "critical", "is late", "its lag is 2d", "see 'zvaultctl explain tank'"
            ),
        ),
        "backups": (
            BackupReport(
                "tank",
                "critical",
                "late",
                PeriodFigures(168, 3, 5 << 30, 2, 200_000.0),
                180_000.0,
                14400.0,
                (("sample", at(2026, 11, 22, 6)), ("full", None)),
                restore=22830.0,
                max_restore=28800.0,
            ),
            BackupReport("scratch", "ok", "ok", PeriodFigures(7), None, None, None, sends=False),
            BackupReport("new", "unknown", "unknown", PeriodFigures(), None, None, None),
        ),
        "vaults": (
            VaultReport("cold", "ok", "ok", 90 << 40, 20 << 40, 5 << 30, 40 * 86400.0, at(2026, 11, 1), 0),
            VaultReport("far", "unknown", "down", None, None, 0, None, None, None),
        ),
    }
    return PeriodReport(period=period, host="nas", made=at(2026, 11, 23, 6), **(its | more))  # type: ignore[arg-type]


TEXT = """\
zvault on nas: 16 to 22 November 2026: 1 backup is late: tank.
1 vault is not known.

What needs you
  backup tank is late (critical): its lag is 2d
    next: see 'zvaultctl explain tank'

BACKUP   STATE    RUNS  FAULTS  LATE DAYS  SENT  WORST LAG  LAG NOW  MAX LAG  TO RESTORE    PROVEN
tank     late     168   3       2          5G    2d 7h      2d 2h    4h       6h 20m of 8h  sample 1d ago
scratch  ok       7     0       -          -     -          -        -        -             -
new      unknown  0     0       -          0B    unknown    unknown  -        unknown       unknown

VAULT  STATE  SIZE     FREE     SENT TO IT  FULL IN  SCRUBBED    DAMAGED
cold   ok     90T      20T      5G          40d      22d 6h ago  0
far    down   unknown  unknown  0B          -        unknown     unknown

The history begins 2026-11-20 00:00: what was before is not in these figures.
Runs, faults, late days, worst lag and what was sent are of the period, by the runs that ended in it; all else is of \
2026-11-23 06:00, when this was made.
"""


def test_what_it_says() -> None:
    report = made(since=at(2026, 11, 20))
    assert write_report_text(report, VIENNA) == TEXT
    assert write_report_title(report) == TEXT.splitlines()[0]
    assert report.level == "critical"


def test_what_is_dated_later_than_the_report_is_told_so_and_not_as_just_now() -> None:
    backup = BackupReport(
        "tank",
        "unknown",
        "unproven",
        PeriodFigures(),
        0.0,
        None,
        (("sample", at(2036, 1, 1)), ("full", None)),
    )
    vault = VaultReport("cold", "ok", "ok", None, None, 0, None, at(2026, 11, 23, 6, 20), 0)
    said = write_report_text(made(backups=(backup,), vaults=(vault,)), VIENNA)
    assert "sample at a time later than now" in said
    assert said.count("at a time later than now") == 2
    assert "0s ago" not in said
    little = write_report_text(made(vaults=(replace(vault, scrubbed=at(2026, 11, 23, 6, 4)),)), VIENNA)
    assert "0s ago" in little, "clocks differ by little"


def test_what_a_vault_costs_is_told_where_anything_has_a_price() -> None:
    dear = VaultReport(
        "cold", "ok", "ok", None, None, 0, None, None, None, "$7.35 this month, $9.61 at this pace"
    )
    free = VaultReport("far", "ok", "ok", None, None, 0, None, None, None)
    said = write_report_text(made(vaults=(dear, free)), VIENNA).splitlines()
    head, first, second = said[next(n for n, line in enumerate(said) if line.startswith("VAULT")) :][:3]
    at = head.index("COST")
    assert first[at:] == "$7.35 this month, $9.61 at this pace"
    assert second[at:] == "-"
    assert "$9.61 at this pace" in write_report_html(made(vaults=(dear, free)), VIENNA)
    assert "COST" not in write_report_text(made(vaults=(free,)), VIENNA)


class Words(HTMLParser):
    """Its words, and its tags with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()

    def handle_data(self, data: str) -> None:
        self.words += data.split()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_html_says_the_same_and_asks_for_nothing() -> None:
    page = Words(write_report_html(made(since=at(2026, 11, 20)), VIENNA))
    said = "".join(page.words).lower()
    for line in TEXT.splitlines():
        for cell in filter(None, line.lower().split("  ")):
            assert "".join(cell.split()) in said
    tags = "html head meta title body h1 h2 p ul li br span table thead tbody tr th td"
    assert {tag for tag, _ in page.tags} <= set(tags.split())
    assert not any(name in {"src", "href", "onload", "background"} for _, its in page.tags for name in its)


@given(st.text(max_size=40))
def test_what_others_say_is_text_and_never_markup(words: str) -> None:
    hostile = f"{words}<script>alert(1)</script>\"'&"
    report = made(
        headlines=(hostile,),
        needs=(NeededAction(hostile, "warning", hostile, hostile, hostile),),
        backups=(BackupReport(hostile, "ok", hostile, PeriodFigures(), None, None, None),),
    )
    assert "script" not in {tag for tag, _ in Words(write_report_html(report, VIENNA)).tags}


def test_a_thousand_backups_are_a_hundred_rows_and_a_count() -> None:
    many = tuple(
        BackupReport(f"b{number}", "ok", "ok", PeriodFigures(), 60.0, 3600.0, ()) for number in range(1000)
    )
    report = made(backups=many)
    assert f"and {1000 - MOST_ROWS} more: 'zvaultctl status' has all" in write_report_text(report, VIENNA)
    assert write_report_html(report, VIENNA).count("<tr>") == MOST_ROWS + 1 + len(report.vaults) + 1


def test_nothing_configured_is_a_report_all_the_same() -> None:
    report = made(headlines=("nothing is configured",), needs=(), backups=(), vaults=())
    assert write_report_text(report, UTC).startswith(
        "zvault on nas: 16 to 22 November 2026: nothing is configured\n"
    )
    assert "<table" not in write_report_html(report, UTC)
