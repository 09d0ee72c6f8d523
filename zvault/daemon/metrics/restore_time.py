"""Metrics of how long each backup takes to restore."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from zvault.config.schema import Backup
from zvault.core.integrity.restore_time import RestoreEstimate


def collect_restore_times(
    backups: Mapping[str, Backup], estimate: Callable[[Backup], RestoreEstimate | None]
) -> Iterator[Metric]:
    """Yield the metrics of how long each backup takes to restore whole, and how long it may; missing where unknown."""
    takes = GaugeMetricFamily(
        "zvault_backup_restore_seconds",
        "How long it takes to restore all of the backup, at the rate at which its vault was last read in earnest. "
        "Missing where unknown.",
        labels=("backup",),
    )
    held = GaugeMetricFamily(
        "zvault_backup_restore_bytes",
        "How much that is, as it lies on the vault. Missing where unknown.",
        labels=("backup",),
    )
    rate = GaugeMetricFamily(
        "zvault_backup_restore_rate",
        "The rate at which the backup would be restored, in bytes a second, and what read the vault at that rate. "
        "Missing where nothing of 64 MiB or more was read from it yet.",
        labels=("backup", "measured_by"),
    )
    measured = GaugeMetricFamily(
        "zvault_backup_restore_measured_timestamp_seconds",
        "When the vault was read at that rate.",
        labels=("backup",),
    )
    wanted = GaugeMetricFamily(
        "zvault_backup_max_restore_seconds",
        "How long the configuration lets a restore of the backup take.",
        labels=("backup",),
    )
    for name, backup in backups.items():
        if backup.max_restore is not None:
            wanted.add_metric((name,), backup.max_restore)
        its = estimate(backup)
        if its is None:
            continue
        if its.seconds is not None:
            takes.add_metric((name,), its.seconds)
        if its.bytes is not None:
            held.add_metric((name,), its.bytes)
        if its.reading is not None:
            rate.add_metric((name, its.reading.kind), its.reading.rate)
            measured.add_metric((name,), its.reading.at)
    yield from (takes, held, rate, measured, wanted)
