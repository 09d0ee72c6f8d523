"""zvaultctl plan: what a run would do, and why."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from zvault.api import routes
from zvault.api.backups import (
    GoneDocument,
    PlanDocument,
    PlannedDocument,
    RefusedSnapshotDocument,
    VerdictDocument,
)
from zvault.cli.choose_vault import show_each
from zvault.cli.daemon_client import read_document
from zvault.cli.event_text import format_plural, format_step, format_tally
from zvault.cli.options import AsJson, BackupName, Exact, TableForm, Tabs
from zvault.cli.output import (
    OK_STATUS,
    TROUBLE_STATUS,
    clean_line,
    find_width,
    format_labelled,
    print_document,
    print_line,
    print_lines,
)
from zvault.cli.tables import TableColumn, format_cell, format_table
from zvault.cli.verbs.prune import format_prune_lines, format_to_prune
from zvault.core.replication.vault_encryption import IN_THE_CLEAR
from zvault.core.units import format_size

PLAN_COLUMNS = [
    TableColumn("dataset"),
    TableColumn("action", "state"),
    TableColumn("bytes", "size"),
    # What the snapshot that a run begins with would add (zfsprops(7)).
    TableColumn("written", "size"),
]
STEPS_FOR_SCRIPTS = [
    TableColumn("dataset"),
    TableColumn("vault_dataset"),
    TableColumn("action"),
    TableColumn("from"),
    TableColumn("to"),
    TableColumn("bytes", "size"),
    TableColumn("reason"),
    TableColumn("next"),
]
CHANGES_FOR_SCRIPTS = [TableColumn("dataset"), TableColumn("text")]
PLAN_GONE_COLUMNS = [
    TableColumn("dataset", key="vault_dataset"),
    TableColumn("state"),
    TableColumn("snapshots", "count", "snapshots_vault"),
    TableColumn("newest", "time"),
]


def plan(
    backup: BackupName,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Show kept snapshots too, each with its reason.")
    ] = False,
    tabs: Tabs = False,
    exact: Exact = False,
    json: AsJson = False,
) -> None:
    """Show what a run of BACKUP would send and prune.

    Tells why, and changes nothing. With -H: lines "change" with dataset and text; lines "send" with dataset,
    vault_dataset, action, from, to, bytes, reason, next; lines "gone" with vault_dataset, state, snapshots,
    newest; lines "prune", and with -v "keep", with side, snapshot, bytes, reason.

    Exit status: 0 a run would send all there is; 1 a dataset is in conflict, or can get no
    snapshot.
    """
    form = TableForm(tabs, exact)
    status = show_each(backup, lambda name: _show(name, form, verbose=verbose, json=json), alone=json or tabs)
    raise typer.Exit(status)


def _show(backup: str, form: TableForm, *, verbose: bool, json: bool) -> int:
    """Show the plan of one; returns the exit status."""
    found = read_document(routes.PLAN, backup=backup)
    prunes = [verdict for verdict in found["prune"] if verbose or not verdict["keep"]]
    if json:
        print_document("plan", {**found, "prune": prunes})
    elif form.tabs:
        print_lines(_for_scripts(found, prunes, form))
    else:
        print_line(f"backup {found['backup']} {_into(found)}")
        print_line()
        print_lines(format_to_send(found["datasets"], form) if found["vault"] is not None else ())
        if found["vault"] is None:
            print_line(
                f"a run makes a snapshot of {format_plural(len(found['datasets']), 'dataset')} and sends nothing"
            )
        elif not found["makes_snapshot"]:
            print_line("a run makes no snapshot: it sends those that are there")
        elif found["datasets"]:
            new = format_size(sum(dataset["written"] for dataset in found["datasets"]))
            print_line(f"a run makes a snapshot first; {new} written since the last one would go with it")
        print_lines(format_not_snapshotted(found.get("not_snapshotted", [])))
        print_lines(_gone(found["gone"], form))
        print_line()
        print_lines(format_to_prune(found, verbose, form))
    conflict = any(dataset["action"] == "conflict" for dataset in found["datasets"])
    return TROUBLE_STATUS if conflict or found.get("not_snapshotted") else OK_STATUS


def _into(found: PlanDocument) -> str:
    """Where a backup goes, in words."""
    if found["vault"] is not None:
        return f"into vault {found['vault']}"
    return "makes snapshots only" if found["makes_snapshot"] else "only prunes"


def _bytes(dataset: PlannedDocument) -> int | None:
    """What one dataset's steps would send, None if any of them is not known."""
    sizes = [step["bytes"] for step in dataset["steps"]]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def format_not_snapshotted(refused: list[RefusedSnapshotDocument]) -> Iterator[str]:
    """The datasets of which a run can make no snapshot, and what to do about it."""
    for one in refused:
        yield f"no snapshot can be made of {clean_line(one['dataset'])}"
        yield from format_labelled([("why", one["why"]), ("next", one["next"])], find_width(sys.stdout))


