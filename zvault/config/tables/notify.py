"""Whom to tell of what is wrong, as the configuration writes it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator, model_validator

from zvault.config.fields import (
    BackupNameField,
    ConfigTable,
    DurationField,
    NamedTable,
    Several,
    TextForm,
    parse_default,
    quote_text,
    split_address,
)
from zvault.core.name_rules import check_word
from zvault.core.notify.quiet_hours import QuietHours, parse_quiet
from zvault.core.notify.report import ReportEvery
from zvault.core.notify.secrets import NotifySecret
from zvault.core.units import parse_duration

__all__ = ["Notify", "PingTable"]

TargetWay = Literal["apprise", "mail", "webhook", "ntfy", "healthchecks", "uptime_kuma", "ping"]

SWITCH_WAYS: tuple[TargetWay, ...] = ("healthchecks", "uptime_kuma", "ping")
"""Ways to a dead-man's switch: it is told of runs, not of incidents."""

MESSAGE_WAYS: tuple[TargetWay, ...] = ("apprise", "mail", "webhook", "ntfy")

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_MAIL = re.compile(r"[A-Za-z0-9._%+=/-]{1,64}(@[A-Za-z0-9.-]{1,253})?")


def _kept(text: str) -> NotifySecret | None:
    """Where a secret is kept, if the text says so. Raises ValueError."""
    how, colon, where = text.partition(":")
    if colon and how == "credential":
        check_word(where)
        return NotifySecret("credential", where)
    if colon and how == "file" and not where.startswith("//"):
        if not where.startswith("/") or not where.isprintable():
            raise ValueError('is no absolute path after "file:"')
        return NotifySecret("file", where)
    return None


def parse_secret(text: str) -> NotifySecret:
    """Parse where a secret is kept. Raises ValueError, without the text: it may be the secret itself."""
    found = _kept(text)
    if found is None:
        raise ValueError(
            'a secret does not stand in the configuration: write "credential:NAME" for a credential of systemd, or'
            ' "file:/path" for a file that only root can read'
        )
    return found


def parse_url(text: str) -> NotifySecret:
    """A web address, or where it is kept. Raises ValueError, without the text: it may be a secret."""
    return _kept(text) or NotifySecret("here", check_url(text))


def check_url(text: str) -> str:
    """The same text. Raises ValueError where it is no address of the web."""
    try:
        url = urlsplit(text)
        right = url.scheme in {"http", "https"} and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        right = False
    if not right or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError(
            'is no URL as in "https://example.org/path", and neither "credential:NAME" nor "file:/path"'
        )
    if url.username is not None:
        raise ValueError("has a user or password in its URL: leave them out, and give a token in its place")
    return text


def parse_apprise(text: str) -> NotifySecret:
    """A URL of apprise, or where it is kept. Raises ValueError, without the text: most have a secret."""
    found = _kept(text)
    if found is not None:
        return found
    if not _SCHEME.fullmatch(text) or not text.isprintable():
        raise ValueError(
            'is no URL as in "ntfy://ntfy.sh/topic", and neither "credential:NAME" nor "file:/path"'
        )
    return NotifySecret("here", text)


def _parse_mail(text: str) -> str:
    if not _MAIL.fullmatch(text) or text.startswith("-"):
        raise ValueError(f'{quote_text(text)} is no mail address, as in "root" or "you@example.org"')
    return text


def _parse_again(text: str) -> float | None:
    if text == "off":
        return None
    seconds = parse_duration(text)
    if seconds < 60:
        raise ValueError(f'{text!r} is too often: at least 1m, or "off"')
    return seconds


def _parse_server(text: str) -> tuple[str, int]:
    return split_address(text)


_KEPT = "`credential:NAME`, a credential of systemd, or `file:/path`, a file that only root can read"

SecretText = Annotated[
    NotifySecret,
    TextForm("secret", _KEPT, "credential:zvault.notify-smtp", parse_secret, ready=(NotifySecret,)),
]
SecretUrl = Annotated[
    NotifySecret,
    TextForm(
        "URL",
        f"an address of the web, or where it is kept: {_KEPT}",
        "https://example.org/hook",
        parse_url,
        ready=(NotifySecret,),
    ),
]
AppriseUrl = Annotated[
    NotifySecret,
    TextForm(
        "apprise URL",
        f"a URL as [apprise](https://github.com/caronc/apprise/wiki) has it, or where it is kept: {_KEPT}",
        "credential:zvault.notify-phone",
        parse_apprise,
        ready=(NotifySecret,),
    ),
]
MailAddress = Annotated[
    str, TextForm("mail address", "a user of this host, or `user@host`", "you@example.org", _parse_mail)
]
RepetitionField = Annotated[
    float | None,
    TextForm("repetition", 'a duration, or "off"', "1d", _parse_again, ready=(float, type(None))),
]
QuietHoursField = Annotated[
    QuietHours,
    TextForm(
        "hours",
        "from one time of day to another, over midnight if that is earlier",
        "22:00-07:00",
        parse_quiet,
        ready=(QuietHours,),
    ),
]
MailServerField = Annotated[
    tuple[str, int],
    TextForm(
        "mail server", "`HOST:PORT`, IPv6 in brackets", "smtp.example.org:587", _parse_server, ready=(tuple,)
    ),
]


