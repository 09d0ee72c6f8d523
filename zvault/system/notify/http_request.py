"""One request to a web service that may be anybody: what it answers is cut short, and it leads to no other host."""

from __future__ import annotations

import contextlib
import http.client
import ssl
from collections.abc import Mapping
from urllib.parse import SplitResult, urljoin, urlsplit

MOST_ANSWER = 64 << 10
"""Bytes read of an answer that is told; of one that says that all is well, none."""

MOST_REDIRECTS = 3
REDIRECTS = {301, 302, 307, 308}
"""Statuses that lead elsewhere, where the same is asked. 303 would ask for a page instead."""

LINE = 200
"""Characters that are told of an answer."""


class RequestFailed(Exception):
    """The request did not go through; the text says why."""


def send_request(url: str, method: str, headers: Mapping[str, str], body: str, timeout: float) -> None:
    """Ask, and follow to the same host. Raises RequestFailed, OSError."""
    parts = urlsplit(url)
    for _ in range(MOST_REDIRECTS + 1):
        with contextlib.closing(_connection(parts, timeout)) as connection:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            try:
                connection.request(method, target, body.encode(), dict(headers))
                answer = connection.getresponse()
                if 200 <= answer.status < 300:
                    return
                there = answer.getheader("Location") if answer.status in REDIRECTS else None
                if there is None:
                    raise RequestFailed(_told(answer))
            except http.client.HTTPException as error:
                raise RequestFailed(
                    f"it does not speak HTTP: {type(error).__name__}: {error}"[:LINE]
                ) from error
        parts = _followed(parts, there)
    raise RequestFailed(f"it redirects more than {MOST_REDIRECTS} times")


def _connection(url: SplitResult, timeout: float) -> http.client.HTTPConnection:
    assert url.hostname is not None  # noqa: S101 - the configuration's check
    if url.scheme == "https":
        return http.client.HTTPSConnection(
            url.hostname, url.port, timeout=timeout, context=ssl.create_default_context()
        )
    return http.client.HTTPConnection(url.hostname, url.port, timeout=timeout)


def _followed(before: SplitResult, there: str) -> SplitResult:
    """Where a redirection leads. Raises RequestFailed: to another host neither what is told nor the secret may go."""
    try:
        after = urlsplit(urljoin(before.geturl(), there))
        same = after.hostname == before.hostname and _port(after) in {_port(before), _upgraded(before)}
    except ValueError:
        raise RequestFailed("it redirects to what is no URL") from None
    if not same or after.scheme not in {before.scheme, "https"}:
        raise RequestFailed(
            f"it redirects to {after.scheme}://{after.hostname}, where nothing is sent: set that URL"
        )
    return after


def _port(url: SplitResult) -> int:
    return url.port or {"http": 80, "https": 443}.get(url.scheme, 0)


def _upgraded(url: SplitResult) -> int:
    """The port to which a plain service may lead for encryption."""
    return 443 if url.scheme == "http" and _port(url) == 80 else _port(url)


def _told(answer: http.client.HTTPResponse) -> str:
    """What an answer says of why, on one line."""
    head = f"it answered {answer.status} {answer.reason}".strip()
    text = ""
    with contextlib.suppress(OSError, http.client.HTTPException):
        text = answer.read(MOST_ANSWER).decode(errors="replace")
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return (f"{head}: {line}" if line else head)[:LINE]
