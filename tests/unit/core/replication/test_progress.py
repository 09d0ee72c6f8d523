"""How fast it goes now, and how far the whole is while estimates turn out wrong."""

from hypothesis import given
from hypothesis import strategies as st

from zvault.core.replication.progress import RATE_SPAN, FillRange, RecentRate, RunMeter


def test_the_rate_is_that_of_the_last_seconds() -> None:
    pace = RecentRate()
    assert pace.rate() == 0
    pace.note(0, 0)
    assert pace.rate() == 0
    for second in range(1, 101):
        pace.note(second, 1000 * second)
    assert pace.rate() == 1000
    for second in range(101, 101 + int(RATE_SPAN)):
        pace.note(second, 100_000)
    assert pace.rate() == 0


def test_a_clock_that_stands_still_says_nothing() -> None:
    pace = RecentRate()
    pace.note(5, 10)
    pace.note(5, 20)
    assert pace.rate() == 0


def test_marks_are_those_of_the_last_seconds() -> None:
    marks = FillRange()
    assert marks.range() is None
    for second, value in enumerate((50, 3, 97, 40, 60)):
        marks.note(second, value)
    assert marks.range() == (3, 97)
    marks.note(RATE_SPAN + 1.5, 55)
    assert marks.range() == (40, 97)
    marks.note(3 * RATE_SPAN, 7)
    assert marks.range() == (7, 7)


def test_streams_add_up() -> None:
    meter = RunMeter()
    meter.expect({"a": 100, "b": 50})
    assert (meter.done, meter.total) == (0, 150)
    meter.begin("a", 100)
    meter.begin("b", 20)
    meter.move(1, "a", 30)
    meter.move(2, "b", 10)
    assert (meter.done, meter.total) == (40, 150)
    assert meter.pace.rate() == 10


def test_a_pause_between_streams_is_not_slowness() -> None:
    meter = RunMeter()
    for start in (0, 60):
        meter.begin("a", 1000)
        for second in range(4):
            meter.move(start + second, "a", 100 * second)
        assert meter.pace.rate() == 100
        meter.end("a")


def test_an_estimate_gives_way_to_what_is_seen() -> None:
    meter = RunMeter()
    meter.expect({"a": 100, "b": 50})
    meter.begin("a", 100)
    meter.move(1, "a", 130)
    assert (meter.done, meter.total) == (130, 180)
    meter.end("a", 120)
    assert (meter.done, meter.total) == (120, 170)
    meter.begin("b", None)
    meter.move(2, "b", 5)
    meter.end("b")
    meter.drop("b")
    assert meter.done == meter.total == 125


def test_what_broke_was_moved_all_the_same_and_is_not_expected_twice() -> None:
    meter = RunMeter()
    meter.expect({"a": 100})
    meter.begin("a", 100)
    meter.move(1, "a", 40)
    meter.end("a")
    meter.drop("a")
    assert (meter.done, meter.total) == (40, 40)
    meter.expect({"a": 60})
    assert (meter.done, meter.total) == (40, 100)


def test_only_streams_that_went_through_count_as_sent() -> None:
    meter = RunMeter()
    meter.begin("a", 40)
    meter.move(0, "a", 10)
    meter.end("a")
    assert (meter.done, meter.sent) == (10, 0)
    meter.begin("a", 30)
    meter.end("a", 0)
    meter.begin("b", 5)
    meter.end("b", 7)
    assert (meter.done, meter.sent) == (17, 2)


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1)
)
def test_at_the_end_all_is_done(streams: dict[str, tuple[int, int]]) -> None:
    meter = RunMeter()
    meter.expect({name: size for name, (size, _) in streams.items()})
    for now, (name, (size, moved)) in enumerate(streams.items()):
        meter.begin(name, size)
        meter.move(now, name, moved)
        assert meter.done <= meter.total
        meter.end(name)
        meter.drop(name)
    assert meter.done == meter.total == sum(moved for _, moved in streams.values())
