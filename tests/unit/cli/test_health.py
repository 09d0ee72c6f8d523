"""One judgement: the API, zvaultctl with its exit status, the metrics and the journal say the same of the same."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.cli.api_documents import NOW, device, made, store, trouble, vault
from zvault.core.health.verdict import VERDICT_LEVELS
from zvault.core.model import Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.lag import DatasetLag
from zvault.daemon.health.journal import VerdictJournal
from zvault.daemon.metrics.exporter import MetricsCollector
from zvault.daemon.status import DaemonStatus
from zvault.ops.state.pool_health import PoolCondition

HOUR = 3600
FIGURES = {"bytes": 0, "datasets": 1, "sent": 0, "pruned": 0}
SEEN = PoolCondition(0.0).document()
DOWN = {"state": "down", "health": None, "size": None, "allocated": None, "free": None}


@pytest.fixture
def status(tmp_path: Path) -> Iterator[DaemonStatus]:
    """Of one backup that ran well 12 minutes ago, and one vault."""
    it = made(tmp_path)
    it.runs.proofs["home"] = {}
    yield it
    it.history.close()


def lag(seconds: float | None) -> dict[str, DatasetLag]:
    newest = (
        Snapshot(DatasetName("tank/home"), "a", 1, 1, int(NOW - seconds)) if seconds is not None else None
    )
    return {"tank/home": DatasetLag("tank/home", newest, 0)}


def fail(status: DaemonStatus, result: Any) -> None:
    way = status.context.env.way(status.context.env.backup("home"))
    status.history.begin("r2", "home", "schedule", NOW - 60, way)
    status.history.end("r2", NOW - 30, result, FIGURES, trouble())


def change(status: DaemonStatus, what: str) -> dict[str, Any]:
    """Facts of that kind; the vault's document."""
    match what:
        case "late" | "very late" | "unknown":
            hours = {"late": 4 * HOUR, "very late": 10 * HOUR}.get(what)
            status.runs.lags["home"] = lag(hours)
        case "failed" | "partial":
            fail(status, what)
        case "warning":
            status.warnings["metrics"] = "metrics cannot be served"
        case "damaged":
            return vault(**DOWN, scrub=PoolCondition(0.0, errors=2).document())
        case "suspended":
            return vault(state="gone", health="SUSPENDED", scrub=SEEN)
        case "never seen":
            return vault(**DOWN)
        case "troubled":
            return vault(devices=[device(store=store(trouble="503"))], scrub=SEEN)
    return vault(**DOWN, scrub=SEEN)


CASES = {
    "well": ("ok", 0),
    "late": ("warning", 1),
    "very late": ("critical", 1),
    "unknown": ("unknown", 3),
    "failed": ("warning", 1),
    "partial": ("warning", 1),
    "warning": ("warning", 1),
    "damaged": ("critical", 1),
    "suspended": ("critical", 1),
    "never seen": ("unknown", 3),
    "troubled": ("warning", 1),
}


@pytest.mark.parametrize("what", CASES)
def test_all_say_the_same(
    status: DaemonStatus,
    daemon: Any,
    ctl: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
):
    seen = change(status, what)
    seen.pop("verdict")

    async def documents() -> list[Any]:
        return [seen]

    monkeypatch.setattr(status.vault_monitor, "documents", documents, raising=False)
    document: Any = asyncio.run(status.document())
    level, code = CASES[what]
    api = {
        ("daemon", "zvaultd"): document["daemon"]["verdict"],
        ("backup", "home"): document["backups"][0]["verdict"],
        ("vault", "cold"): document["vaults"][0]["verdict"],
    }
    assert max((one["level"] for one in api.values()), key=VERDICT_LEVELS.index) == level

    # Metrics
    metrics = MetricsCollector(status)
    metrics.vaults = [seen]
    found = {family.name: family for family in text_string_to_metric_families(metrics.text().decode())}
    assert {
        (one.labels["kind"], one.labels["name"]): VERDICT_LEVELS[int(one.value)]
        for one in found["zvault_health"].samples
    } == {subject: one["level"] for subject, one in api.items()}
    assert {
        (one.labels["kind"], one.labels["name"], one.labels["condition"], one.labels["severity"])
        for one in found["zvault_condition"].samples
    } == {(*subject, it["condition"], it["level"]) for subject, one in api.items() for it in one["findings"]}

    # zvaultctl
    daemon.documents["GET /v1/status"] = json.loads(json.dumps(document))
    assert {ctl("status", *flags).code for flags in ((), ("-H",), ("-j",))} == {code}
    rows = {row[0]: row for row in ctl("status", "-H").cells}
    assert rows["backup"][2] == api["backup", "home"]["state"]
    assert rows["vault"][2] == api["vault", "cold"]["state"]
    shown = " ".join(ctl("status").out.split())
    for verdict in api.values():
        assert all(one["why"] in shown or one["what"] in shown for one in verdict["findings"])

    # Journal
    monkeypatch.setattr("zvault.daemon.health.journal.UNKNOWN_SETTLING", 0.0)
    caplog.set_level(logging.INFO)
    VerdictJournal().tell(status.verdicts([seen]))
    heard: list[Any] = [record for record in caplog.records if hasattr(record, "HEALTH")]
    assert {one.HEALTH for one in heard} == {one["level"] for one in api.values()} - {"ok"}
