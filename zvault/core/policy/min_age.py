"""What is too young to be given up on a vault, by its date and those of what the vault had before it."""

from __future__ import annotations

from collections.abc import Sequence

from zvault.core.model import Snapshot
from zvault.core.units import format_duration


def list_too_young(snapshots: Sequence[Snapshot], min_age: float, now: float) -> dict[int, str]:
    """The snapshots of one dataset that are younger than ``min_age`` seconds, by GUID, with the reason.

    The source chose a snapshot's date, and cannot choose the order in which the pool got them: one that came after
    another is no older there than that one's date. So an old date makes none older than what it followed. One that is
    dated later than now counts as of now. When a snapshot came is not known: one that was made long ago, and has
    nothing younger before it, is old on the day that it comes.
    """
    if not min_age:
        return {}
    reason = f"younger than the vault's min_age, {format_duration(min_age)}"
    found: dict[int, str] = {}
    dated = float("-inf")
    for snap in sorted(snapshots, key=lambda snap: (snap.createtxg, snap.creation, snap.guid)):
        dated = max(dated, min(snap.creation, now))
        if dated > now - min_age:
            found[snap.guid] = reason
    return found
