"""Notifications with the real daemon, a mail server with TLS and a password, and a web server. The tests come in order.

They share one guest, one pool and one daemon; each leaves the configuration to the next.
"""

from __future__ import annotations

import email.policy
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import world
from notify_receivers import ADDRESS, PASSWORD, SCRATCH, TOKEN, Mail, Web, certificate
from world import World, ctl, eventually, ok, sh

LAB = {"mem": "3G", "timeout": 900, "in_order": True}
PATIENT = 120
"""Seconds that a target has for an answer. What is late is sent again, so all but what hangs have a lot of time."""
SENDMAIL = Path("/usr/sbin/sendmail")


class Told(World):
    """The world, and who is told."""

    web: Web
    mail: Mail
    tables = ""

    def config_text(self) -> str:
        return super().config_text() + self.tables

    def tell(self, tables: str, backup_extra: str = "") -> None:
        """Have other targets from now on."""
        self.tables = tables
        hook = f"while [ -e {SCRATCH}/held ]; do sleep 0.1; done; test ! -e {SCRATCH}/broken"
        self.backup_extra = f'hooks = {{ before = [["sh", "-c", "{hook}"]] }}\n{backup_extra}'
        self.configure()
        self.web.statuses.clear()
        # What comes from now on may be by what is configured now: of that nothing is forgotten.
        web, mails = len(self.web.got), len(self.mail.got)
        sh("systemctl", "reload", "zvaultd")
        del self.web.got[:web]
        del self.mail.got[:mails]

    def pings(self) -> list[str]:
        """How runs ended, as the switch was told."""
        return [path for path, _, _ in self.web.got if path in {"/uuid", "/uuid/fail"}]

    def hook(self, name: str = "hook", path: str = "/hook", seconds: int = PATIENT) -> str:
        return f'[notify.{name}]\nwebhook = "{self.web.url}{path}"\nafter = "0s"\ntimeout = "{seconds}s"\n'


@pytest.fixture(scope="module")
def tank() -> Iterator[Told]:
    it = Told()
    it.clean()
    sh("rm", "-rf", str(SCRATCH))
    SCRATCH.mkdir()
    world.make_tank("256M")
    sh("zfs", "create", "tank/home")
    it.source_name = "tank/home"
    it.web, it.mail = Web(), Mail(certificate())
    threads = [threading.Thread(target=one.serve_forever) for one in (it.web, it.mail)]
    for thread in threads:
        thread.start()
    it.start()
    yield it
    for server in (it.web, it.mail):
        server.shutdown()
        server.server_close()
    SENDMAIL.unlink(missing_ok=True)
    it.clean()


def broken(*, yes: bool) -> None:
    """Whether runs fail."""
    (SCRATCH / "broken").touch() if yes else (SCRATCH / "broken").unlink(missing_ok=True)


def came(what: str, look: Any, expected: Any) -> None:
    """Wait until all of that came, and see that nothing else did."""
    eventually(lambda: f"{what}: {look()}", lambda: look() == expected)


def target(name: str) -> dict[str, Any]:
    found = world.answer(world.ask("GET", "/v1/notify"))
    assert found is not None
    return next(one for one in found["targets"] if one["name"] == name)


def secret(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)
    Path(path).chmod(0o600)


def test_a_test_reaches_everybody_and_no_secret_is_seen(tank: Told) -> None:
    secret("/etc/credstore/zvault.notify-smtp", PASSWORD + "\n")
    secret("/etc/credstore/zvault.notify-hook", f"{tank.web.url}/{ADDRESS}\n")
    secret(f"{SCRATCH}/token", TOKEN)
    SENDMAIL.write_text(f'#!/bin/sh\necho "$*" >{SCRATCH}/argv\nexec cat >{SCRATCH}/mail\n')
    SENDMAIL.chmod(0o755)
    tank.tell(f"""
[notify.hook]
webhook = "credential:zvault.notify-hook"
token = "file:{SCRATCH}/token"
[notify.ntfy]
ntfy = "{tank.web.url}/alerts"
[notify.smtp]
mail = ["root", "you@example.org"]
smtp = "localhost:{tank.mail.server_address[1]}"
user = "zvault"
password = "credential:zvault.notify-smtp"
[notify.sendmail]
mail = ["root"]
[notify.hc]
healthchecks = "{tank.web.url}/uuid"
backups = ["tank"]
[notify.kuma]
uptime_kuma = "{tank.web.url}/api/push/{ADDRESS}"
backups = ["tank"]
[notify.phone]
apprise = "ntfy://{ADDRESS}/topic"
""")
    # A credential that came after the daemon began is found where systemd has it.
    done = ctl("notify", "test", "-j")
    results = {one["target"]: one for one in done.json()["results"]}
    sent = {name for name, one in results.items() if one["result"] == "sent"}
    assert sent == {"hook", "ntfy", "smtp", "sendmail", "hc"}, done.out
    assert results["kuma"]["result"] == "skipped"
    assert "apprise is not installed" in results["phone"]["error"]["why"]
    assert done.code == 1
    assert {path for path, _, _ in tank.web.got} == {f"/{ADDRESS}", "/", "/uuid/log"}
    (headers,) = [headers for path, headers, _ in tank.web.got if path == f"/{ADDRESS}"]
    assert headers["Authorization"] == f"Bearer {TOKEN}"
    assert json.loads(tank.web.bodies("/")[0])["topic"] == "alerts"
    ((recipients, data),) = tank.mail.got
    assert recipients == ["root", "you@example.org"]
    assert b"From: zvault@lab\r\n" in data
    assert (SCRATCH / "argv").read_text() == "-oi -f zvault@lab root\n"
    assert "Subject: zvault on lab: a test\n" in (SCRATCH / "mail").read_text()
    # Who sends has no rights, no environment but two words, and no secret on its command line.
    tank.web.users.clear()
    ok("notify", "test", "hook")
    (sender,) = tank.web.users
    assert sender.startswith("65534 0 2 ")
    assert "S3CRET" not in sender
    ok("notify", "test", "kuma")
    assert [path for path, _, _ in tank.web.got if "push" in path] == [
        f"/api/push/{ADDRESS}?status=up&msg=a+test+of+zvaultctl+notify"
    ]
    told = world.journal() + ctl("notify", "-o", "all").out + ctl("status", "-j").out + done.out
    assert "S3CRET" not in told


