"""What services get, as their documentation has it; and that no secret is told."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC
from email import message_from_bytes, policy
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.errors import ErrorDocument
from zvault.core.notify.formats import (
    NTFY_BYTES,
    cut_utf8,
    expand_backup_url,
    make_healthchecks_ping,
    make_mail,
    make_ntfy_request,
    make_plain_ping,
    make_uptime_kuma_ping,
    make_webhook_request,
)
from zvault.core.notify.incidents import IncidentEvent, IncidentNotice, NoticeBundle
from zvault.core.notify.message import (
    LONGEST_TEXT,
    NotifyMessage,
    RunPing,
    describe_run,
    make_incidents_message,
    make_probe_message,
)
from zvault.core.notify.secrets import NotifySecret, redact_secrets
from zvault.core.notify.topics import TopicFinding

TELLING = TopicFinding(
    "warning", ("late",), "is late", "the lag is 5h, max_lag is 3h", "More is lost.", "run it"
)


def notice(
    event: IncidentEvent = "begun", name: str = "tank", telling: TopicFinding = TELLING
) -> IncidentNotice:
    return IncidentNotice(event, "backup", name, "lag", 0.0, 7200.0 if event == "over" else None, telling)


def made(*notices: IncidentNotice, unsaid: int = 0) -> NotifyMessage:
    return make_incidents_message(NoticeBundle(notices, unsaid), id="1f", host="filer", now=9000.0, zone=UTC)


def ping(beat: str = "failure", text: str = "it failed: why\nlast line") -> RunPing:
    return RunPing("1f", 0.0, "tank", beat, "run", text)  # type: ignore[arg-type]


def test_nothing_that_another_end_said_controls_who_reads_it() -> None:
    """A mail is read in a terminal as well, and a ping in a service's log."""
    said = "cannot receive: \x1b[2J\u202efine"
    told = replace(made(notice(telling=replace(TELLING, why=said))), title=said)
    pinged = ping(text=f"{said}\nlast line")
    posted = json.loads(make_ntfy_request("https://ntfy.example/zfs", told, None).body)
    texts = [
        make_mail(told, "zvault@filer", ["admin@example.org"]).get_content(),
        posted["title"],
        posted["message"],
        make_healthchecks_ping("https://hc.example/1", pinged).body,
        make_plain_ping("https://ping.example/1", pinged).body,
        *parse_qs(urlsplit(make_uptime_kuma_ping("https://kuma.example/1", pinged).url).query)["msg"],
    ]
    for text in texts:
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "\\x1b[2J\\u202efine" in text


@pytest.mark.parametrize(
    ("event", "title"),
    [
        ("begun", "zvault on filer: backup tank is late"),
        ("worse", "zvault on filer: worse: backup tank is late"),
        ("still", "zvault on filer: still: backup tank is late"),
        ("over", "zvault on filer: over: backup tank is late"),
    ],
)
def test_a_message_says_what_why_and_what_next(event: IncidentEvent, title: str) -> None:
    message = made(notice(event))
    assert message.title == title
    assert "the lag is 5h" in message.text
    assert "1970-01-01 00:00" in message.text
    if event == "over":
        assert message.level == "ok"
        assert "lasted 2h" in message.text
    else:
        assert message.level == "warning"
        assert "Next: run it" in message.text


def test_many_notices_are_one_message_with_the_worst_level() -> None:
    worst = replace(TELLING, level="critical")
    message = made(*(notice(name=f"b{n}") for n in range(4)), notice(telling=worst), unsaid=2)
    assert message.level == "critical"
    assert message.title == "zvault on filer: backup b0, backup b1, backup b2 and more (5 in all)"
    assert message.text.count("is late") == 5
    assert "2 things" in message.text


def test_no_message_is_longer_than_what_is_taken() -> None:
    message = made(notice(telling=replace(TELLING, why="x" * 100_000)))
    assert len(message.text) <= LONGEST_TEXT
    assert message.text.endswith("(the rest is left out)")


def test_a_webhook_gets_all_of_it_as_json() -> None:
    asked = make_webhook_request("https://hooks.example/x", made(notice()), "s3cret")
    body = json.loads(asked.body)
    assert (asked.method, asked.url) == ("POST", "https://hooks.example/x")
    assert asked.headers == {"Content-Type": "application/json", "Authorization": "Bearer s3cret"}
    assert (body["version"], body["id"], body["event"], body["level"]) == (1, "1f", "incidents", "warning")
    assert body["notices"] == [
        {
            "event": "begun",
            "kind": "backup",
            "name": "tank",
            "topic": "lag",
            "level": "warning",
            "conditions": ["late"],
            "what": "is late",
            "why": "the lag is 5h, max_lag is 3h",
            "next": "run it",
            "since": 0.0,
            "ended": None,
        }
    ]


