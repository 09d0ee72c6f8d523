"""'zvaultctl blockstore recover': a store as it was before somebody got at its bucket, by the versions of then."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zvault.cli import parse_times
from zvault.cli.event_text import format_plural
from zvault.cli.options import AsJson, DryRun, Quiet, Store
from zvault.cli.output import print_document, print_line, print_trouble
from zvault.cli.progress import StepProgress
from zvault.cli.tables import format_cell
from zvault.cli.verbs import blockstore_place
from zvault.cli.verbs.blockstore_serve import become_server, require_serve_tools
from zvault.core.errors import Refused
from zvault.core.units import format_size

if TYPE_CHECKING:
    from zvault.blockstore.bucket_as_of import BucketAsOf
    from zvault.blockstore.maintenance.recover import RecoverableCheckpoint
    from zvault.object_store.interface import ObjectStore


def recover(
    place: Store,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[TO]", help="Copy it to this place, where there is nothing yet.", show_default=False
        ),
    ] = None,
    before: Annotated[
        str,
        typer.Option(
            "--before",
            metavar="TIME",
            help="Nothing that was put later is believed.",
            show_default=False,
        ),
    ] = "",
    socket: Annotated[
        Path | None,
        typer.Option("--socket", metavar="PATH", help="Serve it read-only there.", show_default=False),
    ] = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Bring back a store as of its last checkpoint before TIME, whatever was done to its bucket since.

    It wants a bucket that keeps versions, as one with object lock does, and keys that may read and list them; nothing
    there is changed. Of each object the oldest version counts, and none that the store got after TIME: so choose a time
    before anybody had the writer's keys. Delete markers are passed over.

    With TO the device is copied to another place, as a store of its own; with --socket it is served read-only, as by
    'blockstore serve', until interrupted. With neither it only says what there is.
    """
    from zvault.blockstore.maintenance.recover import find_last_whole

    if not before:
        raise typer.BadParameter("say as of when, as in --before '2026-11-21 12:00'", param_hint="'--before'")
    when, found = parse_times.parse_first_moment(before, "--before"), blockstore_place.find_store(place)
    there = None if target is None else blockstore_place.find_store(target)
    if there is not None and (socket is not None or there.spec.identity == found.spec.identity):
        why = "it is copied or served, not both" if socket is not None else "both places are the same"
        raise Refused(f"{found} is not brought back so", why, "give TO or --socket")
    if socket is not None:
        require_serve_tools()
    with blockstore_place.start_workers() as pool:
        then, objects = blockstore_place.reach_objects_as_of(found, when)
        chosen = find_last_whole(objects, then, found.spec.key, pool)
    for name, why in chosen.passed:
        print_trouble(f"{name} is not whole: {why}")
    if json:
        print_document("blockstore recover", {"place": str(found), **_told(then, chosen)})
    elif not quiet:
        print_line(_words(then, chosen))
    if socket is not None:
        become_server(found, socket, chosen.moment, when, dry_run=dry_run, quiet=quiet)
    elif there is not None and not dry_run:
        _copy(found, there, objects, chosen, quiet=quiet or json)


def _told(then: BucketAsOf, chosen: RecoverableCheckpoint) -> dict[str, Any]:
    passed = then.passed_over
    return {
        "epoch": chosen.moment.epoch,
        "checkpoint": chosen.moment.number,
        "taken": chosen.moment.taken,
        "put": chosen.put,
        "objects": chosen.objects,
        "bytes": chosen.bytes,
        "hidden": passed.hidden,
        "overwritten": passed.overwritten,
        "later": passed.later,
    }


def _words(then: BucketAsOf, chosen: RecoverableCheckpoint) -> str:
    passed, one = then.passed_over, chosen.moment
    since = [
        f"{many} {what}"
        for many, what in (
            (passed.hidden, "hidden"),
            (passed.overwritten, "put again"),
            (passed.later, "new"),
        )
        if many
    ]
    came = f"; of all objects since then {', '.join(since)}" if since else ""
    return (
        f"checkpoint {one.number} of epoch {one.epoch}, put {format_cell(chosen.put, 'time', exact=False)}, is whole:"
        f" {format_plural(chosen.objects, 'object')}, {format_size(chosen.bytes)}{came}"
    )


def _copy(
    place: blockstore_place.StorePlace,
    there: blockstore_place.StorePlace,
    objects: ObjectStore,
    chosen: RecoverableCheckpoint,
    *,
    quiet: bool,
) -> None:
    from zvault.blockstore.locked_bucket import see_that_conditions_hold
    from zvault.blockstore.maintenance.copy import copy_store
    from zvault.blockstore.store_view import StoreView

    see_that_conditions_hold(blockstore_place.reach_writers_bucket(there), there.spec, print_trouble)
    view = StoreView(objects, place.spec.key, at=chosen.moment)
    try:
        with (
            blockstore_place.start_workers() as pool,
            blockstore_place.make_scratch_options(there) as options,
            StepProgress(not quiet, print_trouble) as steps,
        ):
            target = blockstore_place.reach_objects(there)
            done = copy_store(
                view,
                target,
                there.spec.key,
                options,
                blockstore_place.name_this_writer("recover"),
                pool,
                steps.see,
            )
    finally:
        view.close()
    if not quiet:
        print_line(f"copied {format_size(done.data)} of a device of {format_size(done.size)} to {there}")
