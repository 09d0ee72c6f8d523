"""The flags that several verbs share, spelled as zpool(8) and zfs(8) spell them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from zvault.cli import completion
from zvault.cli.output import expect_document

BackupName = Annotated[str, typer.Argument(hidden=True, autocompletion=completion.complete_backups)]
VaultName = Annotated[str, typer.Argument(hidden=True, autocompletion=completion.complete_vaults)]
Store = Annotated[
    str,
    typer.Argument(
        metavar="PLACE",
        help="'zvault:BUCKET/KEY endpoint=…', or VAULT[/N] of the configuration.",
        show_default=False,
    ),
]
Tabs = Annotated[
    bool, typer.Option("-H", "--scripted", help="For scripts: no header, columns separated by one tab.")
]
Exact = Annotated[
    bool, typer.Option("-p", "--parsable", help="Exact numbers: bytes, seconds, times in epoch seconds.")
]


def _expect_document(context: typer.Context, wanted: bool) -> bool:
    if wanted:
        expect_document(context.command_path.partition(" ")[2])
    return wanted


AsJson = Annotated[
    bool,
    typer.Option("-j", "--json", callback=_expect_document, help="One JSON document with an output_version."),
]
Chosen = Annotated[
    str | None,
    typer.Option("-o", metavar="COL[,COL]", help="Columns to print, or 'all'.", show_default=False),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing unless something fails.")]
DryRun = Annotated[bool, typer.Option("-n", "--dry-run", help="Only show what would be done.")]
VaultAt = Annotated[
    str | None,
    typer.Option(
        "--vault-at",
        metavar="TIME",
        help="Out of the vault as it was at TIME, of what its block store keeps ('blockstore history').",
        show_default=False,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without this, only show it.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Start it and return at once.")]


@dataclass(frozen=True, slots=True)
class TableForm:
    """The form in which a table is printed: ``tabs`` for -H, ``exact`` for -p."""

    tabs: bool = False
    exact: bool = False
