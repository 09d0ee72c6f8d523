"""What /metrics says, read back with Prometheus's own parser."""

import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.diagnosis.stalls import STALL_KINDS, StallSign
from zvault.core.errors import Busy
from zvault.core.model import Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.lag import DatasetLag
from zvault.daemon.host_election import HostElection
from zvault.daemon.metrics.exporter import MetricsCollector
from zvault.daemon.page.topics import PageTopic
from zvault.daemon.run_counters import RunCounters
from zvault.daemon.status import DaemonStatus
from zvault.daemon.web.server import WebServer
from zvault.ops.context import Context
from zvault.ops.state.environment import Environment, WallClock
from zvault.ops.vaults.vault import Vaults
from zvault.system.process.runner import HostRunner

NOW = 1_795_265_053.5
TAG = "zvault_2026-11-21T09:00:00Z"
NEWEST = Snapshot(DatasetName("tank/my data"), TAG, 1, 1, int(NOW) - 3600)


class StoppedClock(WallClock):
    def time(self) -> float:
        return NOW


class FakeProofs(dict[str, Any]):
    def noted(self, name: str) -> Any:
        return self.get(name)


class FakeRuns:
    def __init__(self) -> None:
        self.lags: dict[str, dict[str, DatasetLag]] = {}
        self.made: dict[str, dict[str, int | None]] = {}
        self.proofs = FakeProofs()
        self.counters = RunCounters()
        self.runner = self
        self.current: dict[str, Any] = {}
        self.turns: Any = None
        self.readings = SimpleNamespace(being_read=lambda _: False)
        self.restore_times = SimpleNamespace(estimate_whole=lambda _: None)

    def running(self, name: str) -> Any:
        return self.current.get(name)


class FakeHistory:
    def __init__(self) -> None:
        self.runs: dict[tuple[str, str | None], dict[str, Any]] = {}

    def last(self, backup: str, result: str | None = None, *, way: str) -> dict[str, Any] | None:
        return self.runs.get((backup, result))

    def made_since(self, backup: str, *, way: str) -> str | None:
        return None


@pytest.fixture
def status() -> DaemonStatus:
    config = Config.model_validate(
        {
            "vault": {"cold": {"pool": "cold"}},
            "backup": {
                "b": {"source": "tank", "vault": "cold", "max_lag": "3h"},
                "c": {"source": "other", "vault": "cold"},
            },
        }
    )
    nowhere = Path("/nowhere")
    paths = Paths(nowhere, nowhere, nowhere, nowhere)
    context = Context.of(Environment(config, paths, HostRunner(), "host", StoppedClock()))
    vaults = [SimpleNamespace(name="cold", awake=SimpleNamespace(held=True, since=1e9))]
    runs = FakeRuns()
    runs.turns = HostElection(context, Vaults(context))
    parts: Any = (
        SimpleNamespace(vaults=SimpleNamespace(all=lambda: vaults)),
        runs,
        FakeHistory(),
        SimpleNamespace(next_run=lambda name: NOW + 60 if name == "b" else None, behind=lambda: 0.0),
    )
    return DaemonStatus(context, *parts, started=NOW - 5)


@pytest.fixture
def metrics(status: DaemonStatus) -> MetricsCollector:
    return MetricsCollector(status)


def families(metrics: MetricsCollector) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(metrics.text().decode())}


def samples(metrics: MetricsCollector, name: str) -> dict[tuple[str, ...], float]:
    """The samples of one family, by the values of their labels in the order of the labels' names."""
    return {tuple(sample.labels.values()): sample.value for sample in families(metrics)[name].samples}


def test_no_limit_of_a_scrub_or_a_proof_holds_while_the_disk_is_unplugged(metrics: MetricsCollector) -> None:
    limits = ("zvault_scrub_max_age_seconds", "zvault_verify_max_age_seconds")
    for away in (False, True, False):
        metrics.vaults = [{**VAULT_UP, "away": away}]  # type: ignore[typeddict-item]
        assert [bool(samples(metrics, name)) for name in limits] == [not away] * 2


VAULT_UP = {
    "name": "cold",
    "pool": "cold",
    "state": "up",
    "health": "DEGRADED",
    "readonly": False,
    "multihost": False,
    "failmode": "continue",
    "foreign": [],
    "away": False,
    "size": 100,
    "allocated": 60,
    "free": 40,
    "error": None,
    "scrub": None,
    "devices": [
        {"name": "cold-0", "path": None, "state": "up", "detail": "", "store": None},
        {"name": "cold-1", "path": None, "state": "gone", "store": None, "detail": "unplugged"},
    ],
}
VAULT_DOWN = {
    **VAULT_UP,
    "state": "down",
    "health": None,
    "size": None,
    "allocated": None,
    "free": None,
    "devices": [],
}


