"""zvaultctl explain: why a dataset or snapshot was or was not snapshotted, sent, pruned, kept or healed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from zvault.api import routes
from zvault.api.explain import AccountDocument, ExplainDocument, ReasonDocument
from zvault.cli import completion
from zvault.cli.daemon_client import read_document
from zvault.cli.health_text import LEVEL_COLOURS, LEVEL_EXITS
from zvault.cli.options import AsJson
from zvault.cli.output import (
    TROUBLE_STATUS,
    YELLOW,
    clean_line,
    find_width,
    paint_text,
    print_document,
    print_lines,
    wrap_text,
)
from zvault.core.health.verdict import select_worst_level


def explain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="DATASET[@SNAPNAME]",
            help="A dataset or snapshot, by its name on the source or on the vault.",
            autocompletion=completion.complete_any_dataset_or_snapshot,
            show_default=False,
        ),
    ],
    json: AsJson = False,
) -> None:
    """Explain why a dataset or snapshot was or was not snapshotted, sent, pruned, kept or healed; what its lag rests
    on, what comes next, and what a person can do.

    The reasons are those of the decisions themselves. No vault is brought up: of one that is down it says what is
    known, from when, and what is not.

    Exit status: 0 nothing is wrong with it; 1 something is, or no backup takes it; 2 nobody knows such a name; 3
    something is not known.
    """
    found = read_document(routes.EXPLAIN, name=name)
    if json:
        print_document("explain", found)
    else:
        print_lines(_told(found, find_width(sys.stdout)))
    levels = (one["level"] for account in found["accounts"] for one in account["reasons"])
    raise typer.Exit(TROUBLE_STATUS if found["uncovered"] else LEVEL_EXITS[select_worst_level(levels)])


def _told(found: ExplainDocument, columns: int | None) -> Iterator[str]:
    yield clean_line(found["name"])
    if found["uncovered"]:
        for line in wrap_text(clean_line(f"nothing backs it up: {found['uncovered']}"), "  ", columns):
            yield paint_text(line, YELLOW, sys.stdout)
    for account in found["accounts"]:
        yield ""
        for line in wrap_text(clean_line(_head(account)), "", columns, "  "):
            yield line
        room = max((len(_label(one)) for one in account["reasons"]), default=0)
        for one in account["reasons"]:
            yield from _reason(one, room, columns)


def _head(account: AccountDocument) -> str:
    down = "" if account["vault_seen"] else ", which is down"
    into = f" into vault {account['vault']}{down}" if account["vault"] is not None else ", snapshots only"
    head = f"backup {account['backup']}: {account['source']}{into}"
    names = [name for name in (account["dataset"], account["vault_dataset"]) if name is not None]
    return f"{head} ({' -> '.join(names)})" if names else head


def _label(one: ReasonDocument) -> str:
    return f"{one['topic']}, {one['side']}" if one["side"] is not None else one["topic"]


def _reason(one: ReasonDocument, room: int, columns: int | None) -> Iterator[str]:
    """``  sent: incremental: why``, and what to do below it."""
    label = f"  {_label(one):>{room}}: "
    if columns is not None and columns < room + 30:
        # No room for two columns: what is told goes below its label.
        label, room = f"  {_label(one)}: ", 2
    text = f"{one['state']}: {one['why']}" if one["why"] else one["state"]
    colour = LEVEL_COLOURS[one["level"]]
    for line in wrap_text(clean_line(text), label, columns, " " * (room + 4)):
        yield paint_text(line, colour, sys.stdout)
    if one["next"]:
        yield from wrap_text(clean_line(one["next"]), " " * (room + 4) + "next: ", columns, " " * (room + 6))
