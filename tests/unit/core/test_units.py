import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.units import format_duration, format_rate, format_size, parse_duration, parse_size

K, M, G, T, P = (1 << shift for shift in (10, 20, 30, 40, 50))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("512", 512),
        ("512B", 512),
        ("128K", 128 * K),
        ("128k", 128 * K),
        ("128KB", 128 * K),
        ("128KiB", 128 * K),
        ("128 MiB", 128 * M),
        (" 1.5G ", 3 * G // 2),
        ("90T", 90 * T),
        ("2P", 2 * P),
        ("15E", 15 << 60),
        ("0.3K", 307),
    ],
)
def test_sizes_are_binary_with_any_of_the_usual_suffixes(text: str, size: int) -> None:
    assert parse_size(text) == size


NO_SIZES = (
    *(
        "",
        " ",
        "K",
        "-1",
        "-1K",
        "+1K",
        "1.5",
        "1.5B",
        "1..5K",
        ".5K",
        "1.K",
        "5X",
        "5Ki",
        "5iB",
        "5BB",
        "1e3",
    ),
    *("1_0", "1,5G", "nan", "inf", "1K 2K", "\u0663K", "1\u212a", "16E", "9" * 400 + "P"),
)


@pytest.mark.parametrize("text", NO_SIZES)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a size|too large"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0B"),
        (1, "1B"),
        (512, "512B"),
        (1023, "1023B"),
        (K, "1K"),
        (K + 1, "1.00K"),
        (128 * K, "128K"),
        (3 * G // 2, "1.50G"),
        (15 * G + G // 2, "15.5G"),
        (155 * G + G // 2, "156G"),
        (M - 1, "1024K"),
        (90 * T, "90T"),
        (15 << 60, "15E"),
        (1 << 70, "1024E"),
        (-3 * G // 2, "-1.50G"),
    ],
)
def test_sizes_are_printed_as_zfs_prints_them(size: int, text: str) -> None:
    assert format_size(size) == text


@given(st.integers(0, (1 << 64) - (1 << 60)))
def test_a_printed_size_reads_back_within_its_last_digit(size: int) -> None:
    text = format_size(size)
    assert len(text) <= 5
    back = parse_size(text)
    assert abs(back - size) <= size * 0.005 + 1  # parse_size gives whole bytes


@given(st.integers(0, 1023), st.sampled_from("BKMGTP"))
def test_an_even_multiple_survives_the_round_trip(count: int, unit: str) -> None:
    size = count << (10 * "BKMGTP".index(unit))
    assert parse_size(format_size(size)) == size == parse_size(f"{count}{unit}")


def test_a_rate_is_a_size_a_second() -> None:
    assert format_rate(0.2) == "0B/s"
    assert format_rate(80.4 * M) == "80.4M/s"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0),
        ("45s", 45),
        ("500ms", 0.5),
        ("15m", 900),
        ("15min", 900),
        ("2h30m", 9000),
        ("2h 30m", 9000),
        ("1.5h", 5400),
        ("1 hour 30 minutes", 5400),
        ("1w", 604800),
        ("1w2d3h4m5s6ms", 788645.006),
        (" 3 days ", 259200),
        ("90m", 5400),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "empty"),
        ("15", "no unit"),
        ("1h30", "no unit after 30"),
        ("15M", "written small"),
        ("1y", "no unit of time 'y'"),
        ("2months", "no unit of time"),
        ("30m2h", "larger first"),
        ("1h1h", "each unit comes once"),
        ("1hour 2h", "each unit comes once"),
        ("-5m", "is not a duration"),
        ("5m,3s", "is not a duration"),
        ("\u0665m", "is not a duration"),
        ("infs", "is not a duration"),
        ("9" * 400 + "w", "too long"),
    ],
)
def test_what_is_no_duration_is_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.0004, "0ms"),
        (0.25, "250ms"),
        (1, "1s"),
        (59.9, "59s"),
        (60, "1m"),
        (61, "1m 1s"),
        (3600, "1h"),
        (3620, "1h"),
        (11040, "3h 4m"),
        (86399.9, "23h 59m"),
        (183600, "2d 3h"),
        (86460, "1d"),
        (800 * 86400, "800d"),
        (-61, "-1m 1s"),
    ],
)
def test_durations_are_printed_in_their_two_largest_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(0, 10**10))
def test_a_printed_duration_reads_back_and_never_as_more(seconds: int) -> None:
    back = parse_duration(format_duration(seconds))
    assert back <= seconds
    lost = seconds - back
    assert lost < (1 if seconds < 3600 else 60 if seconds < 86400 else 3600)
    assert format_duration(back) == format_duration(seconds)


@given(st.lists(st.integers(0, 999), min_size=6, max_size=6), st.lists(st.booleans(), min_size=6, max_size=6))
def test_every_sum_of_units_is_read(counts: list[int], written: list[bool]) -> None:
    units = (("w", 604800), ("d", 86400), ("h", 3600), ("m", 60), ("s", 1), ("ms", 0.001))
    chosen = [(count, *unit) for count, unit, there in zip(counts, units, written, strict=True) if there]
    if chosen:
        text = "".join(f"{count}{name}" for count, name, _ in chosen)
        assert parse_duration(text) == pytest.approx(sum(count * worth for count, _, worth in chosen))
