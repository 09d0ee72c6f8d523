"""Incidents against every history that hypothesis finds: told once when they begin, and once when they are over."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from zvault.core.notify.incidents import (
    SENT_WINDOW,
    IncidentBook,
    IncidentNotice,
    JudgedSubjects,
    NoticeBundle,
    TellingRules,
    advance_incidents,
)
from zvault.core.notify.topics import NotifySubject, SubjectTopics, TopicFinding

TANK: NotifySubject = ("backup", "tank")
COLD: NotifySubject = ("vault", "cold")


def telling(level: str = "warning", why: str = "so it is") -> TopicFinding:
    return TopicFinding(level, ("failed",), "failed when it ran last", why, "Nothing.", "run it")  # type: ignore[arg-type]


def seen(*wrong: tuple[NotifySubject, str, str], hidden: frozenset[str] = frozenset()) -> JudgedSubjects:
    looks = {
        subject: SubjectTopics(
            {topic: telling(level) for who, topic, level in wrong if who == subject}, hidden
        )
        for subject in (TANK, COLD)
    }
    return JudgedSubjects(looks)


FAILED = (TANK, "run", "warning")
GONE = (COLD, "storage", "critical")
WELL = seen()


def told(bundles: tuple[NoticeBundle, ...]) -> list[str]:
    return [one.event for bundle in bundles for one in bundle.notices]


def test_what_fails_again_and_again_is_told_once_and_its_end_once() -> None:
    book, rules = IncidentBook(), TellingRules()
    history = [seen(FAILED), seen(FAILED), seen(FAILED), WELL, WELL]
    found = []
    for hour, look in enumerate(history):
        book, bundles = advance_incidents(book, look, rules, hour * SENT_WINDOW, quiet=False)
        found.append(told(bundles))
    assert found == [["begun"], [], [], ["over"], []]


def test_what_lasts_is_told_again_after_a_time() -> None:
    book, found = IncidentBook(), []
    for hour in range(6):
        book, bundles = advance_incidents(
            book, seen(FAILED), TellingRules(again=2 * SENT_WINDOW), hour * SENT_WINDOW, quiet=False
        )
        found.append(told(bundles))
    assert found == [["begun"], [], ["still"], [], ["still"], []]


def test_what_is_short_is_not_told() -> None:
    book, bundles = advance_incidents(IncidentBook(), seen(FAILED), TellingRules(after=60), 0.0, quiet=False)
    assert not bundles
    book, bundles = advance_incidents(book, WELL, TellingRules(after=60), 30.0, quiet=False)
    assert (book, bundles) == (IncidentBook(), ())


def test_a_target_for_what_is_critical_hears_when_it_becomes_so_and_when_all_is_well() -> None:
    rules, book, found = TellingRules(severity="critical"), IncidentBook(), []
    late = [(TANK, "lag", level) for level in ("warning", "critical", "warning")]
    for hour, look in enumerate([*map(seen, late), WELL]):
        book, bundles = advance_incidents(book, look, rules, hour * SENT_WINDOW, quiet=False)
        found.append(told(bundles))
    assert found == [[], ["begun"], [], ["over"]]


def test_what_becomes_worse_is_told() -> None:
    book, bundles = advance_incidents(
        IncidentBook(), seen((TANK, "lag", "warning")), TellingRules(), 0.0, quiet=False
    )
    book, bundles = advance_incidents(book, seen((TANK, "lag", "critical")), TellingRules(), 1.0, quiet=False)
    assert told(bundles) == ["worse"]
    assert not advance_incidents(book, seen((TANK, "lag", "critical")), TellingRules(), 2.0, quiet=False)[1]


def test_in_quiet_hours_only_what_is_critical_is_told_and_at_their_end_what_is_still_so() -> None:
    book, bundles = advance_incidents(
        IncidentBook(), seen(FAILED, (TANK, "lag", "warning"), GONE), TellingRules(), 0.0, quiet=True
    )
    assert [one.topic for bundle in bundles for one in bundle.notices] == ["storage"]
    book, bundles = advance_incidents(book, seen((TANK, "lag", "warning")), TellingRules(), 60.0, quiet=True)
    assert not bundles
    book, bundles = advance_incidents(
        book, seen((TANK, "lag", "warning")), TellingRules(), 120.0, quiet=False
    )
    assert {(one.event, one.topic) for bundle in bundles for one in bundle.notices} == {
        ("begun", "lag"),
        ("over", "storage"),
    }
    assert sum(bundle.unsaid for bundle in bundles) == 1, "the run that failed at night and was made up for"


def test_what_ends_and_begins_again_in_quiet_hours_never_was_over() -> None:
    book, _ = advance_incidents(IncidentBook(), seen(GONE), TellingRules(), 0.0, quiet=True)
    book, _ = advance_incidents(book, WELL, TellingRules(), 1.0, quiet=True)
    book, bundles = advance_incidents(book, seen(GONE), TellingRules(), 2.0, quiet=False)
    assert not bundles


def test_what_nobody_looked_at_is_not_over() -> None:
    book, _ = advance_incidents(IncidentBook(), seen(FAILED, GONE), TellingRules(), 0.0, quiet=False)
    book, bundles = advance_incidents(
        book,
        JudgedSubjects({TANK: SubjectTopics(hidden=frozenset({"run"}))}, {COLD}),
        TellingRules(),
        1.0,
        quiet=False,
    )
    assert not bundles
    book, bundles = advance_incidents(
        book, JudgedSubjects({TANK: SubjectTopics()}, {COLD}), TellingRules(), 2.0, quiet=False
    )
    assert told(bundles) == ["over"]
    assert [one.name for one in book.incidents] == ["cold"]


def test_what_is_no_longer_in_the_configuration_is_over_and_says_so() -> None:
    book, _ = advance_incidents(IncidentBook(), seen(FAILED), TellingRules(), 0.0, quiet=False)
    _, (bundle,) = advance_incidents(
        book, JudgedSubjects({COLD: SubjectTopics()}), TellingRules(), 1.0, quiet=False
    )
    assert (bundle.notices[0].event, bundle.notices[0].gone) == ("over", True)


def test_beyond_the_limit_one_message_has_all_the_rest() -> None:
    many = JudgedSubjects({("backup", f"b{n}"): SubjectTopics({"run": telling()}) for n in range(50)})
    book, bundles = advance_incidents(IncidentBook(), many, TellingRules(per_hour=5), 0.0, quiet=False)
    assert [len(bundle.notices) for bundle in bundles] == [1, 1, 1, 47], (
        "the fifth is kept for what is critical"
    )
    wider = JudgedSubjects({**many.looks, COLD: SubjectTopics({"storage": telling("critical")})})
    book, bundles = advance_incidents(book, wider, TellingRules(per_hour=5), 1.0, quiet=False)
    assert told(bundles) == ["begun"]
    wider = JudgedSubjects({**wider.looks, ("vault", "x"): SubjectTopics({"storage": telling("critical")})})
    book, bundles = advance_incidents(book, wider, TellingRules(per_hour=5), 2.0, quiet=False)
    assert not bundles
    book, bundles = advance_incidents(book, wider, TellingRules(per_hour=5), SENT_WINDOW + 1.0, quiet=False)
    assert told(bundles) == ["begun"], "what was over the limit is told once there is room"


def test_a_clock_that_was_set_back_keeps_nothing_for_years() -> None:
    book, _ = advance_incidents(
        IncidentBook(), seen(FAILED), TellingRules(per_hour=1, again=60.0), 1e9, quiet=False
    )
    book, bundles = advance_incidents(
        book, seen(FAILED), TellingRules(per_hour=1, again=60.0), 1e6, quiet=False
    )
    assert not bundles
    assert told(
        advance_incidents(
            book, seen(FAILED), TellingRules(per_hour=1, again=60.0), 1e6 + SENT_WINDOW, quiet=False
        )[1]
    ) == ["still"]


TOPICS = st.sampled_from([(TANK, "run"), (TANK, "lag"), (COLD, "storage"), (COLD, "damage")])
LEVELS = st.sampled_from(["warning", "critical"])
LOOKS = st.dictionaries(TOPICS, LEVELS, max_size=4).map(
    lambda wrong: seen(*((who, topic, level) for (who, topic), level in wrong.items()))
)
UNLOOKED = st.just(JudgedSubjects(unlooked={TANK, COLD}))
TICKS = st.lists(
    st.tuples(st.floats(1.0, 2 * SENT_WINDOW), st.one_of(LOOKS, LOOKS, UNLOOKED), st.booleans()), max_size=40
)
RULES = st.builds(
    TellingRules,
    severity=LEVELS,
    after=st.sampled_from([0.0, 60.0, SENT_WINDOW]),
    again=st.sampled_from([None, 60.0, 86400.0]),
    per_hour=st.integers(1, 6),
)


def lived(
    ticks: list[tuple[float, JudgedSubjects, bool]], rules: TellingRules
) -> list[tuple[float, bool, NoticeBundle]]:
    """A life, and at its end a long time in which all is well and may be told."""
    book, now, found = IncidentBook(), 0.0, []
    for pause, look, quiet in [*ticks, *[(SENT_WINDOW, WELL, False)] * 8]:
        now += pause
        book, bundles = advance_incidents(book, look, rules, now, quiet=quiet)
        found += [(now, quiet, bundle) for bundle in bundles]
    assert not book.incidents
    return found


@given(TICKS, RULES)
def test_each_incident_that_is_told_has_one_begin_and_one_end(
    ticks: list[tuple[float, JudgedSubjects, bool]], rules: TellingRules
) -> None:
    open_: set[tuple[str, str, str]] = set()
    for _, _, bundle in lived(ticks, rules):
        assert bundle.notices
        for one in bundle.notices:
            key = (one.kind, one.name, one.topic)
            assert (key in open_) == (one.event != "begun"), one
            open_ = open_ - {key} if one.event == "over" else open_ | {key}
    assert not open_


@given(TICKS, RULES)
def test_no_hour_has_more_messages_than_the_limit(
    ticks: list[tuple[float, JudgedSubjects, bool]], rules: TellingRules
) -> None:
    times = [when for when, _, _ in lived(ticks, rules)]
    for first in times:
        assert sum(first <= when < first + SENT_WINDOW for when in times) <= rules.per_hour


@given(TICKS, RULES)
def test_quiet_hours_have_nothing_but_what_is_critical(
    ticks: list[tuple[float, JudgedSubjects, bool]], rules: TellingRules
) -> None:
    for _, quiet, bundle in lived(ticks, rules):
        if quiet:
            assert all(one.level == "critical" for one in bundle.notices)


@given(TICKS)
def test_without_limits_each_that_begins_and_ends_is_told_exactly_once(
    ticks: list[tuple[float, JudgedSubjects, bool]],
) -> None:
    """Against the plain model: what was wrong at a look, and not at the one before that saw anything."""
    rules = TellingRules(per_hour=10_000)
    expected: Counter[tuple[str, str]] = Counter()
    before: set[str] = set()
    for _, look, _ in [*ticks, (1.0, WELL, False)]:
        if look.unlooked:
            continue
        now = {topic for one in look.looks.values() for topic in one.wrong}
        expected.update(("begun", topic) for topic in now - before)
        expected.update(("over", topic) for topic in before - now)
        before = now
    loud = [(pause, look, False) for pause, look, _ in ticks]
    notices: list[IncidentNotice] = [one for _, _, bundle in lived(loud, rules) for one in bundle.notices]
    assert Counter((one.event, one.topic) for one in notices if one.event in {"begun", "over"}) == expected
