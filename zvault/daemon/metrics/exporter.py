"""Prometheus metrics. A scrape only reads memory: what is asked of pools is asked in the background."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

import zvault
from zvault.api.runs import RunResult
from zvault.api.vaults import VaultDocument
from zvault.core.dates import reject_future
from zvault.core.diagnosis.write_drift import DriftCause
from zvault.core.health.verdict import HealthVerdict, SubjectKind
from zvault.core.replication.resume_receive import ResumeFault
from zvault.daemon.metrics.blockstore import collect_blockstore
from zvault.daemon.metrics.cost import collect_cost
from zvault.daemon.metrics.datasets import sample_ages, sample_lags
from zvault.daemon.metrics.health import collect_health
from zvault.daemon.metrics.notify import collect_notify
from zvault.daemon.metrics.restore_time import collect_restore_times
from zvault.daemon.metrics.scrub import collect_scrubs
from zvault.daemon.metrics.shared_vaults import collect_shared
from zvault.daemon.metrics.stalls import collect_stalls
from zvault.daemon.metrics.verification import collect_verification
from zvault.daemon.notify.notifier import Notifier
from zvault.daemon.status import DaemonStatus
from zvault.ops.state.costs import list_uncounted
from zvault.ops.tuning.set_parameters import count_held_parameters

POOL_STATES = ("ONLINE", "DEGRADED", "FAULTED", "OFFLINE", "UNAVAIL", "REMOVED", "SUSPENDED")
"""zpoolconcepts(7)'s states of a pool; one series each, so that a rule can ask for the one it means."""


RESUME_FAULTS = get_args(ResumeFault)
"""Why an interrupted receive is given up."""

DRIFT_CAUSES = get_args(DriftCause)
"""What a vault's writes can drift in."""

RUN_RESULTS = get_args(RunResult)
"""How a run can end."""


