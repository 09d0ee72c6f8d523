"""A real Prometheus watches the daemon, with the rules that are shipped: an alert comes, and goes when it should."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from world import METRICS, World, eventually, ok, sh

LAB = {"mem": "4G", "timeout": 900, "in_order": True}

PROJECT = Path(__file__).parents[2]
RULES = PROJECT / "config" / "prometheus" / "zvault.rules.yml"
DASHBOARD = PROJECT / "config" / "grafana" / "zvault.json"
TESTS = PROJECT / "tests" / "alerts"
HERE = Path("/var/lib/zvault-prometheus")
ADDRESS = "127.0.0.1:9090"
MAX_LAG = 60
"""Seconds: more than a run takes, on a busy machine too."""
CONFIG = f"""
global: {{ scrape_interval: 3s, scrape_timeout: 3s, evaluation_interval: 1s }}
rule_files: [{HERE}/zvault.rules.yml]
scrape_configs:
  - job_name: zvault
    static_configs: [{{ targets: ["{METRICS}"] }}]
"""


def ask(path: str, **words: str) -> Any:
    """Prometheus's answer; a question that it does not understand is an error."""
    url = f"http://{ADDRESS}/api/v1/{path}?{urllib.parse.urlencode(words)}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.loads(answer.read())["data"]


def state(name: str) -> str | None:
    """Whether an alert is pending or fires."""
    return next((one["state"] for one in ask("alerts")["alerts"] if one["labels"]["alertname"] == name), None)


def all_that_fire() -> dict[str, Any]:
    """The alerts that fire, by name."""
    return {one["labels"]["alertname"]: one for one in ask("alerts")["alerts"] if one["state"] == "firing"}


def was(name: str, state: str, since: float) -> bool:
    """Whether an alert was in a state at any time since then, in monotonic seconds: it may be over when one looks."""
    seconds = max(1, int(time.monotonic() - since))
    query = f'ALERTS{{alertname="{name}",alertstate="{state}"}}[{seconds}s]'
    return bool(ask("query", query=query)["result"])


def ready() -> bool:
    try:
        with urllib.request.urlopen(f"http://{ADDRESS}/-/ready", timeout=20) as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def watched() -> Iterator[World]:
    """A backup that is late after some seconds, and a Prometheus that looks each second.

    Of the rules as they are shipped only the time is another that ZvaultBackupLate has to last: 15 s, not 5 minutes.
    """
    it = World(backup_extra=f'max_lag = "{MAX_LAG}s"')
    it.clean()
    it.source()
    it.start()
    ok("run", "tank")
    HERE.mkdir()
    text, count = re.subn(
        r"(alert: ZvaultBackupLate\n.*?for:) 5m", r"\1 15s", RULES.read_text(), flags=re.DOTALL
    )
    assert count == 1
    (HERE / "zvault.rules.yml").write_text(text)
    (HERE / "prometheus.yml").write_text(CONFIG)
    argv = ["prometheus", f"--config.file={HERE}/prometheus.yml", f"--storage.tsdb.path={HERE}/data"]
    with (HERE / "log").open("w") as log:
        server = subprocess.Popen([*argv, f"--web.listen-address={ADDRESS}"], stdout=log, stderr=log)
        try:
            eventually("Prometheus", ready)
            yield it
        finally:
            server.terminate()
            server.wait(120)
            it.clean()


def test_the_rules_do_what_their_tests_say():
    sh("promtool", "check", "rules", str(RULES))
    sh("promtool", "test", "rules", *map(str, sorted(TESTS.glob("*.test.yml"))), timeout=250)


def test_a_backup_that_lags_fires_and_resolves(watched: World):
    ok("run", "tank")
    eventually("the lag to be small again", lambda: state("ZvaultBackupLate") is None)
    small = time.monotonic()
    # A scrape that comes too late has it end for a moment: what fires, and what else does, is of one answer.
    firing = eventually(
        "it to fire", lambda: "ZvaultBackupLate" in (now := all_that_fire()) and now, seconds=240
    )
    fires = firing["ZvaultBackupLate"]
    assert set(firing) == {"ZvaultBackupLate"}, "something fires in a healthy world"
    assert was("ZvaultBackupLate", "pending", small)
    assert fires["labels"] == {
        "alertname": "ZvaultBackupLate",
        "severity": "warning",
        "job": "zvault",
        "instance": METRICS,
        "backup": "tank",
    }
    notes = fires["annotations"]
    assert re.fullmatch(r"Backup tank is late: the vault is [\dms. ]+ behind", notes["summary"])
    assert f"If the source on {METRICS} burnt down now" in notes["description"]
    assert (PROJECT / "docs" / "runbooks" / Path(notes["runbook_url"]).name).exists()
    ok("run", "tank")
    eventually("it to resolve", lambda: state("ZvaultBackupLate") is None)


def test_every_rule_and_every_panel_is_understood(watched: World):
    def health() -> set[str]:
        return {rule["health"] for group in ask("rules")["groups"] for rule in group["rules"]}

    eventually("every rule to be tried", lambda: "unknown" not in health())
    assert health() == {"ok"}
    board = json.loads(DASHBOARD.read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    assert len({expr: answered(expr) for expr in asked}) > 30
    filled = {"Backups", "Late", "Up", "Streamed", "Pending snapshots", "Lag, as a part of max_lag"}
    for panel in board["panels"]:
        for target in panel.get("targets", []) if panel["title"] in filled else ():
            # This backup runs by hand only, has no max_restore, and nothing was read back of it: so there is no next
            # run, and no time to restore. After a scrape that came too late all is empty.
            if not re.search("next_run|restore_seconds", expr := target["expr"]):
                eventually(f"{panel['title']} to be filled: {expr}", lambda expr=expr: answered(expr))


def answered(expr: str) -> Any:
    """What a panel of the dashboard shows."""
    words = expr.replace("$__rate_interval", "1m")
    return ask("query", query=re.sub(r"\$\w+", ".*", words))["result"]


def test_a_daemon_that_is_gone_is_missed(watched: World):
    sh("systemctl", "stop", "zvaultd")
    eventually("ZvaultDown", lambda: state("ZvaultDown") == "pending")
    eventually("ZvaultAbsent", lambda: state("ZvaultAbsent") == "pending")
    eventually("nothing is known of its lag", lambda: state("ZvaultBackupLate") is None)
    sh("systemctl", "start", "zvaultd")
    eventually("it to be back", lambda: state("ZvaultDown") is None and state("ZvaultAbsent") is None)
