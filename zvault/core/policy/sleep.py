"""What fits into the seconds between the announcement of a sleep and the sleep."""

from __future__ import annotations

MARGIN = 0.5
"""Seconds before logind's patience ends by which all shall be done."""

SHORTEST = 2.0
"""Seconds an export takes with nothing to write, and some: it stops the pool's threads and closes its devices."""

SLOWER = 4.0
"""How much longer than the sync before it an export may take: it syncs again, three times, the last labels included."""


def time_to_export(left: float, synced_in: float) -> bool:
    """Whether an export is sure to end within ``left`` seconds, where a sync took ``synced_in``.

    One that sleep comes into was seen to hang for 661 s in a host that was half asleep.
    """
    return left >= max(SHORTEST, SLOWER * synced_in)
