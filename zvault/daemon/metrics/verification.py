"""Metrics of what was proven, and when."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from zvault.config.schema import Backup
from zvault.core.dates import reject_future
from zvault.core.integrity.verification import PROOF_LEVELS, LevelProof, ProofLevel

PROOF_LABELS = ("backup", "level")


def collect_verification(
    backups: Mapping[str, Backup],
    proofs: Mapping[str, Mapping[ProofLevel, LevelProof]],
    differing: Mapping[tuple[str, str], int],
    now: float,
    away: Collection[str] = (),
) -> Iterator[Metric]:
    """Yield the metrics of when each level of each backup last passed, and how often it is to; missing where
    unknown or by hand only. ``away`` are the vaults whose disk is unplugged.
    """
    proven = GaugeMetricFamily(
        "zvault_verified_timestamp_seconds",
        "When a level of a backup's verification last passed. Missing where it never did, or nobody knows, as where "
        "that is dated later than now.",
        labels=PROOF_LABELS,
    )
    wanted = GaugeMetricFamily(
        "zvault_verify_max_age_seconds",
        "How long a level's interval is. Missing where it is off, for GUIDs, which are proven by each run, and while "
        "the vault's disk is unplugged.",
        labels=PROOF_LABELS,
    )
    failed = CounterMetricFamily(
        "zvault_verify_failures", "Verifications that found a difference.", labels=PROOF_LABELS
    )
    for name, backup in backups.items():
        for level in PROOF_LEVELS:
            proof = proofs.get(name, {}).get(level)
            if proof is not None and (at := reject_future(proof.proven, now)) is not None:
                proven.add_metric((name, level), at)
            every = backup.interval(level) if level != "guids" and backup.vault not in away else None
            if every is not None:
                wanted.add_metric((name, level), every)
            failed.add_metric((name, level), differing.get((name, level), 0))
    yield from (proven, wanted, failed)
