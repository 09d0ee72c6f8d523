"""zvaultctl prune: shows which snapshots the keep rules select, and prunes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from zvault.api import routes
from zvault.api.backups import PruneDocument, VerdictDocument
from zvault.cli.choose_vault import show_each
from zvault.cli.daemon_client import DaemonClient, read_document
from zvault.cli.event_text import format_plural
from zvault.cli.follow_run import RunFollower, follow_run
from zvault.cli.options import AsJson, BackupName, Exact, TableForm, Tabs, Yes
from zvault.cli.output import (
    OK_STATUS,
    TROUBLE_STATUS,
    USAGE_STATUS,
    print_document,
    print_line,
    print_lines,
    print_trouble,
)
from zvault.cli.tables import TableColumn, format_cell, format_table

PRUNE_COLUMNS = [
    TableColumn("side"),
    TableColumn("snapshot"),
    TableColumn("bytes", "size"),
    TableColumn("reason"),
]


def prune(  # noqa: PLR0913, PLR0917 - its options
    backup: BackupName,
    dry_run: Annotated[
        bool, typer.Option("-n", "--dry-run", help="Only show what would go and what that would free.")
    ] = False,
    yes: Yes = False,
    over_limit: Annotated[
        bool, typer.Option("--over-limit", help="Include what prune_limit holds back.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Show kept snapshots too, each with its reason.")
    ] = False,
    tabs: Tabs = False,
    exact: Exact = False,
    json: AsJson = False,
) -> None:
    """Prune BACKUP on both sides by its keep rules, now.

    Shows the plan first; without --yes that is all. Every run prunes anyway: this is for after 'keep' was
    changed, and with --over-limit for what is more than one run may prune.
    BYTES is what a snapshot frees when it goes after those above it; the sums are exact.

    With -H: lines "prune", and with -v "keep", with side, snapshot, bytes, reason.

    Exit status: 0 pruned, or shown with -n, or there was nothing to prune; 1 something was held back or could
    not go; 2 --yes is missing.
    """
    form = TableForm(tabs, exact)

    def prune_one(name: str) -> int:
        if name != backup:
            print_line(f"{name}:")
        return _prune(
            name,
            form,
            do=yes and not dry_run,
            ask=not dry_run,
            over_limit=over_limit,
            verbose=verbose,
            json=json,
        )

    raise typer.Exit(show_each(backup, prune_one, alone=json or tabs))


def _prune(
    backup: str, form: TableForm, *, do: bool, ask: bool, over_limit: bool, verbose: bool, json: bool
) -> int:
    """Prune one, or show what that would do; returns the exit status. ``ask``: say how it is done."""
    found = read_document(routes.PRUNE_PLAN, backup=backup, over_limit=int(over_limit))
    selected = [verdict for verdict in found["prune"] if not verdict["keep"]]
    go = do and bool(selected)
    if json and not go:
        shown = found["prune"] if verbose else selected
        print_document("prune", {**found, "prune": shown})
    elif form.tabs:
        print_lines(format_prune_lines(found["prune"] if verbose else selected, form))
    elif not json:
        print_lines(format_to_prune(found, verbose, form))
    held_back = TROUBLE_STATUS if found["over_limit"] else OK_STATUS
    if not go:
        if selected and ask:
            again = " ".join(["zvaultctl prune", backup, "--yes", *["--over-limit"][: int(over_limit)]])
            print_trouble(f"nothing was pruned: '{again}' does it")
            return USAGE_STATUS
        return held_back

    def start(daemon: DaemonClient) -> str:
        return daemon.post(routes.PRUNE, {"over_limit": over_limit}, backup=backup)["run"]

    status = follow_run(start, RunFollower("prune", json=json), lambda run: f"zvaultctl follow {run}")
    return status or held_back


def format_to_prune(found: PruneDocument, verbose: bool, form: TableForm) -> Iterator[str]:
    """The plan for people: what goes, what it frees, what is held back, and with ``verbose`` what stays."""
    pruned = [verdict for verdict in found["prune"] if not verdict["keep"]]
    kept = [verdict for verdict in found["prune"] if verdict["keep"]]
    if pruned:
        yield f"to prune: {format_plural(len(pruned), 'snapshot')}, {_freed(found, form)}"
        yield from format_table(PRUNE_COLUMNS, pruned, form)
    else:
        yield "to prune: nothing"
    if kept and verbose:
        yield ""
        yield f"to keep: {format_plural(len(kept), 'snapshot')}"
        yield from format_table([column for column in PRUNE_COLUMNS if column.name != "bytes"], kept, form)
    elif kept:
        yield f"to keep: {format_plural(len(kept), 'snapshot')} (-v shows them with the reasons)"
    if found["over_limit"]:
        yield ""
        yield "prune_limit holds some back for the next runs (--over-limit prunes all):"
        for over in found["over_limit"]:
            yield (
                f"  {over['side']}  {over['dataset']}: {over['selected']} of {over['snapshots']} snapshots "
                f"would go, one run may prune {over['allowed']}"
            )


def _freed(found: PruneDocument, form: TableForm) -> str:
    """``12.3G on the source, 0B on the vault``."""
    sides = {verdict["side"] for verdict in found["prune"] if not verdict["keep"]}
    parts = []
    for side in sorted(sides):
        size = found["freed"].get(side)
        known = "not known how much" if size is None else format_cell(size, "size", form.exact)
        parts.append(f"{known} on the {side}")
    return f"which frees {', '.join(parts)}"


def format_prune_lines(verdicts: list[VerdictDocument], form: TableForm) -> Iterator[str]:
    """The plan for scripts: ``prune`` and ``keep`` lines, one a snapshot."""
    for word in ("prune", "keep"):
        chosen = [verdict for verdict in verdicts if verdict["keep"] == (word == "keep")]
        yield from (f"{word}\t{line}" for line in format_table(PRUNE_COLUMNS, chosen, form))
