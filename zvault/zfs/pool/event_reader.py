"""Which datasets changed, read from OpenZFS's events (zpool-events(8)) so that none is missed unnoticed.

What moves a listing logs to the pool's history in the sync task that makes it, under the lock that a listing takes
(spa_history_log_sync in spa_history.c), and each log is an event. So an event can be read before its change can be
seen, and who reads all events and lists afterwards knows at least what the events tell. Seen with 2.3.9: right after
``zfs snapshot``, ``set``, ``hold``, ``rename``… return, the event can be read without waiting.

Two ways in which an event gets lost, and what tells:

- The kernel keeps 512 (zfs_zevent_len_max; more where zvaultd follows many datasets) and drops the oldest, or all
  (``zpool events -c``). A reader is told of it
  only with the next event, so the one that was read last is sought before each proof: while it is still there, so are
  all after it.
- An event beyond 6 KiB, as of a long property, is not posted at all; the kernel counts it (``erpt-dropped``).
- With zfs_snapshot_history_enabled=0 (zfs(4)) none is posted of snapshots that come or go. Nothing is known then.

Data that is written, keys, mounts, and how far a receive is, make none: who asks for that has to list it. That a
receive can be resumed shows from its first event on (seen with 2.3.9: the token is there while it runs).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

from zvault.core.names import split_snapshot

HISTORY_EVENT = "sysevent.fs.zfs.history_event"
POOL = "sysevent.fs.zfs.pool_"
"""Beginning of the classes of a pool's creation, import, export and destruction."""

SUSPENDED_EVENT = "ereport.fs.zfs.io_failure"
"""A pool suspends its I/O. Who lists it is told so; what is known of it must not hide that."""

OF_ONE = frozenset(
    {
        "bookmark",
        "clone",
        "clone swap",
        "create",
        "defer_destroy",
        "destroy",
        "finish receiving",
        "hold",
        "inherit",
        "receive",
        "release",
        "remove bookmark",
        "resume receive",
        "set",
        "snapshot",
    }
)
"""What changes one dataset's lines of a listing and no other's. A rename changes names below and origins elsewhere,
``promote`` moves snapshots: after those, and after what is not known here, the whole pool is listed."""

OF_A_SNAPSHOT = frozenset({"defer_destroy", "destroy", "snapshot"})
"""What, logged of a snapshot, may change that one, and none beside it."""

OF_BOOKMARKS = frozenset({"bookmark", "remove bookmark"})
"""What changes bookmarks of a dataset. It is logged of the dataset, but for a copy."""

COPIED = "source_guid="
"""Among what is logged of a bookmark that was copied from another. It is logged of that one's dataset, and the copy may
be a clone's (dsl_bookmark_create_sync_impl_book in dsl_bookmark.c)."""

OF_NO_SNAPSHOT = frozenset({"hold", "inherit", "release", "set"})
"""What changes properties or holds, and no dataset's snapshots or bookmarks."""

BOOKMARKS = "#"
"""Stands for all bookmarks of a dataset among what may have changed of it."""

OF_NONE = frozenset({"create", "import", "open", "scan done", "scan setup", "set"})
"""What is logged of a whole pool and changes no dataset. Its creation and import have classes of their own."""

DEFAULT_KEPT_EVENTS = 512
"""Events that the kernel keeps unless told otherwise (zfs_zevent_len_max in zfs(4))."""

MOST_KEPT = 32_768
"""Events that it is told to keep at most."""

EVENT_BYTES = 2048
"""Of the kernel's memory for one, about."""

OF_MEMORY = 256
"""All of them together take at most so great a part of the host's memory: one in so many."""

MOST_CHANGED_DATASETS = 20_000
"""Datasets noted until somebody asks; beyond that all are taken to have changed."""

MOST_OF_ONE = 100
"""Snapshots of one dataset that are noted; beyond that all of its snapshots are taken to have changed."""

MOST_NAMES = 50_000
"""Snapshots of all datasets that are noted; beyond that so it is with each further dataset."""


class KernelEvent(NamedTuple):
    """One event: its number, class and pool; of what is logged the dataset, kind and details, else empty."""

    number: int
    kind: str
    pool: str
    dataset: str = ""
    logged: str = ""
    details: str = ""


class EventRing(Protocol):
    """The kernel's events and one reader's place among them, which is before the oldest at first."""

    def seek(self, number: int) -> bool:
        """Go to behind an event; False if the kernel does not have it any more."""
        ...

    def next(self) -> tuple[KernelEvent, int] | None:
        """The next one, and how many were dropped before it; None where there is no newer one. Raises OSError."""
        ...

    def failures(self) -> int:
        """Return how many events the kernel could not post since it was started. Raises OSError."""
        ...

    def complete(self) -> bool:
        """True if the kernel posts an event of all that changes."""
        ...


