"""Tells one target of `[notify.NAME]` one thing, in its way."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zvault.config.schema import Notify
from zvault.config.tables.notify import TargetWay, check_url
from zvault.core.errors import NotFound, Refused, ZvaultError
from zvault.core.health.verdict import VerdictLevel
from zvault.core.notify import formats
from zvault.core.notify.formats import HttpRequest
from zvault.core.notify.message import Item, NotifyMessage, RunPing
from zvault.core.notify.secrets import NotifySecret, redact_secrets
from zvault.system.credentials import find_credential_file
from zvault.system.notify import sender
from zvault.system.process.runner import ProcessRunner

LONGEST_SECRET = 8 << 10
"""Bytes of a file with a secret."""

APPRISE_TYPES: Mapping[VerdictLevel, str] = {
    "ok": "success",
    "unknown": "info",
    "warning": "warning",
    "critical": "failure",
}

HARMLESS_SWITCHES: tuple[TargetWay, ...] = ("healthchecks",)
"""Dead-man's switches that can be tried without being told of a success."""


async def deliver_item(runner: ProcessRunner, host: str, table: Notify, item: Item) -> str:
    """Send an item; what there is to tell all the same. Raises ZvaultError, in which no secret stands.

    What other hosts say stands in it, on one line. An item that is not for this way is not sent.
    """
    used: list[str] = []
    try:
        if isinstance(item, NotifyMessage):
            told = await _message(runner, host, table, item, used)
        else:
            told = await _ping(runner, table, item, used)
    except ZvaultError as error:
        raise type(error)(error.what, redact_secrets(error.why, used), error.next) from None
    return redact_secrets(told, used)


async def _message(
    runner: ProcessRunner, host: str, table: Notify, message: NotifyMessage, used: list[str]
) -> str:
    if table.mail:
        return await _mail(runner, host, table, message, used)
    token = _value(table.token, used) if table.token is not None else None
    if table.apprise is not None:
        order = {
            "way": "apprise",
            "url": _value(table.apprise, used),
            "title": message.title,
            "body": message.text,
            "type": APPRISE_TYPES[message.level],
        }
        return await sender.send_message(runner, order, table.timeout)
    if table.ntfy is not None:
        return await _ask(runner, table, formats.make_ntfy_request(_url(table.ntfy, used), message, token))
    if table.webhook is not None:
        return await _ask(
            runner, table, formats.make_webhook_request(_url(table.webhook, used), message, token)
        )
    return ""


async def _mail(
    runner: ProcessRunner, host: str, table: Notify, message: NotifyMessage, used: list[str]
) -> str:
    from email import policy

    made = formats.make_mail(message, table.sender or f"zvault@{formats.flatten_line(host)}", table.mail)
    who = str(made["From"])
    if table.smtp is None:
        data = made.as_bytes(policy=policy.SMTP.clone(linesep="\n"))
        await sender.send_mail_locally(runner, who, table.mail, data, table.timeout)
        return ""
    name, port = table.smtp
    order = {
        "way": "smtp",
        "host": name,
        "port": port,
        "encryption": table.encryption,
        "user": table.user,
        "password": _value(table.password, used) if table.password is not None else None,
        "sender": who,
        "recipients": table.mail,
        "mail": made.as_bytes(policy=policy.SMTP).decode("ascii", errors="replace"),
    }
    return await sender.send_message(runner, order, table.timeout)


async def _ping(runner: ProcessRunner, table: Notify, ping: RunPing, used: list[str]) -> str:
    request = _ping_request(table, ping, used)
    return "" if request is None else await _ask(runner, table, request)


def _ping_request(table: Notify, ping: RunPing, used: list[str]) -> HttpRequest | None:
    """What a switch is asked at this moment of a run; None: nothing."""

    def url(secret: NotifySecret) -> str:
        found = _url(secret, used)
        if len(table.backups) != 1 and "{backup}" not in found:
            raise Refused(
                "it was not sent",
                "the URL would be one switch for several backups",
                'name one in backups, or have "{backup}" in the URL',
            )
        return formats.expand_backup_url(found, ping.backup)

    if table.healthchecks is not None:
        return formats.make_healthchecks_ping(url(table.healthchecks), ping)
    if table.uptime_kuma is not None:
        return None if ping.beat == "start" else formats.make_uptime_kuma_ping(url(table.uptime_kuma), ping)
    if table.ping is not None:
        beats = {"start": table.ping.start, "failure": table.ping.failure}
        asked = beats.get(ping.beat, table.ping.success)
        return None if asked is None else formats.make_plain_ping(url(asked), ping)
    return None


async def _ask(runner: ProcessRunner, table: Notify, request: HttpRequest) -> str:
    order: dict[str, Any] = {
        "way": "http",
        "url": request.url,
        "method": request.method,
        "headers": dict(request.headers),
        "body": request.body,
    }
    return await sender.send_message(runner, order, table.timeout)


def _url(secret: NotifySecret, used: list[str]) -> str:
    found = _value(secret, used)
    try:
        return check_url(found) if secret.kept != "here" else found
    except ValueError as error:
        raise Refused("it was not sent", f"what is kept in {describe_secret_place(secret)} {error}") from None


def _value(secret: NotifySecret, used: list[str]) -> str:
    """A secret's value, which is noted as used before anything may tell it. Raises NotFound, Refused."""
    value = secret.text if secret.kept == "here" else read_secret(secret, "[notify]")
    used.append(value)
    return value


def read_secret(secret: NotifySecret, table: str) -> str:
    """A secret out of where it is kept, which ``table`` of the configuration says. Raises NotFound, Refused."""
    path = find_credential_file(secret.text) if secret.kept == "credential" else Path(secret.text)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(fd, "rb") as file:  # noqa: PTH123 - it is open
            found = os.fstat(fd)
            data = file.read(LONGEST_SECRET + 1) if stat.S_ISREG(found.st_mode) else b""
    except OSError as error:
        raise NotFound(
            f"{path} cannot be read", error.strerror or str(error), f"see {table} in zvault.toml"
        ) from None
    if secret.kept == "file" and found.st_mode & stat.S_IROTH:
        raise Refused(f"{path} is not used", "every user of this host may read it", f"chmod 600 {path}")
    try:
        text = data.decode().strip()
    except UnicodeDecodeError:
        text = ""
    if not text or len(data) > LONGEST_SECRET or not text.isprintable():
        raise Refused(f"{path} is not used", "it is not one line of text", "write the secret alone into it")
    return text


def describe_secret_place(secret: NotifySecret) -> str:
    """Say in words where a secret is kept."""
    return "the configuration" if secret.kept == "here" else f"{secret.kept}:{secret.text}"


def can_try_harmlessly(table: Notify) -> bool:
    """True if a target can be tried without a dead-man's switch being told of a success that was none."""
    return not table.switch or table.way in HARMLESS_SWITCHES


def is_pinged_for(table: Notify, backup: str) -> bool:
    """True if a switch is told of a backup's runs."""
    return table.switch and (not table.backups or backup in table.backups)