def format_to_send(datasets: list[PlannedDocument], form: TableForm) -> Iterator[str]:
    """Show what is sent, for people: each dataset with its steps and reasons, and the sum."""
    if not datasets:
        yield "no dataset is selected"
        return
    rows = [{**dataset, "bytes": _bytes(dataset) if dataset["steps"] else None} for dataset in datasets]
    # Where nothing is encrypted on either side nobody has to be told so, dataset by dataset.
    lies = any(dataset["encryption"] not in {"", IN_THE_CLEAR} for dataset in datasets)
    yield from format_table(PLAN_COLUMNS, rows, form, notes=lambda row: _details(row, form, lies=lies))
    sizes = [_bytes(dataset) for dataset in datasets]
    known = sum(size for size in sizes if size is not None)
    least = "at least " if None in sizes else ""
    yield ""
    yield f"to send: {least}{format_size(known)} ({format_tally(dataset['action'] for dataset in datasets)})"


def _gone(rows: list[GoneDocument], form: TableForm) -> Iterator[str]:
    """What the vault has that follows nothing."""
    if rows:
        yield ""
        yield "on the vault, and followed by nothing:"
        yield from format_table(PLAN_GONE_COLUMNS, rows, form)


def _details(dataset: PlannedDocument, form: TableForm, *, lies: bool) -> Iterator[str]:
    """Below a dataset: its steps, why they were chosen, and what a person has to do."""
    steps = dataset["steps"]
    lines = []
    for one in steps:
        line = f"{one['kind']} {format_step(one['from'], one['to'])}"
        if len(steps) > 1:
            line += f", {_size(one['bytes'], form)}"
        if one["reason"] and one["reason"] != dataset["reason"]:
            line += f": {one['reason']}"
        lines.append(line)
    pairs = [("first", "\n".join(dataset["changes"]))]
    pairs += [("send", "\n".join(lines)), ("lies", dataset["encryption"] if lies else "")]
    pairs += [("why", dataset["reason"]), ("next", dataset["next"])]
    yield from format_labelled(
        pairs, find_width(sys.stdout), room=len("first" if dataset["changes"] else "send")
    )


def _size(size: int | None, form: TableForm) -> str:
    return "size not known" if size is None else format_cell(size, "size", form.exact)


def _for_scripts(found: PlanDocument, prunes: list[VerdictDocument], form: TableForm) -> Iterator[str]:
    """``change`` lines; ``send`` lines, one a step or stepless dataset; ``gone``; ``prune`` and ``keep``."""
    for dataset in found["datasets"]:
        changes = [{"dataset": dataset["dataset"], "text": text} for text in dataset["changes"]]
        yield from (f"change\t{line}" for line in format_table(CHANGES_FOR_SCRIPTS, changes, form))
        rows = [
            {**dataset, **one, "reason": one["reason"] or dataset["reason"]} for one in dataset["steps"]
        ] or [{**dataset, "from": None, "to": None, "bytes": None}]
        yield from (f"send\t{line}" for line in format_table(STEPS_FOR_SCRIPTS, rows, form))
    yield from (f"gone\t{line}" for line in format_table(PLAN_GONE_COLUMNS, found["gone"], form))
    yield from format_prune_lines(prunes, form)
