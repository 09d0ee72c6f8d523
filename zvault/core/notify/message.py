"""What a target is told: messages about incidents, and pings of dead-man's switches; in words and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any, Literal

from zvault.core.errors import ErrorDocument
from zvault.core.health.verdict import VerdictLevel, select_worst_level
from zvault.core.notify.incidents import IncidentNotice, NoticeBundle
from zvault.core.notify.report import PeriodReport
from zvault.core.notify.report_text import write_report_html, write_report_text, write_report_title
from zvault.core.units import format_duration

MESSAGE_VERSION = 1
"""Of the JSON that a webhook gets; a field that is added changes it not."""

LONGEST_TEXT = 16_000
"""Characters of a message's text: what is beyond that is left out, and said to be."""

TITLE_NOTICES = 3
"""Notices named in the title of a message that has several."""

EVENT_PREFIXES = {"begun": "", "worse": "worse: ", "still": "still: ", "over": "over: "}


@dataclass(frozen=True, slots=True)
class NotifyMessage:
    """Something to tell a person. ``id`` is the same however often it is sent. ``made``: seconds since the epoch.

    ``html`` is what ``text`` says, for mail; empty where there is none.
    """

    id: str
    made: float
    host: str
    event: Literal["incidents", "test", "report"]
    level: VerdictLevel
    title: str
    text: str
    notices: tuple[IncidentNotice, ...] = ()
    unsaid: int = 0
    html: str = ""
    form: Literal["message"] = "message"


PingKind = Literal["start", "success", "failure", "test"]


@dataclass(frozen=True, slots=True)
class RunPing:
    """Something to tell a dead-man's switch of a backup's run, with its reason and its last lines in ``text``."""

    id: str
    made: float
    backup: str
    beat: PingKind
    run: str
    text: str
    form: Literal["ping"] = "ping"


Item = NotifyMessage | RunPing


def make_incidents_message(
    bundle: NoticeBundle, *, id: str, host: str, now: float, zone: tzinfo
) -> NotifyMessage:
    """The message that a bundle of notices makes."""
    level = select_worst_level(one.level for one in bundle.notices)
    parts = [_paragraph(one, now, zone) for one in bundle.notices]
    if bundle.unsaid:
        parts.append(
            f"{_count(bundle.unsaid)} that began meanwhile could not be told, because of quiet hours or the limit of "
            "messages an hour, and passed: see 'zvaultctl history'."
        )
    title, text = f"zvault on {host}: {_title(bundle.notices)}", shorten_text("\n\n".join(parts))
    return NotifyMessage(id, now, host, "incidents", level, title, text, bundle.notices, bundle.unsaid)


def make_probe_message(*, id: str, host: str, now: float) -> NotifyMessage:
    """A message that only tries whether messages come through."""
    title = f"zvault on {host}: a test"
    return NotifyMessage(id, now, host, "test", "ok", title, "Messages of zvaultd come through to you.")


def make_report_message(report: PeriodReport, *, id: str, zone: tzinfo) -> NotifyMessage:
    """The message that a report makes."""
    told = shorten_text(write_report_text(report, zone))
    return NotifyMessage(
        id,
        report.made,
        report.host,
        "report",
        report.level,
        write_report_title(report),
        told,
        html=write_report_html(report, zone),
    )


def shorten_text(text: str) -> str:
    """A text that is not too long; what is left out is said to be."""
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 40] + "\n… (the rest is left out)"


def make_message_document(message: NotifyMessage) -> dict[str, Any]:
    """A message as a webhook gets it."""
    return {
        "version": MESSAGE_VERSION,
        "id": message.id,
        "time": message.made,
        "host": message.host,
        "event": message.event,
        "level": message.level,
        "title": message.title,
        "text": message.text,
        "unsaid": message.unsaid,
        "notices": [
            {
                "event": one.event,
                "kind": one.kind,
                "name": one.name,
                "topic": one.topic,
                "level": one.level,
                "conditions": list(one.telling.conditions),
                "what": one.telling.what,
                "why": one.telling.why,
                "next": one.telling.next,
                "since": one.since,
                "ended": one.ended,
            }
            for one in message.notices
        ],
    }


def describe_run(error: ErrorDocument | None, lines: Sequence[str]) -> str:
    """The reason and the last lines of a run."""
    reason = []
    if error is not None:
        reason = [": ".join(filter(None, (error["what"], error["why"])))]
        reason += [f"Next: {error['next']}"] if error["next"] else []
    return shorten_text("\n".join([*reason, *([""] if reason and lines else []), *lines]))


def _title(notices: Sequence[IncidentNotice]) -> str:
    if len(notices) == 1:
        return _headline(notices[0])
    named = ", ".join(dict.fromkeys(_whose(one) for one in notices[:TITLE_NOTICES]))
    more = f" and more ({len(notices)} in all)" if len(notices) > TITLE_NOTICES else ""
    return f"{named}{more}"


def _headline(one: IncidentNotice) -> str:
    if one.gone:
        return f"{_whose(one)} is no longer told of"
    return f"{EVENT_PREFIXES[one.event]}{_whose(one)} {one.telling.what}"


def _whose(one: IncidentNotice) -> str:
    return one.name if one.kind == "daemon" else f"{one.kind} {one.name}"


def _paragraph(one: IncidentNotice, now: float, zone: tzinfo) -> str:
    began = f"{datetime.fromtimestamp(one.since, zone):%Y-%m-%d %H:%M}"
    head = _headline(one)
    if one.event == "over":
        lasted = format_duration(max(0.0, (one.ended or now) - one.since))
        gone = " It is no longer in the configuration, or not this target's any more." if one.gone else ""
        return f"{head}.{gone}\nIt began {began} and lasted {lasted}: {one.telling.why}"
    lines = [f"{head} ({one.level}): {one.telling.why}", one.telling.means, f"Since {began}."]
    return "\n".join([*lines, f"Next: {one.telling.next}"])


def _count(number: int) -> str:
    return "1 thing" if number == 1 else f"{number} things"
