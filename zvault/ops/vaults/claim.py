"""What another host that shares a vault says of its runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from zvault.core.sharing.note import LastRun, Outcome


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the note about a backup that another host made last; nobody here has seen it in the pool.

    ``lag`` in seconds at ``at``, by this host's clock of boot_time.
    """

    host: str
    outcome: Outcome
    lag: float | None
    at: float

    @classmethod
    def of(cls, run: LastRun, ago: float, now: float) -> Claim:
        """From a note that was written ``ago`` seconds before ``now``, at most.

        Nothing is newer on the vault than the last change of the entry, whatever lag it tells.
        """
        lag = None if run.lag is None else max(run.lag, 0.0) + run.age + ago
        return cls(run.host, run.outcome, lag if lag is not None and math.isfinite(lag) else None, now)

    def lag_now(self, now: float) -> float | None:
        """The lag by now, in seconds."""
        return None if self.lag is None else self.lag + max(0.0, now - self.at)
