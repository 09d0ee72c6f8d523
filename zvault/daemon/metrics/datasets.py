"""The series of a backup's datasets: one each, or one for all of them where they are too many for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from zvault.core.dates import reject_future
from zvault.core.replication.lag import DatasetLag
from zvault.daemon.health.facts import find_worst_age, find_worst_lag
from zvault.ops.replication.lag import count_pending

ALL_DATASETS = "*"
"""The label ``dataset`` of a series for all datasets of a backup. No dataset has such a name."""

DatasetLabels = tuple[str, str]


@dataclass(frozen=True, slots=True)
class LagSample:
    """The lag of one dataset, or of all of a backup; what is not known is None."""

    labels: DatasetLabels
    lag: float | None
    pending: int | None
    base_age: float | None


def sample_lags(
    backup: str, lags: Mapping[str, DatasetLag], now: float, limit: int, claimed: float | None = None
) -> Iterator[LagSample]:
    """A sample of each dataset. Beyond ``limit`` of them one for all: the worst lag and base age, and what is pending.

    That is unknown where it is of any of them. Where another host ``claimed`` a lesser lag, of a run that it has done,
    there is that alone: what this host has seen of the vault is older.
    """
    own = find_worst_lag(lags, now)
    if claimed is not None and (own is None or claimed < own):
        yield LagSample((backup, ALL_DATASETS), claimed, None, None)
        return
    if len(lags) <= limit:
        for dataset, lag in lags.items():
            yield LagSample((backup, dataset), lag.age(now), lag.pending, _age(lag.base, now))
        return
    bases = {dataset: lag.base for dataset, lag in lags.items()}
    yield LagSample((backup, ALL_DATASETS), own, count_pending(lags.values()), find_worst_age(bases, now))


def sample_ages(
    backup: str, made: Mapping[str, int | None], now: float, limit: int
) -> Iterator[tuple[DatasetLabels, float | None]]:
    """The age of each dataset's newest snapshot; beyond ``limit`` of them that of the oldest, unless any has none."""
    if len(made) <= limit:
        for dataset, at in made.items():
            yield (backup, dataset), _age(at, now)
    else:
        yield (backup, ALL_DATASETS), find_worst_age(made, now)


def _age(made: float | None, now: float) -> float | None:
    """Seconds since then; None where it is not known, or later than now."""
    at = reject_future(made, now)
    return None if at is None else now - at