def test_ntfy_gets_its_topic_in_the_body_at_the_servers_root() -> None:
    asked = make_ntfy_request("https://ntfy.example/sub/alerts", made(notice()), None)
    body = json.loads(asked.body)
    assert asked.url == "https://ntfy.example/sub/"
    assert (body["topic"], body["priority"], body["tags"]) == ("alerts", 4, ["warning"])
    assert body["title"] == "zvault on filer: backup tank is late"
    assert "Authorization" not in asked.headers
    long = replace(made(notice()), text="ü" * 10_000)
    assert (
        len(json.loads(make_ntfy_request("https://n/t", long, None).body)["message"].encode()) <= NTFY_BYTES
    )


@pytest.mark.parametrize(
    ("beat", "url"),
    [("start", "/start"), ("success", ""), ("failure", "/fail"), ("test", "/log")],
)
def test_healthchecks_has_a_path_for_each_moment(beat: str, url: str) -> None:
    asked = make_healthchecks_ping("https://hc-ping.com/uuid/?create=1", ping(beat))
    assert asked.url == f"https://hc-ping.com/uuid{url}?create=1"
    assert (asked.method, asked.body) == ("POST", "it failed: why\nlast line")


def test_uptime_kuma_has_status_and_reason_in_its_query() -> None:
    asked = make_uptime_kuma_ping("https://kuma/api/push/abc?status=up&msg=OK&ping=", ping())
    assert asked.method == "GET"
    assert parse_qs(urlsplit(asked.url).query) == {"status": ["down"], "msg": ["it failed: why"]}
    asked = make_uptime_kuma_ping("https://kuma/api/push/abc", ping("success", ""))
    assert parse_qs(urlsplit(asked.url).query) == {"status": ["up"], "msg": ["OK"]}


def test_a_plain_ping_has_its_reason_in_the_body_and_may_be_of_one_backup() -> None:
    asked = make_plain_ping(expand_backup_url("https://x/{backup}/up", "a.b"), ping())
    assert (asked.url, asked.body) == ("https://x/a.b/up", "it failed: why\nlast line")


def test_the_text_of_a_run_has_its_reason_and_its_last_lines() -> None:
    error: ErrorDocument = {
        "reason": "tool-failed",
        "what": "zfs send failed",
        "why": "no space",
        "next": "make room",
    }
    assert describe_run(error, ["one", "two"]) == "zfs send failed: no space\nNext: make room\n\none\ntwo"
    assert describe_run(None, ["one"]) == "one"
    error["why"] = error["next"] = ""
    assert describe_run(error, []) == "zfs send failed"


@given(st.text(max_size=200), st.text(max_size=200))
def test_mail_is_mail_whatever_is_in_it(title: str, text: str) -> None:
    message = replace(
        make_probe_message(id="1f", host="filer", now=0.0), title=title, text=text.replace("\r", "")
    )
    message = replace(message, text=message.text.encode(errors="replace").decode())
    message = replace(message, title=message.title.encode(errors="replace").decode())
    data = make_mail(message, "zvault@filer", ["root", "you@example.org"]).as_bytes(policy=policy.SMTP)
    read = message_from_bytes(data, policy=policy.default)
    assert (read["From"], read["To"]) == ("zvault@filer", "root, you@example.org")
    assert len(read.get_all("Subject", [])) == 1
    assert {"From", "To", "Subject", "Date", "Message-ID"} <= set(read.keys())
    assert set(read.keys()) <= {
        *("From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "X-Priority"),
        *("Content-Type", "Content-Transfer-Encoding", "MIME-Version"),
    }


@given(st.text(max_size=60), st.integers(4, 100))
def test_what_is_cut_is_short_enough_and_whole_characters(text: str, most: int) -> None:
    text = text.encode(errors="replace").decode()
    found = cut_utf8(text, most)
    assert len(found.encode()) <= most
    assert found == text or (found.endswith("…") and text.startswith(found[:-1]))


@pytest.mark.parametrize(
    "url",
    [
        "https://hc-ping.com/S3CRET-uuid",
        "https://kuma/api/push/S3CRETtoken?status=up",
        "https://user:S3CRETpass@host/x",
        "https://host/hook?key=S3CRETkey",
        "slack://S3CREThost/other",
        "https://host/a%20S3CRETb",
    ],
)
def test_no_part_of_a_secret_url_is_told(url: str) -> None:
    parts = urlsplit(url)
    told = f"GET {url} {parts.path} {parts.query} {parts.netloc}: refused by a S3CRETb\x1b[2J\nx"
    found = redact_secrets(told, [url, "S3CRETb"])
    assert "S3CRET" not in found
    assert "refused" in found
    assert found.isprintable()
    assert "S3CRET" not in repr(NotifySecret("here", url))
