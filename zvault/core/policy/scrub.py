"""Scrubs: how far one is, and when one starts, pauses and goes on. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Literal

from zvault.core.policy.schedule import Cron, next_time
from zvault.core.replication.bandwidth import RateWindow
from zvault.core.units import format_duration

ScanState = Literal["none", "scanning", "paused", "finished", "canceled"]

AHEAD = 120.0
"""Seconds before a backup is due from which on no scrub runs: it shall have the device from its first byte on."""


@dataclass(frozen=True, slots=True)
class Scan:
    """The newest scrub of a pool, as ``zpool status`` tells it (zpool-status(8)).

    Times are seconds since the epoch, amounts bytes. ``rate`` is bytes a second since the scrub last went on, where it
    is going. ``repaired`` are the bytes that it put right from another copy. ``resilver`` tells that a device is being
    rebuilt instead: then nothing is to be done.
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
        """Whether it has begun and has not ended."""
        return self.state in {"scanning", "paused"}

    @property
    def share(self) -> float | None:
        """How much of it is done, from 0 to 1."""
        if self.state == "finished":
            return 1.0
        return min(self.done / self.total, 1.0) if self.open and self.total else None

    @property
    def left(self) -> float | None:
        """Seconds it will still take, while it goes; None where that cannot be told."""
        if self.state != "scanning" or not self.rate:
            return None
        return max(0.0, self.total - self.done) / self.rate


@dataclass(frozen=True, slots=True)
class Policy:
    """When a vault is scrubbed: when the last one is ``every`` seconds old, or at a calendar's times; or by hand only.

    ``windows`` are the times of day in which it may run; none: any.
    """

    every: float | None = None
    schedule: Cron | None = None
    windows: tuple[RateWindow, ...] = ()

    def __bool__(self) -> bool:
        """Whether any scrub is due at any time."""
        return self.every is not None or self.schedule is not None

    def open_at(self, local: datetime) -> bool:
        """Whether a moment, in the time zone that counts, lies in a window."""
        return not self.windows or any(window.covers(local) for window in self.windows)

    def due(self, last: float | None, zone: tzinfo) -> float:
        """When the next scrub is due after one that ended at ``last``: 0, long ago, where there never was one."""
        if last is None:
            return 0.0
        found = [last + self.every] if self.every is not None else []
        if self.schedule is not None:
            found.append(next_time(self.schedule, datetime.fromtimestamp(last, UTC), zone).timestamp())
        return min(found)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What wants a vault besides a scrub. ``running`` names what runs; ``next_due`` when the next backup begins."""

    running: Sequence[str] = ()
    next_due: float | None = None
    next_name: str = ""


def in_the_way(
    policy: Policy, traffic: Traffic, now: float, zone: tzinfo, *, by_hand: bool = False
) -> str | None:
    """Why no scrub may run at this moment, or None. One that somebody asked for minds no windows."""
    if traffic.running:
        return f"{' and '.join(traffic.running)} runs"
    if traffic.next_due is not None and traffic.next_due - now <= AHEAD:
        wait = format_duration(max(0.0, traffic.next_due - now))
        return f"backup {traffic.next_name} is due in {wait}"
    if not by_hand and not policy.open_at(datetime.fromtimestamp(now, zone)):
        return "it is outside its windows"
    return None


def wanted(policy: Policy, scan: Scan | None, last: float | None, now: float, zone: tzinfo) -> str | None:
    """Why a scrub is to be started or gone on with now, or None.

    ``last`` is when the last whole one ended, ``scan`` None where the pool cannot be looked at now.
    """
    if scan is not None and scan.open and not scan.resilver:
        return "one has begun and not ended"
    if not policy or (scan is not None and scan.resilver):
        return None
    if policy.due(last, zone) > now:
        return None
    return (
        "it was never scrubbed" if last is None else f"the last one ended {format_duration(now - last)} ago"
    )
