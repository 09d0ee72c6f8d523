"""Notifications: the targets, and tests of them."""

from typing import Literal, NotRequired, TypedDict, final

from zvault.core.errors import ErrorDocument

NotifyWay = Literal["apprise", "mail", "webhook", "ntfy", "healthchecks", "uptime_kuma", "ping"]

NotifyState = Literal["ok", "untried", "failed", "waiting", "failing"]


@final
class NotifyTarget(TypedDict):
    """A target of `[notify.NAME]`; times in seconds since the epoch.

    ``state``: "failing" if it could not be reached in three tries, "waiting" while anything waits to be sent, "failed"
    if the last try did not go through and nothing waits (a test), "untried" if nothing was sent to it yet, else "ok".
    ``severity`` is None of a dead-man's switch. ``open``: incidents it was told of that are not over. ``last_error`` is
    empty unless the last try failed. ``given_up``: what could not be delivered since the last success.
    """

    name: str
    way: NotifyWay
    severity: Literal["warning", "critical"] | None
    backups: list[str]
    state: NotifyState
    waiting: int
    next_try: float | None
    open: int
    last_success: float | None
    last_failure: float | None
    last_error: str
    given_up: int


class NotifyAnswer(TypedDict):
    """All targets."""

    targets: list[NotifyTarget]


class ReportAnswer(TypedDict):
    """A report of a whole week or month, from ``begin`` to ``end`` in seconds since the epoch."""

    every: Literal["weekly", "monthly"]
    begin: float
    end: float
    title: str
    text: str
    html: str


class NotifyTestBody(TypedDict):
    """Which target to test; all if left out."""

    target: NotRequired[str]


class NotifyTestResult(TypedDict):
    """The result of a test. "skipped": a dead-man's switch would take it for a success; test it by its name."""

    target: str
    way: NotifyWay
    result: Literal["sent", "failed", "skipped"]
    error: ErrorDocument | None


class NotifyTestAnswer(TypedDict):
    """The result of each test."""

    results: list[NotifyTestResult]
