"""'zvaultctl blockstore give-up-journal': go on without the journal that a store waits for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zvault.cli.event_text import format_plural
from zvault.cli.options import AsJson, DryRun, Store, Yes
from zvault.cli.output import print_document, print_line, print_lines, print_trouble
from zvault.cli.tables import format_cell
from zvault.cli.verbs import blockstore_place
from zvault.core.errors import Refused
from zvault.core.units import format_size

if TYPE_CHECKING:
    from zvault.blockstore.awaited_journal import FoundJournal, MissingJournal
    from zvault.blockstore.options import EngineOptions

POOLS_KSTAT = Path("/proc/spl/kstat/zfs")
"""OpenZFS has a folder here for each pool that is imported; looking at it never waits for a pool that hangs."""


def give_up_journal(
    place: Store,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Go on without the journal that a store waits for, if that is lost for good.

    With mode=writeback a flush is answered once the journal has it. So a store whose journal is missing is not begun:
    what was answered and had not reached the bucket yet is in the journal alone. This shows which journal that is,
    where it was, and what is lost without it. With --yes the store goes on as it is in the bucket, as if the power had
    been cut at the last write that is there; a journal that comes back later is refused.

    Nobody may use the store meanwhile, and its pool must not be imported: reboot the host if it hangs. Import it only
    afterwards: ZFS then finds a pool that is older, and whole.
    """
    found = blockstore_place.find_store(place)
    lost = _look(found)
    done = yes and not dry_run
    if done:
        _refuse_imported(found)
        _go_on(found)
    if json:
        print_document(
            "blockstore give-up-journal", {"place": str(found), **lost.as_dict(), "given_up": done}
        )
        return
    print_lines(_shown(found, lost))
    if done:
        print_line("given up: the store goes on as it is in the bucket; scrub its pool once the vault is up")
    else:
        print_line("nothing is changed: to lose these writes, and go on without them, do so with --yes")


@dataclass(frozen=True, slots=True)
class LostWrites:
    """The writes that are lost with a journal: the store has all writes up to ``last``, of its checkpoint of ``taken``
    and the log.

    ``flushed``: the last write that is known to have been on the journal's disk; None where this host does not know.
    """

    missing: MissingJournal
    last: int
    taken: float
    flushed: int | None

    @property
    def least(self) -> int | None:
        """So many writes are lost at least; None where nobody knows."""
        return None if self.flushed is None else max(0, self.flushed - self.last)

    def as_dict(self) -> dict[str, Any]:
        """Return what is lost for JSON."""
        mark = self.missing.mark
        return {
            "epoch": self.missing.epoch,
            "host": mark.host if mark else None,
            "folder": mark.folder if mark else None,
            "since": mark.since if mark else None,
            "found": self.missing.kind,
            "last_write": self.last,
            "checkpoint_taken": self.taken or None,
            "lost_writes": self.least,
        }


def _look(place: blockstore_place.StorePlace) -> LostWrites:
    """What is missing. Raises Refused where nothing is waited for, or it is there."""
    from zvault.blockstore.attach import find_missing
    from zvault.blockstore.known_position import SeenPosition
    from zvault.blockstore.log_tail import read_log_tail
    from zvault.blockstore.recovery import WriterEpoch, read_newest_root, read_superblock

    store, key = blockstore_place.reach_objects(place), place.spec.key
    what = read_superblock(store, key)
    root, epoch = read_newest_root(store, key, what), WriterEpoch.read(store, key)
    seen = SeenPosition(blockstore_place.find_positions_folder(), what.identity)
    seen.close()
    with blockstore_place.make_attach_options(place) as options:
        missing = find_missing(epoch, root, seen, _find_journal(options, what.identity), options)
    if missing is None:
        why = f"{epoch.journal} is there" if epoch.journal else "all that was answered is in the bucket"
        raise Refused(
            f"no journal of the block store in {place} is given up",
            f"none is missing: {why}",
            "bring the vault up: it goes on from what there is; a journal that another host overtook is dropped by"
            " 'zvaultctl blockstore check PLACE --give-up-journal FOLDER'",
        )
    with blockstore_place.start_workers() as pool:
        log = read_log_tail(store, key, root, pool).segments
    note = seen.journal
    flushed = note.flushed if note is not None and note.epoch == missing.epoch and not note.boot else None
    return LostWrites(missing, log[-1].frame if log else root.frame, root.taken, flushed)


def _find_journal(options: EngineOptions, identity: bytes) -> FoundJournal:
    """The journal in its folder. Makes no folder: it could be below the mount point of the disk that is missing."""
    from zvault.blockstore.awaited_journal import FoundJournal
    from zvault.blockstore.log.journal import Journal

    if not options.journal.is_dir():
        return FoundJournal(0, 0)
    durable = options.mode == "writeback"
    journal = Journal(options.journal, identity, capacity=options.journal_size, durable=durable)
    try:
        return FoundJournal(journal.epoch, journal.find_last())
    finally:
        journal.close()


def _shown(place: blockstore_place.StorePlace, lost: LostWrites) -> Iterator[str]:
    missing = lost.missing
    yield f"{place} waits for {missing.mark or f'the journal of epoch {missing.epoch}'} which is not there"
    if missing.kind == "older":
        yield f"there is an older copy of it, which ends with write {missing.found.last}; that much goes to the bucket"
    elif missing.kind == "another":
        yield f"the journal that is there is another one, of epoch {missing.found.epoch}"
    at = f" (last checkpoint: {format_cell(lost.taken, 'time', exact=False)})" if lost.taken else ""
    yield f"the bucket has all up to write {lost.last}{at}"
    if lost.flushed is not None:
        yield (
            f"the journal had all up to write {lost.flushed} on its disk: "
            f"{format_plural(lost.least or 0, 'write')} at least"
        )
    else:
        most = format_size(place.spec.journal_size)
        yield f"how much the journal has beyond that is not known: at most {most}, what it holds at a time"


def _refuse_imported(place: blockstore_place.StorePlace) -> None:
    """Raises Refused where ZFS has the pool in memory, newer than the bucket will be."""
    if place.pool and (POOLS_KSTAT / place.pool).is_dir():
        raise Refused(
            f"no journal is given up while the pool '{place.pool}' is imported",
            "ZFS takes for written what would be lost, and the pool would be damaged",
            f"'zvaultctl vault down {place.vault}'; a pool that is suspended is only let go by a reboot",
        )


def _go_on(place: blockstore_place.StorePlace) -> None:
    from dataclasses import replace

    from zvault.blockstore.attach import attach_store
    from zvault.blockstore.maintenance.repair import quiet_options
    from zvault.blockstore.recovery import WriterEpoch

    store, key = blockstore_place.reach_objects(place), place.spec.key
    blockstore_place.refuse_store_in_use(place, "taken", WriterEpoch.read(store, key).owner, yes=True)
    with blockstore_place.make_attach_options(place) as options:
        anyway = replace(quiet_options(options), give_up_journal=True)
        attach_store(
            store, key, anyway, blockstore_place.name_this_writer("give-up-journal"), print_trouble
        ).close()