def fill(metrics: MetricsCollector) -> None:
    runs: Any = metrics.status.runs
    runs.lags = {
        "b": {
            "tank/my data": DatasetLag("tank/my data", NEWEST, 2, base=NEWEST.creation),
            'tank/"odd\\': DatasetLag('tank/"odd\\', None, 7),
            "tank/marked": DatasetLag("tank/marked", None, 3, base=int(NOW) - 7200),
        }
    }
    counters = runs.counters
    counters.runs = Counter({("b", "ok"): 5, ("b", "failed"): 1})
    counters.failures = Counter({("b", "transfer"): 1})
    counters.retries = Counter({"b": 3})
    counters.bytes = Counter({"b": 2**53})
    counters.seconds = Counter({"b": 12.5})
    counters.pruned = Counter({("b", "source"): 3, ("b", "vault"): 4})
    counters.aborted = Counter({("b", "replaced"): 2})
    counters.over_limit = {("b", "source"): 0, ("b", "vault"): 2, ("gone", "vault"): 9}
    history: Any = metrics.status.history
    history.runs = {
        ("b", None): {"started": NOW - 100, "ended": NOW - 90, "result": "failed", "error": None},
        ("b", "ok"): {"started": NOW - 200, "ended": NOW - 190, "result": "ok", "error": None},
    }
    metrics.vaults = [VAULT_UP]


def test_state_that_cannot_be_written_shows(metrics: MetricsCollector) -> None:
    assert samples(metrics, "zvault_state_writable") == {(): 1.0}
    state: Any = SimpleNamespace(trouble="nothing can be written", looked=True, space=0)
    metrics.status.state = state
    assert samples(metrics, "zvault_state_writable") == {(): 0.0}


def test_a_success_dated_later_than_now_hides_no_run_that_failed_since(metrics: MetricsCollector) -> None:
    """The alert compares them: it would be silent until that day comes."""
    fill(metrics)
    history: Any = metrics.status.history
    history.runs["b", "ok"] |= {"started": NOW + 1e8, "ended": NOW + 1e8 + 10}
    assert samples(metrics, "zvault_backup_last_run_timestamp_seconds") == {("b",): NOW - 100}
    assert samples(metrics, "zvault_backup_last_success_timestamp_seconds") == {}
    history.runs["b", None] = history.runs["b", "ok"]
    assert samples(metrics, "zvault_backup_last_run_timestamp_seconds") == {}
    assert samples(metrics, "zvault_backup_next_run_timestamp_seconds") == {("b",): NOW + 60}


def test_lag_grows_with_the_clock_from_the_newest_snapshot_on_the_vault(metrics: MetricsCollector) -> None:
    fill(metrics)
    assert samples(metrics, "zvault_backup_lag_seconds") == {("b", "tank/my data"): 3600.5}


def test_a_lag_that_is_not_known_has_no_sample_rather_than_a_small_one(metrics: MetricsCollector) -> None:
    assert samples(metrics, "zvault_backup_lag_seconds") == {}
    fill(metrics)
    assert ("b", 'tank/"odd\\') not in samples(metrics, "zvault_backup_lag_seconds")
    assert samples(metrics, "zvault_backup_pending_snapshots")["b", 'tank/"odd\\'] == 7


def test_the_base_has_an_age_of_its_own(metrics: MetricsCollector) -> None:
    # A bookmark may be all that is left of it on the source: then the lag is not known, and the base is.
    assert samples(metrics, "zvault_base_age_seconds") == {}
    fill(metrics)
    assert samples(metrics, "zvault_base_age_seconds") == {
        ("b", "tank/my data"): 3600.5,
        ("b", "tank/marked"): 7200.5,
    }


def test_what_never_happened_has_no_time(metrics: MetricsCollector) -> None:
    assert samples(metrics, "zvault_backup_last_success_timestamp_seconds") == {}
    assert samples(metrics, "zvault_backup_last_run_timestamp_seconds") == {}
    assert samples(metrics, "zvault_backup_next_run_timestamp_seconds") == {("b",): NOW + 60}
    fill(metrics)
    assert samples(metrics, "zvault_backup_last_success_timestamp_seconds") == {("b",): NOW - 190}
    assert samples(metrics, "zvault_backup_last_run_timestamp_seconds") == {("b",): NOW - 100}


