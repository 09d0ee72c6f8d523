"""Metrics of what was proven, and when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from zvault.config.schema import Backup
from zvault.core.verify import RUNGS, Proof, Rung

LABELS = ("backup", "rung")


def verify_metrics(
    backups: Mapping[str, Backup],
    proofs: Mapping[str, Mapping[Rung, Proof]],
    differing: Mapping[tuple[str, str], int],
) -> Iterator[Metric]:
    """When each rung of each backup last passed, and how often it is to; missing where unknown or by hand only."""
    proven = GaugeMetricFamily(
        "zvault_verified_timestamp_seconds",
        "When a rung of a backup's verification last passed. Missing where it never did, or nobody knows.",
        labels=LABELS,
    )
    wanted = GaugeMetricFamily(
        "zvault_verify_max_age_seconds",
        "How long a rung's interval is. Missing where it is off.",
        labels=LABELS,
    )
    failed = CounterMetricFamily(
        "zvault_verify_failures", "Verifications that found a difference.", labels=LABELS
    )
    for name, backup in backups.items():
        for rung in RUNGS:
            proof = proofs.get(name, {}).get(rung)
            if proof is not None and proof.proven is not None:
                proven.add_metric((name, rung), proof.proven)
            if (every := backup.verify.interval(rung)) is not None:
                wanted.add_metric((name, rung), every)
            failed.add_metric((name, rung), differing.get((name, rung), 0))
    yield from (proven, wanted, failed)
