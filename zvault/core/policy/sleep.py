"""Decides what is refused while a vault is written to, and whether an export fits into the seconds before a sleep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

InhibitEvent = Literal["sleep", "shutdown"]
"""What logind has locks for, of what zvault minds."""

InhibitMode = Literal["block", "block-weak", "delay"]
"""logind's modes of a lock: refused to everybody, to everybody but root, only put off for some seconds."""

DELAY_RESERVE = 0.5
"""Seconds of reserve: all work must end this long before logind's InhibitDelayMaxSec expires."""

SHORTEST_EXPORT = 2.0
"""Seconds that an export takes with nothing to write, plus reserve: it stops the pool's threads and closes devices."""

EXPORT_SYNC_FACTOR = 4.0
"""An export may take this many times as long as the sync before it: it syncs three more times, labels included."""


def has_time_to_export(left: float, synced_in: float) -> bool:
    """True if an export is certain to end within ``left`` seconds if a sync took ``synced_in`` seconds.

    If the host falls asleep during an export, the export hangs: for 661 s on a host that was half asleep.
    """
    return left >= max(SHORTEST_EXPORT, EXPORT_SYNC_FACTOR * synced_in)


def group_by_mode(modes: Mapping[InhibitEvent, InhibitMode]) -> dict[InhibitMode, str]:
    """The locks that refuse events: what each is for, by its mode. An event with mode ``delay`` is refused by none.

    ``{"sleep": "block", "shutdown": "delay"}`` gives ``{"block": "sleep"}``.
    """
    refused = dict.fromkeys(mode for mode in modes.values() if mode != "delay")
    return {mode: ":".join(event for event, its in modes.items() if its == mode) for mode in refused}


def describe_waiting(events: Sequence[str]) -> str:
    """Say what waits while these events are refused: ``sleep and shutdown wait``."""
    if not events:
        return "nothing waits"
    return f"{' and '.join(events)} {'waits' if len(events) == 1 else 'wait'}"
