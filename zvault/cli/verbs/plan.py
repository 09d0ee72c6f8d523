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
from zvault.cli.client import read
from zvault.cli.event_text import plural, step, tally
from zvault.cli.options import AsJson, BackupName, Exact, TableForm, Tabs
from zvault.cli.output import OK, TROUBLE, clean, document, labelled, say, say_all, width
from zvault.cli.tables import Column, table, written
from zvault.cli.verbs.prune import prune_lines, to_prune
from zvault.core.replication.vault_encryption import IN_THE_CLEAR
from zvault.core.units import format_size

DATASETS = [
    Column("dataset"),
    Column("action", "state"),
    Column("bytes", "size"),
    # What the snapshot that a run begins with would add (zfsprops(7)).
    Column("written", "size"),
]
STEPS_FOR_SCRIPTS = [
    Column("dataset"),
    Column("vault_dataset"),
    Column("action"),
    Column("from"),
    Column("to"),
    Column("bytes", "size"),
    Column("reason"),
    Column("next"),
]
CHANGES_FOR_SCRIPTS = [Column("dataset"), Column("text")]
GONE = [
    Column("dataset", key="vault_dataset"),
    Column("state"),
    Column("snapshots", "count", "snapshots_vault"),
    Column("newest", "time"),
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
    found = read(routes.PLAN, backup=backup)
    prunes = [verdict for verdict in found["prune"] if verbose or not verdict["keep"]]
    if json:
        document("plan", {**found, "prune": prunes})
    elif tabs:
        say_all(_for_scripts(found, prunes, TableForm(tabs=True, exact=exact)))
    else:
        say(f"backup {found['backup']} {_into(found)}")
        say()
        say_all(to_send(found["datasets"], TableForm(exact=exact)) if found["vault"] is not None else ())
        if found["vault"] is None:
            say(f"a run makes a snapshot of {plural(len(found['datasets']), 'dataset')} and sends nothing")
        elif not found["makes_snapshot"]:
            say("a run makes no snapshot: it sends those that are there")
        elif found["datasets"]:
            new = format_size(sum(dataset["written"] for dataset in found["datasets"]))
            say(f"a run makes a snapshot first; {new} written since the last one would go with it")
        say_all(not_snapshotted(found.get("not_snapshotted", [])))
        say_all(_gone(found["gone"], TableForm(exact=exact)))
        say()
        say_all(to_prune(found, verbose, TableForm(exact=exact)))
    conflict = any(dataset["action"] == "conflict" for dataset in found["datasets"])
    raise typer.Exit(TROUBLE if conflict or found.get("not_snapshotted") else OK)


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


def not_snapshotted(refused: list[RefusedSnapshotDocument]) -> Iterator[str]:
    """The datasets of which a run can make no snapshot, and what to do about it."""
    for one in refused:
        yield f"no snapshot can be made of {clean(one['dataset'])}"
        yield from labelled([("why", one["why"]), ("next", one["next"])], width(sys.stdout))


def to_send(datasets: list[PlannedDocument], form: TableForm) -> Iterator[str]:
    """Show what is sent, for people: each dataset with its steps and reasons, and the sum."""
    if not datasets:
        yield "no dataset is selected"
        return
    rows = [{**dataset, "bytes": _bytes(dataset) if dataset["steps"] else None} for dataset in datasets]
    # Where nothing is encrypted on either side nobody has to be told so, dataset by dataset.
    lies = any(dataset["encryption"] not in {"", IN_THE_CLEAR} for dataset in datasets)
    yield from table(DATASETS, rows, form, notes=lambda row: _details(row, form, lies=lies))
    sizes = [_bytes(dataset) for dataset in datasets]
    known = sum(size for size in sizes if size is not None)
    least = "at least " if None in sizes else ""
    yield ""
    yield f"to send: {least}{format_size(known)} ({tally(dataset['action'] for dataset in datasets)})"


def _gone(rows: list[GoneDocument], form: TableForm) -> Iterator[str]:
    """What the vault has that follows nothing."""
    if rows:
        yield ""
        yield "on the vault, and followed by nothing:"
        yield from table(GONE, rows, form)


def _details(dataset: PlannedDocument, form: TableForm, *, lies: bool) -> Iterator[str]:
    """Below a dataset: its steps, why they were chosen, and what a person has to do."""
    steps = dataset["steps"]
    lines = []
    for one in steps:
        line = f"{one['kind']} {step(one['from'], one['to'])}"
        if len(steps) > 1:
            line += f", {_size(one['bytes'], form)}"
        if one["reason"] and one["reason"] != dataset["reason"]:
            line += f": {one['reason']}"
        lines.append(line)
    pairs = [("first", "\n".join(dataset["changes"]))]
    pairs += [("send", "\n".join(lines)), ("lies", dataset["encryption"] if lies else "")]
    pairs += [("why", dataset["reason"]), ("next", dataset["next"])]
    yield from labelled(pairs, width(sys.stdout), room=len("first" if dataset["changes"] else "send"))


def _size(size: int | None, form: TableForm) -> str:
    return "size not known" if size is None else written(size, "size", form.exact)


def _for_scripts(found: PlanDocument, prunes: list[VerdictDocument], form: TableForm) -> Iterator[str]:
    """``change`` lines; ``send`` lines, one a step or stepless dataset; ``gone``; ``prune`` and ``keep``."""
    for dataset in found["datasets"]:
        changes = [{"dataset": dataset["dataset"], "text": text} for text in dataset["changes"]]
        yield from (f"change\t{line}" for line in table(CHANGES_FOR_SCRIPTS, changes, form))
        rows = [
            {**dataset, **one, "reason": one["reason"] or dataset["reason"]} for one in dataset["steps"]
        ] or [{**dataset, "from": None, "to": None, "bytes": None}]
        yield from (f"send\t{line}" for line in table(STEPS_FOR_SCRIPTS, rows, form))
    yield from (f"gone\t{line}" for line in table(GONE, found["gone"], form))
    yield from prune_lines(prunes, form)
