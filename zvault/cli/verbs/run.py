"""zvaultctl run and follow: start a backup, and watch it."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import typer

from zvault.api import routes
from zvault.api.runs import RunBody
from zvault.cli import completion
from zvault.cli.choose_vault import expand_name, show_each
from zvault.cli.daemon_client import DaemonClient, request_action
from zvault.cli.follow_run import INTERRUPTED_STATUS, RunFollower, follow_run
from zvault.cli.options import AsJson, BackupName, DryRun, NoWait, Quiet
from zvault.cli.output import OK_STATUS, TROUBLE_STATUS, print_document, print_error, print_line
from zvault.cli.tables import format_ago
from zvault.cli.verbs.forecast import show_forecast
from zvault.core.errors import Busy, NotFound, SeveralVaults


def run(
    backup: BackupName,
    dry_run: DryRun = False,
    no_snapshot: Annotated[
        bool, typer.Option("--no-snapshot", help="Create no snapshot; send existing ones.")
    ] = False,
    no_wait: NoWait = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Run BACKUP now, and follow it to its end.

    With -n it only shows what a run that began now would do, from its snapshot to what it prunes, and touches nothing:
    a vault that is down stays down, and what it has is not known then.

    Of a backup with several vaults it runs into each at once, and they send the same snapshot; BACKUP@VAULT is one.

    Ctrl-C stops following; the run continues in the daemon. Exit status: 0 ok; 1 partial or failed; with -n 0 all
    would be sent, 1 a dataset is in conflict, 2 no run could start, 3 the vault is down.
    """
    if dry_run:
        forecast = partial(show_forecast, no_snapshot=no_snapshot, json=json)
        raise typer.Exit(show_each(backup, forecast, alone=json))
    body: RunBody = {"snapshot": False} if no_snapshot else {}
    try:
        _run_one(backup, body, no_wait=no_wait, quiet=quiet, json=json)
    except SeveralVaults:
        if json:
            raise
        raise typer.Exit(_run_all(backup, body, no_wait=no_wait, quiet=quiet)) from None


def _run_one(backup: str, body: RunBody, *, no_wait: bool, quiet: bool, json: bool) -> None:
    again = f"zvaultctl follow {backup}"
    if no_wait:
        started = request_action(routes.RUN, body, backup=backup)["run"]
        if json:
            print_document("run", {"run": {"id": started, "backup": backup}})
        elif not quiet:
            print_line(f"run {started} of {backup} has started; follow it with '{again}'")
        return

    def start(daemon: DaemonClient) -> str:
        try:
            return daemon.post(routes.RUN, body, backup=backup)["run"]
        except Busy as busy:
            if (running := _offer_to_follow(daemon, backup, busy, ask=not (quiet or json))) is not None:
                return running
            raise Busy(busy.what, busy.why, f"'{again}' shows it to its end") from None

    raise typer.Exit(follow_run(start, RunFollower("run", quiet, json), lambda _run: again))


def _run_all(backup: str, body: RunBody, *, no_wait: bool, quiet: bool) -> int:
    """Run a backup into each of its vaults at once, and follow one run after the other."""
    answer = request_action(routes.RUN, {**body, "all_vaults": True}, backup=backup)
    status = OK_STATUS
    for error in answer["busy"].values():
        status = TROUBLE_STATUS
        print_error(error)
    for name, run in answer["runs"].items():
        if not quiet:
            again = f"; follow it with 'zvaultctl follow {name}'" if no_wait else ""
            print_line(f"run {run} of {name} has started{again}")
    for name, run in () if no_wait else answer["runs"].items():
        if not quiet:
            print_line(f"\n{name}:")
        ended = follow_run(partial(_return_run, run), RunFollower("run", quiet), partial(_tell_again, name))
        if ended == INTERRUPTED_STATUS:
            return ended
        status = max(status, ended)
    return status


def _return_run(run: str, _: DaemonClient) -> str:
    return run


def _tell_again(name: str, _: str) -> str:
    return f"zvaultctl follow {name}"


def _is_at_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _offer_to_follow(daemon: DaemonClient, backup: str, busy: Busy, *, ask: bool) -> str | None:
    """The run that is under way, if a person at a terminal wants to follow that one; None else."""
    if not (ask and _is_at_a_terminal()):
        return None
    status = daemon.get(routes.STATUS, {})
    running = next((one["run"] for one in status["backups"] if one["name"] == backup), None)
    if running is None or not typer.confirm(f"{busy.what} ({busy.why}). Follow it?", default=True):
        return None
    return running


def follow_(
    name: Annotated[
        str, typer.Argument(metavar="BACKUP|RUN", hidden=True, autocompletion=completion.complete_backups)
    ],
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Follow a run in progress.

    Name its backup, or its number from 'zvaultctl history'.

    Ctrl-C stops following; the run continues in the daemon. Exit status: 0 ok; 1 partial or failed.
    """

    def find(daemon: DaemonClient) -> str:
        status = daemon.get(routes.STATUS, {})
        meant = expand_name(name, [b["name"] for b in status["backups"]])
        backups = [b for b in status["backups"] if b["name"] in meant]
        if not backups:
            return name
        backup = next((b for b in backups if b["run"] is not None), backups[0])
        if backup["run"] is not None:
            return backup["run"]
        last = backup["last_run"]
        raise NotFound(
            f"backup {name} is not running",
            f"its last run, {format_ago(last)}, ended {backup['last_result']}"
            if last is not None
            else "it never ran",
            f"see 'zvaultctl history {name}', or start it with 'zvaultctl run {name}'",
        )

    raise typer.Exit(
        follow_run(find, RunFollower("follow", quiet, json), lambda run: f"zvaultctl follow {run}")
    )
