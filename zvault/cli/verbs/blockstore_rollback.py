"""'zvaultctl blockstore check --accept-rollback': go on with a store that is older than this host knows it."""

from __future__ import annotations

from zvault.cli.output import OK, document, say, tell
from zvault.cli.verbs import blockstore_place


def accept(place: blockstore_place.StorePlace, *, do: bool, json: bool) -> int:
    """Show what this host knows and where the store is now; with ``do`` take the store as it is. Raises ZvaultError."""
    from dataclasses import replace

    from zvault.blockstore.attach import attach
    from zvault.blockstore.maintenance.repair import quiet
    from zvault.blockstore.position import SeenPosition
    from zvault.blockstore.recovery import Epoch, newest_root, superblock

    store, key = blockstore_place.reach(place), place.spec.key
    what = superblock(store, key)
    seen = SeenPosition(blockstore_place.positions(), what.identity)
    seen.close()
    root = newest_root(store, key, what)
    if do:
        blockstore_place.refuse_in_use(place, "taken as it is", Epoch.read(store, key).owner, yes=True)
        with blockstore_place.options(place) as options:
            anyway = replace(quiet(options), accept_older=True)
            attach(store, key, anyway, blockstore_place.me("check"), tell).close()
    now = f"epoch {root.epoch}, checkpoint {root.number}"
    if json:
        body = {
            "place": str(place),
            "seen": str(seen.known) if seen.known else None,
            "now": now,
            "accepted": do,
        }
        document("blockstore check", body)
        return OK
    say(f"this host knows it at {seen.known or 'no position'}; it is at {now} and the log after that")
    say(
        "accepted: it goes on from there, and what it had later is lost"
        if do
        else "nothing is changed: to go on from there, and lose what it had later, do so with --yes"
    )
    return OK
