"""Which snapshots zvault holds on a vault, so that nobody destroys them by accident or by ``zfs destroy -r``.

Of each dataset these are the newest that the backup brought, and those that a weekly, monthly or yearly rule keeps,
also where a rule for shorter times keeps them too. What only shorter rules keep is replaced by what the source sends
within days, and is not held. Nothing that retention lets go stays held: holds are moved before a run prunes.

A listing does not tell of holds, and to ask each snapshot takes as long as to list them several times. So only those
are asked that a run before this one may have held, or that would go now.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from datetime import tzinfo

from zvault.core.model import Snapshot
from zvault.core.policy.retention import KeepDecision, list_period_ends

RECENT_SNAPSHOTS = 10
"""So many of the snapshots that were there before a run are asked: each was the newest once, and a run may have been
cut off before it released it."""


def select_snapshots_to_hold(
    verdicts: Sequence[KeepDecision], brought: Callable[[Snapshot], bool]
) -> list[Snapshot]:
    """The snapshots of one dataset on a vault that are to be held. ``brought`` tells those that a backup sends."""
    newest = max((one.snapshot for one in verdicts if brought(one.snapshot)), key=_age, default=None)
    return [one.snapshot for one in verdicts if one.long or one.snapshot == newest]


def select_possibly_held(
    verdicts: Sequence[KeepDecision],
    brought: Callable[[Snapshot], bool],
    ours: Callable[[Snapshot], bool],
    zone: tzinfo,
    arrived: Container[int] = (),
) -> list[Snapshot]:
    """The snapshots of one dataset to be asked whether they are held: all that may be, and all that no rule keeps.

    ``ours`` tells those that retention's rules count, ``arrived`` are the GUIDs of what this run brought. One that was
    held by another time zone, and that a rule still keeps, may be left out: it is asked once no rule keeps it.
    """
    sent = [one.snapshot for one in verdicts if brought(one.snapshot)]
    before = sorted((snap for snap in sent if snap.guid not in arrived), key=_age)
    ends = list_period_ends([one.snapshot for one in verdicts if ours(one.snapshot)], zone)
    asked = {
        snap.guid
        for snap in (*select_snapshots_to_hold(verdicts, brought), *ends, *before[-RECENT_SNAPSHOTS:])
    }
    return [one.snapshot for one in verdicts if not one.keep or one.snapshot.guid in asked]


def _age(snap: Snapshot) -> tuple[int, int, int]:
    return snap.createtxg, snap.creation, snap.guid
