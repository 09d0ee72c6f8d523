"""'zvaultctl blockstore recover': a store as it was before somebody got at its bucket, by the versions of then."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zvault.cli import times
from zvault.cli.event_text import plural
from zvault.cli.options import AsJson, DryRun, Quiet, Store
from zvault.cli.output import document, say, tell
from zvault.cli.progress import Steps
from zvault.cli.tables import written
from zvault.cli.verbs import blockstore_place
from zvault.cli.verbs.blockstore_serve import become_server, see_that_it_can
from zvault.core.errors import Refused
from zvault.core.units import format_size

if TYPE_CHECKING:
    from zvault.blockstore.as_of import AsOf
    from zvault.blockstore.maintenance.recover import Recoverable
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
    from zvault.blockstore.maintenance.recover import last_whole

    if not before:
        raise typer.BadParameter("say as of when, as in --before '2026-11-21 12:00'", param_hint="'--before'")
    when, found = times.before(before, "--before"), blockstore_place.find(place)
    there = None if target is None else blockstore_place.find(target)
    if there is not None and (socket is not None or there.spec.identity == found.spec.identity):
        why = "it is copied or served, not both" if socket is not None else "both places are the same"
        raise Refused(f"{found} is not brought back so", why, "give TO or --socket")
    if socket is not None:
        see_that_it_can()
    with blockstore_place.workers() as pool:
        then, objects = blockstore_place.reach_as_of(found, when)
        chosen = last_whole(objects, then, found.spec.key, pool)
    for name, why in chosen.passed:
        tell(f"{name} is not whole: {why}")
    if json:
        document("blockstore recover", {"place": str(found), **_told(then, chosen)})
    elif not quiet:
        say(_words(then, chosen))
    if socket is not None:
        become_server(found, socket, chosen.moment, when, dry_run=dry_run, quiet=quiet)
    elif there is not None and not dry_run:
        _copy(found, there, objects, chosen, quiet=quiet or json)


def _told(then: AsOf, chosen: Recoverable) -> dict[str, Any]:
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


def _words(then: AsOf, chosen: Recoverable) -> str:
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
        f"checkpoint {one.number} of epoch {one.epoch}, put {written(chosen.put, 'time', exact=False)}, is whole:"
        f" {plural(chosen.objects, 'object')}, {format_size(chosen.bytes)}{came}"
    )


def _copy(
    place: blockstore_place.StorePlace,
    there: blockstore_place.StorePlace,
    objects: ObjectStore,
    chosen: Recoverable,
    *,
    quiet: bool,
) -> None:
    from zvault.blockstore.locked_bucket import see_that_conditions_hold
    from zvault.blockstore.maintenance.copy import copy
    from zvault.blockstore.view import View

    see_that_conditions_hold(blockstore_place.reach_writers_bucket(there), there.spec, tell)
    view = View(objects, place.spec.key, at=chosen.moment)
    try:
        with (
            blockstore_place.workers() as pool,
            blockstore_place.scratch(there) as options,
            Steps(not quiet, tell) as steps,
        ):
            target = blockstore_place.reach(there)
            done = copy(
                view, target, there.spec.key, options, blockstore_place.me("recover"), pool, steps.see
            )
    finally:
        view.close()
    if not quiet:
        say(f"copied {format_size(done.data)} of a device of {format_size(done.size)} to {there}")
