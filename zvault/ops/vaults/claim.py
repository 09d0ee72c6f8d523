"""What another host that shares a vault says of its runs."""

from __future__ import annotations

from dataclasses import dataclass

from zvault.core.sharing.note import Outcome


@dataclass(frozen=True, slots=True)
class Claim:
    """What the note says of a backup that another host made last; nobody here has seen it in the pool.

    ``lag`` in seconds at ``at``, by this host's clock of boot_time.
    """

    host: str
    outcome: Outcome
    lag: float | None
    at: float

    def lag_now(self, now: float) -> float | None:
        """The lag by now, in seconds."""
        return None if self.lag is None else self.lag + max(0.0, now - self.at)
