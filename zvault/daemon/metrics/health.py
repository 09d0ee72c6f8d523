"""Metrics of the verdicts on backups, vaults and the daemon."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from zvault.core.health.verdict import VERDICT_LEVELS, HealthVerdict, SubjectKind


def collect_health(verdicts: Mapping[tuple[SubjectKind, str], HealthVerdict]) -> Iterator[Metric]:
    """The level of each subject, and the conditions that hold. ``verdicts``: by kind and name."""
    health = GaugeMetricFamily(
        "zvault_health",
        "How a backup, a vault or the daemon is: 0 ok, 1 unknown, 2 warning, 3 critical.",
        labels=("kind", "name"),
    )
    condition = GaugeMetricFamily(
        "zvault_condition",
        "1 for each condition that holds, see health.md; missing for those that do not. `alert` is the rule that fires"
        " for it, empty for the general one of its severity.",
        labels=("kind", "name", "condition", "severity", "alert"),
    )
    for (kind, name), verdict in verdicts.items():
        health.add_metric((kind, name), float(VERDICT_LEVELS.index(verdict.level)))
        for one in {one.condition.key: one.condition for one in verdict.findings}.values():
            condition.add_metric((kind, name, one.key, one.level, one.alert), 1.0)
    yield from (health, condition)
