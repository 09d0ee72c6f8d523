"""What a month of an object store costs, against bills that are known, and against sums over any readings."""

from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.cost.ledger import COUNTED_FIELDS, KEPT_DAYS, Ledger, StoreReading, StoreUsage, start_ledger
from zvault.core.cost.prices import BILLED_GIGABYTE, StorePrices, format_money

DAY = 86400.0
BERLIN = ZoneInfo("Europe/Berlin")
AMAZON = StorePrices(put=0.005, get=0.0004, stored=0.023, download=0.09, currency="$")


def at(text: str, zone: ZoneInfo = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


def reading(when: float, *, store: str = "a", stored: int = 0, **asked: int) -> StoreReading:
    return StoreReading(when, store, asked, stored)


def test_requests_and_what_is_read_cost_what_the_bill_says() -> None:
    ledger = start_ledger(reading(at("2026-11-01 00:00"), put=5_000_000, get=7))
    now = at("2026-11-03 12:00")
    ledger = ledger.read(
        reading(now, put=5_010_000, list=2_000, get=100_007, get_bytes=50 * BILLED_GIGABYTE), BERLIN
    )
    assert ledger.month(now, BERLIN) == StoreUsage(
        put=10_000, list=2_000, get=100_000, get_bytes=50 * BILLED_GIGABYTE
    )
    assert ledger.cost(now, BERLIN, AMAZON) == pytest.approx(12 * 0.005 + 100 * 0.0004 + 50 * 0.09)


def test_what_lies_there_costs_by_the_month_it_lies_in() -> None:
    ledger = start_ledger(reading(at("2026-11-01 00:00"), stored=1000 * BILLED_GIGABYTE))
    end = at("2026-12-01 00:00")
    ledger = ledger.still(end - 1, BERLIN)
    assert ledger.cost(end - 1, BERLIN, AMAZON) == pytest.approx(23, rel=1e-4)
    later = ledger.still(at("2026-12-16 12:00"), BERLIN)
    assert later.cost(at("2026-12-16 12:00"), BERLIN, AMAZON) == pytest.approx(23 / 2, rel=1e-4)


def test_a_forecast_goes_on_at_the_pace_of_the_last_days() -> None:
    begin = at("2026-11-01 00:00")
    ledger = start_ledger(reading(begin))
    for day in range(1, 11):
        now = begin + day * DAY
        # Nothing in the first week, 100,000 requests a day since.
        ledger = ledger.read(reading(now - 1, put=max(0, day - 3) * 100_000), BERLIN)
    assert ledger.cost(now, BERLIN, AMAZON) == pytest.approx(7 * 0.5)
    assert ledger.forecast(now, BERLIN, AMAZON) == pytest.approx(7 * 0.5 + 20 * 0.5, rel=0.2)


def test_a_day_has_to_be_known_for_a_forecast() -> None:
    begin = at("2026-11-10 08:00")
    ledger = start_ledger(reading(begin)).read(reading(begin + DAY / 2, put=1000), BERLIN)
    assert ledger.forecast(begin + DAY / 2, BERLIN, AMAZON) is None
    assert ledger.forecast(begin + DAY, BERLIN, AMAZON) is not None


def test_the_last_moment_of_a_month_has_nothing_to_come() -> None:
    ledger = start_ledger(reading(at("2026-11-20 00:00"))).read(
        reading(at("2026-11-30 23:00"), put=1000), BERLIN
    )
    end = at("2026-12-01 00:00") - 0.001
    assert ledger.forecast(end, BERLIN, AMAZON) == pytest.approx(ledger.cost(end, BERLIN, AMAZON), rel=1e-6)


@pytest.mark.parametrize(
    "now", [reading(2 * DAY, put=3), reading(2 * DAY, store="b", put=900)], ids=["went back", "another"]
)
def test_a_store_that_is_not_the_one_it_was_costs_nothing_until_it_is_known(now: StoreReading) -> None:
    ledger = start_ledger(reading(DAY, put=10)).read(now, UTC)
    assert ledger.month(2 * DAY, UTC) == StoreUsage()
    grown = StoreReading(3 * DAY, now.store, {"put": now.asked["put"] + 5}, 0)
    assert ledger.read(grown, UTC).month(3 * DAY, UTC) == StoreUsage(put=5)


def test_requests_count_also_where_the_clock_was_set_back() -> None:
    ledger = start_ledger(reading(5 * DAY, put=1, stored=BILLED_GIGABYTE)).read(
        reading(4 * DAY, put=4, stored=BILLED_GIGABYTE), UTC
    )
    assert ledger.month(4 * DAY, UTC) == StoreUsage(put=3)


def test_days_of_long_ago_are_forgotten() -> None:
    ledger = start_ledger(reading(0.0, stored=1)).still(3000 * DAY, UTC)
    assert len(ledger.days) <= KEPT_DAYS + 1


STEPS = st.lists(
    st.tuples(
        st.floats(1.0, 40 * DAY),
        st.integers(0, 1 << 40),
        st.tuples(*[st.integers(0, 10**6)] * len(COUNTED_FIELDS)),
    ),
    min_size=1,
    max_size=9,
)


@given(
    STEPS,
    st.floats(0, 4e9),
    st.sampled_from([BERLIN, ZoneInfo("Asia/Kathmandu"), ZoneInfo("America/St_Johns")]),
)
def test_days_add_up_to_all_that_was_asked(
    steps: list[tuple[float, int, tuple[int, ...]]], begin: float, zone: ZoneInfo
) -> None:
    ledger = start_ledger(reading(begin))
    now, stored, held, asked = begin, 0, 0.0, dict.fromkeys(COUNTED_FIELDS, 0)
    for pause, size, more in steps:
        now, held = now + pause, held + stored * pause
        asked = {kind: asked[kind] + number for kind, number in zip(COUNTED_FIELDS, more, strict=True)}
        stored = size
        ledger = ledger.read(StoreReading(now, "a", asked, size), zone)
    total = sum(ledger.days.values(), StoreUsage())
    assert {kind: getattr(total, kind) for kind in COUNTED_FIELDS} == asked
    assert total.byte_seconds == pytest.approx(held, rel=1e-6, abs=1.0)
    by_month = {(day.year, day.month) for day in ledger.days}
    each = [ledger.month(datetime(*month, 2, tzinfo=zone).timestamp(), zone) for month in by_month]
    assert sum(each, StoreUsage()).put == asked["put"]


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [
        (1.2, "$", "$1.20"),
        (12345.678, "", "12,345.68"),
        (0.00312, "CHF", "0.0031 CHF"),
        (0.0, "€", "€0.00"),
        (0.00001, "$", "$0.00"),
        (0.25, "$", "$0.25"),
    ],
)
def test_money(amount: float, currency: str, text: str) -> None:
    assert format_money(amount, currency) == text


def test_a_ledger_of_no_day() -> None:
    ledger = Ledger(reading(0.0), 0.0, {date(2020, 1, 1): StoreUsage(put=1)})
    assert ledger.month(1.8e9, UTC) == StoreUsage()


def test_requests_that_no_writer_counts_cost_too() -> None:
    """The store's own counters go on from where they were: what was added is not taken off again."""
    ledger = start_ledger(reading(at("2026-11-01 00:00"), get=10))
    ledger = ledger.also({"get": 3, "put": 1, "else": 9}, at("2026-11-02 12:00"), BERLIN)
    now = at("2026-11-03 12:00")
    assert ledger.read(reading(now, get=15), BERLIN).month(now, BERLIN) == StoreUsage(put=1, get=8)
