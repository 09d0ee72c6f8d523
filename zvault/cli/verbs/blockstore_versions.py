"""'zvaultctl blockstore gc' of a store whose objects are locked, or whose server leaves removing to others."""

from __future__ import annotations

from dataclasses import asdict

from zvault.cli.event_text import format_plural
from zvault.cli.output import print_document, print_line
from zvault.cli.verbs import blockstore_place
from zvault.core.units import format_size


def remove_garbage(
    place: blockstore_place.StorePlace, *, do: bool, yes: bool, quiet: bool, json: bool
) -> None:
    """Remove versions that nobody needs; ``yes``: also where somebody has been at others. Raises ZvaultError."""
    from zvault.blockstore.maintenance.version_gc import remove_versions

    store = blockstore_place.reach_objects(place)
    with blockstore_place.start_workers() as pool:
        done = remove_versions(store, place.spec.key, pool, do=do, accept_tampered=yes)
    if json:
        print_document("blockstore gc", {"place": str(place), "done": do, **asdict(done)})
    elif not quiet:
        many = f"{format_plural(done.removed, 'version')} ({format_size(done.removed_bytes)})"
        left = f", {done.locked} ({format_size(done.locked_bytes)}) are locked still" if done.locked else ""
        print_line(
            f"removed {many} that nobody needs{left}"
            if do
            else f"{many} could be removed, as far as no lock is on them"
        )
