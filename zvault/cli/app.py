"""zvaultctl: the command line. The verbs stand in their own files; here they are put together and guarded."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Annotated

import typer

from zvault import __version__
from zvault.cli.output import TROUBLE, USAGE, complain, exit_status, expect_document, report, say, tell
from zvault.cli.verbs import (
    backups,
    blockstore,
    check,
    doctor,
    find,
    fit,
    holds,
    plan,
    prune,
    restore,
    run,
    scrub,
    status,
    tune,
    vaults,
    verify,
)
from zvault.core.errors import ZvaultError

app = typer.Typer(
    name="zvaultctl",
    no_args_is_help=True,
    add_completion=False,
    # Help as plain as the tables, and readable on a serial console.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"zvault {__version__}")
        raise typer.Exit


@app.callback()
def zvaultctl(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Back up ZFS into vaults: ask the daemon zvaultd, and have it act.

    Exit status: 0 fine; 1 a warning, or something failed; 2 wrong usage, or the daemon cannot be asked.
    Anyone in the group zvault may read; root may act.
    """


app.command("status")(status.status)
app.command("list")(backups.list_)
app.command("plan")(plan.plan)
app.command("prune")(prune.prune)
app.command("fit")(fit.fit)
app.command("doctor")(doctor.doctor)
app.command("holds")(holds.holds)
app.command("run")(run.run)
app.command("follow")(run.follow_)
app.command("history")(backups.history)
app.command("scrub")(scrub.scrub)
app.command("heal")(scrub.heal)
app.command("verify")(verify.verify)
app.command("find")(find.find)
app.command("restore")(restore.restore)
app.add_typer(vaults.app, name="vault", help="Bring a vault up or down, or show its pool and devices.")
app.add_typer(tune.app, name="tune", help="Show what is tuned for vaults, and why.")
app.add_typer(
    blockstore.app, name="blockstore", help="Make, check, repair, clean up or copy block stores in buckets."
)
app.command("check-config")(check.check_config)


def main() -> None:
    """Run zvaultctl and exit. Whatever happens, no traceback reaches a user who did not ask for it."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A name the terminal's character set lacks shall not end a listing.
            stream.reconfigure(errors="replace")
    expect_document(None)
    try:
        try:
            app(prog_name="zvaultctl")
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _leave_pipe()
    except KeyboardInterrupt:
        sys.exit(130)
    except ZvaultError as error:
        complain(error)
        _report(error)
        sys.exit(exit_status(error))
    except OSError as error:
        # A full disk under the output, say: not a defect of ours.
        stopped = ZvaultError("zvaultctl could not go on", str(error))
        complain(stopped)
        _report(stopped)
        _leave_pipe()
    except Exception as error:
        _complain_of_defect(error)
        sys.exit(USAGE)


def _report(error: ZvaultError) -> None:
    with contextlib.suppress(OSError):  # stdout itself may be what failed
        report(error)


def _leave_pipe() -> None:
    """End without another word on stdout, which takes no more: ``| head`` has what it wanted."""
    # The interpreter flushes it once more at exit, and must find something it can write to.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(TROUBLE)


def _complain_of_defect(error: Exception) -> None:
    if os.environ.get("ZVAULT_DEBUG"):
        import traceback

        traceback.print_exception(error)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    what, advice = (
        f"unexpected error: {text}",
        "Run it again with ZVAULT_DEBUG=1 in the environment for the details.",
    )
    tell(f"zvaultctl: {what}")
    tell(f"This is a defect in zvault. {advice}")
    _report(ZvaultError(what, "this is a defect in zvault", advice))
