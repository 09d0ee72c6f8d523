"""zvaultctl fit: how well a backup fits its vault's storage, before the first byte is sent."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import typer

from zvault.api import routes
from zvault.api.diagnosis import FitDevice, FitDocument, FitReading
from zvault.cli.choose_vault import OfVault, ask_of_best, name_of_vault
from zvault.cli.daemon_client import read_document
from zvault.cli.options import AsJson, BackupName, Chosen, Exact, TableForm, Tabs
from zvault.cli.output import (
    OK_STATUS,
    TROUBLE_STATUS,
    clean_line,
    find_width,
    format_labelled,
    print_document,
    print_lines,
    wrap_text,
)
from zvault.cli.tables import TableColumn, TableRow, choose_columns, format_table, select_columns
from zvault.core.units import format_rate, format_size

FIT_COLUMNS = [
    TableColumn("dataset"),
    TableColumn("device", key="store"),
    TableColumn("record", "size"),
    TableColumn("block", "size"),
    TableColumn("request", "size"),
    TableColumn("touched", "figure"),
    TableColumn("partly", "figure"),
    TableColumn("moved", "figure"),
    TableColumn("puts", "figure"),
    TableColumn("gets", "figure"),
    TableColumn("cost", "figure"),
]
FIT_DEFAULT = ("dataset", "record", "block", "request", "touched", "moved", "puts", "gets", "cost")


def fit(
    backup: BackupName,
    vault: OfVault = None,
    columns: Chosen = None,
    tabs: Tabs = False,
    exact: Exact = False,
    json: AsJson = False,
) -> None:
    """Show how well BACKUP's blocks fit its vault's storage, and what would fit better.

    BLOCK is the size of a full record on the vault's disk, REQUEST the size of a request to the storage. TOUCHED is how
    many of the storage's objects (or stripes) one request touches, MOVED how many bytes the storage moves for each byte
    sent. PUTS, GETS and COST are per GiB sent. The figures are estimates for full records written one after the other.

    Exit status: 0 all fits; 1 there is advice.
    """
    picked = choose_columns(FIT_COLUMNS, columns, FIT_DEFAULT)
    found = ask_of_best(name_of_vault(backup, vault), lambda name: read_document(routes.FIT, backup=name))
    rows: Sequence[TableRow] = found["datasets"]
    form = TableForm(tabs, exact)
    if json:
        print_document("fit", {**found, "datasets": select_columns(picked, rows) if columns else rows})
    elif tabs or columns:
        print_lines(format_table(picked, rows, form))
    else:
        print_lines(_page(found, rows, picked, form))
    raise typer.Exit(TROUBLE_STATUS if found["advice"] else OK_STATUS)


def _page(
    found: FitDocument, rows: Sequence[TableRow], picked: list[TableColumn], form: TableForm
) -> Iterator[str]:
    columns = find_width(sys.stdout)
    yield from format_labelled(
        [
            ("backup", f"{found['backup']} to vault {found['vault']}"),
            ("devices", "\n".join(_device(one) for one in found["devices"])),
            (
                "pool",
                f"sectors of {format_size(found['sector'])}, requests merged up to {format_size(found['merged'])}",
            ),
            ("metadata", _metadata(found)),
            ("reads", _reading(found["reading"])),
            ("unknown", "\n".join(found["unknown"])),
        ],
        columns,
    )
    yield ""
    yield from format_table(picked, rows, form)
    for one in found["advice"]:
        yield ""
        yield from wrap_text(clean_line(one["what"]), "advice: ", columns, "        ")
        yield from wrap_text(clean_line(one["why"]), "   why: ", columns, "        ")
        yield from wrap_text(clean_line(", ".join(one["about"])), "    of: ", columns, "        ")


def _metadata(found: FitDocument) -> str:
    """The requests for the pool's own metadata, which do not depend on the data sent."""
    run, group = found["run"], found["group"]
    cost = f", {run['cost']:.2g}" if run["cost"] is not None else ""
    return (
        f"{group['puts']:.0f} puts and {group['gets']:.0f} gets ({format_size(int(group['moved']))} moved) per"
        f" transaction group; an incremental run has about {run['groups']} groups per dataset: {run['puts']:.0f} puts"
        f" and {run['gets']:.0f} gets{cost}"
    )


def _reading(found: FitReading | None) -> str:
    """How fast the vault is read back; empty where nobody measured it."""
    if found is None:
        return ""
    device = f"the device alone {format_rate(found['device'])}"
    if found["send"] is None:
        return f"{device}; no send was tried out"
    return f"a send from the pool made {format_rate(found['send'])} when it was tried out, {device}"


def _device(one: FitDevice) -> str:
    unit = f", {one['kind']}s of {format_size(one['unit'])}" if one["unit"] is not None else ""
    return f"{one['name']} ({one['vdev']}{unit}, requests up to {format_size(one['largest'])}{_locks(one)})"


def _locks(one: FitDevice) -> str:
    if one["locks"] is None:
        return ""
    cost = f", {one['locks_cost']:.2f}" if one["locks_cost"] is not None else ""
    return f"; kept locked by {one['locks']:,.0f} puts a month for each TiB that is needed{cost}"
