"""What 'zvaultctl blockstore check --give-up-journal' drops: the frames of a journal that another writer overtook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zvault.cli.event_text import format_plural
from zvault.cli.output import OK_STATUS, print_document, print_line
from zvault.cli.verbs import blockstore_place
from zvault.core.errors import NotFound, Refused
from zvault.core.units import format_size


def drop_journal_frames(place: blockstore_place.StorePlace, folder: Path, *, do: bool, json: bool) -> int:
    """Drop the frames of a journal that another writer overtook."""
    from zvault.blockstore.log.journal import Journal
    from zvault.blockstore.recovery import read_newest_root, read_superblock

    if not folder.is_dir():
        raise NotFound(
            f"there is no journal in {folder}", "there is no such folder", "see journal= of the place"
        )
    store, key = blockstore_place.reach_objects(place), place.spec.key
    what = read_superblock(store, key)
    journal = Journal(
        folder, what.identity, capacity=place.spec.journal_size, durable=place.spec.mode == "writeback"
    )
    try:
        root = read_newest_root(store, key, what)
        if journal.epoch > root.epoch:
            raise Refused(
                f"the journal in {folder} is not given up",
                f"it is of epoch {journal.epoch}, and the store of {root.epoch}: it is the store that is older",
                "see 'zvaultctl blockstore check PLACE --accept-rollback'",
            )
        if journal.epoch in (0, root.epoch):
            why = "it is empty" if journal.epoch == 0 else "no other host has written to the store since"
            raise Refused(
                f"the journal in {folder} is not given up", why, "bring the vault up: it goes on from it"
            )
        epoch = journal.epoch
        lost = [(frame.number, frame.count) for frame in journal.frames(_last_kept(epoch, root))]
        size = sum(count for _, count in lost) * 4096
        if do:
            # Not begun anew with the store's epoch: that one's journal may be on another host, and waited for.
            journal.drop()
    finally:
        journal.close()
    if json:
        print_document(
            "blockstore check", {"journal": str(folder), "writes": len(lost), "bytes": size, "given_up": do}
        )
    else:
        many = f"{format_plural(len(lost), 'write')} ({format_size(size)}) of epoch {epoch}"
        print_line(f"given up: {many}" if do else f"would give up {many}; do so with --yes")
    return OK_STATUS


def _last_kept(epoch: int, root: Any) -> int:
    """The last frame of an epoch that the store has; 0 where nobody knows any more."""
    for before, after in zip(root.reigns, root.reigns[1:], strict=False):
        if before.epoch == epoch:
            return int(after.frame)
    return 0
