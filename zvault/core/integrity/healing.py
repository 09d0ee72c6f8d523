"""Healing of damaged blocks: which snapshots are sent again for it, and what is said of blocks that stay. Pure.

daemon/monitors/scrub_heal_scheduler.py starts it after a scrub, where the configuration asks for that.

A stream in full carries every block of its snapshot, an incremental one those written after its base, and the base
need not be on the vault. A block is in every snapshot from the one after which it was written until it was written
over; put right where it lies it is well in all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from zvault.core.integrity.damage import METADATA_NAME, HealTarget, find_oldest_damaged
from zvault.core.model import Dataset, Snapshot
from zvault.core.names import DatasetName


@dataclass(frozen=True, slots=True)
class DatasetCopy:
    """The copy of a vault's dataset at one place: names of snapshots and of bookmarks by GUID.

    ``place`` is what it is called; ``key`` tells places apart.
    """

    key: str
    place: str
    snapshots: Mapping[int, str] = field(default_factory=dict)
    bookmarks: Mapping[int, str] = field(default_factory=dict)

    def base(self, guid: int) -> str | None:
        """Return the name of a snapshot or bookmark of that GUID to send from, None without one."""
        return self.snapshots.get(guid) or self.bookmarks.get(guid)


Copies = Mapping[str, Sequence[DatasetCopy]]
"""By the name of the vault's dataset; the one to ask first comes first."""


@dataclass(frozen=True, slots=True)
class HealingStream:
    """One stream that may bring damaged blocks again: ``snapshot``, which the vault has as ``target``.

    It starts from ``base``; None: it is in full.
    """

    copy: str
    place: str
    target: Snapshot
    snapshot: str
    base: str | None

    @property
    def reason(self) -> str:
        """Why this one, in words."""
        carried = f"what was written after {self.base}" if self.base is not None else "all of it"
        return f"{self.place} has {self.snapshot}; {carried} is read"


@dataclass(frozen=True, slots=True)
class UnhealedDamage:
    """Damage that stays, and why. ``lost``: nobody zvault knows has a snapshot with it any more."""

    wound: HealTarget
    why: str
    lost: bool = False


def select_healing_streams(
    wounds: Iterable[HealTarget],
    datasets: Mapping[str, Dataset],
    copies: Copies,
    tried: Collection[HealingStream] = (),
) -> list[HealingStream]:
    """The streams to try next, the oldest snapshots first; none when there is nothing left to try.

    For each wound: the oldest snapshot that has it and that somebody else has too, from the newest base that is older
    than the damage. In full only where that did not help.
    """
    found: dict[HealingStream, None] = {}
    for wound in wounds:
        options = _options(wound, datasets, copies)
        if (cure := next((one for one in options if one not in tried), None)) is not None:
            found.setdefault(cure)
    return sorted(found, key=lambda cure: (cure.target.dataset, cure.target.createtxg))


def explain_unhealed(
    wounds: Iterable[HealTarget],
    datasets: Mapping[str, Dataset],
    copies: Copies,
    failures: Mapping[str, str],
    known: Mapping[HealTarget, str] | None = None,
) -> list[UnhealedDamage]:
    """Why each wound that is still there stays.

    ``failures``: what streams of a dataset broke off with, by its name; ``known``: why single ones could not be healed.
    """
    told = known or {}
    return [
        UnhealedDamage(wound, told[wound]) if wound in told else _why(wound, datasets, copies, failures)
        for wound in wounds
    ]


def choose_aside_name(dataset: DatasetName, aside: str) -> DatasetName | None:
    """The name to give a dataset of a vault so that the next run sends it anew; None for a pool's own dataset.

    It ends with ``aside``, which marks what nothing follows. To any other name in its pool a renamed dataset is
    followed, damage and all: it is known by its snapshots. The ``-old`` keeps the next run from branching off from it,
    as it does from what it set aside itself.
    """
    return None if dataset == dataset.pool else dataset.add_suffix(f"-old{aside}")


def list_resend_commands(
    wounds: Iterable[HealTarget], datasets: Mapping[str, Dataset], aside: str
) -> list[str]:
    """The commands that have the next run send in full what has damage that no stream puts right, a dataset each."""
    hurt = dict.fromkeys(wound.dataset or "" for wound in wounds if wound.what != "data")
    names = [datasets[name].name for name in hurt if name in datasets]
    pairs = [(name, choose_aside_name(name, aside)) for name in names]
    return [f"zfs rename {_quoted(name)} {_quoted(apart)}" for name, apart in pairs if apart is not None]


def _quoted(name: str) -> str:
    return f'"{name}"' if " " in name else name


def _having(wound: HealTarget, dataset: Dataset) -> list[Snapshot]:
    """The snapshots that have it, oldest first."""
    first = find_oldest_damaged(dataset, wound)
    return [snap for snap in dataset.snapshots if snap == first or snap.snapname in wound.snapnames]


def _options(wound: HealTarget, datasets: Mapping[str, Dataset], copies: Copies) -> Iterator[HealingStream]:
    dataset = datasets.get(wound.dataset or "")
    if dataset is None or (wound.logged is not None and not wound.logged.data):
        return
    first = find_oldest_damaged(dataset, wound)
    if first is None:
        return
    older = dataset.snapshots[: dataset.snapshots.index(first)]
    for whole in (False, True):
        for copy in copies.get(dataset.name, ()):
            after = None if whole else next((one for one in reversed(older) if copy.base(one.guid)), None)
            base = copy.base(after.guid) if after is not None else None
            for target in _having(wound, dataset):
                if (there := copy.snapshots.get(target.guid)) is not None:
                    yield HealingStream(copy.key, copy.place, target, there, base)


def _why(  # noqa: PLR0911 - a list of reasons
    wound: HealTarget, datasets: Mapping[str, Dataset], copies: Copies, failures: Mapping[str, str]
) -> UnhealedDamage:
    if wound.dataset == METADATA_NAME:
        return UnhealedDamage(wound, "it is the pool's own metadata, which no stream carries: scrub again")
    if wound.dataset is None:
        return UnhealedDamage(
            wound, "it belongs to nothing that is still there: ZFS forgets it when two scrubs have ended"
        )
    dataset = datasets.get(wound.dataset)
    if dataset is None or not dataset.snapshots:
        return UnhealedDamage(wound, f"{wound.dataset} has no snapshot that anybody could have as well")
    if wound.what != "data":
        return UnhealedDamage(wound, f"it is {wound.what}, which is the vault's own: no stream carries it")
    there = _having(wound, dataset)
    having = [
        copy.place
        for copy in copies.get(dataset.name, ())
        if any(snap.guid in copy.snapshots for snap in there)
    ]
    if not having:
        return UnhealedDamage(
            wound, "nobody that zvault knows has a snapshot with it any more", lost=bool(there)
        )
    if said := failures.get(dataset.name):
        return UnhealedDamage(wound, f"{having[0]} has it, but {said}")
    return UnhealedDamage(
        wound,
        f"what {having[0]} sends of it has other bytes: it is compressed in another way there, or in records of"
        " another size",
    )