def test_limits_and_runs_of_each_backup(metrics: MetricsCollector) -> None:
    assert samples(metrics, "zvault_backup_max_lag_seconds") == {("b",): 10800.0}
    runs: Any = metrics.status.runs
    runs.current["c"] = SimpleNamespace(id="r1", bytes_done=1, bytes_total=2, waiting=None, turn=None)
    assert samples(metrics, "zvault_backup_running") == {("b",): 0.0, ("c",): 1.0}


def test_counters_begin_at_zero_and_count(metrics: MetricsCollector) -> None:
    # A series that begins with the first failure is one whose first failure increase() cannot see.
    results = ("ok", "partial", "failed", "interrupted", "skipped")
    zero = {(name, result): 0.0 for name in "bc" for result in results}
    assert samples(metrics, "zvault_backup_runs") == zero
    fill(metrics)
    assert samples(metrics, "zvault_backup_runs") == {**zero, ("b", "ok"): 5, ("b", "failed"): 1}
    assert samples(metrics, "zvault_backup_failures") == {("b", "transfer"): 1}
    assert samples(metrics, "zvault_backup_retries") == {("b",): 3, ("c",): 0}
    assert samples(metrics, "zvault_transfer_bytes") == {("b",): float(2**53)}
    assert samples(metrics, "zvault_transfer_seconds") == {("b",): 12.5}
    assert samples(metrics, "zvault_pruned_snapshots") == {("b", "source"): 3, ("b", "vault"): 4}
    aborted = samples(metrics, "zvault_resume_aborted")
    assert (aborted["b", "replaced"], aborted["b", "corrupt"], aborted["c", "flags"]) == (2, 0, 0)
    # A backup that is no longer configured has no series that would alert for ever.
    assert samples(metrics, "zvault_prune_over_limit_datasets") == {("b", "source"): 0, ("b", "vault"): 2}


def test_stalls_are_counted_by_vault_and_kind(metrics: MetricsCollector) -> None:
    zero = samples(metrics, "zvault_stalls")
    assert set(zero) == {(kind, vault) for kind in STALL_KINDS for vault in ("cold", "")}
    assert not any(zero.values())
    metrics.status.stalls.note("cold", StallSign("deadman", "late"), NOW)
    metrics.status.stalls.note(None, StallSign("hung_task", "hangs"), NOW)
    assert samples(metrics, "zvault_stalls") == {**zero, ("deadman", "cold"): 1, ("hung_task", ""): 1}


def test_a_vault_that_is_up(metrics: MetricsCollector) -> None:
    fill(metrics)
    assert samples(metrics, "zvault_vault_up") == {("cold",): 1}
    assert samples(metrics, "zvault_device_up") == {("cold-0", "cold"): 1, ("cold-1", "cold"): 0}
    states = samples(metrics, "zvault_pool_state")
    assert {labels[1] for labels, value in states.items() if value} == {"degraded"}
    assert len(states) == 7
    assert samples(metrics, "zvault_pool_free_bytes") == {("cold", "cold"): 40}
    assert samples(metrics, "zvault_inhibitor_held") == {("cold",): 1}
    assert samples(metrics, "zvault_inhibitor_since_timestamp_seconds") == {("cold",): 1e9}


