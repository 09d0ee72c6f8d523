"""Scrubs: their progress, and when they start, pause and resume. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from typing import Literal

from zvault.core.dates import reject_future
from zvault.core.policy.cron_schedule import CronSchedule, find_next_time
from zvault.core.replication.bandwidth import RateWindow
from zvault.core.units import format_duration

ScanState = Literal["none", "scanning", "paused", "finished", "canceled"]

PAUSE_BEFORE_BACKUP = 120.0
"""Seconds before a backup is due at which a scrub pauses, so that the backup has the device to itself."""


@dataclass(frozen=True, slots=True)
class PoolScan:
    """The newest scrub of a pool, as ``zpool status`` shows it (zpool-status(8)).

    Times are seconds since the epoch, amounts bytes. ``rate``: bytes a second since the scrub last resumed, while it
    runs. ``repaired``: bytes that it repaired from another copy. ``resilver``: a resilver runs instead, and zvault does
    nothing.
    """

    state: ScanState = "none"
    started: float | None = None
    ended: float | None = None
    total: int = 0
    done: int = 0
    rate: float | None = None
    errors: int = 0
    repaired: int = 0
    resilver: bool = False

    @property
    def open(self) -> bool:
        """True if it has started and not ended."""
        return self.state in {"scanning", "paused"}

    @property
    def share(self) -> float | None:
        """The share that is done, from 0 to 1."""
        if self.state == "finished":
            return 1.0
        return min(self.done / self.total, 1.0) if self.open and self.total else None

    @property
    def left(self) -> float | None:
        """Seconds left while it runs; None if unknown."""
        if self.state != "scanning" or not self.rate:
            return None
        return max(0.0, self.total - self.done) / self.rate

    def seen_at(self, now: float) -> PoolScan:
        """The same without dates later than ``now``: a pool has those that whoever had it wrote there."""
        return replace(self, started=reject_future(self.started, now), ended=reject_future(self.ended, now))


@dataclass(frozen=True, slots=True)
class ScrubPolicy:
    """The times at which a vault is scrubbed: ``every`` so many seconds after the last one, by calendar, or only on
    request.

    ``windows``: times of day at which a scrub may run; without any, at all times.
    """

    every: float | None = None
    schedule: CronSchedule | None = None
    windows: tuple[RateWindow, ...] = ()

    def __bool__(self) -> bool:
        """True if the policy ever starts a scrub."""
        return self.every is not None or self.schedule is not None

    def open_at(self, local: datetime) -> bool:
        """True if ``local``, in the configured time zone, lies in a window."""
        return not self.windows or any(window.covers(local) for window in self.windows)

    def due(self, last: float | None, zone: tzinfo) -> float:
        """Return when the next scrub is due after one that ended at ``last``; 0 (overdue) if the pool was never
        scrubbed.
        """
        if last is None:
            return 0.0
        found = [last + self.every] if self.every is not None else []
        if self.schedule is not None:
            found.append(find_next_time(self.schedule, datetime.fromtimestamp(last, UTC), zone).timestamp())
        return min(found)


@dataclass(frozen=True, slots=True)
class VaultTraffic:
    """Other work on a vault: names of ``running`` work, and when the next backup is due (``next_due``, epoch)."""

    running: Sequence[str] = ()
    next_due: float | None = None
    next_name: str = ""


def find_scrub_obstacle(
    policy: ScrubPolicy, traffic: VaultTraffic, now: float, zone: tzinfo, *, by_hand: bool = False
) -> str | None:
    """Why no scrub may run now, or None. A requested scrub (``by_hand``) ignores the windows."""
    if traffic.running:
        return f"{' and '.join(traffic.running)} {'runs' if len(traffic.running) == 1 else 'run'}"
    if traffic.next_due is not None and traffic.next_due - now <= PAUSE_BEFORE_BACKUP:
        wait = format_duration(max(0.0, traffic.next_due - now))
        return f"backup {traffic.next_name} is due in {wait}"
    if not by_hand and not policy.open_at(datetime.fromtimestamp(now, zone)):
        return "it is outside its windows"
    return None


def find_scrub_reason(
    policy: ScrubPolicy, scan: PoolScan | None, last: float | None, now: float, zone: tzinfo
) -> str | None:
    """Why a scrub should start or resume now, or None.

    ``last``: when the last complete one ended. ``scan``: None if the pool cannot be examined now.
    """
    if scan is not None and scan.open and not scan.resilver:
        return "one was started and has not ended"
    if not policy or (scan is not None and scan.resilver):
        return None
    if policy.due(last, zone) > now:
        return None
    return (
        "it was never scrubbed" if last is None else f"the last one ended {format_duration(now - last)} ago"
    )