class ChangedDatasets(SimpleNamespace):
    """The changes since they were asked for last. ``lost``: that is not known, anything may have.

    ``datasets``: of each that changed what of it may be another: snapshots ("@snapname") and BOOKMARKS, or None for
    all. Its line of a listing, and its holds, may be in any case.

    ``missed``: events are read here and some were not, so nothing older may be kept. Without it this is a host without
    events: stamps tell what they can. No dataclass: importing those is half of what the child's start would cost.
    """

    lost: bool
    pools: set[str]
    datasets: dict[str, set[str] | None]
    missed: bool
    names: int

    def __init__(
        self,
        *,
        lost: bool = False,
        pools: Iterable[str] = (),
        datasets: Mapping[str, Collection[str] | None] | None = None,
        missed: bool = False,
    ) -> None:
        of_each = {name: None if of is None else set(of) for name, of in (datasets or {}).items()}
        names = sum(len(of) for of in of_each.values() if of)
        super().__init__(lost=lost, pools=set(pools), datasets=of_each, missed=missed, names=names)

    def note(self, event: KernelEvent) -> None:
        """Add what one event tells."""
        if event.kind.startswith(POOL) or event.kind == SUSPENDED_EVENT:
            self.pools.add(event.pool)
        elif event.kind == HISTORY_EVENT and event.dataset:
            self._add(*_what(event))
            copied = event.logged == "bookmark" and COPIED in event.details
            if event.logged not in OF_ONE or copied:
                self.pools.add(event.pool)
        elif event.kind == HISTORY_EVENT and event.logged not in OF_NONE:
            self.pools.add(event.pool)
        if len(self.datasets) > MOST_CHANGED_DATASETS:
            self.lost = True
            self.datasets.clear()
            self.names = 0

    def _add(self, dataset: str, points: set[str] | None) -> None:
        before = self.datasets.get(dataset, _NOTHING)
        now = merge_changes(before, points)
        self.names += len(now or ()) - len(before or ())
        if now and self.names > MOST_NAMES:
            self.names -= len(now)
            now = None
        self.datasets[dataset] = now

    def document(self) -> dict[str, Any]:
        """As it is sent to the daemon."""
        return {
            "lost": self.lost,
            "pools": sorted(self.pools),
            "datasets": {name: of if of is None else sorted(of) for name, of in self.datasets.items()},
            "missed": self.missed,
        }

    @classmethod
    def of(cls, document: dict[str, Any]) -> ChangedDatasets:
        """As it was sent. Raises KeyError, TypeError, ValueError."""
        return cls(
            lost=bool(document["lost"]),
            pools=document["pools"],
            datasets=dict(document["datasets"]),
            missed=bool(document["missed"]),
        )


_NOTHING: set[str] = set()


def merge_changes(one: set[str] | None, other: set[str] | None) -> set[str] | None:
    """Return what may have changed of a dataset where both may: of too many snapshots all."""
    both = None if one is None or other is None else one | other
    return None if both is None or len(both) > MOST_OF_ONE else both


def _what(event: KernelEvent) -> tuple[str, set[str] | None]:
    """The dataset of which an event tells, and what of that may have changed, as in Changed."""
    # The children of a receive and a rollback, which nobody sees: "tank/home/%recv", "tank/home/%rollback". The
    # snapshot that a receive makes has an event of its own.
    name, _, unseen = event.dataset.partition("/%")
    dataset, snapname = split_snapshot(name)
    if event.logged in OF_NO_SNAPSHOT:
        return dataset, set()
    if event.logged in OF_BOOKMARKS and not snapname:
        return dataset, {BOOKMARKS}
    if snapname and event.logged in OF_A_SNAPSHOT:
        return dataset, {f"@{snapname}"}
    return dataset, set() if unseen.startswith("recv") and event.logged in OF_ONE else None


def choose_event_room(datasets: int, memory: int) -> int:
    """Return how many events the kernel should keep on a host of so many bytes of memory, where so many datasets are
    followed.

    ``zfs snapshot -r`` posts one for each dataset below at the same moment, and so do the holds, releases and bookmarks
    of a run: four for each dataset may come before anybody reads.
    """
    wanted = DEFAULT_KEPT_EVENTS
    while wanted < min(4 * datasets, MOST_KEPT) and 2 * wanted * EVENT_BYTES * OF_MEMORY <= memory:
        wanted *= 2
    return wanted


class ChangeReader:
    """Reads the ring from now on. What was before is not known: the first answer is ``lost``."""

    def __init__(self, ring: EventRing) -> None:
        self._ring = ring
        self._failures = ring.failures()
        self._at: int | None = None
        self._found = ChangedDatasets(lost=True)
        # What was before counts for nothing, but shows next time whether anything was dropped.
        self.read()
        self._found.pools.clear()
        self._found.datasets.clear()

    def read(self) -> None:
        """Read what there is, so that the kernel has no need to drop it. Proves nothing."""
        while (told := self._ring.next()) is not None:
            event, dropped = told
            self._at = event.number
            self._found.lost |= dropped > 0
            self._found.note(event)

    def take(self) -> ChangedDatasets:
        """All that changed until now since this was last asked, or that it is not known."""
        if self._at is not None and not self._ring.seek(self._at):
            self._at = None
            self._found.lost = True
        self.read()
        failures = self._ring.failures()
        # Without an event to seek nobody could tell next time whether any was dropped.
        self._found.lost |= self._at is None or failures != self._failures or not self._ring.complete()
        self._failures = failures
        found, self._found = self._found, ChangedDatasets(lost=self._at is None)
        found.missed = found.lost
        return found
