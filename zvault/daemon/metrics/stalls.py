"""Metrics of stalls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, Metric

from zvault.core.diagnosis.stalls import STALL_KINDS, StallLog


def collect_stalls(stalls: StallLog, vaults: Iterable[str]) -> Iterator[Metric]:
    """Signs by vault and kind; every series begins at zero, for increase() does not see a first step."""
    family = CounterMetricFamily(
        "zvault_stalls",
        "Signs that the vault's storage stands still or gives errors, by kind. Without a vault: it cannot be told.",
        labels=("vault", "kind"),
    )
    zero = dict.fromkeys(((vault, kind) for vault in (*vaults, "") for kind in STALL_KINDS), 0)
    for labels, count in {**zero, **stalls.counts}.items():
        family.add_metric(labels, count)
    yield family
