"""What zvaultd tells for the page: from memory and the history alone."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.unit.events import make_event
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.names import DatasetName, make_snapname
from zvault.core.replication.lag import DatasetLag
from zvault.daemon.active_run import ActiveRun
from zvault.daemon.app import ZvaultDaemon
from zvault.daemon.assemble import assemble_daemon
from zvault.daemon.page.page_source import DATASET_ROWS, SHOWN_JOURNAL_LINES, SHOWN_RUNS
from zvault.daemon.page.renderer import PageRenderer
from zvault.daemon.page.runbooks import Runbooks
from zvault.ops.replication.listing import BothListings
from zvault.ops.vault_documents import make_unknown_document
from zvault.system.process.runner import HostRunner

BACKUPS = {"a": {"every": "1h", "max_lag": "3h"}, "b": {"schedule": "daily"}, "c": {}}


@functools.cache
def renderer() -> PageRenderer:
    """Made by the first test that wants one: it compiles all templates, which takes a tenth of a second."""
    return PageRenderer("UTC", Runbooks())


class NoPools(HostRunner):
    """A host on which nothing may be started: no pool is to be asked."""

    async def run(self, argv: Any, **_: Any) -> Any:
        raise AssertionError(argv)


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ZvaultDaemon]:
    monkeypatch.setattr("zvault.daemon.assemble.HostRunner", NoPools)
    config = {
        "daemon": {"timezone": "UTC", "host": "filer1"},
        "vault": {"cold": {"pool": "cold"}},
        "backup": {name: {"source": "tank", "vault": "cold", **more} for name, more in BACKUPS.items()},
    }
    it = assemble_daemon(Config.model_validate(config), Paths(tmp_path, tmp_path, tmp_path, tmp_path))
    it.seen_vaults.documents = [make_unknown_document(vault) for vault in it.vaults.all()]
    yield it
    it.history.close()


def lag(dataset: str, seconds: float | None, now: float) -> DatasetLag:
    at = DatasetName(dataset)
    newest = Snapshot(at, "zvault_x", 1, 1, int(now - seconds)) if seconds is not None else None
    return DatasetLag(dataset, newest, 0)


def told(daemon: ZvaultDaemon, subject: str) -> Any:
    return json.loads(asyncio.run(daemon.page.backup(subject)))


def ran(
    daemon: ZvaultDaemon, id: str, backup: str, ago: float, result: Any = "ok", trigger: str = "schedule"
) -> None:
    now = daemon.context.env.clock.time()
    daemon.history.begin(id, backup, trigger, now - ago - 60, None)
    figures = {"bytes": 5, "datasets": 1, "sent": 1, "pruned": 0}
    daemon.history.end(id, now - ago, result, figures, None)


def test_it_has_all_that_is_configured_and_no_pool_is_asked(daemon: ZvaultDaemon):
    found = json.loads(asyncio.run(daemon.page.overview()))
    assert [one["name"] for one in found["status"]["backups"]] == ["a", "b", "c"]
    assert [one["name"] for one in found["status"]["vaults"]] == ["cold"]
    assert found["schedules"] == {"a": "every hour", "b": "daily", "c": "by hand"}
    assert found["host"] == "filer1"
    assert found["days"] == []
    html = renderer().overview(found, renderer().parts(found))
    assert "3 of 3 backups are not known to be well" in html


def listed(daemon: ZvaultDaemon, *, vault: bool = True, at: float = 5.0) -> None:
    """Have 250 snapshots listed of tank/x, one an hour, of which the vault lacks the two newest."""
    now = int(daemon.context.env.clock.time()) // 3600 * 3600
    source, into = DatasetName("tank/x"), DatasetName("cold/filer1/tank/x")

    def made(of: DatasetName, number: int) -> Snapshot:
        when = now - (250 - number) * 3600
        return Snapshot(of, make_snapname("zvault", datetime.fromtimestamp(when, UTC)), number, number, when)

    here = Dataset(source, 1, "filesystem", snapshots=tuple(made(source, one) for one in range(1, 251)))
    there = Dataset(into, 2, "filesystem", snapshots=tuple(made(into, one) for one in range(1, 249)))
    sides = BothListings(
        Tree({source: here}), Tree({into: there}) if vault else Tree(), ((here, into),), vault
    )
    daemon.runs.readings.listings.keep("a", sides, daemon.runs.lags.way("a"), at)


def of_dataset(daemon: ZvaultDaemon, subject: str = "1\0a\0tank/x") -> Any:
    return json.loads(asyncio.run(daemon.page.dataset(subject)))


def test_a_dataset_has_its_snapshots_on_both_sides_page_by_page(daemon: ZvaultDaemon):
    assert of_dataset(daemon) is None, "nobody has listed it"
    listed(daemon)
    found = of_dataset(daemon)
    assert (found["total"], found["pages"], len(found["points"]), len(found["drawn"])) == (250, 3, 100, 250)
    assert (found["into"], found["source_listed"], found["vault_listed"]) == ("cold/filer1/tank/x", 5.0, 5.0)
    counts = found["counts"]
    assert (counts["SOURCE"], counts["VAULT"], counts["BASE"], counts["WAITING"]) == (250, 248, 1, 2)
    newest = found["points"][0]
    assert (newest["vault"], newest["source"]["keep"], newest["base"]) == (None, True, False)
    assert [one["base"] for one in found["points"][:3]] == [False, False, True]
    assert len(of_dataset(daemon, "3\0a\0tank/x")["points"]) == 50
    assert of_dataset(daemon, "99\0a\0tank/x")["page"] == 3
    for subject in ("", "1", "x\0a\0tank/x", "1\0a", "1\0b\0tank/x", "1\0none\0tank/x", "1\0a\0tank/none"):
        assert of_dataset(daemon, subject) is None, subject
    html = renderer().dataset(found)
    assert "250 snapshots on the source, 248 on the vault, 2 to be sent" in html


def test_what_is_not_known_of_a_vault_is_not_told_as_nothing(daemon: ZvaultDaemon):
    listed(daemon, vault=False)
    found = of_dataset(daemon)
    assert (found["vault_listed"], found["foreseen"]) == (None, [])
    html = renderer().dataset(found)
    assert "nobody has listed it since zvaultd started" in html
    assert "pruned next" not in html
    assert html.count("not known") > 100, "of each snapshot whether the vault has it"
    # Once it was seen it is known, also while it is down.
    listed(daemon, at=6.0)
    listed(daemon, vault=False, at=7.0)
    found = of_dataset(daemon)
    assert (found["source_listed"], found["vault_listed"]) == (7.0, 6.0)


def test_names_of_damaged_files_are_left_out(daemon: ZvaultDaemon):
    (document,) = daemon.seen_vaults.documents
    scrub: Any = {"seen": 1.0, "state": "finished", "started": 1.0, "ended": 2.0, "last": 2.0, "share": None}
    scrub |= {
        "bytes_done": 0,
        "bytes_total": 0,
        "rate": None,
        "left_seconds": None,
        "found": 1,
        "held": False,
    }
    scrub |= {"pausing": "", "errors": 1, "files": 1, "unexplained": 0, "half_received": []}
    scrub["damages"] = [{"dataset": "tank/home", "snapshot": None, "file": "/secret/plan.odt"}]
    document["scrub"] = scrub
    text = asyncio.run(daemon.page.overview()).decode()
    assert "plan.odt" not in text
    assert '"errors":1' in text


def test_the_days_are_those_of_backups_not_of_what_stands_aside(daemon: ZvaultDaemon):
    ran(daemon, "r1", "a", 100)
    ran(daemon, "r2", "b", 90, "failed")
    ran(daemon, "r3", "a", 80, "failed", trigger="scrub")
    ran(daemon, "r4", "gone", 70, "failed")
    days = daemon.page.overview_document()["days"]
    assert (days[-1]["runs"] + (days[-2]["runs"] if len(days) > 1 else 0)) == 2
    assert "failed" in {day["state"] for day in days}
    assert {day["state"] for day in told(daemon, "1:a")["days"]} <= {"ok", "no run"}


def test_a_run_that_ended_is_in_the_past_at_once(daemon: ZvaultDaemon):
    assert daemon.page.overview_document()["days"] == []
    ran(daemon, "r1", "a", 0)
    daemon.page.hear(make_event("run-finished", backup="a", time=6.0))
    assert daemon.page.overview_document()["days"][-1]["state"] == "ok"


def test_datasets_come_in_pages_the_worst_first(daemon: ZvaultDaemon):
    now = daemon.context.env.clock.time()
    lags = {f"tank/d{one:04}": lag(f"tank/d{one:04}", float(one), now) for one in range(1000)}
    lags["tank/none"] = lag("tank/none", None, now)
    daemon.runs.readings.keep("a", lags, daemon.runs.lags.way("a"))
    first = told(daemon, "1:a")
    assert (first["total"], first["pages"], len(first["datasets"])) == (1001, 11, DATASET_ROWS)
    assert [one["dataset"] for one in first["datasets"][:2]] == ["tank/none", "tank/d0999"]
    seen = [one["dataset"] for page in range(1, 12) for one in told(daemon, f"{page}:a")["datasets"]]
    assert sorted(seen) == sorted(lags)
    # A page beyond the last is the last.
    assert told(daemon, "999999:a")["page"] == 11
    assert len(json.dumps(first)) < 100_000


@pytest.mark.parametrize("subject", ["", "1", "1:", "1:nobody", ":a", "-1:a", "x:a", "²:a", "1:a:b"])
def test_a_subject_that_is_none_gets_nothing(daemon: ZvaultDaemon, subject: str):
    assert told(daemon, subject) is None


def test_a_run_under_way_is_told_stream_by_stream(daemon: ZvaultDaemon):
    task: Any = None
    run = ActiveRun("r1", "a", "manual", task, started=5.0)
    daemon.runs.runner.current["r1"] = run

    def publish(event: str, **fields: Any) -> None:
        made = make_event(event, backup="a", time=6.0, **fields)
        run.note(made)
        daemon.events.publish(made)

    for number in range(15):
        publish(
            "transfer-started",
            dataset=f"tank/{number}",
            kind="full",
            to="s",
            bytes=10,
            reason="x",
            **{"from": None},
        )
    publish(
        "progress",
        dataset="tank/3",
        bytes=4,
        total=10,
        rate=2.0,
        buffer=None,
        run_bytes=4,
        run_total=150,
        run_rate=9.0,
    )
    (found,) = daemon.page.overview_document()["running"]
    assert (found["bytes_done"], found["bytes_total"], found["rate"], found["more"]) == (4, 150, 9.0, 3)
    assert found["streams"][3] == {"dataset": "tank/3", "bytes": 4, "total": 10, "rate": 2.0}
    for number in range(15):
        publish(
            "transfer-finished", dataset=f"tank/{number}", bytes=10, seconds=1.0, run_bytes=150, run_total=150
        )
    (found,) = daemon.page.overview_document()["running"]
    # Between streams nothing is known to flow.
    assert (found["streams"], found["rate"]) == ([], None)


def test_a_runs_lines_are_those_of_the_journal(daemon: ZvaultDaemon):
    ran(daemon, "r1", "a", 10)
    for number in range(SHOWN_JOURNAL_LINES + 7):
        daemon.events.publish(make_event("warning", backup="a", time=6.0, text=f"line {number}"))
    found = json.loads(daemon.page.run("r1"))
    assert (len(found["lines"]), found["more"]) == (SHOWN_JOURNAL_LINES, 7)
    assert found["lines"][-1] == {"time": 6.0, "level": "warning", "text": f"line {SHOWN_JOURNAL_LINES + 6}"}
    assert found["run"]["backup"] == "a"
    assert "line 506" in renderer().run(found, "r1")
    ran(daemon, "r2", "a", 5)
    found = json.loads(daemon.page.run("r2"))
    assert found["lines"] is None
    assert "journalctl RUN=r2" in renderer().run(found, "r2")
    assert json.loads(daemon.page.run("nothing"))["run"] is None


def test_a_page_of_a_backup_has_its_last_runs(daemon: ZvaultDaemon):
    for number in range(SHOWN_RUNS + 5):
        ran(daemon, f"r{number}", "a", 1000 - number)
    found = told(daemon, "1:a")
    assert [one["id"] for one in found["runs"][:2]] == [f"r{SHOWN_RUNS + 4}", f"r{SHOWN_RUNS + 3}"]
    assert len(found["runs"]) == SHOWN_RUNS
    assert "Runs" in renderer().backup(found)
