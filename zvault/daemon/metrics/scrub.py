"""Metrics of scrubs, damage and healing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from zvault.core.integrity.damage import count_damaged_files
from zvault.ops.context import Context

HEAL_RESULTS = ("healed", "partial", "failed")
"""How a healing can end."""


def collect_scrubs(
    context: Context, ended: Mapping[tuple[str, str], int], away: Collection[str] = ()
) -> Iterator[Metric]:
    """All of them. What was never seen has no sample. ``ended`` are healings by vault and result; ``away`` the vaults
    whose disk is unplugged.
    """
    now, vaults = context.env.clock.time(), context.env.config.vault
    known = {name: found for name in vaults if (found := context.records.conditions.get(name)) is not None}
    age = GaugeMetricFamily(
        "zvault_scrub_age_seconds",
        "Time since the vault's last whole scrub ended, or since its pool was made. Missing where unknown.",
        labels=("vault",),
    )
    oldest = GaugeMetricFamily(
        "zvault_scrub_max_age_seconds",
        "How old the last scrub may become before one is due. Missing without such an age, and while the vault's disk "
        "is unplugged.",
        labels=("vault",),
    )
    running = GaugeMetricFamily(
        "zvault_scrub_running", "Whether a scrub is reading, and not paused.", labels=("vault",)
    )
    errors = GaugeMetricFamily(
        "zvault_pool_errors",
        "Errors that ZFS has on its list for the pool, as last seen, but for those of what is half received.",
        labels=("vault", "pool"),
    )
    damaged = GaugeMetricFamily(
        "zvault_damaged_files", "Files and objects known to be damaged in the vault.", labels=("vault",)
    )
    for name, found in known.items():
        if found.since is not None:
            age.add_metric((name,), max(0.0, now - found.since))
        running.add_metric((name,), float(found.scan.state == "scanning"))
        errors.add_metric((name, vaults[name].pool), float(found.damaging))
        damaged.add_metric((name,), float(count_damaged_files(found.damages)))
    for name in vaults:
        if (every := vaults[name].scrubs().every) is not None and name not in away:
            oldest.add_metric((name,), every)
    heals = CounterMetricFamily("zvault_heals", "Healings ended, by result.", labels=("vault", "result"))
    for name in vaults:
        for result in HEAL_RESULTS:
            heals.add_metric((name, result), float(ended.get((name, result), 0)))
    yield from (age, oldest, running, errors, damaged, heals)
