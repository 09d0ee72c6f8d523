"""What a run did, filled in as it goes, so that it can be told also of a run that was cut short."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zvault.core.errors import ZvaultError
from zvault.core.lag import DatasetLag
from zvault.core.verify import Proof, Rung


@dataclass
class Outcome:
    """What a run did. ``result`` is ok, partial or failed; ``error`` the first thing that went wrong."""

    result: str = "ok"
    bytes: int = 0
    datasets: int = 0
    sent: int = 0
    pruned: int = 0
    error: ZvaultError | None = None
    lags: dict[str, DatasetLag] = field(default_factory=dict)
    proofs: Mapping[Rung, Proof] = field(default_factory=dict)

    def blame(self, error: ZvaultError) -> None:
        """Note a failure; the first one is the run's."""
        self.error = self.error or error


NAMED = 10
"""Datasets named in one message."""


def datasets_failed(failed: Mapping[str, ZvaultError], total: int) -> ZvaultError:
    """One error for all datasets of a run that failed, by name. Its reason and advice are those of the first."""
    first = next(iter(failed.values()))
    told = [f"{name} ({_in_short(error).removeprefix(f'{name} ')})" for name, error in failed.items()]
    more = f", and {len(told) - NAMED} more" if len(told) > NAMED else ""
    error = ZvaultError(
        f"{len(failed)} of {total} {'dataset' if total == 1 else 'datasets'} failed",
        ", ".join(told[:NAMED]) + more,
        first.next,
    )
    error.reason = first.reason
    return error


def _in_short(error: ZvaultError) -> str:
    return f"{error.what}: {error.why}" if error.why else error.what
