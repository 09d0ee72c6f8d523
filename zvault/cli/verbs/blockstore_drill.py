"""'zvaultctl blockstore drill': whether a bucket refuses what an attacker with the writer's key would do."""

from __future__ import annotations

from dataclasses import asdict, replace

import typer

from zvault.cli.options import AsJson, Exact, Store, TableForm, Tabs
from zvault.cli.output import OK_STATUS, TROUBLE_STATUS, print_document, print_lines
from zvault.cli.tables import TableColumn, format_table
from zvault.cli.verbs import blockstore_place
from zvault.core.errors import Refused

DRILL_COLUMNS = [TableColumn("held"), TableColumn("tried"), TableColumn("came")]
DRILL_UNKNOWN_STATUS = 2


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
    from zvault.blockstore.locked_bucket import require_locking
    from zvault.blockstore.maintenance import lock_drill as it
    from zvault.blockstore.reached_store import make_s3_settings
    from zvault.core.policy.object_lock import LOCK_SPAN_FACTOR, ObjectLock
    from zvault.object_store.s3 import S3Store

    found = blockstore_place.find_store(place)
    lock = found.spec.lock
    if lock is None:
        why = "the device has no lock=, so the key that writes can remove everything"
        raise Refused(
            f"there is nothing to try at {found}", why, "see 'Lock it' in look-after-a-block-store.md"
        )
    settings = make_s3_settings(found.spec)
    require_locking(settings)
    store = S3Store(replace(settings, lock=ObjectLock(lock.mode, it.DRILL_LOCK_TIME / LOCK_SPAN_FACTOR)))
    with blockstore_place.start_workers() as pool:
        tried = it.drill_locks(store, blockstore_place.reach_objects(found), found.spec.key, lock, pool=pool)
    rows = [
        {"held": {True: "yes", False: "NO", None: "?"}[one.well], "tried": one.what, "came": one.came}
        for one in tried
    ]
    if json:
        print_document("blockstore drill", {"place": str(found), "tried": [asdict(one) for one in tried]})
    else:
        print_lines(format_table(DRILL_COLUMNS, rows, TableForm(tabs, exact)))
    well = [one.well for one in tried]
    raise typer.Exit(TROUBLE_STATUS if False in well else DRILL_UNKNOWN_STATUS if None in well else OK_STATUS)
