"""What a plan is made of: streams, what has to change before them, and the reason in words.

Nothing here touches a pool: a plan is a value that can be shown, tested and then carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from zvault.core.model import Base, Bookmark, Snapshot
from zvault.core.names import DatasetName, SnapshotName
from zvault.core.replication.stream_flags import SentFlags
from zvault.core.replication.vault_changes import VaultChange
from zvault.core.snapshot_list import list_newer_snapshots, list_snapshots_between
from zvault.core.units import format_size

SnapshotFilter = Callable[[Snapshot], bool]
"""Tells whether a snapshot is one that zvault made for this backup."""

OnConflict = Literal["stop", "rollback", "new-dataset"]
"""What to do with a vault's dataset that was changed: leave it, give the changes up, or set it aside."""

MOST_IN_A_STREAM = 10_000
"""Snapshots that one stream brings: the gate is told each of them on its command line, which holds 2 MiB."""


@dataclass(frozen=True, slots=True)
class TransferPolicy:
    """The wishes of a backup. ``newest_only`` skips the backlog; ``stamp`` (20261121T090000Z) names what is set aside.

    ``destroys`` is False where this host may destroy nothing on the vault, an interrupted receive included. ``ours``
    tells the snapshots that zvault made from those that only ``also`` names: where the vault has another of its name,
    one of these is left out.
    """

    newest_only: bool = False
    on_conflict: OnConflict = "stop"
    stamp: str = ""
    destroys: bool = True
    ours: SnapshotFilter = lambda _: True


class TransferAction(StrEnum):
    """An action of a run on one dataset."""

    FULL = "full"
    INCREMENTAL = "incremental"
    RESUME = "resume"
    NOTHING = "nothing"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class InterruptedReceive:
    """An interrupted receive, by its token: its target's GUID, and whether it can be resumed.

    ``problem`` is empty when the source can still serve the token, else it says why not. ``done`` and ``left`` are
    the stream's bytes that the vault has and lacks, ``flags`` those it is known to go with; None where not told.
    ``from_guid`` is what the stream starts from (0: nothing), ``pool`` where the token has its snapshot looked for.
    """

    token: str
    to_guid: int
    problem: str = ""
    done: int | None = None
    left: int | None = None
    flags: SentFlags | None = None
    from_guid: int | None = None
    pool: str = ""

    @property
    def progress(self) -> str:
        """The progress so far, in words; empty where that is not known."""
        if self.done is None or self.left is None:
            return ""
        return f"at {format_size(self.done)} of {format_size(self.done + self.left)}"

    def strays(self, pool: str, bases: Collection[int]) -> str:
        """Say in words what the stream has otherwise than this receive needs it; empty where nothing.

        Who keeps the token may have written it: it must name the ``pool`` and start from one of the ``bases``, by GUID.
        """
        if self.pool and self.pool != pool:
            return f"its token is for the pool {self.pool}, not {pool}"
        if self.from_guid is not None and self.from_guid not in bases:
            return "its token starts from another snapshot than what was received so far"
        return ""


@dataclass(frozen=True, slots=True)
class UnknownDataset:
    """A dataset of which a pool did not tell what its plan depends on: why, and what to do."""

    problem: str
    advice: str


@dataclass(frozen=True, slots=True)
class UnencryptedSource:
    """A dataset that is not encrypted, of a backup that sends only what is: why it is not sent, and what to do."""

    problem: str
    advice: str

    @classmethod
    def of(cls, dataset: DatasetName) -> UnencryptedSource:
        """Refuse a dataset of a source."""
        return cls(
            f'{dataset} is not encrypted, and send.encrypted = "required" sends nothing that is not',
            f'exclude it ("{dataset}"), or move what it holds into an encrypted dataset',
        )


@dataclass(frozen=True, slots=True)
class TransferStep:
    """One stream. ``to`` is what the vault has after it; ``intermediates`` sends all between (``-I``).

    With ``origin``, a snapshot on the vault, the stream begins a clone of it. ``over`` receives into a placeholder
    (``-F``), which holds nothing that this could destroy.
    """

    kind: TransferAction
    to: Snapshot
    base: Base | None = None
    intermediates: bool = False
    token: str | None = None
    reason: str = ""
    origin: SnapshotName | None = None
    over: bool = False


@dataclass(frozen=True, slots=True)
class TransferPlan:
    """The plan for one dataset. ``pending`` counts the snapshots it brings.

    ``changes`` come first, in their order, also where nothing is to be sent; a conflict has only renames.
    ``after`` names the source datasets whose plans must have been carried out before this one. ``left_out`` are
    snapshots that are not sent, as the vault has others of their names.
    """

    dataset: DatasetName
    target: DatasetName
    action: TransferAction
    reason: str
    steps: tuple[TransferStep, ...] = ()
    base: Base | None = None
    pending: int = 0
    next: str = ""
    changes: tuple[VaultChange, ...] = ()
    after: tuple[DatasetName, ...] = ()
    left_out: tuple[SnapshotName, ...] = ()

    @property
    def begins(self) -> bool:
        """True if it makes the vault's dataset, which needs those above it."""
        return bool(self.steps) and (
            self.steps[0].kind is TransferAction.FULL or self.steps[0].origin is not None
        )

    @property
    def borrowed(self) -> Snapshot | None:
        """The base, if it is a snapshot that another dataset owns now while the vault has it in place.

        It must first be bookmarked in this dataset: a stream from another's snapshot always makes a new dataset
        (zfs-receive(8), seen with 2.3.9), one from a bookmark continues what is there.
        """
        first = self.steps[0] if self.steps else None
        if first is None or first.origin is not None or not isinstance(first.base, Snapshot):
            return None
        return first.base if first.base.dataset != self.dataset else None


def make_incremental_steps(
    snapshots: Sequence[Snapshot], base: Base, wanted: Sequence[Snapshot]
) -> Iterator[TransferStep]:
    """The fewest ``-i``/``-I`` streams that bring exactly ``wanted`` (oldest first, all newer than ``base``).

    Neighbours in the source's own order go in one ``-I``; a snapshot that is not wanted is jumped with ``-i``.
    Neither a bookmark (zfs-send(8)) nor another dataset's snapshot starts a ``-I``: the first step is a ``-i``.
    """
    wanted_guids = {snap.guid for snap in wanted}
    current: Base = base
    run: list[Snapshot] = []
    adjacent = True
    for snap in list_newer_snapshots(snapshots, base.createtxg):
        if snap.guid not in wanted_guids:
            if run:
                yield _incremental(current, run)
                current, run = run[-1], []
            adjacent = False
            continue
        single = isinstance(current, Bookmark) or current.dataset != snap.dataset
        if not adjacent or (single and not run):
            yield _incremental(current, [snap])
            current, adjacent = snap, True
            continue
        run.append(snap)
        if len(run) == MOST_IN_A_STREAM:
            yield _incremental(current, run)
            current, run = snap, []
    if run:
        yield _incremental(current, run)


def list_sent_by(step: TransferStep, snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    """Which of a dataset's snapshots a step sends: each may be the vault's newest when the stream breaks off."""
    if step.base is None or not step.intermediates:
        return [step.to]
    return list(list_snapshots_between(snapshots, step.base.createtxg, step.to.createtxg))


def _incremental(base: Base, run: Sequence[Snapshot]) -> TransferStep:
    several = len(run) > 1
    reason = (
        f"{len(run)} snapshots after {base.shortname}" if several else f"the snapshot after {base.shortname}"
    )
    return TransferStep(TransferAction.INCREMENTAL, run[-1], base, intermediates=several, reason=reason)
