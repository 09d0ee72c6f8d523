"""Why ZFS makes no snapshot of a dataset, and what a person can do about it. Pure.

One dataset that refuses must not keep the others of its pool from getting theirs. So a run leaves it out, names it, and
says this of it. What can be known before the call is told by ``find_obstacle``; the answer to the call by
``explain_refusal``.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass

from zvault.core.errors import SnapshotRefused
from zvault.core.model import Dataset
from zvault.core.names import DatasetName
from zvault.core.units import format_size

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What ZFS says where a snapshot finds no room: pruning the source may help."""

ALREADY_ERRNOS = frozenset({errno.EEXIST, errno.ENOENT})
"""What says nothing of the dataset itself: its snapshot's name is taken, or the dataset has gone."""


@dataclass(frozen=True, slots=True)
class SnapshotAnswer:
    """The answer of ZFS where it made no snapshot: an errno, 0 where none is known, and words."""

    code: int
    said: str


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """The facts that decide whether ZFS can make a snapshot of a dataset. Sizes are in bytes.

    ``inconsistent``: a full stream into it has not arrived as a whole. ``resumable``: it waits for the rest.
    ``referenced_alone`` is what only the dataset itself has (``usedbydataset``), ``available`` what it may still take,
    of which its reservation has ``reserved_rest`` (``usedbyrefreservation``) already.
    """

    name: DatasetName
    kind: str = "filesystem"
    inconsistent: bool = False
    resumable: bool = False
    refreservation: int = 0
    referenced_alone: int = 0
    reserved_rest: int = 0
    available: int = 0

    @property
    def room_needed(self) -> int:
        """The bytes that a snapshot takes out of the pool's room, as dsl_dataset_snapshot_reserve_space() counts it.

        A refreservation promises that all of the dataset can be overwritten. A snapshot keeps what is there now, so
        that much has to be free once more.
        """
        return min(self.refreservation, self.referenced_alone)

    @property
    def room(self) -> int:
        """The bytes that are free for that: what the dataset's own reservation has already does not count."""
        return max(0, self.available - self.reserved_rest)


def find_obstacle(facts: SnapshotFacts) -> SnapshotRefused | None:
    """Why no snapshot of a dataset can be made now, as far as it can be known before; None where nothing is known."""
    if facts.inconsistent:
        return _half_received(facts.name, resumable=facts.resumable)
    if facts.room_needed > facts.room:
        return _reserved(facts)
    return None


def find_half_received(dataset: Dataset) -> SnapshotRefused | None:
    """The same from what every listing has: a resume token where no snapshot has arrived yet.

    Where there are snapshots the token belongs to an incremental stream. That is received beside the dataset, which
    itself is whole, and can be snapshotted.
    """
    if dataset.resume_token is None or dataset.snapshots:
        return None
    return _half_received(dataset.name, resumable=True)


def explain_refusal(
    name: DatasetName, answer: SnapshotAnswer, facts: SnapshotFacts | None = None
) -> SnapshotRefused:
    """Explain ZFS's refusal to snapshot a dataset. ``facts`` are those of now, where known.

    What is not known here is told as ZFS said it, without advice: to run it again may never help.
    """
    if facts is not None and (obstacle := find_obstacle(facts)) is not None:
        return obstacle
    why, advice = _KNOWN.get(answer.code, (answer.said or "ZFS did not say why", ""))
    return _refused(name, why, advice.format(name=name, pool=name.pool))


def explain_refusals(
    answers: Mapping[DatasetName, SnapshotAnswer], facts: Mapping[DatasetName, SnapshotFacts]
) -> dict[str, SnapshotRefused]:
    """The same for several datasets."""
    return {name: explain_refusal(name, answer, facts.get(name)) for name, answer in answers.items()}


_KNOWN = {
    errno.EBUSY: (
        "it is busy",
        "'zfs get inconsistent,receive_resume_token {name}' tells whether something is being received into it",
    ),
    errno.ENOSPC: (
        "there is no room for it",
        "make room in pool {pool}, or raise the quotas above it: 'zfs list -o space {name}' shows what takes it",
    ),
    errno.EDQUOT: (
        "a quota or snapshot_limit is reached",
        "'zfs get quota,snapshot_limit,snapshot_count {name}' shows them, also for the datasets above it: raise it",
    ),
    errno.EPERM: (
        "permission denied",
        "let its user do it with 'zfs allow', or use sudo: see zvault's how-to on ssh; or exclude it",
    ),
    errno.EROFS: (
        "its pool is imported read-only",
        "import it writable; or set snapshot.make = false, and what is there is sent",
    ),
    errno.EIO: (
        "it cannot be read or written",
        "'zpool status {pool}' shows what is wrong with its pool",
    ),
    errno.ENAMETOOLONG: (
        "its name is too long for a snapshot",
        "rename it, choose a shorter snapshot.prefix, or exclude it",
    ),
}
_KNOWN[errno.EACCES] = _KNOWN[errno.EPERM]


def _half_received(name: DatasetName, *, resumable: bool) -> SnapshotRefused:
    if resumable:
        return _refused(
            name,
            "it is half received: a restore or 'zfs receive' into it was cut off",
            f"finish that restore or receive, or give it up: 'zfs receive -A {name}' destroys what has arrived",
        )
    return _refused(
        name,
        "something is being received into it, or was and did not arrive as a whole",
        "wait until that receive has ended: the next run takes it",
    )


def _reserved(facts: SnapshotFacts) -> SnapshotRefused:
    what = "volume" if facts.kind == "volume" else "dataset"
    needed, room = format_size(facts.room_needed), format_size(facts.room)
    return _refused(
        facts.name,
        f"its refreservation wants {needed} free beside a snapshot, and {room} is free",
        f"free {format_size(facts.room_needed - facts.room)} in pool {facts.name.pool}, or raise the quotas above it;"
        f" or have the {what} reserve nothing: 'zfs set refreservation=none {facts.name}'",
    )


def _refused(name: DatasetName, why: str, advice: str) -> SnapshotRefused:
    return SnapshotRefused(f"{name} cannot be snapshotted", why, advice)
