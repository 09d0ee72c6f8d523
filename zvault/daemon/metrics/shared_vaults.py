"""Metrics of vaults that several hosts share."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from zvault.daemon.host_election import HostElection


def collect_shared(turns: HostElection) -> Iterator[Metric]:
    """Yield the metrics of who has each shared vault as far as this host knows, and what it asked the store to know
    it.
    """
    holder = GaugeMetricFamily(
        "zvault_vault_holder",
        "1 for each host that shares the vault and has it, as far as this host knows; 0 for the others.",
        labels=("vault", "host"),
    )
    period = GaugeMetricFamily(
        "zvault_backup_shared_period_seconds",
        "Seconds between two due moments of a backup whose vault several hosts share.",
        labels=("backup",),
    )
    requests = CounterMetricFamily(
        "zvault_vault_shared_requests",
        "Requests to the vault's bucket for the note and the lease that its hosts share, by kind.",
        labels=("vault", "kind"),
    )
    for shared in turns.all():
        has = shared.holder()
        for host in shared.vault.config.hosts:
            holder.add_metric((shared.name, host), float(host == has))
        for kind, number in sorted(shared.requests.items()):
            requests.add_metric((shared.name, kind), float(number))
    for backup, seconds in turns.periods():
        period.add_metric((backup,), seconds)
    yield from (holder, period, requests)
