"""What another host that shares a vault says of its runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from zvault.core.sharing.shared_note import LastSharedRun, SharedRunOutcome


@dataclass(frozen=True, slots=True)
class HostClaim:
    """A claim of the note about a backup that another host made last; nobody here has seen it in the pool.

    ``lag`` in seconds at ``at``, by this host's clock of boot_time.
    """

    host: str
    outcome: SharedRunOutcome
    lag: float | None
    at: float

    @classmethod
    def of(cls, run: LastSharedRun, ago: float, now: float) -> HostClaim:
        """From a note that was written ``ago`` seconds before ``now``, at most.

        Nothing is newer on the vault than the last change of the entry, whatever lag it tells.
        """
        lag = None if run.lag is None else max(run.lag, 0.0) + run.age + ago
        return cls(run.host, run.outcome, lag if lag is not None and math.isfinite(lag) else None, now)

    def lag_now(self, now: float) -> float | None:
        """The lag by now, in seconds."""
        return None if self.lag is None else self.lag + max(0.0, now - self.at)