def test_a_vault_that_fills_has_a_time_and_one_that_does_not_has_none(
    metrics: MetricsCollector, status: DaemonStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(metrics)
    assert samples(metrics, "zvault_vault_full_seconds") == {}
    monkeypatch.setattr(status.judge, "full_in", lambda name: 86400.0 if name == "cold" else None)
    assert samples(metrics, "zvault_vault_full_seconds") == {("cold",): 86400.0}
    assert samples(metrics, "zvault_vault_uncounted_devices") == {("cold",): 0}
    prices = {"put": 0.005, "get": 0.0004}
    device = {"nbd": "tcp:nbd.example.org", "prices": prices}
    status.context.env.config = Config.model_validate(
        {"vault": {"cold": {"pool": "cold", "device": [device]}}}
    )
    assert samples(metrics, "zvault_vault_uncounted_devices") == {("cold",): 1}


def test_a_vault_that_is_down_has_no_size_and_no_state(metrics: MetricsCollector) -> None:
    metrics.vaults = [VAULT_DOWN]
    assert samples(metrics, "zvault_vault_up") == {("cold",): 0}
    for name in ("size", "allocated", "free"):
        assert samples(metrics, f"zvault_pool_{name}_bytes") == {}
    assert samples(metrics, "zvault_pool_state") == {}


def test_names_follow_the_conventions(metrics: MetricsCollector) -> None:
    """https://prometheus.io/docs/practices/naming/ : base units, _total on counters, no type in the name."""
    fill(metrics)
    for family in families(metrics).values():
        assert re.fullmatch(r"zvault_[a-z][a-z0-9]*(_[a-z0-9]+)*", family.name)
        assert family.documentation.endswith(".")
        assert not re.search(
            r"_(ms|milliseconds|minutes|hours|kb|mb|kib|percent|count|gauge|counter)(_|$)", family.name
        )
        words = family.name.split("_")
        if "timestamp" in words:
            assert family.name.endswith("_timestamp_seconds")
        if family.type == "counter":
            assert all(sample.name == f"{family.name}_total" for sample in family.samples)
        else:
            assert not family.name.endswith("_total")
        if family.type == "info":
            assert [sample.name for sample in family.samples] == ["zvault_build_info"]
    assert metrics.text().count(b"# TYPE zvault_backup_lag_seconds gauge") == 1


def test_no_label_has_a_snapshot_in_it(metrics: MetricsCollector) -> None:
    fill(metrics)
    assert TAG not in metrics.text().decode()
    known = {"backup", "vault", "dataset", "result", "reason", "side", "device", "pool", "state", "version"}
    known |= {"kind", "level", "name", "condition", "severity", "alert"}
    for family in families(metrics).values():
        for sample in family.samples:
            assert set(sample.labels) <= known
            assert not any("@" in value for value in sample.labels.values())


def test_no_series_comes_twice(metrics: MetricsCollector) -> None:
    fill(metrics)
    seen = Counter(
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in families(metrics).values()
        for sample in family.samples
    )
    assert max(seen.values()) == 1


def test_a_scrape_is_the_same_twice(metrics: MetricsCollector) -> None:
    fill(metrics)
    assert metrics.text() == metrics.text()


async def test_it_is_served_where_it_was_told(metrics: MetricsCollector) -> None:
    server = WebServer({PageTopic.METRICS: lambda _: metrics.text()})
    await server.listen("127.0.0.1", 0, {})
    port = server.port
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert await answer.read() == metrics.text()
    other = WebServer({})
    with pytest.raises(Busy) as failure:
        await other.listen("127.0.0.1", port, {})
    assert str(port) in failure.value.next
    assert other.address is None
    await server.close()
    await server.close()
    assert server.address is None


def lag(dataset: str, hours: int | None, pending: int | None = 0) -> DatasetLag:
    newest = None if hours is None else Snapshot(DatasetName(dataset), TAG, 1, 1, int(NOW) - 3600 * hours)
    return DatasetLag(dataset, newest, pending, base=newest.creation if newest is not None else None)


def test_beyond_a_limit_the_datasets_of_a_backup_are_one_series(metrics: MetricsCollector) -> None:
    runs: Any = metrics.status.runs
    config = metrics.status.context.env.config
    limited = config.model_copy(update={"daemon": config.daemon.model_copy(update={"metrics_datasets": 2})})
    metrics.status.context.env.reconfigure(limited)
    runs.lags["b"] = {one.dataset: one for one in (lag("tank", 1), lag("tank/a", 5, 2), lag("tank/b", 2, 3))}
    runs.lags["c"] = {one.dataset: one for one in (lag("other", 1), lag("other/a", None))}
    assert samples(metrics, "zvault_backup_lag_seconds") == {
        ("b", "*"): 5 * 3600 + 0.5,
        ("c", "other"): 3600.5,
    }
    assert samples(metrics, "zvault_backup_pending_snapshots") == {
        ("b", "*"): 5,
        ("c", "other"): 0,
        ("c", "other/a"): 0,
    }
    assert samples(metrics, "zvault_base_age_seconds")["b", "*"] == 5 * 3600 + 0.5
    # What is not known of one of them is not known of all.
    runs.lags["b"]["tank/a"] = lag("tank/a", None, None)
    assert samples(metrics, "zvault_backup_lag_seconds") == {("c", "other"): 3600.5}
    assert ("b", "*") not in samples(metrics, "zvault_backup_pending_snapshots")
    runs.made["b"] = {"tank": int(NOW) - 60, "tank/a": int(NOW) - 7200, "tank/b": int(NOW)}
    assert samples(metrics, "zvault_backup_snapshot_age_seconds") == {("b", "*"): 7200.5}


def test_the_loop_tells_how_long_it_kept_others_waiting_where_it_is_measured(status: DaemonStatus) -> None:
    assert samples(MetricsCollector(status, loop_lag=lambda: 0.25), "zvault_loop_lag_seconds") == {(): 0.25}
    assert samples(MetricsCollector(status), "zvault_loop_lag_seconds") == {}
