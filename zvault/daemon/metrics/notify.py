"""Metrics of notifications."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from zvault.daemon.notify.notifier import Notifier

SEND_RESULTS = ("sent", "failed")


def collect_notify(notifier: Notifier) -> Iterator[Metric]:
    """Yield the metrics of what waits and how tries went, by target."""
    waiting = GaugeMetricFamily(
        "zvault_notify_waiting",
        "Notifications that wait to be sent, or to be sent again.",
        labels=("target",),
    )
    tries = CounterMetricFamily(
        "zvault_notify_tries",
        "Tries to send a notification, by result: sent or failed.",
        labels=("target", "result"),
    )
    for one in notifier.documents():
        waiting.add_metric((one["name"],), one["waiting"])
        for result in SEND_RESULTS:
            tries.add_metric((one["name"], result), notifier.counts[one["name"], result])
    yield from (waiting, tries)
