"""zvaultctl notify: whom zvaultd tells of what is wrong, how that goes, and a test of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from zvault.api import routes
from zvault.api.notify import NotifyTarget, NotifyTestBody, NotifyTestResult
from zvault.cli import completion
from zvault.cli.client import act, read
from zvault.cli.options import AsJson, Chosen, Exact, TableForm, Tabs
from zvault.cli.output import OK, TROUBLE, clean, document, say, say_all, tell
from zvault.cli.tables import Column, chosen, restricted, table

app = typer.Typer()

COLUMNS = [
    Column("name"),
    Column("way"),
    Column("severity"),
    Column("state", "state"),
    Column("waiting", "count"),
    Column("success", "ago", "last_success"),
    Column("failure", "ago", "last_failure"),
    Column("next", "ago", "next_try"),
    Column("open", "count"),
    Column("lost", "count", "given_up"),
    Column("backups", get=lambda row: ",".join(row["backups"])),
    Column("error", key="last_error"),
]
DEFAULT = ("name", "way", "severity", "state", "waiting", "success", "failure")


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
    picked, form = chosen(COLUMNS, columns, DEFAULT), TableForm(tabs, exact)
    found = read(routes.NOTIFY)["targets"]
    if json:
        document("notify show", {"targets": restricted(picked, found) if columns else found})
    elif found or tabs:
        say_all(table(picked, found, form, None if columns or tabs else _notes))
    else:
        tell("nobody is told of anything: there is no [notify.NAME] in the configuration")
    raise typer.Exit(TROUBLE if any(one["state"] in {"failed", "failing"} for one in found) else OK)


def _notes(target: NotifyTarget) -> Iterator[str]:
    if target["last_error"]:
        yield f"  {clean(target['last_error'])}"
    if target["given_up"]:
        yield f"  given up since the last success: {target['given_up']}"


@app.command("test")
def try_out(
    name: Annotated[
        str | None,
        typer.Argument(help="Only this target.", show_default=False, autocompletion=completion.notifications),
    ] = None,
    json: AsJson = False,
) -> None:
    """Send a test to a target, or to all, and say how that went.

    A dead-man's switch that would take a test for a success is tested only by its name; one of healthchecks.io takes
    it for an entry in its log. A test is sent once, also in quiet hours, and counts for no limit.

    Exit status: 0 all were sent; 1 one was not.
    """
    body: NotifyTestBody = {} if name is None else {"target": name}
    results = act(routes.NOTIFY_TEST, body)["results"]
    if json:
        document("notify test", {"results": results})
    else:
        for one in results:
            say(_told(one))
        if not results:
            tell("nobody is told of anything: there is no [notify.NAME] in the configuration")
    raise typer.Exit(TROUBLE if any(one["result"] == "failed" for one in results) else OK)


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
    found = read(routes.REPORT, every="monthly" if monthly else "weekly")
    if json:
        document("notify report", found)
    else:
        say_all((found["html"] if html else found["text"]).splitlines())


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
    return clean(f"{who}: {': '.join(filter(None, (error['what'], error['why'])))}{following}")
