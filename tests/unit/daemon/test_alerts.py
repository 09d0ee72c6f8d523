"""The alert rules and the dashboard that are shipped speak of what there is: metrics, and a page for each alert."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.health.conditions import CONDITIONS
from zvault.core.health.verdict import VERDICT_LEVELS, HealthCondition
from zvault.daemon.assemble import assemble_daemon

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "config" / "prometheus" / "zvault.rules.yml"
DASHBOARD = ROOT / "config" / "grafana" / "zvault.json"
RUNBOOKS = ROOT / "docs" / "runbooks"
TESTS = sorted((ROOT / "tests" / "alerts").glob("*.test.yml"))
NO_ALERT = {"storage-gone"}
"""Pages that several alerts lead to."""

PROMTOOL = shutil.which("promtool")

ALERTS = {
    text.split("\n", 1)[0].strip(): text for text in RULES.read_text(encoding="utf-8").split("- alert: ")[1:]
}


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of all samples that a daemon exposes, as a query uses them."""
    here = tmp_path_factory.mktemp("daemon")
    daemon = assemble_daemon(Config(), Paths(etc=here, run=here, state=here))
    ending = {"counter": "_total", "info": "_info", "histogram": "_bucket"}
    with contextlib.closing(daemon.history):
        return {family.name + ending.get(family.type, "") for family in daemon.metrics.exporter().collect()}


def metrics_in(text: str) -> set[str]:
    return set(re.findall(r"\bzvault_\w+", text))


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_says_how_bad_it_is_and_what_to_do(alert: str):
    text = ALERTS[alert]
    assert re.search(r"severity: (critical|warning)\n", text)
    assert re.search(r"summary: \S", text)
    assert re.search(r"description: >-\n", text)
    assert f"runbook_url: file:///usr/share/doc/zvault/runbooks/{alert}.md\n" in text


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_asks_for_metrics_that_there_are(alert: str, known: set[str]):
    asked = metrics_in(ALERTS[alert])
    assert asked or alert == "ZvaultDown"
    assert asked <= known


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_has_a_page_that_says_when_it_is_gone(alert: str):
    page = (RUNBOOKS / f"{alert}.md").read_text(encoding="utf-8")
    severity = re.search(r"severity: (\w+)", ALERTS[alert])
    assert severity is not None
    assert page.startswith(f"# {alert}\n\n*{severity[1].capitalize()}.*")
    for heading in ("## First look", "## Likely causes, and the cure", "## It is gone when"):
        assert heading in page
    for link in re.findall(r"\]\(([^)#]+)", page):
        assert (RUNBOOKS / link).exists(), link


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_is_tested(alert: str):
    texts = [file.read_text(encoding="utf-8") for file in TESTS]
    assert any(f"  - name: {alert} " in text for text in texts)


def severity(alert: str) -> str:
    found = re.search(r"severity: (\w+)", ALERTS[alert])
    assert found is not None
    return found[1]


@pytest.mark.parametrize(
    "one", [one for table in CONDITIONS.values() for one in table], ids=lambda one: one.key
)
def test_each_condition_that_is_no_mere_gap_fires_one_alert(one: HealthCondition):
    """By a rule of its own that is as bad at least, or by the general one, which leaves it out then."""
    general = {"warning": "ZvaultWarning", "critical": "ZvaultCritical"}
    for level, alert in general.items():
        assert f'zvault_condition{{severity="{level}",alert=""}} == 1' in ALERTS[alert]
    if one.level == "unknown":
        assert not one.alert, "it becomes a warning if it lasts"
    else:
        alert = one.alert or general[one.level]
        assert VERDICT_LEVELS.index(severity(alert)) >= VERDICT_LEVELS.index(one.level)


def test_there_is_no_page_of_an_alert_that_is_gone():
    assert {page.stem for page in RUNBOOKS.glob("*.md")} - NO_ALERT == set(ALERTS)


@pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed; tests/lab/test_alerts.py runs this as well"
)
def test_the_rules_do_what_their_tests_say():
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, "test", "rules", *map(str, TESTS)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def panels() -> list[dict[str, Any]]:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert all("panels" not in panel or not panel["panels"] for panel in board["panels"]), "rows are open"
    found: list[dict[str, Any]] = board["panels"]
    return found


def test_the_dashboard_is_one():
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert board["schemaVersion"] >= 39
    assert board["uid"] == "zvault"
    assert board["title"] == "zvault"
    assert board["id"] is None, "Grafana gives it its own"
    names = {variable["name"] for variable in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(board["panels"])))
    assert used - {"__rate_interval"} <= names


def test_panels_have_a_place_of_their_own():
    board = panels()
    assert len({panel["id"] for panel in board}) == len(board)
    taken: dict[tuple[int, int], str] = {}
    for panel in board:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                other = taken.setdefault((x, y), panel["title"])
                assert other == panel["title"], f"{panel['title']} lies on {other}"


def test_panels_ask_the_chosen_prometheus_for_metrics_that_there_are(known: set[str]):
    for panel in panels():
        if panel["type"] == "row":
            continue
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["description"]
        assert panel["targets"], panel["title"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"]
            asked = metrics_in(target["expr"])
            assert asked or "ALERTS" in target["expr"]
            assert asked <= known, panel["title"]
