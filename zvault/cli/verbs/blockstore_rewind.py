"""'zvaultctl blockstore rewind': have a store be again what it was at a moment of its past that is kept."""

from __future__ import annotations

from typing import Annotated

import typer

from zvault.cli.options import AsJson, Quiet, Store, Yes
from zvault.cli.output import print_document, print_line, print_trouble
from zvault.cli.parse_times import parse_last_moment
from zvault.cli.tables import format_cell
from zvault.cli.verbs import blockstore_place


def rewind(
    place: Store,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="TIME", help="The last moment up to TIME that is kept.", show_default=False
        ),
    ],
    yes: Yes = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Have a store be again what it was at a moment of its past, while nobody uses it; nothing is destroyed.

    'blockstore history' lists the moments; see first what it was with 'blockstore serve --at'. What the store is now
    becomes a moment of the past itself, so this can be taken back in the same way. Without --yes it only says what it
    would do.
    """
    from zvault.blockstore.kept_moments import find_moment_up_to
    from zvault.blockstore.maintenance.rewind import rewind_store as take_back
    from zvault.blockstore.recovery import WriterEpoch, read_newest_root, read_superblock

    found, when = blockstore_place.find_store(place), parse_last_moment(to, "--to")
    store, key = blockstore_place.reach_objects(found), found.spec.key
    chosen = find_moment_up_to(
        read_newest_root(store, key, read_superblock(store, key)).past, when, str(found)
    )
    was = format_cell(chosen.taken, "time", exact=False)
    if yes:
        blockstore_place.refuse_store_in_use(found, "rewound", WriterEpoch.read(store, key).owner, yes=True)
        with blockstore_place.make_attach_options(found) as options, blockstore_place.start_workers() as pool:
            take_back(
                store,
                key,
                options,
                chosen,
                owner=blockstore_place.name_this_writer("rewind"),
                pool=pool,
                say=print_trouble,
            )
    if json:
        body = {"epoch": chosen.epoch, "checkpoint": chosen.number, "taken": chosen.taken, "rewound": yes}
        print_document("blockstore rewind", {"place": str(found), **body})
    elif yes and not quiet:
        print_line(
            f"{found} is again what it was {was}; what it was until now is kept as a moment of its past"
        )
    elif not yes:
        print_line(f"would have {found} be again what it was {was}; nothing is changed: do so with --yes")
