"""How notifications are written, and what the error says when they are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zvault.config.load_config import list_doubts
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.notify.quiet_hours import QuietHours
from zvault.core.notify.secrets import NotifySecret

BASE = """[vault.cold]
pool = "cold"
[backup.tank]
source = "tank/a"
vault = "cold"
[backup.home]
source = "tank/b"
vault = "cold"
[notify.x]
"""
URL = "https://hooks.example/S3CRET"

WRONG = [
    ("severity = 'warning'", "needs exactly one of apprise, mail, webhook, ntfy"),
    (f"webhook = '{URL}'\nmail = ['root']", "it has mail and webhook"),
    ("webhook = 'ftp://S3CRET'", "webhook: is no URL"),
    ("webhook = 'https://S3CRET host/'", "webhook: is no URL"),
    ("webhook = 'https://'", "webhook: is no URL"),
    ("webhook = 'https://h:99999/S3CRET'", "webhook: is no URL"),
    ("webhook = 'https://u:S3CRET@h/'", "webhook: has a user or password in its URL"),
    ("webhook = 'file:relative'", 'webhook: is no absolute path after "file:"'),
    ("webhook = 'credential:../S3CRET'", "webhook: "),
    ("apprise = 'S3CRET'", "apprise: is no URL"),
    (f"webhook = '{URL}'\ntoken = 'S3CRET'", "token: a secret does not stand in the configuration"),
    ("mail = ['root']\ntoken = 'file:/x'", "token is for webhook and ntfy only"),
    ("mail = ['-bad']", "mail[0]: "),
    ("mail = ['a b@c']", "mail[0]: "),
    ("mail = ['a@b\\nBcc: c']", "mail[0]: "),
    (f"webhook = '{URL}'\nsmtp = 'h:25'", "smtp, user, password and sender are for mail only"),
    ("mail = ['root']\nsmtp = 'h:25'\nuser = 'u'", "user and password need each other"),
    ("mail = ['root']\nuser = 'u'\npassword = 'file:/x'", "are for smtp, which is missing"),
    (
        "mail = ['root']\nsmtp = 'h:25'\nencryption = 'off'\nuser = 'u'\npassword = 'file:/x'",
        "a password is not sent unencrypted",
    ),
    ("mail = ['root']\nsmtp = 'h'", "smtp: "),
    ("mail = ['root']\nquiet = '22:00'", "quiet: "),
    ("mail = ['root']\nquiet = '22:00-22:00'", "quiet: "),
    ("mail = ['root']\nagain = '1s'", "again: "),
    ("mail = ['root']\nafter = '2d'", "after: is more than a day"),
    ("mail = ['root']\ntimeout = '0s'", "timeout: must be from 1s to 5m"),
    ("mail = ['root']\nper_hour = 0", "per_hour: "),
    ("mail = ['root']\nbackups = ['tnk']", 'backups[0]: no backup is called "tnk"; did you mean "tank"?'),
    (f"healthchecks = '{URL}'", "backups must name one backup"),
    (f"healthchecks = '{URL}'\nbackups = ['tank', 'home']", "backups must name one backup"),
    ("ping = {}\nbackups = ['tank']", "ping needs success or failure"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_is_wrong(problems: Callable[..., list[str]], text: str, message: str) -> None:
    (line,) = problems(BASE + text + "\n")
    assert "notify.x" in line
    assert message in line
    assert "S3CRET" not in line or "../S3CRET" in line


def test_what_is_right(good: Callable[..., Config]) -> None:
    text = "mail = ['root', 'you@example.org']\nquiet = '22:00-07:00'\nagain = 'off'\n[notify.y]\n"
    config = good(BASE + text + "uptime_kuma = 'file:/etc/zvault/kuma'\nbackups = ['tank']\n")
    mail, kuma = config.notify["x"], config.notify["y"]
    assert (mail.name, mail.way, mail.switch, mail.again) == ("x", "mail", False, None)
    assert mail.quiet == QuietHours(22 * 60, 7 * 60)
    assert (kuma.name, kuma.way, kuma.switch) == ("y", "uptime_kuma", True)
    assert kuma.uptime_kuma == NotifySecret("file", "/etc/zvault/kuma")


def test_one_url_may_be_for_all_backups_if_it_has_their_names(good: Callable[..., Config]) -> None:
    assert good(BASE + "healthchecks = 'https://hc-ping.com/KEY/{backup}'\n").notify["x"].backups == []


def test_who_is_told_without_encryption_is_doubted(good: Callable[..., Config], paths: Paths) -> None:
    config = good(BASE + "webhook = 'http://hooks.example/S3CRET'\n")
    (doubt,) = list_doubts(paths, config)
    assert doubt.startswith("notify.x.webhook: the URL is not encrypted")
    assert "S3CRET" not in doubt
    assert not list_doubts(paths, good(BASE + "webhook = 'http://127.0.0.1/S3CRET'\n"))


def test_a_configuration_shows_no_secret(good: Callable[..., Config]) -> None:
    assert "S3CRET" not in repr(good(BASE + f"webhook = '{URL}'\n"))
