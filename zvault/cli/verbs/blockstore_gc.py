"""zvaultctl blockstore gc."""

from __future__ import annotations

from dataclasses import asdict

import typer

from zvault.cli.event_text import format_plural
from zvault.cli.options import AsJson, DryRun, Quiet, Store, Yes
from zvault.cli.output import OK_STATUS, TROUBLE_STATUS, print_document, print_line, print_trouble
from zvault.cli.progress import StepProgress
from zvault.cli.verbs import blockstore_place
from zvault.core.units import format_size


def gc(
    place: Store, yes: Yes = False, dry_run: DryRun = False, quiet: Quiet = False, json: AsJson = False
) -> None:
    """Take a store that nobody uses, and remove all of its garbage, until 1.1 bytes are stored for each live one.

    A server does so by itself, to 1.25 bytes and at its leisure. Exit status: 0 done; 1 a segment could not be cleared.

    Where the place has lock= or gc=elsewhere the store is not taken, and may be in use: versions of objects are removed
    that nobody needs any more, and whose lock has ended, with keys that may do so. It is refused where somebody has
    been at what is needed.
    """
    from zvault.blockstore.maintenance.info import read_store_info
    from zvault.blockstore.maintenance.offline_gc import collect_all_garbage

    found = blockstore_place.find_store(place)
    if found.spec.lock is not None or found.spec.gc_elsewhere:
        _remove_versions(found, do=not dry_run, yes=yes, quiet=quiet, json=json)
        return
    store, key = blockstore_place.reach_objects(found), found.spec.key
    with blockstore_place.start_workers() as pool:
        before = read_store_info(store, key, pool)
        if dry_run:
            print_line(
                f"{format_size(before.dead_bytes)} of {format_size(before.stored_bytes)} could be removed"
            )
            return
        blockstore_place.refuse_store_in_use(found, "cleaned up", before.owner, yes=yes)
        with (
            blockstore_place.make_attach_options(found) as options,
            StepProgress(not quiet and not json, print_trouble) as steps,
        ):
            done = collect_all_garbage(
                store,
                key,
                options,
                blockstore_place.name_this_writer("gc"),
                pool=pool,
                progress=steps.see,
                say=print_trouble,
            )
    if json:
        names = ("before", "after", "past", "live", "moved", "cleared", "strays", "stray_bytes", "trouble")
        print_document(
            "blockstore gc", {"place": str(found), **{name: getattr(done, name) for name in names}}
        )
    elif not quiet:
        freed = format_size(max(0, done.before - done.after) + done.stray_bytes)
        past = f", and {format_size(done.past)} for the past" if done.past else ""
        stored = format_size(done.after - done.past)
        print_line(f"freed {freed}: {stored} are stored for {format_size(done.live)} that are live{past}")
    if done.trouble is not None:
        print_trouble(f"not all could be cleared: {done.trouble}")
    raise typer.Exit(OK_STATUS if done.trouble is None else TROUBLE_STATUS)


def _remove_versions(
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
