"""zvaultctl notify: whom zvaultd tells of what is wrong, how that goes, and a test of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from zvault.api import routes
from zvault.api.notify import NotifyTarget, NotifyTestBody, NotifyTestResult
from zvault.cli import completion
from zvault.cli.daemon_client import read_document, request_action
from zvault.cli.options import AsJson, Chosen, Exact, TableForm, Tabs
from zvault.cli.output import (
    OK_STATUS,
    TROUBLE_STATUS,
    clean_line,
    print_document,
    print_line,
    print_lines,
    print_trouble,
)
from zvault.cli.tables import TableColumn, choose_columns, format_table, select_columns

app = typer.Typer()

TARGET_COLUMNS = [
    TableColumn("name"),
    TableColumn("way"),
    TableColumn("severity"),
    TableColumn("state", "state"),
    TableColumn("waiting", "count"),
    TableColumn("success", "ago", "last_success"),
    TableColumn("failure", "ago", "last_failure"),
    TableColumn("next", "ago", "next_try"),
    TableColumn("open", "count"),
    TableColumn("lost", "count", "given_up"),
    TableColumn("backups", get=lambda row: ",".join(row["backups"])),
    TableColumn("error", key="last_error"),
]
TARGET_DEFAULT = ("name", "way", "severity", "state", "waiting", "success", "failure")


@app.callback(invoke_without_command=True)
def notify(context: typer.Context) -> None:
    """Show whom zvaultd tells of what is wrong, as 'notify show' does."""
    if context.invoked_subcommand is None:
        show()


@app.command("show")
def show(columns: Chosen = None, tabs: Tabs = False, exact: Exact = False, json: AsJson = False) -> None:
    """List the targets of notifications: when each was last told something, what failed last, and what waits.

    STATE is "untried" until something was sent to a target ('zvaultctl notify test' does), "failed" if the last test
    did not go through, and "failing" if a target could not be reached in three tries. What waits is tried again for
    three days.

    Exit status: 0 fine; 1 a target failed or is failing.
    """
    picked, form = choose_columns(TARGET_COLUMNS, columns, TARGET_DEFAULT), TableForm(tabs, exact)
    found = read_document(routes.NOTIFY)["targets"]
    if json:
        print_document("notify show", {"targets": select_columns(picked, found) if columns else found})
    elif found or tabs:
        print_lines(format_table(picked, found, form, None if columns or tabs else _notes))
    else:
        print_trouble("nobody is told of anything: there is no [notify.NAME] in the configuration")
    raise typer.Exit(
        TROUBLE_STATUS if any(one["state"] in {"failed", "failing"} for one in found) else OK_STATUS
    )


def _notes(target: NotifyTarget) -> Iterator[str]:
    if target["last_error"]:
        yield f"  {clean_line(target['last_error'])}"
    if target["given_up"]:
        yield f"  given up since the last success: {target['given_up']}"


@app.command("test")
def try_out(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Only this target.", show_default=False, autocompletion=completion.complete_notifications
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Send a test to a target, or to all, and say how that went.

    A dead-man's switch that would take a test for a success is tested only by its name; one of healthchecks.io takes
    it for an entry in its log. A test is sent once, also in quiet hours, and counts for no limit.

    Exit status: 0 all were sent; 1 one was not.
    """
    body: NotifyTestBody = {} if name is None else {"target": name}
    results = request_action(routes.NOTIFY_TEST, body)["results"]
    if json:
        print_document("notify test", {"results": results})
    else:
        for one in results:
            print_line(_told(one))
        if not results:
            print_trouble("nobody is told of anything: there is no [notify.NAME] in the configuration")
    raise typer.Exit(TROUBLE_STATUS if any(one["result"] == "failed" for one in results) else OK_STATUS)


@app.command("report")
def report(
    monthly: Annotated[bool, typer.Option("--monthly", help="Of the last month, not week.")] = False,
    html: Annotated[bool, typer.Option("--html", help="As the HTML of a mail.")] = False,
    json: AsJson = False,
) -> None:
    """Print the report of the last whole week: how each backup and vault fared, and what needs a person.

    It is what targets with 'report' in the configuration are sent. Nothing is sent here, and no vault is brought up.

    Exit status: 0 it was printed, whatever it says.
    """
    found = read_document(routes.REPORT, every="monthly" if monthly else "weekly")
    if json:
        print_document("notify report", found)
    else:
        print_lines((found["html"] if html else found["text"]).splitlines())


def _told(one: NotifyTestResult) -> str:
    who = f"{one['target']} ({one['way']})"
    error = one["error"]
    if one["result"] == "skipped":
        return (
            f"{who}: not tested, it would take it for a success: 'zvaultctl notify test {one['target']}' does"
        )
    if error is None:
        return f"{who}: sent"
    following = f". Next: {error['next']}" if error["next"] else ""
    return clean_line(f"{who}: {': '.join(filter(None, (error['what'], error['why'])))}{following}")
