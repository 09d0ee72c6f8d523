"""Incidents: what a target is told of, once when it begins, again after a time, and when it is over. Pure.

Of all that is wrong with one subject in one topic there is at most one incident. A target has its own, because it is
told by its own rules. Whoever calls keeps the book: over a restart nothing begins anew, nor is over for want of a look.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from zvault.core.health.verdict import VERDICT_LEVELS, SubjectKind, VerdictLevel
from zvault.core.notify.topics import NotifySubject, SubjectTopics, TopicFinding

SENT_WINDOW = 3600.0

IncidentEvent = Literal["begun", "worse", "still", "over"]


@dataclass(frozen=True, slots=True)
class TellingRules:
    """By what a target is told. Seconds; ``again`` None: what lasts is told once.

    ``severity``: the least level. ``after``: for how long something has to be wrong. ``per_hour``: the most messages.
    """

    severity: VerdictLevel = "warning"
    after: float = 0.0
    again: float | None = None
    per_hour: int = 20


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that is wrong, or was and is to be told to be over; times in seconds since the epoch.

    ``told``: when the target was told of it last, None before it was; ``told_level``: how bad it was then.
    """

    kind: SubjectKind
    name: str
    topic: str
    since: float
    telling: TopicFinding
    told: float | None = None
    told_level: VerdictLevel = "ok"
    ended: float | None = None
    gone: bool = False

    @property
    def key(self) -> tuple[SubjectKind, str, str]:
        """The identity of an incident: kind and name of its subject, and the topic."""
        return self.kind, self.name, self.topic


@dataclass(frozen=True, slots=True)
class IncidentNotice:
    """One thing to tell. ``gone``: it is over because its subject is no longer told of here."""

    event: IncidentEvent
    kind: SubjectKind
    name: str
    topic: str
    since: float
    ended: float | None
    telling: TopicFinding
    gone: bool = False

    @property
    def level(self) -> VerdictLevel:
        """The severity, ok where the incident is over."""
        return "ok" if self.event == "over" else self.telling.level


@dataclass(frozen=True, slots=True)
class NoticeBundle:
    """The notices of one message. ``unsaid``: so many incidents passed while the target could not be told of them."""

    notices: tuple[IncidentNotice, ...]
    unsaid: int = 0


@dataclass(frozen=True, slots=True)
class IncidentBook:
    """The book of what a target was told. ``sent``: when messages were made within the last hour."""

    incidents: tuple[Incident, ...] = ()
    sent: tuple[float, ...] = ()
    unsaid: int = 0


@dataclass(frozen=True, slots=True)
class JudgedSubjects:
    """The subjects to judge: those that were looked at, each with what was seen, and those that were not (yet)."""

    looks: Mapping[NotifySubject, SubjectTopics] = field(default_factory=dict)
    unlooked: Collection[NotifySubject] = ()


def advance_incidents(
    book: IncidentBook, seen: JudgedSubjects, rules: TellingRules, now: float, *, quiet: bool
) -> tuple[IncidentBook, tuple[NoticeBundle, ...]]:
    """The book as it is now, and the messages that are due. While it is ``quiet`` only what is critical is told.

    What may not be told now stays due: it is told later, if it still is so. Of what is due beyond the limit of an hour
    the last message has all the rest.
    """
    incidents, unsaid = _brought_up(book, seen, rules, now)
    due = [(one, event) for one in incidents.values() if (event := _due(one, rules, now)) is not None]
    due = [(one, event) for one, event in due if not quiet or _urgent(one, event)]
    due.sort(key=lambda pair: (not _urgent(*pair), pair[0].since, pair[0].key))
    sent = tuple(min(when, now) for when in book.sent if min(when, now) > now - SENT_WINDOW)
    bundles = _bundled(due, _budget(due, rules.per_hour - len(sent), rules))
    for one, event in (pair for bundle in bundles for pair in bundle):
        if event == "over":
            del incidents[one.key]
        else:
            incidents[one.key] = replace(one, told=now, told_level=one.telling.level)
    after = IncidentBook(
        tuple(incidents.values()), (*sent, *(now for _ in bundles)), 0 if bundles else unsaid
    )
    notices = [tuple(_notice(one, event) for one, event in bundle) for bundle in bundles]
    return after, tuple(NoticeBundle(found, unsaid if first else 0) for first, found in _firsts(notices))


def _firsts(
    notices: Iterable[tuple[IncidentNotice, ...]],
) -> Iterable[tuple[bool, tuple[IncidentNotice, ...]]]:
    return ((index == 0, one) for index, one in enumerate(notices))


def _brought_up(
    book: IncidentBook, seen: JudgedSubjects, rules: TellingRules, now: float
) -> tuple[dict[tuple[SubjectKind, str, str], Incident], int]:
    """The incidents as they are by what was seen, and how many passed untold."""
    incidents: dict[tuple[SubjectKind, str, str], Incident] = {}
    unsaid = book.unsaid
    for one in book.incidents:
        one = replace(  # noqa: PLW2901 - a clock that was set back must not keep anything for years
            one,
            since=min(one.since, now),
            told=None if one.told is None else min(one.told, now),
        )
        subject = (one.kind, one.name)
        found = seen.looks.get(subject)
        telling = found.wrong.get(one.topic) if found is not None else None
        if telling is not None:
            incidents[one.key] = replace(one, telling=telling, ended=None, gone=False)
        elif one.ended is not None or subject in seen.unlooked or (found and one.topic in found.hidden):
            incidents[one.key] = one
        elif one.told is not None:
            incidents[one.key] = replace(one, ended=now, gone=found is None)
        elif now - one.since >= rules.after and _reaches(one.telling.level, rules):
            unsaid += 1
    for (kind, name), found in seen.looks.items():
        for topic, telling in found.wrong.items():
            if (kind, name, topic) not in incidents and _reaches(telling.level, rules):
                incidents[kind, name, topic] = Incident(kind, name, topic, now, telling)
    return incidents, unsaid


def _due(one: Incident, rules: TellingRules, now: float) -> IncidentEvent | None:
    if one.ended is not None:
        return "over"
    if one.told is None:
        return "begun" if now - one.since >= rules.after and _reaches(one.telling.level, rules) else None
    if VERDICT_LEVELS.index(one.telling.level) > VERDICT_LEVELS.index(one.told_level):
        return "worse"
    return "still" if rules.again is not None and now - one.told >= rules.again else None


def _reaches(level: VerdictLevel, rules: TellingRules) -> bool:
    return VERDICT_LEVELS.index(level) >= VERDICT_LEVELS.index(rules.severity)


def _urgent(one: Incident, event: IncidentEvent) -> bool:
    return event != "over" and one.telling.level == "critical"


def _budget(due: list[tuple[Incident, IncidentEvent]], left: int, rules: TellingRules) -> int:
    """How many messages may be made: the last one of an hour is kept for what is critical."""
    urgent = any(_urgent(one, event) for one, event in due)
    return left if urgent or rules.per_hour == 1 else left - 1


def _bundled(
    due: list[tuple[Incident, IncidentEvent]], budget: int
) -> list[list[tuple[Incident, IncidentEvent]]]:
    if budget <= 0 or not due:
        return []
    single = len(due) if len(due) <= budget else budget - 1
    rest = due[single:]
    return [*([pair] for pair in due[:single]), *([rest] if rest else [])]


def _notice(one: Incident, event: IncidentEvent) -> IncidentNotice:
    return IncidentNotice(event, one.kind, one.name, one.topic, one.since, one.ended, one.telling, one.gone)
