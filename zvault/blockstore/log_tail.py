"""The log after a checkpoint: which segments are of it, and whether one is missing that was acknowledged.

A listing is not believed alone: a segment that it leaves out, but that can be read, is of the log. And where a segment
is missing, what was put after it tells whether that is a crash's doing: segments go side by side, so that some may be
there without those before them. But each says up to which all were in the store before it was put, and each writer's
first checkpoint says where it began. What is missing below that was acknowledged, or may have been: that is damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from zvault.blockstore.format import (
    MAX_BLOCKS,
    SEGMENT_TAIL_SIZE,
    ObjectDamaged,
    Segment,
    decode_segment,
    find_key_numbers,
    make_segment_key,
)
from zvault.blockstore.map.map_part import PART_BLOCKS
from zvault.blockstore.map.root import CheckpointRoot
from zvault.object_store.interface import ObjectMissing, ObjectStore


class LogGap(ObjectDamaged):
    """Something is missing that what is there tells of; ``key``: the object."""

    def __init__(self, key: str, what: str, why: str, following: str) -> None:
        super().__init__(what, why, following)
        self.key = key


@dataclass(slots=True)
class LogTail:
    """The log after a checkpoint: its segments in order, and objects that lie there and are not of it.

    ``trouble``: why it is known to be longer, ``broken`` the first segment that is missing or cannot be read.
    """

    segments: list[Segment]
    strays: list[str]
    broken_off: list[str] = field(default_factory=list)
    """Strays of writers that never came to put a checkpoint."""
    unproven: int = 0
    """Strays of an older zvault, of which nobody can tell whether they were acknowledged."""
    unlisted: int = 0
    """Segments of the log that the store has and did not list."""
    trouble: ObjectDamaged | None = None
    broken: int | None = None


def read_log_tail(store: ObjectStore, prefix: str, root: CheckpointRoot, pool: Executor | None) -> LogTail:
    """Read the log after a checkpoint: up to the first number that is missing. Raises LogGap, ObjectDamaged,
    StoreError.

    What lies beyond a gap was not acknowledged, as far as it says so itself: a flush waits for all before it.
    """
    found = survey_log_tail(store, prefix, root, pool)
    if found.trouble is not None:
        raise found.trouble
    return found


def survey_log_tail(store: ObjectStore, prefix: str, root: CheckpointRoot, pool: Executor | None) -> LogTail:
    """The same, of a log that may be damaged: then as far as it can be read. Raises StoreError."""
    return _Survey(store, prefix, root, pool).read()


@dataclass(slots=True)
class _Survey:
    store: ObjectStore
    prefix: str
    root: CheckpointRoot
    pool: Executor | None
    own: dict[int, str] = field(default_factory=dict)
    """Segments after the checkpoint that are listed, and of the epoch that they should be of."""
    later: list[str] = field(default_factory=list)
    """Those of an epoch that has no checkpoint here."""
    strays: list[str] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    unproven: int = 0
    unlisted: int = 0
    trouble: ObjectDamaged | None = None

    def read(self) -> LogTail:
        self._list()
        while self.trouble is None:
            if not self._listed_run() and not self._unlisted_one():
                break
        last = self._last
        beyond = [key for at, key in self.own.items() if at > last]
        if self.trouble is None:
            self.trouble = self._proof_of_a_gap(last, beyond)
        strays = [*self.strays, *beyond, *self.later]
        broken = None if self.trouble is None else last + 1
        return LogTail(self.segments, strays, self.later, self.unproven, self.unlisted, self.trouble, broken)

    @property
    def _last(self) -> int:
        return self.root.applied + len(self.segments)

    def _list(self) -> None:
        root = self.root
        after = make_segment_key(self.prefix, root.applied, 0xFFFFFFFF)
        for found in self.store.list(f"{self.prefix}/segments/", after):
            at, epoch = find_key_numbers(found.key)
            if at <= root.applied or make_segment_key(self.prefix, at, epoch) != found.key:
                continue  # not ours to judge, and not ours to remove
            if epoch == root.epoch_of(at):
                self.own[at] = found.key
            else:
                (self.later if epoch > root.epoch else self.strays).append(found.key)

    def _key(self, sequence: int) -> str:
        return make_segment_key(self.prefix, sequence, self.root.epoch_of(sequence))

    def _listed_run(self) -> bool:
        """Take those that are listed one after another; whether there were any."""
        first = self._last + 1
        keys: list[str] = []
        while first + len(keys) in self.own:
            keys.append(self.own[first + len(keys)])
        for at, found in enumerate(self._every(keys), first):
            if not isinstance(found, Segment):
                self.trouble = found
                del self.own[at]  # listed, and not there
                break
            self.segments.append(found)
        return self._last >= first

    def _unlisted_one(self) -> bool:
        """Take the next one if it is there, though it is not listed; whether it is."""
        found = self._look(self._key(self._last + 1))
        if not isinstance(found, Segment):
            self.trouble = found
            return False
        self.segments.append(found)
        self.unlisted += 1
        return True

    def _every(self, keys: Sequence[str]) -> Iterable[Segment | ObjectDamaged | None]:
        return map(self._look, keys) if self.pool is None else self.pool.map(self._look, keys)

    def _look(self, key: str) -> Segment | ObjectDamaged | None:
        """A segment's own account; None where it is not there."""
        try:
            return read_segment(self.store, key, self.root.identity, len(self.root.parts) * PART_BLOCKS)
        except ObjectMissing:
            return None
        except ObjectDamaged as error:
            return error

    def _proof_of_a_gap(self, last: int, beyond: Sequence[str]) -> ObjectDamaged | None:
        """What says that the log did not end there."""
        root = self.root
        if root.reigns and root.reigns[-1].first - 1 > last:
            why = f"it was there when the first checkpoint of epoch {root.epoch} was put: it was acknowledged"
            return self._gap(last + 1, why)
        for key, found in zip(beyond, self._every(beyond), strict=True):
            if isinstance(found, ObjectDamaged):
                return found  # it might say that what is missing was acknowledged
            if found is not None and found.safe is None:
                self.unproven += 1
            elif found is not None and found.safe is not None and found.safe > last:
                why = f"it was acknowledged: {key} was put when all up to segment {found.safe} were in the store"
                return self._gap(last + 1, why)
        return self._proof_of_a_checkpoint()

    def _proof_of_a_checkpoint(self) -> ObjectDamaged | None:
        for key, found in zip(self.later, self._every(self.later), strict=True):
            if isinstance(found, Segment) and found.checkpoint > 0:
                where = f"{self.prefix}/checkpoints/{found.epoch:08x}-…"
                what = f"the checkpoint of epoch {found.epoch} is missing ({where})"
                why = f"{key} was put after it; the newest that is listed is of epoch {self.root.epoch}"
                return LogGap(where, what, why, _NEXT_CHECKPOINT)
        return None

    def _gap(self, sequence: int, why: str) -> LogGap:
        key = self._key(sequence)
        return LogGap(key, f"segment {sequence} of the log is missing ({key})", why, _NEXT)


def read_segment(store: ObjectStore, key: str, identity: bytes, blocks: int = MAX_BLOCKS) -> Segment:
    """Read a segment's own account, without its blocks; the device has ``blocks``.

    Raises ObjectMissing, ObjectDamaged, StoreError.
    """
    length = SEGMENT_TAIL_SIZE
    while True:
        data, size = store.tail(key, length)
        found = decode_segment(data, size, identity, key, blocks)
        if found is not None:
            return found
        if length > size:
            raise ObjectDamaged(f"the segment {key} is damaged", "its table does not fit into it", _CHECK)
        length = length * 8


_CHECK = "run 'zvaultctl blockstore check'"
_NEXT_CHECKPOINT = (
    "bring it back, if the bucket keeps versions; a store that does not list what it has is no store to trust"
)
_NEXT = (
    "bring that object back, if the bucket keeps versions; else 'zvaultctl blockstore check PLACE --repair --cut-log'"
    " shows what is lost without it, and asks"
)