def test_a_run_that_fails_is_told_once_and_so_is_its_recovery(tank: Told) -> None:
    tank.tell(f"""
{tank.hook()}
[notify.ntfy]
ntfy = "{tank.web.url}/alerts"
after = "0s"
timeout = "{PATIENT}s"
[notify.smtp]
mail = ["root"]
smtp = "localhost:{tank.mail.server_address[1]}"
user = "zvault"
password = "credential:zvault.notify-smtp"
timeout = "{PATIENT}s"
after = "0s"
[notify.hc]
healthchecks = "{tank.web.url}/uuid"
timeout = "{PATIENT}s"
backups = ["tank"]
""")
    failed, over = "backup tank failed when it ran last", "over: backup tank failed when it ran last"
    broken(yes=True)
    assert ctl("run", "tank").code == 1
    came("a message", lambda: tank.web.titles("/hook"), [failed])
    came("a ping", tank.pings, ["/uuid/fail"])
    assert ctl("run", "tank").code == 1
    came("another", tank.pings, ["/uuid/fail"] * 2)
    broken(yes=False)
    # Of a run that fails at once only the result may be told: this one goes on once its beginning was.
    held = SCRATCH / "held"
    held.touch()
    ok("run", "--no-wait", "tank")
    eventually("its beginning", lambda: tank.web.bodies("/uuid/start"))
    held.unlink()
    came("its end", lambda: tank.web.titles("/hook"), [failed, over])
    came("the same by ntfy", lambda: tank.web.titles("/"), [failed, over])
    came("the same by mail", tank.mail.subjects, [failed, over])
    came("a ping", tank.pings, ["/uuid/fail", "/uuid/fail", "/uuid"])
    assert "before-run" in tank.web.bodies("/uuid/fail")[0], "the reason"
    notice = json.loads(tank.web.bodies("/hook")[0])["notices"][0]
    assert (notice["topic"], notice["level"], notice["conditions"]) == ("run", "warning", ["failed"])
    assert json.loads(tank.web.bodies("/")[0])["priority"] == 4
    assert world.metrics()['zvault_notify_tries_total{result="sent",target="hook"}'] >= 2


def test_a_backup_is_late_while_nothing_runs(tank: Told) -> None:
    tank.tell(tank.hook(), 'max_lag = "20s"')
    ok("run", "tank")
    eventually(
        lambda: f"it is told to be late: {tank.web.titles('/hook')}",
        lambda: "backup tank is late" in tank.web.titles("/hook"),
    )
    tank.tell(tank.hook(), 'max_lag = "1h"')
    came(
        "its end",
        lambda: [one for one in tank.web.titles("/hook") if one.startswith("over: ")][:1] != [],
        True,
    )
    assert all(one.startswith("over: ") for one in tank.web.titles("/hook"))
    assert not any("vault" in one for one in tank.web.titles("/hook")), "it went up and down"