class PingTable(ConfigTable):
    """Addresses that are asked, with POST, as a run goes; the body has why it failed, and its last lines."""

    start: SecretUrl | None = Field(
        default=None, description="Asked when a run begins.", examples=["https://cronitor.link/p/x?state=run"]
    )
    success: SecretUrl | None = Field(
        default=None,
        description="Asked when a run ended without fault.",
        examples=["https://nosnch.in/c2354d53d2"],
    )
    failure: SecretUrl | None = Field(
        default=None,
        description="Asked when a run failed, or left something out.",
        examples=["https://cronitor.link/p/x?state=fail"],
    )


HIDDEN_BACKUP = (
    'backups must name one backup, as in backups = ["tank"], or its URL have "{backup}" in it: of several '
    "in one switch, those that still run would hide that one does not"
)
"""What is wrong with a dead-man's switch for several backups."""


class Notify(NamedTable):
    """Somebody to tell of what is wrong, in exactly one way: by a message, or by a dead-man's switch."""

    apprise: AppriseUrl | None = Field(
        default=None,
        description="Any service that apprise knows. It needs apprise: python3-apprise in Debian.",
        examples=["credential:zvault.notify-phone"],
    )
    mail: Several[MailAddress] = Field(
        default_factory=list,
        description="Mail to these, by this host's `sendmail`, or by `smtp`.",
        examples=[["root"], ["you@example.org"]],
    )
    webhook: SecretUrl | None = Field(
        default=None,
        description="[JSON](../how-to/be-told.md#a-webhook), sent with POST.",
        examples=["https://example.org/zvault"],
    )
    ntfy: SecretUrl | None = Field(
        default=None, description="A topic of an ntfy server.", examples=["https://ntfy.sh/my-topic"]
    )
    healthchecks: SecretUrl | None = Field(
        default=None,
        description="The ping URL of a check of healthchecks.io, or of a server of your own. `{backup}` stands for the "
        "backup's name.",
        examples=["credential:zvault.notify-hc", "https://hc-ping.com/PING-KEY/{backup}"],
    )
    uptime_kuma: SecretUrl | None = Field(
        default=None,
        description="The push URL of a monitor of Uptime Kuma. `{backup}` stands for the backup's name.",
        examples=["https://kuma.example.org/api/push/TOKEN"],
    )
    ping: PingTable | None = Field(default=None, description="A dead-man's switch of any other service.")
    backups: Several[BackupNameField] = Field(
        default_factory=list,
        description="Only these backups and their vaults; all, and zvaultd itself, if left out. The name of a "
        "backup with several vaults means all of them. A dead-man's switch "
        "that has no `{backup}` in its URL is for one backup: of several, those that still run would hide that one "
        "does not.",
        examples=[["tank"]],
    )
    severity: Literal["warning", "critical"] = Field(
        default="warning",
        description="The least level of what is told: see [health](health.md).",
        examples=["critical"],
    )
    after: DurationField = Field(
        default=parse_default("1m"),
        description="For how long something has to be wrong before it is told.",
        examples=["10m"],
    )
    again: RepetitionField = Field(
        default=parse_default("1d"),
        description="After how long it is told again that something is still so.",
        examples=["1w", "off"],
    )
    quiet: QuietHoursField | None = Field(
        default=None,
        description="When nothing is told that is not critical, by the clock of `daemon.timezone`. What is still so at "
        "their end is told then.",
        examples=["22:00-07:00"],
    )
    report: ReportEvery | None = Field(
        default=None,
        description="A report of each week, on Monday, or of each month, on the first of the next, at six in the "
        "morning by the clock of `daemon.timezone`, or once quiet hours are over: how each backup and vault fared, and "
        "what needs a person.",
        examples=["weekly"],
    )
    per_hour: int = Field(
        default=20,
        ge=1,
        le=1000,
        description="How many messages an hour at most, the last of them for what is critical. What is beyond that "
        "comes together in one message.",
        examples=[5],
    )
    timeout: DurationField = Field(
        default=parse_default("30s"),
        description="How long sending may take. What was not sent by then is tried again, first after ten seconds, "
        "then after twice as long each time, up to an hour, for three days.",
        examples=["10s"],
    )
    token: SecretText | None = Field(
        default=None,
        description="Sent to `webhook` or `ntfy` as `Authorization: Bearer`.",
        examples=["credential:zvault.notify-token"],
    )
    smtp: MailServerField | None = Field(
        default=None,
        description="The mail server, in place of this host's `sendmail`.",
        examples=["smtp.example.org:587"],
    )
    encryption: Literal["starttls", "tls", "off"] = Field(
        default="starttls",
        description='How `smtp` is spoken: "tls" from the first byte, mostly on port 465. The server\'s certificate is '
        "checked.",
        examples=["tls"],
    )
    user: str | None = Field(
        default=None, description="Who logs in there, with `password`.", examples=["zvault@example.org"]
    )
    password: SecretText | None = Field(
        default=None, description="The password of `user`.", examples=["credential:zvault.notify-smtp"]
    )
    sender: MailAddress | None = Field(
        default=None,
        description="Whom mail comes from; `zvault` at this host if left out.",
        examples=["zvault@example.org"],
    )

    @field_validator("after")
    @classmethod
    def _not_for_ever(cls, after: float) -> float:
        if after > 86400:
            raise ValueError("is more than a day: nobody would be told in time")
        return after

    @field_validator("timeout")
    @classmethod
    def _some_time(cls, timeout: float) -> float:
        if not 1 <= timeout <= 300:
            raise ValueError("must be from 1s to 5m")
        return timeout

    @field_validator("user")
    @classmethod
    def _one_line(cls, user: str | None) -> str | None:
        if user is not None and (not user or not user.isprintable()):
            raise ValueError("is no name of a user")
        return user

    @field_validator("backups")
    @classmethod
    def _each_once(cls, backups: list[str], info: ValidationInfo) -> list[str]:
        if len(set(backups)) != len(backups):
            raise ValueError("names a backup twice")
        return backups

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self._check_way()
        self._check_mail()
        if self.token is not None and self.webhook is None and self.ntfy is None:
            raise ValueError("token is for webhook and ntfy only")
        if self.way in SWITCH_WAYS and self.report is not None:
            raise ValueError("report is for messages only: a dead-man's switch cannot show it")
        if self.hides_backups(self.backups):
            raise ValueError(HIDDEN_BACKUP)
        return self

    def hides_backups(self, backups: Sequence[str]) -> bool:
        """True if it is a dead-man's switch that would not show that one of several backups does not run any more."""
        return self.way in SWITCH_WAYS and len(backups) != 1 and not self._tells_apart()

    def _check_way(self) -> None:
        ways = [way for way in (*MESSAGE_WAYS, *SWITCH_WAYS) if getattr(self, way)]
        if len(ways) != 1:
            names = ", ".join((*MESSAGE_WAYS, *SWITCH_WAYS))
            told = "none" if not ways else " and ".join(ways)
            raise ValueError(f"needs exactly one of {names}; it has {told}")
        if self.ping is not None and not (self.ping.success or self.ping.failure):
            raise ValueError("ping needs success or failure")

    def _check_mail(self) -> None:
        if not self.mail and (self.smtp or self.user or self.password or self.sender):
            raise ValueError("smtp, user, password and sender are for mail only")
        if (self.user is None) != (self.password is None):
            raise ValueError("user and password need each other")
        if self.user is not None and self.smtp is None:
            raise ValueError("user and password are for smtp, which is missing")
        if self.user is not None and self.encryption == "off":
            raise ValueError('a password is not sent unencrypted: leave encryption = "off" out')

    def _tells_apart(self) -> bool:
        """True if each URL has the backup's name in it, or is kept elsewhere, and is looked at when it is used."""
        urls = self.urls()
        return bool(urls) and all(one.kept != "here" or "{backup}" in one.text for one in urls)

    @property
    def way(self) -> TargetWay:
        """In which way it is told."""
        return next(way for way in (*MESSAGE_WAYS, *SWITCH_WAYS) if getattr(self, way))

    @property
    def switch(self) -> bool:
        """True if it is a dead-man's switch."""
        return self.way in SWITCH_WAYS

    def urls(self) -> list[NotifySecret]:
        """All addresses that it has."""
        ping = self.ping or PingTable()
        own = (self.apprise, self.webhook, self.ntfy, self.healthchecks, self.uptime_kuma)
        return [one for one in (*own, ping.start, ping.success, ping.failure) if one is not None]
