"""What a run did, in all and by dataset, filled in as it goes: so it can be told also of one that was cut short."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zvault.api.runs import RunResult
from zvault.core.errors import ZvaultError
from zvault.core.integrity.verification import LevelProof, ProofLevel
from zvault.core.names import DatasetName
from zvault.core.replication.lag import DatasetLag


@dataclass
class RunOutcome:
    """The outcome of a run. ``result`` is ok, partial or failed; ``error`` the first thing that went wrong."""

    result: RunResult = "ok"
    bytes: int = 0
    datasets: int = 0
    sent: int = 0
    pruned: int = 0
    error: ZvaultError | None = None
    lags: dict[str, DatasetLag] = field(default_factory=dict)
    made: Mapping[str, int | None] = field(default_factory=dict)
    proofs: Mapping[ProofLevel, LevelProof] = field(default_factory=dict)

    def blame(self, error: ZvaultError) -> None:
        """Note a failure; the first one is the run's."""
        self.error = self.error or error

    def fall_short(self, error: ZvaultError | None) -> None:
        """Note that it came to its end, but not all of it is as it should be; None where it is."""
        if error is not None:
            self.blame(error)
            self.result = "partial"


@dataclass
class DatasetResults:
    """The results of each dataset of a run, over all its tries.

    ``failed`` says why, by dataset; ``settled`` need no further try: they went well, or none would help.
    """

    failed: dict[str, ZvaultError] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)

    def begin_try(self) -> None:
        """Another try begins: forget the failures that it may put right."""
        self.failed = {name: error for name, error in self.failed.items() if name in self.settled}

    def forget(self) -> None:
        """Another host has made the run meanwhile: what failed here is of no account."""
        self.failed, self.settled = {}, set()

    def note(self, dataset: str, error: ZvaultError | None) -> None:
        """One was tried; what is noted last counts."""
        if error is not None:
            self.failed[dataset] = error
        if error is None or not error.retryable:
            self.settled.add(dataset)
        else:
            self.settled.discard(dataset)

    @property
    def retryable(self) -> ZvaultError | None:
        """Why to try again: the first failure that another try may put right."""
        return next((error for error in self.failed.values() if error.retryable), None)


MESSAGE_DATASETS = 10
"""Datasets named in one message."""


def make_datasets_failed(failed: Mapping[str, ZvaultError], total: int) -> ZvaultError:
    """One error for all datasets of a run that failed, by name. Its reason is that of the first, its
    advice that of the first that has any.
    """
    first = next(iter(failed.values()))
    told = [f"{name} ({_in_short(error).removeprefix(f'{name} ')})" for name, error in failed.items()]
    more = f", and {len(told) - MESSAGE_DATASETS} more" if len(told) > MESSAGE_DATASETS else ""
    error = ZvaultError(
        f"{len(failed)} of {total} {'dataset' if total == 1 else 'datasets'} failed",
        ", ".join(told[:MESSAGE_DATASETS]) + more,
        next((one.next for one in failed.values() if one.next), ""),
    )
    error.reason = first.reason
    return error


def describe_refusals(refused: Mapping[DatasetName, ZvaultError]) -> str:
    """Why datasets refuse something, in the words of the first, and which others do."""
    (_, first), *others = refused.items()
    more = f" and {len(others) - MESSAGE_DATASETS} more" if len(others) > MESSAGE_DATASETS else ""
    named = ", ".join(name for name, _ in others[:MESSAGE_DATASETS]) + more
    return f"{first}. The same goes for {named}" if others else str(first)


def _in_short(error: ZvaultError) -> str:
    return f"{error.what}: {error.why}" if error.why else error.what
