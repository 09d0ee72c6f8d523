"""'zvaultctl blockstore history': the moments of a store's past that are kept, and what each of them costs."""

from __future__ import annotations

from zvault.cli.options import AsJson, Chosen, Exact, Store, TableForm, Tabs
from zvault.cli.output import document, say_all, tell
from zvault.cli.tables import Column, chosen, restricted, table
from zvault.cli.verbs import blockstore_place
from zvault.core.units import format_size

COLUMNS = [
    Column("taken", "time"),
    Column("epoch", "count"),
    Column("checkpoint", "count"),
    Column("live", "size", "live_bytes"),
    Column("alone", "size", "alone_bytes"),
]
DEFAULT = ("taken", "checkpoint", "live", "alone")


def history(
    place: Store,
    columns: Chosen = None,
    tabs: Tabs = False,
    exact: Exact = False,
    json: AsJson = False,
) -> None:
    """List the moments of a store's past that are kept: 'history=' of its device says which are.

    Each is a checkpoint: the device as it was after all that had been flushed some time before. LIVE is what it held;
    ALONE what of the bucket would be free without that moment. 'blockstore serve --at' shows the device as it was.
    """
    from zvault.blockstore.maintenance.past import look_back

    picked = chosen(COLUMNS, columns, DEFAULT)
    found = blockstore_place.find(place)
    with blockstore_place.workers() as pool:
        told = look_back(blockstore_place.reach(found), found.spec.key, pool)
    rows = [one.as_dict() for one in told.moments]
    if json:
        body = {"moments": restricted(picked, rows) if columns else rows, "past_bytes": told.past_bytes}
        document("blockstore history", {"place": str(found), **body})
        return
    if rows or tabs:
        say_all(table(picked, rows, TableForm(tabs, exact)))
    if not tabs:
        tell(f"{format_size(told.past_bytes)} are stored for the past alone" if rows else "no moment is kept")
