"""What is too young to be given up on a vault: by when it can have come there at the earliest."""

from __future__ import annotations

from collections.abc import Sequence

from zvault.core.model import Snapshot
from zvault.core.units import format_duration


def too_young(snapshots: Sequence[Snapshot], min_age: float, now: float) -> dict[int, str]:
    """The snapshots of one dataset that came to the vault in the last ``min_age`` seconds, by GUID, with the reason.

    The source chose a snapshot's date, and cannot choose the order in which the pool got them: one that came after
    another is no older there than that one's date. So an old date makes none older than what it followed. One that is
    dated later than now has just come, as far as anybody knows.
    """
    if not min_age:
        return {}
    reason = f"came to the vault within its min_age, {format_duration(min_age)}"
    found: dict[int, str] = {}
    came = float("-inf")
    for snap in sorted(snapshots, key=lambda snap: (snap.createtxg, snap.creation, snap.guid)):
        came = max(came, min(snap.creation, now))
        if came > now - min_age:
            found[snap.guid] = reason
    return found
