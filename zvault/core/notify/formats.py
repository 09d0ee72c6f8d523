"""The HTTP requests that services want, and the mail. Pure: secrets are arguments.

Formats: https://docs.ntfy.sh/publish/#publish-as-json, https://healthchecks.io/docs/http_api/ (``/start``, ``/fail``,
``/log``), Uptime Kuma's push monitor (``?status=&msg=``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Literal
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from zvault.core.health.verdict import VerdictLevel
from zvault.core.notify.message import NotifyMessage, PingKind, RunPing, make_message_document
from zvault.core.printable import make_printable

JSON_TYPE = "application/json"
TEXT_TYPE = "text/plain; charset=utf-8"

NTFY_BYTES = 4000
"""Of ntfy's 4096 bytes of a message; what is longer becomes an attachment."""

KUMA_CHARACTERS = 200
"""Of a message in Uptime Kuma's URL."""

NTFY_PRIORITIES: Mapping[VerdictLevel, int] = {"ok": 2, "unknown": 3, "warning": 4, "critical": 5}
NTFY_TAGS: Mapping[VerdictLevel, str] = {
    "ok": "white_check_mark",
    "unknown": "question",
    "warning": "warning",
    "critical": "rotating_light",
}

HEALTHCHECKS_PATHS: Mapping[PingKind, str] = {
    "start": "/start",
    "success": "",
    "failure": "/fail",
    "test": "/log",
}

MAIL_PRIORITY: Mapping[VerdictLevel, str] = {"critical": "1 (Highest)", "warning": "2 (High)"}


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request to a service."""

    url: str = field(repr=False)
    method: Literal["GET", "POST"] = "POST"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: str = ""


def _authorised(token: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def make_webhook_request(url: str, message: NotifyMessage, token: str | None) -> HttpRequest:
    """A message as JSON."""
    return HttpRequest(
        url,
        "POST",
        {"Content-Type": JSON_TYPE, **_authorised(token)},
        json.dumps(make_message_document(message)),
    )


def make_ntfy_request(url: str, message: NotifyMessage, token: str | None) -> HttpRequest:
    """A message for ntfy: to the server's root, with the topic that is the last component of ``url``."""
    parts = urlsplit(url)
    root, _, topic = parts.path.rstrip("/").rpartition("/")
    body = {
        "topic": topic,
        "title": make_printable(message.title),
        "message": cut_utf8(make_printable(message.text), NTFY_BYTES),
        "priority": NTFY_PRIORITIES[message.level],
        "tags": [NTFY_TAGS[message.level]],
    }
    headers = {"Content-Type": JSON_TYPE, **_authorised(token)}
    return HttpRequest(
        urlunsplit((parts.scheme, parts.netloc, f"{root}/", parts.query, "")),
        "POST",
        headers,
        json.dumps(body),
    )


def make_healthchecks_ping(url: str, ping: RunPing) -> HttpRequest:
    """A ping for healthchecks.io; what is only tried changes no state there."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/") + HEALTHCHECKS_PATHS[ping.beat]
    body = make_printable(ping.text)
    return HttpRequest(urlunsplit(parts._replace(path=path)), "POST", {"Content-Type": TEXT_TYPE}, body)


def make_uptime_kuma_ping(url: str, ping: RunPing) -> HttpRequest:
    """A ping for a push monitor of Uptime Kuma, which knows no start."""
    parts = urlsplit(url)
    told = make_printable((ping.text.splitlines() or ["OK"])[0])[:KUMA_CHARACTERS]
    status = "down" if ping.beat == "failure" else "up"
    kept = [(key, value) for key, value in parse_qsl(parts.query) if key not in {"status", "msg", "ping"}]
    query = urlencode([*kept, ("status", status), ("msg", told)])
    return HttpRequest(urlunsplit(parts._replace(query=query)), "GET")


def make_plain_ping(url: str, ping: RunPing) -> HttpRequest:
    """A ping for any service that is told by being asked."""
    return HttpRequest(url, "POST", {"Content-Type": TEXT_TYPE}, make_printable(ping.text))


def expand_backup_url(url: str, backup: str) -> str:
    """A URL with a backup's name in place of ``{backup}``."""
    return url.replace("{backup}", quote(backup, safe=""))


def make_mail(message: NotifyMessage, sender: str, recipients: list[str]) -> EmailMessage:
    """A message as mail."""
    made = EmailMessage()
    made["From"], made["To"] = sender, ", ".join(recipients)
    made["Subject"] = flatten_line(message.title)
    made["Date"] = format_datetime(datetime.fromtimestamp(message.made, UTC))
    made["Message-ID"] = f"<{message.id}@zvault.{flatten_line(message.host).replace(' ', '-')}>"
    made["Auto-Submitted"] = "auto-generated"
    if message.level in MAIL_PRIORITY:
        made["X-Priority"] = MAIL_PRIORITY[message.level]
    made.set_content(make_printable(message.text))
    if message.html:
        made.add_alternative(message.html, subtype="html")
    return made


def flatten_line(text: str) -> str:
    """A text without what ends a header, or moves a cursor."""
    return "".join(char if char.isprintable() else " " for char in text)


def cut_utf8(text: str, most: int) -> str:
    """A text of so many bytes at most, in UTF-8."""
    data = text.encode()
    return text if len(data) <= most else data[: most - 3].decode(errors="ignore") + "…"
