"""What the page of a dataset shows: its snapshots on both sides, as they were listed last, and what becomes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from zvault.api.backups import Side
from zvault.config.schema import Backup
from zvault.core.model import Snapshot
from zvault.daemon.listings import BackupListing
from zvault.daemon.page.page_model import DatasetPage, DatasetPointDocument, SideDocument, TimelineMark
from zvault.daemon.status import DaemonStatus
from zvault.ops.next_prune import NextPrune, predict_prune
from zvault.system.side_threads import compute_aside

SNAPSHOT_ROWS = 100
"""Snapshots on a page."""

DRAWN_SNAPSHOTS = 2000
"""Snapshots on the time line: the newest."""

REMEMBERED_DATASETS = 8
"""Datasets whose outlook is remembered."""

OUTLOOK_LIFETIME = 30.0
"""Seconds for which it is told as it was found, while nothing new was listed: rules go by the clock."""


class DatasetSource:
    """Tells of one dataset of one backup. No pool is asked: what was listed last is in memory."""

    def __init__(self, status: DaemonStatus) -> None:
        self._status = status
        self._known: dict[tuple[str, str], tuple[BackupListing, float, NextPrune]] = {}

    async def page(self, backup: str, dataset: str, page: int) -> DatasetPage | None:
        """The page; None where nothing of that name is known."""
        context = self._status.context
        table = context.env.config.backup.get(backup)
        listing = self._status.runs.readings.listings.of(backup)
        if table is None or listing is None:
            return None
        found = await self._next_prune(backup, dataset, listing)
        if found is None:
            return None
        size = len(found.on_source) + len(found.on_vault)
        return await compute_aside(size, None, self._document, table, dataset, listing, found, page)

    def _document(
        self, table: Backup, dataset: str, listing: BackupListing, found: NextPrune, page: int
    ) -> DatasetPage:
        context = self._status.context
        newest = sorted({**found.on_source, **found.on_vault}.values(), key=_age, reverse=True)
        pages = max(1, -(-len(newest) // SNAPSHOT_ROWS))
        page = min(max(page, 1), pages)
        marks = [_mark(snap.guid, found) for snap in newest]
        counted = Counter(one for mark in marks for one in mark)
        return {
            "now": context.env.clock.time(),
            "host": self._status.context.env.host,
            "backup": table.name,
            "dataset": dataset,
            "vault": table.vault,
            "into": found.vault,
            "source_listed": listing.source_at,
            "vault_listed": listing.vault_at,
            "foreseen": list(found.decided),
            "scheduled": table.scheduled,
            "next_run": self._status.scheduler.next_run(table.name),
            "drawn": [
                (snap.creation, int(mark))
                for snap, mark in zip(newest[:DRAWN_SNAPSHOTS], marks[:DRAWN_SNAPSHOTS], strict=True)
            ],
            "counts": {str(mark.name): counted[mark] for mark in TimelineMark},
            "points": [
                _point(snap, found) for snap in newest[(page - 1) * SNAPSHOT_ROWS : page * SNAPSHOT_ROWS]
            ],
            "total": len(newest),
            "page": page,
            "pages": pages,
        }

    async def _next_prune(self, backup: str, dataset: str, listing: BackupListing) -> NextPrune | None:
        key, now = (backup, dataset), self._status.context.env.clock.monotonic()
        known = self._known.get(key)
        if known is not None and known[0] is listing and now < known[1]:
            return known[2]
        context = self._status.context
        table = context.env.backup(backup)
        found = await listing.listed.compute(lambda: predict_prune(context, table, listing.sides, dataset))
        self._known.pop(key, None)
        if found is not None:
            while len(self._known) >= REMEMBERED_DATASETS:
                del self._known[next(iter(self._known))]
            self._known[key] = listing, now + OUTLOOK_LIFETIME, found
        return found


def _age(snapshot: Snapshot) -> tuple[int, str]:
    return snapshot.creation, snapshot.snapname


def _mark(guid: int, found: NextPrune) -> TimelineMark:
    mark = TimelineMark(0)
    sides: tuple[tuple[Side, TimelineMark, TimelineMark, Mapping[int, Snapshot]], ...] = (
        ("source", TimelineMark.SOURCE, TimelineMark.GOES_ON_SOURCE, found.on_source),
        ("vault", TimelineMark.VAULT, TimelineMark.GOES_ON_VAULT, found.on_vault),
    )
    for side, there, goes, has in sides:
        if guid in has:
            mark |= there
            if _side(guid, side, found)["keep"] is False:
                mark |= goes
    if guid == found.base:
        mark |= TimelineMark.BASE
    if guid in found.waiting:
        mark |= TimelineMark.WAITING
    return mark if guid in found.ours else mark | TimelineMark.FOREIGN


def _side(guid: int, side: Side, found: NextPrune) -> SideDocument:
    verdict = found.decided.get(side, {}).get(guid)
    return {"keep": None, "why": ""} if verdict is None else {"keep": verdict.keep, "why": verdict.reason}


def _point(snap: Snapshot, found: NextPrune) -> DatasetPointDocument:
    return {
        "name": snap.snapname,
        "made": snap.creation,
        "source": _side(snap.guid, "source", found) if snap.guid in found.on_source else None,
        "vault": _side(snap.guid, "vault", found) if snap.guid in found.on_vault else None,
        "base": snap.guid == found.base,
    }
