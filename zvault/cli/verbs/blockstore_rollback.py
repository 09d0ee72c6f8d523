"""'zvaultctl blockstore check --accept-rollback': go on with a store that is older than this host knows it."""

from __future__ import annotations

from zvault.cli.output import OK_STATUS, print_document, print_line, print_trouble
from zvault.cli.verbs import blockstore_place


def accept_older_store(place: blockstore_place.StorePlace, *, do: bool, json: bool) -> int:
    """Show what this host knows and where the store is now; with ``do`` take the store as it is. Raises ZvaultError."""
    from dataclasses import replace

    from zvault.blockstore.attach import attach_store
    from zvault.blockstore.known_position import SeenPosition
    from zvault.blockstore.maintenance.repair import quiet_options
    from zvault.blockstore.recovery import WriterEpoch, read_newest_root, read_superblock

    store, key = blockstore_place.reach_objects(place), place.spec.key
    what = read_superblock(store, key)
    seen = SeenPosition(blockstore_place.find_positions_folder(), what.identity)
    seen.close()
    root = read_newest_root(store, key, what)
    if do:
        blockstore_place.refuse_store_in_use(
            place, "taken as it is", WriterEpoch.read(store, key).owner, yes=True
        )
        with blockstore_place.make_attach_options(place) as options:
            anyway = replace(quiet_options(options), accept_older=True)
            attach_store(
                store, key, anyway, blockstore_place.name_this_writer("check"), print_trouble
            ).close()
    now = f"epoch {root.epoch}, checkpoint {root.number}"
    if json:
        body = {
            "place": str(place),
            "seen": str(seen.known) if seen.known else None,
            "now": now,
            "accepted": do,
        }
        print_document("blockstore check", body)
        return OK_STATUS
    print_line(f"this host knows it at {seen.known or 'no position'}; it is at {now} and the log after that")
    print_line(
        "accepted: it goes on from there, and what it had later is lost"
        if do
        else "nothing is changed: to go on from there, and lose what it had later, do so with --yes"
    )
    return OK_STATUS
