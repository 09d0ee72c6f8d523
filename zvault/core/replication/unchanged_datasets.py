"""Which datasets need no snapshot: nothing was written since the newest, and the vault has that one. Pure.

What ZFS guarantees: every change of a dataset's contents writes its root block anew (dmu_objset_sync in dmu_objset.c),
which ``written`` counts (zfsprops(7)), once the transaction group is on disk. So with ``written`` 0 the contents are
those of the newest snapshot. What a dataset has besides (properties, keys) is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zvault.core.model import Snapshot, Tree
from zvault.core.replication.lineage import DatasetPair
from zvault.core.replication.plan_model import SnapshotFilter
from zvault.core.replication.source_properties import COUNT_LIMITS, FIXED_PROPERTIES, SPACE_LIMITS
from zvault.core.units import format_size

OWN_PROPERTY_PREFIX = "org.zvault:"
"""What the names of zvault's own properties begin with."""


@dataclass(frozen=True, slots=True)
class UnchangedDatasets:
    """The datasets that were unchanged ``at`` a moment (seconds since the epoch), by name, each with the snapshot that
    stands for it. ``changed`` says of the others why they are not surely unchanged.
    """

    at: float = 0.0
    stands: Mapping[str, Snapshot] = field(default_factory=dict)
    changed: Mapping[str, str] = field(default_factory=dict)

    def holds(self, source: Tree) -> bool:
        """True if they still were so when this was listed. One that is gone by now does not count."""
        for name, snap in self.stands.items():
            dataset = source.get(name)
            newest = dataset.newest() if dataset is not None else None
            if dataset is not None and (dataset.written or newest is None or newest.guid != snap.guid):
                return False
        return True


NOTHING_UNCHANGED = UnchangedDatasets()


def explain_needed_snapshot(pair: DatasetPair, ours: SnapshotFilter) -> str:
    """Why no snapshot on the source surely stands for a dataset as it is, on the vault too; empty where one does.

    It is the newest on both sides, by GUID, and one of zvault's: so it is not after a rollback, nor where others make
    snapshots or receive. Never of an encrypted dataset: its key may have changed, which nothing counts. ``written`` of
    both sides must be of now.
    """
    source, there = pair.source, pair.vault
    newest, last = source.newest(), there.newest() if there is not None else None
    causes = (
        (newest is None, "it has no snapshot"),
        (last is None, "the vault has no snapshot of it"),
        (source.encrypted, "it is encrypted, and nothing counts whether its key was changed"),
        (source.written, f"{format_size(source.written)} were written since its newest snapshot"),
        (there is not None and there.written, "its copy on the vault was written to"),
        (
            there is not None and there.resume_token is not None,
            "an interrupted receive of it waits on the vault",
        ),
        (
            newest is not None and last is not None and newest.guid != last.guid,
            "the newest snapshots of both sides are not the same",
        ),
        (newest is not None and not ours(newest), "its newest snapshot is not one of this backup's"),
    )
    return next((why for holds, why in causes if holds), "")


UNSENT_PROPERTIES = FIXED_PROPERTIES | frozenset((*SPACE_LIMITS, *COUNT_LIMITS)) | {"keylocation", "volsize"}
"""Properties that a stream does not bring as they are set: limits are on record in another way (source_record.py), and
what is left can only be set when a dataset is made, or changes its contents.
"""


def has_same_properties(here: Mapping[str, str], there: Mapping[str, str]) -> bool:
    """True if what is set on a source's dataset is what the vault received of it. What it received and does not use, as
    the mountpoint, counts: a restore does use it.
    """
    names = {
        name
        for name in here.keys() | there.keys()
        if name not in UNSENT_PROPERTIES and not name.startswith(OWN_PROPERTY_PREFIX)
    }
    return all(here.get(name) == there.get(name) for name in names)
