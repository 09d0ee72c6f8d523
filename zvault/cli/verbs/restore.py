"""zvaultctl restore: datasets out of a vault, or files out of one of its snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from zvault.api import routes
from zvault.api.restore import FilesPlanDocument, RestoreBody, RestorePlanDocument
from zvault.cli import completion
from zvault.cli.choose_vault import OfVault, ask_of_best, name_of_vault
from zvault.cli.daemon_client import DaemonClient, request_action
from zvault.cli.event_text import format_plural
from zvault.cli.follow_run import RunFollower, follow_run
from zvault.cli.options import AsJson, BackupName, NoWait, Quiet, TableForm, VaultAt, Yes
from zvault.cli.output import (
    OK_STATUS,
    TROUBLE_STATUS,
    YELLOW,
    clean_line,
    print_document,
    print_line,
    print_lines,
    print_trouble,
)
from zvault.cli.parse_times import parse_last_moment
from zvault.cli.tables import TableColumn, format_table
from zvault.core.names import split_snapshot
from zvault.core.units import format_size

RESTORE_COLUMNS = [
    TableColumn("dataset"),
    TableColumn("snapshot"),
    TableColumn("to"),
    TableColumn("action"),
    TableColumn("bytes", "size", header="SIZE"),
]


def restore(  # noqa: PLR0913, PLR0917 - each is an option of the command
    backup: BackupName,
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATASET[@SNAPSHOT]",
            hidden=True,
            autocompletion=completion.complete_datasets_and_snapshots,
        ),
    ],
    to: Annotated[str, typer.Argument(hidden=True)],
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="The newest snapshot made up to then.", show_default=False),
    ] = None,
    vault: OfVault = None,
    vault_at: VaultAt = None,
    recursive: Annotated[bool, typer.Option("-r", "--recursive", help="All datasets below it too.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Let it take TO's place; what was there is set aside.")
    ] = False,
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file", metavar="PATH", help="Only this file or tree; may be repeated.", show_default=False
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Overwrite files that are there.")] = False,
    no_compare: Annotated[
        bool,
        typer.Option("--no-compare", help="Do not read what was restored again to compare it."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("-n", "--dry-run", help="Only show what would be done.")] = False,
    yes: Yes = False,
    no_wait: NoWait = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Restore a dataset of BACKUP into a new one, TO; or files of it into a folder, TO.

    DATASET is named as on the source or as in the vault; without @SNAPSHOT and --at the newest one is taken.
    TO must not exist yet. With --replace it may: TO is restored beside it, then they change names, and what was
    there stays as TO_zvault-before-TIME; that is shown first, and wants --yes. On another host TO is
    ssh://root@filer1/tank/back. A restore that was cut off goes on when it is started again the same way.

    With --vault-at the vault is opened as it was then, as by 'vault open', and closed afterwards; that needs a block
    store with 'history='. So what was pruned since, or destroyed, can be restored.

    Where TO begins with a slash it is a folder that files are copied into: those given by --file, which are paths
    below DATASET's root, or all. It is made if its parent is there. No file is overwritten without --overwrite.

    What was restored is compared with the snapshot: content, type, mode, owner, times, extended attributes, ACLs
    and links of files; of datasets also properties, limits and inherited keys. What differs is told by its path, with
    the commands that put it right. --no-compare leaves out what has to be read for that.

    Ctrl-C stops following; the restore continues in the daemon. Exit status: 0 ok; 1 failed, or not all is as in the
    snapshot.
    """
    name, snapshot = split_snapshot(dataset)
    if snapshot is not None and at is not None:
        raise typer.BadParameter("a snapshot is named already", param_hint="--at")
    folder = to.startswith("/")
    if (file or overwrite) and not folder:
        raise typer.BadParameter(
            f"'{to}' is a dataset: files go into a folder, as in /tmp/rescue", param_hint="TO"
        )
    backup = name_of_vault(backup, vault)
    request: RestoreBody = {"backup": backup, "dataset": name, "snapshot": snapshot, "to": to}
    request |= _times(at, vault_at)
    if recursive:
        request["recursive"] = True
    if replace:
        request["replace"] = True
    if file:
        request["files"] = file
    if overwrite:
        request["overwrite"] = True
    if no_compare:
        request["compare"] = False
    if dry_run or (replace and not yes):
        raise typer.Exit(_show(request, json, asked=dry_run))

    if no_wait:
        started = ask_of_best(
            backup, lambda one: request_action(routes.RESTORE, {**request, "backup": one})["run"]
        )
        if json:
            print_document("restore", {"run": {"id": started, "backup": backup}})
        elif not quiet:
            print_line(
                f"run {started} restores {dataset} to {to}; follow it with 'zvaultctl follow {started}'"
            )
        return

    def start(daemon: DaemonClient) -> str:
        return ask_of_best(backup, lambda one: daemon.post(routes.RESTORE, {**request, "backup": one})["run"])

    raise typer.Exit(
        follow_run(start, RunFollower("restore", quiet, json), lambda run: f"zvaultctl follow {run}")
    )


def _times(at: str | None, vault_at: str | None) -> RestoreBody:
    body: RestoreBody = {}
    if at is not None:
        body["at"] = parse_last_moment(at)
    if vault_at is not None:
        body["vault_at"] = parse_last_moment(vault_at, "--vault-at")
    return body


def _show(request: RestoreBody, json: bool, *, asked: bool) -> int:
    """Show the plan; the exit status says whether that was all that was wanted."""

    def ask(name: str) -> RestorePlanDocument | FilesPlanDocument:
        return request_action(routes.RESTORE_PLAN, {**request, "backup": name})

    plan = ask_of_best(request["backup"], ask)
    if json:
        print_document("restore", {"plan": plan})
    else:
        print_lines(_files(plan) if "files" in plan else _datasets(plan))
    if asked:
        return OK_STATUS
    print_trouble("nothing was done: this is the plan, --yes carries it out", YELLOW)
    return TROUBLE_STATUS


def _files(plan: FilesPlanDocument) -> Iterator[str]:
    yield (
        f"{format_plural(plan['files'], 'file')}, {format_size(plan['bytes'])}, from {plan['snapshot']} "
        f"to {plan['to']}"
    )
    yield from _takes(plan)
    if plan["same"]:
        yield f"  {format_plural(plan['same'], 'file')} there already, as in the snapshot: only compared"
    for path in plan["there"]:
        yield f"  {'overwrites' if plan['overwrite'] else 'is there already:'} {clean_line(path)}"
    if plan["there"] and not plan["overwrite"]:
        yield "it is refused as long as anything is in the way, unless --overwrite is given"


def _takes(plan: FilesPlanDocument | RestorePlanDocument) -> Iterator[str]:
    """How long it takes, of what there is to do."""
    if "time" in plan and plan["time"]["bytes"]:
        yield f"time to restore: {clean_line(plan['time']['told'])}"


def _datasets(plan: RestorePlanDocument) -> Iterator[str]:
    yield from format_table(RESTORE_COLUMNS, plan["datasets"], TableForm())
    room = plan["available"]
    yield f"{format_size(plan['bytes'])} to send" + (
        f"; {format_size(room)} are free there" if room is not None else ""
    )
    yield from _takes(plan)
    for name in plan["skipped"]:
        yield f"left out: {name}: it has no such snapshot"
    if plan["lost"]:
        yield f"set aside as {plan['to']}_zvault-before-TIME, not destroyed:"
        yield from (f"  {clean_line(text)}" for text in plan["lost"])