class MetricsCollector(Collector):
    """Everything worth an alert. Labels name backup, vault and dataset, never a snapshot."""

    def __init__(
        self,
        status: DaemonStatus,
        notifier: Notifier | None = None,
        loop_lag: Callable[[], float] | None = None,
    ) -> None:
        self.status = status
        self.notifier = notifier
        self.loop_lag = loop_lag
        self.vaults: Sequence[VaultDocument] = []
        self.reload_ok = True
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def text(self) -> bytes:
        """The exposition, as ``/metrics`` serves it."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """Called by the registry on each scrape."""
        yield InfoMetricFamily("zvault_build", "The running zvaultd.", value={"version": zvault.__version__})
        yield _gauge(
            "zvault_config_reload_success",
            "Whether the newest configuration is in force.",
            (),
            [((), self.reload_ok)],
        )
        yield _gauge(
            "zvault_state_writable",
            "Whether what zvaultd keeps in its state directory can be written.",
            (),
            [((), self.status.unwritable is None)],
        )
        yield _gauge(
            "zvault_loop_lag_seconds",
            "The longest that zvaultd kept anything that was due waiting in the last minute: scrapes, the watchdog, "
            "the reading of streams. Usually a few milliseconds.",
            (),
            [((), self.loop_lag() if self.loop_lag is not None else None)],
        )
        verdicts = self.status.verdicts(self.vaults)
        yield from collect_health(verdicts)
        yield from self._backups(verdicts)
        yield from self._counters()
        yield from self._vaults()
        away = {vault["name"] for vault in self.vaults if vault["away"]}
        yield from collect_scrubs(self.status.context, self.status.runs.counters.heals, away)
        yield from collect_verification(
            self.status.context.env.config.backup,
            self.status.runs.proofs,
            self.status.runs.counters.differing,
            self.status.context.env.clock.time(),
            away,
        )
        yield from collect_restore_times(
            self.status.context.env.config.backup, self.status.runs.restore_times.estimate_whole
        )
        yield from collect_blockstore(self.vaults)
        yield from collect_shared(self.status.runs.turns)
        context = self.status.context
        costs = context.records.costs
        yield from collect_cost(
            (name, costs.document(context.env, name)) for name in context.env.config.vault
        )
        yield from collect_stalls(self.status.stalls, self.status.context.env.config.vault)
        if self.notifier is not None:
            yield from collect_notify(self.notifier)

    def _backups(
        self, verdicts: Mapping[tuple[SubjectKind, str], HealthVerdict] | None = None
    ) -> Iterator[Metric]:
        backups = self.status.context.env.config.backup
        documents = {
            name: self.status.backup(backup, (verdicts or {}).get(("backup", name)))
            for name, backup in backups.items()
        }
        limit = self.status.context.env.config.daemon.metrics_datasets
        now = self.status.context.env.clock.time()
        turns = self.status.runs.turns
        lags = [
            one
            for name in backups
            for one in sample_lags(
                name, self.status.runs.lags.get(name, {}), now, limit, claimed=turns.done_lag(name)
            )
        ]
        yield _gauge(
            "zvault_backup_lag_seconds",
            "Now minus creation of the newest source snapshot that is on the vault. Missing where unknown. "
            "Where several hosts share the vault and another has done a run since, as that host says: "
            'dataset="*" alone, at least the time since that run ended.',
            ("backup", "dataset"),
            [(one.labels, one.lag) for one in lags],
        )
        yield _gauge(
            "zvault_backup_pending_snapshots",
            "Snapshots of the source that the vault lacks.",
            ("backup", "dataset"),
            [(one.labels, one.pending) for one in lags],
        )
        yield _gauge(
            "zvault_backup_snapshot_age_seconds",
            "Now minus creation of the newest snapshot, of a backup that makes snapshots only. Missing where unknown.",
            ("backup", "dataset"),
            [
                one
                for name in backups
                for one in sample_ages(name, self.status.runs.made.get(name, {}), now, limit)
            ],
        )
        yield _gauge(
            "zvault_base_age_seconds",
            "Now minus creation of the newest snapshot or bookmark that source and vault share. Missing where unknown.",
            ("backup", "dataset"),
            [(one.labels, one.base_age) for one in lags],
        )
        yield _gauge(
            "zvault_backup_max_lag_seconds",
            "The lag the configuration tolerates.",
            ("backup",),
            [((name,), backup.max_lag) for name, backup in backups.items()],
        )
        times: tuple[tuple[Literal["last_success", "last_run", "next_run"], str, str], ...] = (
            (
                "last_success",
                "zvault_backup_last_success_timestamp_seconds",
                "When the last run without fault ended. Missing where that is dated later than now.",
            ),
            (
                "last_run",
                "zvault_backup_last_run_timestamp_seconds",
                "When the last ended run began. Missing where that is dated later than now.",
            ),
            ("next_run", "zvault_backup_next_run_timestamp_seconds", "When the next run is due."),
        )
        for key, metric, text in times:
            dates = [documents[name][key] for name in backups]
            if key != "next_run":  # one dated ahead would seem newer than each failure until its day
                dates = [reject_future(date, now) for date in dates]
            yield _gauge(
                metric, text, ("backup",), [((name,), at) for name, at in zip(backups, dates, strict=True)]
            )
        yield _gauge(
            "zvault_backup_running",
            "Whether a run is in progress.",
            ("backup",),
            [((name,), documents[name]["run"] is not None) for name in backups],
        )

    def _counters(self) -> Iterator[Metric]:
        counters = self.status.runs.counters
        names = list(self.status.context.env.config.backup)
        # increase() does not see a counter's first step where the series begins with it.
        zero = dict.fromkeys(((name, result) for name in names for result in RUN_RESULTS), 0)
        yield _counter(
            "zvault_backup_runs", "Runs ended, by result.", ("backup", "result"), {**zero, **counters.runs}
        )
        yield _counter(
            "zvault_backup_failures",
            "Runs that failed at least in part, by reason.",
            ("backup", "reason"),
            counters.failures,
        )
        yield _counter(
            "zvault_backup_retries",
            "Times that a run waited and tried again what had failed.",
            ("backup",),
            {(name,): counters.retries[name] for name in names},
        )
        yield _counter(
            "zvault_transfer_bytes",
            "Bytes streamed into the vault.",
            ("backup",),
            {(n,): v for n, v in counters.bytes.items()},
        )
        yield _counter(
            "zvault_transfer_seconds",
            "Seconds spent streaming.",
            ("backup",),
            {(n,): v for n, v in counters.seconds.items()},
        )
        yield _counter(
            "zvault_resume_aborted",
            "Interrupted receives given up instead of resumed, by reason.",
            ("backup", "reason"),
            {
                **dict.fromkeys(((name, fault) for name in names for fault in RESUME_FAULTS), 0),
                **counters.aborted,
            },
        )
        yield _gauge(
            "zvault_prune_over_limit_datasets",
            "Datasets of which prune_limit held something back at the last pruning.",
            ("backup", "side"),
            [(labels, count) for labels, count in counters.over_limit.items() if labels[0] in names],
        )
        yield _counter("zvault_pruned_snapshots", "Snapshots pruned.", ("backup", "side"), counters.pruned)

    def _vaults(self) -> Iterator[Metric]:
        yield _gauge(
            "zvault_device_up",
            "Whether a device of the vault is connected and served.",
            ("vault", "device"),
            [((v["name"], d["name"]), d["state"] == "up") for v in self.vaults for d in v["devices"]],
        )
        yield _gauge(
            "zvault_vault_up",
            "Whether the vault is up: all devices and the pool.",
            ("vault",),
            [((v["name"],), v["state"] == "up") for v in self.vaults],
        )
        yield _gauge(
            "zvault_pool_state",
            "The state of an imported pool: 1 for the one it is in.",
            ("vault", "pool", "state"),
            [
                ((v["name"], v["pool"], state.lower()), v["health"] == state)
                for v in self.vaults
                if v["health"] is not None
                for state in POOL_STATES
            ],
        )
        for key in ("size", "allocated", "free"):
            yield _gauge(
                f"zvault_pool_{key}_bytes",
                f"The pool's {key}, as zpool list shows it; missing while it is not imported.",
                ("vault", "pool"),
                [((v["name"], v["pool"]), v[key]) for v in self.vaults],
            )
        yield _gauge(
            "zvault_vault_full_seconds",
            "Seconds until the vault is full, at the pace of the last days; missing where they tell of no time.",
            ("vault",),
            [((v["name"],), self.status.judge.full_in(v["name"])) for v in self.vaults],
        )
        env = self.status.context.env
        yield _gauge(
            "zvault_vault_uncounted_devices",
            "Devices that cost by the request, whose requests nobody counts: not in what the vault has cost.",
            ("vault",),
            [((v["name"],), float(len(list_uncounted(env, v)))) for v in self.vaults],
        )
        yield _gauge(
            "zvault_inhibitor_held",
            "Whether a logind inhibitor is held for the vault.",
            ("vault",),
            [((vault.name,), vault.awake.held) for vault in self.status.vault_monitor.vaults.all()],
        )
        yield _gauge(
            "zvault_inhibitor_since_timestamp_seconds",
            "When the vault's logind inhibitor was taken; missing while none is held.",
            ("vault",),
            [((vault.name,), vault.awake.since) for vault in self.status.vault_monitor.vaults.all()],
        )
        yield from self._writes()
        context = self.status.context
        yield _gauge(
            "zvault_tuning_leases",
            "Module parameters of OpenZFS that are set for the vault, to be put back when it goes down.",
            ("vault",),
            [
                ((name,), count_held_parameters(context.records.undo, name))
                for name in context.env.config.vault
            ],
        )

    def _writes(self) -> Iterator[Metric]:
        """How a vault's writes fare, while streams go in."""
        samples = self.status.context.activity.writes.samples
        for name, text, key in (
            ("request_bytes", "Size of the write request that a byte came in, on average", "request"),
            ("write_wait_seconds", "What a write takes, with the time in OpenZFS's queue", "wait"),
            ("request_seconds", "What a write request takes on the device", "disk_wait"),
            ("txg_sync_seconds", "The longest sync of a transaction group", "sync"),
        ):
            values = [((vault,), getattr(sample, key)) for vault, sample in samples.items()]
            yield _gauge(
                f"zvault_vault_{name}", f"{text}, as last seen while streams go in.", ("vault",), values
            )
        vaults = self.status.context.env.config.vault
        zero = dict.fromkeys(((vault, cause) for vault in vaults for cause in DRIFT_CAUSES), 0)
        yield _counter(
            "zvault_vault_drift",
            "Runs in which a vault's writes drifted from what its profile is for, by what was seen first.",
            ("vault", "reason"),
            {**zero, **self.status.runs.counters.drifts},
        )


def _gauge(
    name: str, text: str, labels: tuple[str, ...], samples: Iterable[tuple[tuple[str, ...], float | None]]
) -> GaugeMetricFamily:
    """A gauge; what is unknown (None) has no sample, because missing is not zero."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in samples:
        if value is not None:
            family.add_metric(values, float(value))
    return family


def _counter(
    name: str, text: str, labels: tuple[str, ...], samples: Mapping[Any, float]
) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=labels)
    for values, value in samples.items():
        family.add_metric(values, float(value))
    return family
