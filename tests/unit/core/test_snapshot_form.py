"""Every form of a name that is taken gives each second a name of its own, in the order of time, and reads it back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from zvault.core.names import make_snapname, parse_snapname, parse_snapname_time
from zvault.core.snapshot_form import (
    DEFAULT_FORM,
    SnapshotNames,
    check_form,
    check_zone,
    parse_rendered_snapname,
    render_snapname,
)

VIENNA = "Europe/Vienna"
ZONES = ["UTC", "Etc/GMT-1", "Etc/GMT+12", VIENNA, "Australia/Lord_Howe", "America/New_York"]
GOOD = [
    DEFAULT_FORM,
    "-%Y%m%d-%H%M%S",
    ".%Y.%j.%H.%M.%S",
    "_%s",
    "-%s_%Y-%m-%d_%H%M",
    "_%Y-%m-%d-%H%M%S-%s",
    "-x%Y%Y%m%d%H%M%Sx",
]

MOMENTS = st.integers(0, 9_999_999_999 - 10**8).map(lambda at: datetime.fromtimestamp(at, UTC))
CHANGES = [datetime(2026, 10, 25, 0, 59, 59, tzinfo=UTC), datetime(2026, 3, 29, 1, tzinfo=UTC)]
"""Right before and at a change of Vienna's clocks."""

PARTS = st.sampled_from(["%Y", "%m", "%d", "%j", "%H", "%M", "%S", "%s", "-", "_", "T", "7", ":"])
MADE = st.lists(PARTS, max_size=12).map(lambda parts: "_" + "".join(parts))
SOUND = st.tuples(
    st.sampled_from(["-", "_T", ".:"]),
    st.sampled_from([("%Y", "%m", "%d", "%H", "%M", "%S"), ("%s",)]),
    PARTS,
    PARTS,
).map(lambda it: it[0] + it[2].replace("%", "").join(it[1]) + it[3])


def taken(form: str, zone: str) -> bool:
    try:
        check_form(form)
        check_zone(form, zone)
    except ValueError:
        return False
    return True


@given(st.sampled_from(GOOD) | MADE | SOUND, st.sampled_from(ZONES), MOMENTS, st.integers(1, 10**8))
@example(DEFAULT_FORM, "UTC", CHANGES[0], 1)
@example("-%s_%Y-%m-%d_%H%M", VIENNA, CHANGES[0], 1)
@example("-%s_%Y-%m-%d_%H%M", VIENNA, CHANGES[0], 3600)
def test_what_is_taken_is_unambiguous_sorts_and_reads_back(
    form: str, zone: str, one: datetime, after: int
) -> None:
    assume(taken(form, zone))
    later, there = one + timedelta(seconds=after), ZoneInfo(zone)
    first, second = render_snapname(form, "p", one, there), render_snapname(form, "p", later, there)
    assert first < second
    assert len(first) == len(second) == SnapshotNames("p", form, zone).length
    assert parse_rendered_snapname(form, "p", first, there) == one
    assert parse_rendered_snapname(form, "p", second, there) == later
    assert parse_snapname_time(first) in {None, int(one.timestamp())}


@given(st.sampled_from(GOOD), MOMENTS, st.integers(0, 60), st.sampled_from("0123456789-_:.TZx"))
def test_a_name_that_is_a_little_different_is_another_moment_s_or_none(
    form: str, when: datetime, place: int, sign: str
) -> None:
    name, zone = render_snapname(form, "zv", when, ZoneInfo("UTC")), ZoneInfo("UTC")
    changed = name[:place] + sign + name[place + 1 :]
    assume(changed != name)
    found = parse_rendered_snapname(form, "zv", changed, zone)
    assert found is None or (found != when and render_snapname(form, "zv", found, zone) == changed)
    for other in (name + sign, sign + name, name[:-1]):
        assert parse_rendered_snapname(form, "zv", other, zone) is None


@given(st.text(max_size=30))
def test_whatever_a_source_calls_a_snapshot_it_is_read_or_not(text: str) -> None:
    for form in GOOD:
        for name in (text, "zv" + text, "zv-" + text):
            found = parse_rendered_snapname(form, "zv", name, ZoneInfo("UTC"))
            assert found is None or render_snapname(form, "zv", found, ZoneInfo("UTC")) == name


@pytest.mark.parametrize("form", GOOD)
def test_forms_that_are_taken(form: str) -> None:
    assert taken(form, "UTC")


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("", "must begin with one of"),
        ("%Y%m%d%H%M%S", "must begin with one of"),
        ("x%Y%m%d%H%M%S", "must begin with one of"),
        ("_%Y-%m-%d", "lacks %H %M %S: two moments would give one name"),
        ("_%Y-%m-%d_%H%M", "lacks %S"),
        ("_daily", "lacks %Y %m %d %H %M %S"),
        ("_%d-%m-%Y_%H%M%S", "does not sort as time does"),
        ("_%H%M%S_%Y%m%d", "does not sort as time does"),
        ("_%Y%m%d%H%M%s", "does not sort as time does"),
        ("_%y%m%d%H%M%S", "%y in .* is not taken"),
        ("_%b", "%b in .* is not taken"),
        ("_%Y-%m-%d_%H%M%S%z", "%z in .* is not taken"),
        ("_%Y%m%d%H%M%S%", "is not taken"),
        ("_%%Y", "is not taken"),
        ("_%Y %m", "has ' '"),
        ("_%Y@%m", "has '@'"),
        ("_%Y/%m", "has '/'"),
        ("_ü%s", "has 'ü'"),
    ],
)
def test_forms_that_are_refused(form: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_form(form)


def test_a_zone_whose_clocks_go_back_gives_two_moments_one_name() -> None:
    form, zone = "-%Y%m%d-%H%M%S", ZoneInfo(VIENNA)
    twice = CHANGES[0], CHANGES[0] + timedelta(hours=1)
    assert render_snapname(form, "p", twice[0], zone) == render_snapname(form, "p", twice[1], zone), (
        "that is why"
    )
    with pytest.raises(ValueError, match="when its clocks go back: use UTC"):
        check_zone(form, VIENNA)
    check_zone("-%s_%Y%m%d-%H%M%S", VIENNA)


def test_what_looks_like_utc_is_utc() -> None:
    with pytest.raises(ValueError, match="looks like a time in UTC"):
        check_zone(DEFAULT_FORM, "Etc/GMT-1")
    with pytest.raises(ValueError, match="looks like a time in UTC"):
        check_zone("-%s" + DEFAULT_FORM, VIENNA)


def test_names_of_now_and_before_are_known() -> None:
    when = datetime(2026, 11, 21, 9, 8, 7, tzinfo=UTC)
    names = SnapshotNames("zv", "-%Y%m%d-%H%M%S", "Etc/GMT-1", ("_%s",))
    assert names.make(when) == "zv-20261121-100807"
    for known in ("zv-20261121-100807", "zv_1795252087", "zv_2026-11-21T09:08:07Z"):
        assert names.known(known)
    for other in ("zv-20261321-100807", "zv_x", "zvx-20261121-100807", "zv-20261121-100807-x", "zv"):
        assert not names.known(other)
    assert SnapshotNames("zv").make(when) == make_snapname("zv", when)


@given(MOMENTS)
def test_the_default_is_what_it_always_was(when: datetime) -> None:
    name = render_snapname(DEFAULT_FORM, "zv", when, ZoneInfo("UTC"))
    assert name == make_snapname("zv", when)
    assert (
        parse_rendered_snapname(DEFAULT_FORM, "zv", name, ZoneInfo("UTC"))
        == parse_snapname("zv", name)
        == when
    )
