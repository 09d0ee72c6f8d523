"""Tells the journal when the verdict of a backup, a vault or the daemon changes."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from zvault.core.health.verdict import HealthVerdict, SubjectKind, VerdictLevel
from zvault.daemon.journald import log
from zvault.ops.state.environment import WallClock

UNKNOWN_SETTLING = 60.0
"""Seconds after the first look for which it is not told that something is unknown: most of it will be known soon."""

JOURNAL_FIELDS: dict[SubjectKind, str] = {"backup": "BACKUP", "vault": "VAULT"}

LEVEL_LOUDNESS: dict[VerdictLevel, int] = {
    "ok": logging.INFO,
    "unknown": logging.INFO,
    "warning": logging.WARNING,
    "critical": logging.ERROR,
}


@dataclass
class VerdictJournal:
    """Writes verdicts into the journal, and remembers the last of each subject: its level, and the conditions that
    held.
    """

    clock: WallClock = field(default_factory=WallClock)
    _told: dict[tuple[SubjectKind, str], tuple[VerdictLevel, tuple[str, ...]]] = field(default_factory=dict)
    _first: dict[tuple[SubjectKind, str], float] = field(default_factory=dict)

    def tell(
        self,
        verdicts: Mapping[tuple[SubjectKind, str], HealthVerdict],
        moving: Collection[str] = (),
        unread: Collection[str] = (),
    ) -> None:
        """Tell of each subject that is not as it was; not of vaults that are ``moving``, nor of backups that are being
        read (``unread``): these will not stay so.

        ``verdicts``: by kind and name. What has none any more is forgotten.
        """
        for (kind, name), verdict in verdicts.items():
            if name not in {"vault": moving, "backup": unread}.get(kind, ()):
                self._tell(kind, name, verdict)
        for known in (self._told, self._first):
            for subject in known.keys() - verdicts.keys():
                del known[subject]

    def _tell(self, kind: SubjectKind, name: str, verdict: HealthVerdict) -> None:
        subject, now = (kind, name), self.clock.monotonic()
        before, state = self._told.get(subject), (verdict.level, verdict.keys)
        settling = now - self._first.setdefault(subject, now) < UNKNOWN_SETTLING
        if state == before or (before is None and verdict.level == "unknown" and settling):
            return
        self._told[subject] = state
        if before is None and verdict.level == "ok":
            return
        fields = {"HEALTH": verdict.level, "CONDITION": " ".join(verdict.keys)}
        if kind in JOURNAL_FIELDS:
            fields[JOURNAL_FIELDS[kind]] = name
        log.log(LEVEL_LOUDNESS[verdict.level], "%s", write_verdict(kind, name, verdict), extra=fields)


def write_verdict(kind: SubjectKind, name: str, verdict: HealthVerdict) -> str:
    """``backup tank is late (warning): the lag is 5h, max_lag is 3h. Next: …``."""
    whose = name if kind == "daemon" else f"{kind} {name}"
    if not verdict.findings:
        return f"{whose} is well again"
    told = "; ".join(f"{one.condition.says}: {one.why}" for one in verdict.findings)
    return f"{whose} ({verdict.level}) {told}. Next: {verdict.findings[0].next}"
