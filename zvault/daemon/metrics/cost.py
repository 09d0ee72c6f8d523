"""Metrics of what vaults' object stores cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from zvault.api.cost import CostDocument

COST_LABELS = ("vault", "currency")


def collect_cost(known: Iterable[tuple[str, CostDocument | None]]) -> Iterator[Metric]:
    """The costs of vaults, by name. A vault without prices has no sample."""
    so_far = GaugeMetricFamily(
        "zvault_vault_month_cost",
        "What a vault's block stores have cost this month, by the prices of its devices.",
        labels=COST_LABELS,
    )
    forecast = GaugeMetricFamily(
        "zvault_vault_month_cost_forecast",
        "What they will have cost at the month's end, at the pace of the last seven days.",
        labels=COST_LABELS,
    )
    for vault, cost in known:
        if cost is None:
            continue
        for gauge, value in ((so_far, cost["cost"]), (forecast, cost["forecast"])):
            if value is not None:
                gauge.add_metric((vault, cost["currency"]), value)
    yield from (so_far, forecast)
