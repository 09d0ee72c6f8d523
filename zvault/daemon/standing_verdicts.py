"""For how long verdicts stand: at rest nothing changes them but time, and what that does can be told ahead.

Making them anew every few seconds was most of what zvaultd did at rest. They stand while all that they are made from is
as it was, and if they would be the same at the end of the time for which they stand: what time alone changes it changes
once, from young to old.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zvault.api.vaults import VaultDocument
from zvault.core.health.verdict import HealthVerdict, SubjectKind
from zvault.daemon.status import DaemonStatus

STANDS = 300.0
"""Seconds for which verdicts stand at most."""

CLOCK_SET = 1.0
"""Seconds by which the two clocks are apart more or less than before where one was set, or the host slept."""

Verdicts = Mapping[tuple[SubjectKind, str], HealthVerdict]


@dataclass
class StandingVerdicts:
    """The verdicts that were made last, and whether they still hold: only while nothing runs and no vault is up or
    moves.
    """

    status: DaemonStatus
    _made_from: object = None
    _until: float = 0.0
    _ahead: float = 0.0

    def hold(self, vaults: Sequence[VaultDocument], *, moving: bool) -> bool:
        """True if the verdicts still hold, for vaults that were seen like this."""
        clock = self.status.context.env.clock
        now = clock.monotonic()
        return (
            now < self._until
            and abs(clock.time() - now - self._ahead) < CLOCK_SET
            and self._at_rest(vaults, moving=moving)
            and self._facts(vaults) == self._made_from
        )

    def note(self, verdicts: Verdicts, vaults: Sequence[VaultDocument], *, moving: bool) -> None:
        """Take in verdicts that were just made from such vaults."""
        self._until = 0.0
        if not self._at_rest(vaults, moving=moving):
            return
        later = self.status.verdicts_later(vaults, STANDS)
        if _told(later) == _told(verdicts):
            clock = self.status.context.env.clock
            now = clock.monotonic()
            self._made_from = self._facts(vaults)
            self._until, self._ahead = now + STANDS, clock.time() - now

    def _at_rest(self, vaults: Sequence[VaultDocument], *, moving: bool) -> bool:
        # Where hosts share a vault, what the others have done is learned from its store at any time.
        return (
            not moving
            and not self.status.runs.runner.current
            and all(one["state"] == "down" and not one["hosts"] for one in vaults)
        )

    def _facts(self, vaults: Sequence[VaultDocument]) -> tuple[Any, ...]:
        """All that verdicts are made from, beside the time: as it is, or a number that grows with each change of it."""
        status = self.status
        runs, config = status.runs, status.context.env.config
        daemon = status.daemon_verdict()
        return (
            list(vaults),
            config,
            dict(status.warnings),
            [(one.condition.key, one.why) for one in daemon.findings],
            status.history.changes,
            (runs.lags.changes, runs.proofs.changes, runs.made.changes, runs.snapshot_troubles.changes),
            [status.scheduler.next_run(name) for name in config.backup],
            list(status.stalls.warnings(status.context.env.clock.time())),
            dict(status.context.activity.writes.drifts),
        )


def _told(verdicts: Verdicts) -> dict[tuple[SubjectKind, str], tuple[str, ...]]:
    return {subject: verdict.keys for subject, verdict in verdicts.items()}
