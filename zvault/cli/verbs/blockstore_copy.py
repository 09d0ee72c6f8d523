"""zvaultctl blockstore copy."""

from __future__ import annotations

from typing import Annotated

import typer

from zvault.cli.options import AsJson, DryRun, Quiet, Store
from zvault.cli.output import print_document, print_line, print_trouble
from zvault.cli.progress import StepProgress
from zvault.cli.verbs import blockstore_keys, blockstore_place
from zvault.core.errors import Refused
from zvault.core.units import format_size


def copy_(
    source: Store,
    target: Annotated[str, typer.Argument(metavar="TO", help="Another place, where there is nothing yet.")],
    dry_run: DryRun = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Copy a store to another place: what the last checkpoint and the log say, and only what is live.

    The copy has a uuid of its own, and is encrypted if its place names a key, whatever the source is: so a store that
    is not encrypted becomes one that is. While the source is written to a copy may have to give up. What a copy that
    was broken off leaves is no store; what it could not remove is told by 'create', and can be removed.
    """
    from zvault.blockstore.locked_bucket import see_that_conditions_hold
    from zvault.blockstore.maintenance.copy import copy_store
    from zvault.blockstore.maintenance.info import read_store_info
    from zvault.blockstore.store_view import view_store_now

    here, there = blockstore_place.find_store(source), blockstore_place.find_store(target)
    if here.spec.identity == there.spec.identity:
        raise Refused(f"{here} cannot be copied", "both places are the same", "give another bucket or key")
    store, other = blockstore_place.reach_objects(here), blockstore_place.reach_bare_objects(there)
    kept = blockstore_keys.CopyTarget(there)
    if dry_run:
        with blockstore_place.start_workers() as pool:
            told = read_store_info(store, here.spec.key, pool)
        print_line(f"would copy about {format_size(told.live_bytes)} to {there}")
        return
    see_that_conditions_hold(blockstore_place.reach_writers_bucket(there), there.spec, print_trouble)
    view = view_store_now(store, here.spec.key)
    try:
        with (
            blockstore_place.start_workers() as pool,
            blockstore_place.make_scratch_options(there) as options,
            StepProgress(not quiet and not json, print_trouble) as steps,
        ):
            me = blockstore_place.name_this_writer("copy")
            done = copy_store(view, other, there.spec.key, options, me, pool, steps.see, kept.encrypted)
    finally:
        view.close()
    if json:
        body = {
            "source": str(here),
            "target": str(there),
            "size": done.size,
            "data": done.data,
            "stored": done.stored,
            "recovery_key": kept.recovery_key,
        }
        print_document("blockstore copy", body)
    elif not quiet:
        print_line(f"copied {format_size(done.data)} of a device of {format_size(done.size)} to {there}")
    blockstore_keys.show_recovery_key(kept.recovery_key, json=json)
