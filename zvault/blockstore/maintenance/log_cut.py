"""What ``--cut-log`` would lose: the segments of the log from the first one that cannot be read."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from typing import Any

from zvault.blockstore.format import ObjectDamaged, Segment, find_key_numbers, make_segment_key
from zvault.blockstore.log_tail import LogTail, read_segment
from zvault.blockstore.map.root import CheckpointRoot
from zvault.core.units import format_size
from zvault.object_store.interface import ObjectMissing, ObjectStore


@dataclass(frozen=True, slots=True)
class LogCut:
    """Segments that end with the log.

    ``first``: the number of the one that cannot be read. ``objects`` of the bucket, of ``bytes`` in all, are from it
    on. ``acknowledged``: the last segment that others prove a flush was answered for, 0 where none does; later ones may
    have been.
    """

    first: int
    objects: int
    bytes: int
    acknowledged: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def describe(self) -> str:
        """What is lost, for whoever has to decide."""
        many = f"{self.objects} segment{'' if self.objects == 1 else 's'}, {format_size(self.bytes)}"
        lost = f"all from segment {self.first} on: {many}"
        if self.acknowledged < self.first:
            return f"{lost}; flushes of them may have been answered"
        sure = "it was" if self.acknowledged == self.first else f"those up to {self.acknowledged} were"
        return f"{lost}; {sure} acknowledged for certain, later ones may have been"


def measure_cut(
    store: ObjectStore,
    prefix: str,
    root: CheckpointRoot,
    rest: LogTail,
    sizes: dict[str, int],
    pool: Executor,
) -> LogCut | None:
    """What would be lost of a log, with ``sizes`` by key as listed; None where all can be read. Raises StoreError."""
    if rest.broken is None:
        return None
    first = rest.broken
    broken = make_segment_key(prefix, first, root.epoch_of(first))
    keys = sorted(
        {key for key in (broken, *rest.strays) if find_key_numbers(key)[0] >= first and key in sizes}
    )

    def look(key: str) -> Segment | None:
        try:
            return read_segment(store, key, root.identity)
        except (ObjectDamaged, ObjectMissing):
            return None

    safe = [one.safe or 0 for one in pool.map(look, keys) if one is not None]
    if root.reigns:
        # The first checkpoint of a writer was put once all before it were in the store.
        safe.append(root.reigns[-1].first - 1)
    acknowledged = max(safe, default=0)
    return LogCut(
        first,
        len(keys),
        sum(sizes[key] for key in keys),
        acknowledged if acknowledged >= first else 0,
    )
