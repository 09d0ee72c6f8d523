"""'zvaultctl blockstore rewind': have a store be again what it was at a moment of its past that is kept."""

from __future__ import annotations

from typing import Annotated

import typer

from zvault.cli.options import AsJson, Quiet, Store, Yes
from zvault.cli.output import document, say, tell
from zvault.cli.tables import written
from zvault.cli.times import until
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
    from zvault.blockstore.history import up_to
    from zvault.blockstore.maintenance.rewind import rewind as take_back
    from zvault.blockstore.recovery import Epoch, newest_root, superblock

    found, when = blockstore_place.find(place), until(to, "--to")
    store, key = blockstore_place.reach(found), found.spec.key
    chosen = up_to(newest_root(store, key, superblock(store, key)).past, when, str(found))
    was = written(chosen.taken, "time", exact=False)
    if yes:
        blockstore_place.refuse_in_use(found, "rewound", Epoch.read(store, key).owner, yes=True)
        with blockstore_place.options(found) as options, blockstore_place.workers() as pool:
            take_back(store, key, options, chosen, owner=blockstore_place.me("rewind"), pool=pool, say=tell)
    if json:
        body = {"epoch": chosen.epoch, "checkpoint": chosen.number, "taken": chosen.taken, "rewound": yes}
        document("blockstore rewind", {"place": str(found), **body})
    elif yes and not quiet:
        say(f"{found} is again what it was {was}; what it was until now is kept as a moment of its past")
    elif not yes:
        say(f"would have {found} be again what it was {was}; nothing is changed: do so with --yes")
