"""How far a pool was when it was last seen, and that it is older by now: its store was put back. Pure.

A store goes back when a snapshot of the image or disk is rolled back, when a virtual machine is restored, when a
bucket is, or when another copy of a device is attached. The pool is well then, so ZFS tells nothing. A source has
pruned the snapshots that the older state ends with, so that all was sent in full, and what differed was set aside.

The numbers of transaction groups tell: they only grow, whoever has the pool imported.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import NamedTuple


class PoolTxgs(NamedTuple):
    """Transaction groups of an imported pool: the newest of all, and the newest that is on its devices, if any is."""

    newest: int
    committed: int | None


@dataclass(frozen=True, slots=True)
class PoolProgress:
    """A pool as it was last seen: ``txg`` was the newest transaction group on its devices ``at`` that time.

    Times are seconds since the epoch. ``found``: when it was found to be older than that, None where it is not. What
    was seen since then: ``since``, its newest transaction group, and ``newest``, when its newest snapshot was made as
    it was found (None where that is not known).
    """

    txg: int
    at: float
    found: float | None = None
    since: int = 0
    newest: float | None = None

    @property
    def is_older(self) -> bool:
        """True if the pool is older than it was, and nobody has accepted that."""
        return self.found is not None

    def accept(self, at: float) -> PoolProgress:
        """The progress of the pool once somebody has accepted that it is older."""
        return PoolProgress(self.since, at) if self.is_older else self


def follow_pool(
    before: PoolProgress | None, txgs: PoolTxgs, at: float, *, imported: bool
) -> PoolProgress | None:
    """The progress after a look at a pool; None where nothing is known of it yet. ``imported``: it just was.

    A pool that was found to be older stays so while it grows. Only an import that finds what was last seen, or more,
    ends that: then its store is the right one again.
    """
    committed = txgs.committed
    if before is None:
        return PoolProgress(committed, at) if committed is not None else None
    if before.is_older:
        if imported and txgs.newest >= before.txg > before.since:
            return PoolProgress(max(before.txg, committed or 0), at)
        return replace(before, since=max(before.since, txgs.newest))
    if txgs.newest < before.txg:
        return replace(before, found=at, since=txgs.newest)
    return PoolProgress(committed, at) if committed is not None and committed > before.txg else before


def describe_older(progress: PoolProgress, zone: tzinfo) -> str:
    """Say in words how much older a pool is than it was; empty where it is not."""
    if not progress.is_older:
        return ""
    newest = (
        f"the newest snapshot in it was made {_when(progress.newest, zone)}"
        if progress.newest is not None
        else "of what age the newest snapshot in it is, is not known"
    )
    return f"it is older than when it was last seen ({_when(progress.at, zone)}): its store was put back; {newest}"


def _when(seconds: float, zone: tzinfo) -> str:
    return datetime.fromtimestamp(seconds, zone).strftime("%Y-%m-%d %H:%M")
