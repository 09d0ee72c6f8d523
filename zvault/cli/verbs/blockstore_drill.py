"""'zvaultctl blockstore drill': whether a bucket refuses what an attacker with the writer's key would do."""

from __future__ import annotations

from dataclasses import asdict, replace

import typer

from zvault.cli.options import AsJson, Exact, Store, TableForm, Tabs
from zvault.cli.output import OK, TROUBLE, document, say_all
from zvault.cli.tables import Column, table
from zvault.cli.verbs import blockstore_place
from zvault.core.errors import Refused

COLUMNS = [Column("held"), Column("tried"), Column("came")]
UNKNOWN = 2


def drill(
    place: Store,
    tabs: Tabs = False,
    exact: Exact = False,
    json: AsJson = False,
) -> None:
    """Try with the writer's keys to undo what lock= is for, on an object that is made for it; it hurts nothing.

    That object, below KEY/drill/, is locked for an hour: a version of it is to be removed, its lock shortened and
    bypassed, other contents put over it and a delete marker before it. Of what the store needs a sample is looked at:
    whether it is locked for as long as lock= says. Run it where the vault is up, as root: with the keys that an
    attacker would have.

    Exit status: 0 all held; 1 something did not; 2 something could not be told.
    """
    from zvault.blockstore.locked_bucket import see_that_it_locks
    from zvault.blockstore.maintenance import drill as it
    from zvault.blockstore.reach import settings_of
    from zvault.core.policy.object_lock import SPAN, Lock
    from zvault.object_store.s3 import S3Store

    found = blockstore_place.find(place)
    lock = found.spec.lock
    if lock is None:
        why = "the device has no lock=, so the key that writes can remove everything"
        raise Refused(
            f"there is nothing to try at {found}", why, "see 'Lock it' in look-after-a-block-store.md"
        )
    settings = settings_of(found.spec)
    see_that_it_locks(settings)
    store = S3Store(replace(settings, lock=Lock(lock.mode, it.SHORT / SPAN)))
    with blockstore_place.workers() as pool:
        tried = it.drill(store, blockstore_place.reach(found), found.spec.key, lock, pool=pool)
    rows = [
        {"held": {True: "yes", False: "NO", None: "?"}[one.well], "tried": one.what, "came": one.came}
        for one in tried
    ]
    if json:
        document("blockstore drill", {"place": str(found), "tried": [asdict(one) for one in tried]})
    else:
        say_all(table(COLUMNS, rows, TableForm(tabs, exact)))
    well = [one.well for one in tried]
    raise typer.Exit(TROUBLE if False in well else UNKNOWN if None in well else OK)