def test_targets_that_hang_refuse_lead_elsewhere_or_flood(tank: Told) -> None:
    answering = [tank.hook(path, f"/{path}") for path in ("refuse", "away", "big")]
    tank.tell("\n".join([tank.hook("hang", "/hang", 3), *answering]))
    tank.web.statuses |= {"/refuse": 403, "/away": 302}
    done = ctl("notify", "test", "-j")
    results = {one["target"]: one for one in done.json()["results"]}
    why = {name: one["error"]["why"] for name, one in results.items() if one["error"] is not None}
    assert why == {
        "hang": "it did not answer within 3 s",
        "refuse": "it answered 403 Forbidden: an answer",
        "away": "it redirects to http://localhost, where nothing is sent: set that URL",
    }
    assert not tank.web.bodies("/elsewhere")
    # They are told of a failure, and no run waits for that: while it is under way none of them has an answer.
    broken(yes=True)
    tank.web.answers.clear()
    began = time.monotonic()
    try:
        assert ctl("run", "tank").code == 1
        assert time.monotonic() - began < PATIENT, "as long as they have for it"
    finally:
        tank.web.answers.set()
    broken(yes=False)
    # What comes after that may be that the others cannot be reached.
    failed = ["backup tank failed when it ran last"]
    came("the one that takes it", lambda: tank.web.titles("/big")[1:2], failed)
    eventually(
        "what waits is tried again",
        lambda: all(target(name)["last_failure"] for name in why),
    )
    assert all(target(name)["waiting"] for name in why)
    ok("run", "tank")


def test_what_was_not_delivered_is_delivered_by_the_next_daemon(tank: Told) -> None:
    tank.tell(tank.hook())
    tank.web.statuses["/hook"] = 503
    broken(yes=True)
    assert ctl("run", "tank").code == 1
    eventually("it was tried", lambda: target("hook")["last_error"])
    before = world.main_pid()
    os.kill(before, 9)
    world.restarted(before)
    tank.web.statuses.clear()
    came("the message", lambda: tank.web.titles("/hook"), ["backup tank failed when it ran last"])
    sh("systemctl", "restart", "zvaultd")
    broken(yes=False)
    ok("run", "tank")
    came(
        "its end",
        lambda: tank.web.titles("/hook"),
        ["backup tank failed when it ran last", "over: backup tank failed when it ran last"],
    )


def test_a_configuration_that_is_refused_is_told(tank: Told) -> None:
    tank.tell(tank.hook())
    world.CONFIG.write_text(tank.config_text() + "nonsense = 1\n")
    sh("systemctl", "reload", "zvaultd", check=False)
    came("a message", lambda: len(tank.web.titles("/hook")), 1)
    assert json.loads(tank.web.bodies("/hook")[0])["notices"][0]["topic"] == "configuration"
    tank.configure()
    sh("systemctl", "reload", "zvaultd")
    came("its end", lambda: len(tank.web.titles("/hook")), 2)


def reports(mails: list[tuple[list[str], bytes]]) -> list[Any]:
    """The mails that report a week."""
    found = [email.message_from_bytes(data, policy=email.policy.default) for _, data in mails]
    return [mail for mail in found if re.search(r": .* 20\d\d: ", str(mail["Subject"]))]


def test_a_week_is_reported_by_mail_once_it_ended(tank: Told) -> None:
    tank.tell(f"""
[notify.smtp]
mail = ["you@example.org"]
smtp = "localhost:{tank.mail.server_address[1]}"
user = "zvault"
password = "credential:zvault.notify-smtp"
timeout = "{PATIENT}s"
after = "1d"
report = "weekly"
""")
    ok("run", "tank")
    kept = Path("/var/lib/zvault/notify")
    eventually(
        "it is written down that reports are wanted",
        lambda: any('"reported": 1' in one.read_text() for one in kept.glob("smtp*")),
    )
    assert reports(tank.mail.got) == []
    today = datetime.now(UTC)
    monday = datetime.combine(today.date() + timedelta(days=7 - today.weekday()), datetime.min.time(), UTC)
    with world.clock_put_right():
        time.clock_settime(time.CLOCK_REALTIME, (monday + timedelta(hours=6, seconds=5)).timestamp())
        eventually("the report", lambda: reports(tank.mail.got))
        printed = ok("notify", "report").out
        page = ok("notify", "report", "--html").out
    (mail,) = reports(tank.mail.got)
    text = mail.get_body(("plain",)).get_content()
    html = mail.get_body(("html",)).get_content()
    row = next(line.split() for line in text.splitlines() if line.startswith("tank "))
    ended = [run for run in ok("history", "-l", "100", "-j").json()["runs"] if run["ended"] is not None]
    assert int(row[2]) == len(ended)
    assert int(row[3]) == sum(run["result"] != "ok" for run in ended) > 0
    assert (monday - timedelta(days=7)).strftime("%-d") in str(mail["Subject"])
    # What is printed is what was sent, but for how all is a moment later.
    assert next(line.split()[:6] for line in printed.splitlines() if line.startswith("tank ")) == row[:6]
    assert "<script" not in html
    assert html.startswith("<!doctype html>")
    assert page.startswith("<!doctype html>")
    assert ctl("notify", "report", "--monthly").code == 0
