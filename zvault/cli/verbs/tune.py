"""zvaultctl tune show, modprobe and measure: the module parameters that vaults want, their values, and why."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Annotated

import typer

from zvault.api import routes
from zvault.api.tuning import ParameterDocument, TunedVault, TuningDocument
from zvault.cli import completion
from zvault.cli.daemon_client import read_document
from zvault.cli.options import AsJson, Chosen, Exact, TableForm, Tabs
from zvault.cli.output import (
    OK_STATUS,
    TROUBLE_STATUS,
    find_width,
    format_labelled,
    print_document,
    print_line,
    print_lines,
    print_trouble,
    wrap_text,
)
from zvault.cli.tables import TableColumn, TableRow, choose_columns, format_table, select_columns
from zvault.cli.verbs.measure import measure
from zvault.core.errors import NotFound
from zvault.core.units import format_size

app = typer.Typer(no_args_is_help=True)
app.command("measure")(measure)

TUNE_DEFAULT = ("parameter", "default", "before", "now", "wanted", "state")
WRONG_STATES = {"changed", "not set", "load-time", "conflict"}
"""States in which a vault that is up lacks a value and a person can set it."""

MODPROBE_FILE = "/etc/modprobe.d/zvault.conf"


def list_tune_columns(exact: bool) -> list[TableColumn]:
    """The columns; bytes are printed as sizes unless ``exact``."""

    def figure(key: str) -> Callable[[TableRow], str | None]:
        return lambda row: _figure(row[key], row["unit"], exact)

    def wanted(row: TableRow) -> str:
        values = {vault: _figure(value, row["unit"], exact) or "" for vault, value in row["wanted"].items()}
        agreed = set(values.values())
        return agreed.pop() if len(agreed) == 1 else ",".join(f"{v}={w}" for v, w in values.items())

    return [
        TableColumn("parameter", key="name"),
        TableColumn("what"),
        TableColumn("default", get=figure("default")),
        TableColumn("before", get=figure("before")),
        TableColumn("now", get=figure("now")),
        TableColumn("wanted", get=wanted),
        TableColumn("value", get=figure("value")),
        TableColumn("vaults", get=lambda row: ",".join(row["wanted"])),
        TableColumn("state", "state"),
        TableColumn("why"),
    ]


def _figure(text: str | None, unit: str, exact: bool) -> str | None:
    if text is None or exact or unit != "size" or not text.isdecimal():
        return text
    return format_size(int(text))


@app.command("show")
def show(
    vault: Annotated[
        str | None,
        typer.Argument(
            help="Only the parameters that this vault wants.",
            show_default=False,
            autocompletion=completion.complete_vaults,
        ),
    ] = None,
    columns_: Chosen = None,
    tabs: Tabs = False,
    exact: Exact = False,
    json: AsJson = False,
) -> None:
    """Show the module parameters of OpenZFS that vaults want: their values now and before, and the reasons.

    BEFORE is the value that zvault restores when the last vault that wants the parameter goes down.

    Exit status: 0 all wanted values are set; 1 a value that a vault wants could not be set.
    """
    known = list_tune_columns(exact)
    picked = choose_columns(known, columns_, TUNE_DEFAULT)
    found = read_document(routes.TUNING)
    rows = _only(found, vault)
    if json:
        body = {**found, "parameters": select_columns(picked, rows) if columns_ else rows}
        print_document("tune show", body)
    elif tabs or columns_:
        print_lines(format_table(picked, rows, TableForm(tabs, exact)))
    else:
        print_lines(_page(found, rows, picked, TableForm(tabs, exact)))
    raise typer.Exit(TROUBLE_STATUS if any(row["state"] in WRONG_STATES for row in rows) else OK_STATUS)


def _only(found: TuningDocument, vault: str | None) -> list[ParameterDocument]:
    names = [one["name"] for one in found["vaults"]]
    if vault is not None and vault not in names:
        raise NotFound(
            f"there is no vault '{vault}'",
            f"zvault knows {', '.join(names) or 'none'}",
            "see 'zvaultctl vault status'",
        )
    return [row for row in found["parameters"] if vault is None or vault in row["wanted"]]


def _page(
    found: TuningDocument, rows: list[ParameterDocument], picked: list[TableColumn], form: TableForm
) -> Iterator[str]:
    """The vaults and their profiles, then each parameter with its values and reasons."""
    columns = find_width(sys.stdout)
    size = str(found["memory"]) if form.exact else format_size(found["memory"])
    pools = ", ".join(found["other_pools"])
    yield from format_labelled(
        [
            ("openzfs", f"{found['openzfs']}, {size} of memory"),
            ("vaults", "\n".join(_vault(one) for one in found["vaults"])),
            ("also for", f"the pools {pools}: parameters apply to all pools of a host" if pools else ""),
        ],
        columns,
    )
    yield ""
    if not rows:
        yield "no module parameter is wanted"
        return
    yield from format_table(picked, rows, form, notes=lambda row: _notes(row, columns))


def _vault(vault: TunedVault) -> str:
    if vault["host"]:
        return f"{vault['name']}: on {vault['host']}, which is not tuned from here"
    profile = f"profile {vault['profile']}"
    if vault["measured"]:
        day = datetime.fromtimestamp(vault["measured"]["time"], UTC).strftime("%Y-%m-%d")
        profile += f", measured on {day}"
        if vault["measured"]["reading"] is None:
            profile += " (writes only)"
    if vault["probed"]:
        probed, day = (
            vault["probed"],
            datetime.fromtimestamp(vault["probed"]["time"], UTC).strftime("%Y-%m-%d"),
        )
        profile += (
            f", its store probed on {day} ({probed['uploads']} uploads where uploads= is not set,"
            f" {probed['reads']} reads at once)"
        )
    return f"{vault['name']}: {profile}, {'tuned' if vault['tuned'] else 'not tuned now'}"


def _notes(row: ParameterDocument, columns: int | None) -> Iterator[str]:
    for text in (row["what"], row["why"], f"next: {row['next']}" if row["next"] else None):
        if text:
            yield from wrap_text(text, "    ", columns, "    ")


@app.command("modprobe")
def modprobe() -> None:
    """Print a file for /etc/modprobe.d with the parameters that OpenZFS reads only when it is loaded.

    zvault does not write the file, because it affects every pool of the host from the next boot on.
    """
    found = read_document(routes.TUNING)["modprobe"]
    if not found:
        print_trouble("no vault wants a parameter that OpenZFS reads only when it is loaded")
        return
    print_line(
        f"# {MODPROBE_FILE}, made by 'zvaultctl tune modprobe': read when OpenZFS is loaded, see modprobe.d(5)."
    )
    for one in found:
        print_line(f"# {one['why']}")
        print_line(f"options zfs {one['name']}={one['value']}")
    print_trouble(
        f"Write this to {MODPROBE_FILE}. If the initramfs loads OpenZFS, run 'update-initramfs -u' too; then reboot."
    )
