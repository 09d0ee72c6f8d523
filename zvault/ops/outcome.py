"""What a run did, filled in as it goes, so that it can be told also of a run that was cut short."""

from __future__ import annotations

from dataclasses import dataclass, field

from zvault.core.errors import ZvaultError
from zvault.core.lag import DatasetLag


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

    def blame(self, error: ZvaultError) -> None:
        """Note a failure; the first one is the run's."""
        self.error = self.error or error
