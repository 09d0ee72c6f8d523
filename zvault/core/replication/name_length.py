"""Whether the names that a backup makes of a dataset's fit what ZFS allows: its snapshots', bookmarks' and vault's."""

from __future__ import annotations

from dataclasses import dataclass

from zvault.core.name_rules import MAX_DATASET_NAME
from zvault.core.names import DatasetName
from zvault.core.replication.base_names import LARGEST_GUID, make_mark_name

RECEIVING_LENGTH = len("/%recv")
"""Characters that ZFS adds to the name of a dataset into which it receives (dmu_recv.c, recv_clone_name)."""

_BOOKMARK = 1 + len(make_mark_name(LARGEST_GUID, LARGEST_GUID))
"""Characters of the longest name that zvault gives a bookmark, with its ``#``."""


@dataclass(frozen=True, slots=True)
class NameConflict:
    """A dataset that cannot be backed up because of its name: why, and what to do."""

    problem: str
    advice: str


def find_name_conflict(dataset: DatasetName, target: DatasetName, snapname: int) -> NameConflict | None:
    """Return what is wrong with the length of a dataset's name, here or on the vault; None where both fit.

    The full name of a snapshot or bookmark has no more characters than a dataset's may (zfs_namecheck.c). ``snapname``
    is how many those of the backup's snapshots have behind the ``@``.
    """
    snapshot = 1 + snapname
    room = MAX_DATASET_NAME - max(snapshot, _BOOKMARK)
    if len(dataset) > room:
        return NameConflict(
            f"the name of {dataset} is too long to be backed up: it has {len(dataset)} characters, and with the"
            f" names of zvault's snapshots and bookmarks behind it ZFS has room for {room}",
            "give it or one above it a shorter name ('zfs rename'), or leave it out ('exclude')",
        )
    room = MAX_DATASET_NAME - max(snapshot, RECEIVING_LENGTH)
    if len(target) > room:
        return NameConflict(
            f"the name of {dataset} on the vault, {target}, is too long: it would have {len(target)} characters, and"
            f" with a snapshot's name behind it ZFS has room for {room}",
            "choose a shorter 'into', or give it or one above it a shorter name ('zfs rename'), or leave it out"
            " ('exclude')",
        )
    return None
