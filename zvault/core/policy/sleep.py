"""Decides whether an export fits into the seconds between the announcement of a sleep and the sleep."""

from __future__ import annotations

MARGIN = 0.5
"""Seconds of reserve: all work must end this long before logind's InhibitDelayMaxSec expires."""

SHORTEST = 2.0
"""Seconds that an export takes with nothing to write, plus reserve: it stops the pool's threads and closes devices."""

SLOWER = 4.0
"""An export may take this many times as long as the sync before it: it syncs three more times, labels included."""


def time_to_export(left: float, synced_in: float) -> bool:
    """Whether an export is certain to end within ``left`` seconds if a sync took ``synced_in`` seconds.

    If the host falls asleep during an export, the export hangs: for 661 s on a host that was half asleep.
    """
    return left >= max(SHORTEST, SLOWER * synced_in)
