"""'zvaultctl blockstore history': the moments of a store's past that are kept, and what each of them costs."""

from __future__ import annotations

from zvault.cli.options import AsJson, Chosen, Exact, Store, TableForm, Tabs
from zvault.cli.output import print_document, print_lines, print_trouble
from zvault.cli.tables import TableColumn, choose_columns, format_table, select_columns
from zvault.cli.verbs import blockstore_place
from zvault.core.units import format_size

MOMENT_COLUMNS = [
    TableColumn("taken", "time"),
    TableColumn("epoch", "count"),
    TableColumn("checkpoint", "count"),
    TableColumn("live", "size", "live_bytes"),
    TableColumn("alone", "size", "alone_bytes"),
]
MOMENT_DEFAULT = ("taken", "checkpoint", "live", "alone")


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
    from zvault.blockstore.maintenance.past_figures import read_past_figures

    picked = choose_columns(MOMENT_COLUMNS, columns, MOMENT_DEFAULT)
    found = blockstore_place.find_store(place)
    with blockstore_place.start_workers() as pool:
        told = read_past_figures(blockstore_place.reach_objects(found), found.spec.key, pool)
    rows = [one.as_dict() for one in told.moments]
    if json:
        body = {"moments": select_columns(picked, rows) if columns else rows, "past_bytes": told.past_bytes}
        print_document("blockstore history", {"place": str(found), **body})
        return
    if rows or tabs:
        print_lines(format_table(picked, rows, TableForm(tabs, exact)))
    if not tabs:
        print_trouble(
            f"{format_size(told.past_bytes)} are stored for the past alone" if rows else "no moment is kept"
        )
