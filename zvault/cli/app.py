"""zvaultctl: the command line. Each verb has its own file; this one assembles them and handles errors."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer
import typer.main

from zvault import __version__
from zvault.cli.client import choose
from zvault.cli.output import TROUBLE, USAGE, complain, exit_status, expect_document, report, say, tell
from zvault.cli.verbs import (
    adopt,
    backups,
    blockstore,
    browse,
    check,
    diff,
    doctor,
    explain,
    find,
    fit,
    holds,
    install_units,
    lag,
    mount,
    notify,
    plan,
    prune,
    restore,
    run,
    scrub,
    status,
    top,
    tune,
    vaults,
    verify,
)
from zvault.core.errors import ZvaultError

app = typer.Typer(
    name="zvaultctl",
    no_args_is_help=True,
    add_completion=False,
    # Plain help, readable on a serial console.
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
    called: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version and exit."),
    ] = False,
    hosts: Annotated[
        str,
        typer.Option(
            "--hosts",
            "-H",
            metavar="HOST,…",
            show_default=False,
            help="Ask the daemons of these hosts, by ssh: names are HOST:NAME then.",
        ),
    ] = "",
) -> None:
    """Back up ZFS into vaults: query and control the daemon zvaultd.

    Exit status: 0 fine; 1 a warning, or something failed; 2 wrong usage, or the daemon cannot be reached; 3 of a
    status: something is not known to be well.
    Members of the group zvault may read; those of zvault-operator too may start runs and scrubs; only root may change
    anything else. Of another host (-H) the same goes for the user that ssh logs in as.
    """
    if hosts:
        from zvault.cli.hosts import chosen_hosts
        from zvault.config.paths import Paths

        choose(chosen_hosts(hosts, called.invoked_subcommand, Paths().socket))


app.command("status")(status.status)
app.command("top")(top.top)
app.command("lag")(lag.lag)
app.command("list")(backups.list_)
app.command("plan")(plan.plan)
app.command("prune")(prune.prune)
app.command("fit")(fit.fit)
app.command("explain")(explain.explain)
app.command("doctor")(doctor.doctor)
app.command("holds")(holds.holds)
app.command("run")(run.run)
app.command("follow")(run.follow_)
app.command("history")(backups.history)
app.command("scrub")(scrub.scrub)
app.command("heal")(scrub.heal)
app.command("verify")(verify.verify)
app.command("find")(find.find)
app.command("browse")(browse.browse)
app.command("diff")(diff.diff)
app.command("mount")(mount.mount)
app.command("restore")(restore.restore)
app.add_typer(vaults.app, name="vault", help="Bring a vault up or down, or show its pool and devices.")
app.add_typer(tune.app, name="tune", help="Show the module parameters that vaults want, and why.")
app.add_typer(notify.app, name="notify", help="Show whom zvaultd tells of what is wrong, or send a test.")
app.add_typer(
    blockstore.app, name="blockstore", help="Make, check, repair, clean up or copy block stores in buckets."
)
app.command("adopt")(adopt.adopt)
app.command("check-config")(check.check_config)
app.command("install-units")(install_units.install_units)


@functools.cache
def command() -> Callable[..., object]:
    """All verbs with their options. To work them out of the functions takes longer than most verbs do."""
    return typer.main.get_command(app)


def main() -> None:
    """Run zvaultctl and exit. Prints no traceback unless ZVAULT_DEBUG is set."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A name with characters that the terminal cannot show must not end a listing.
            stream.reconfigure(errors="replace")
    expect_document(None)
    choose(None)
    if "_ZVAULTCTL_COMPLETE" in os.environ:
        # typer knows the shells only where it also offers to install their completion.
        from typer._completion_classes import completion_init

        completion_init()
    try:
        try:
            command()(prog_name="zvaultctl")
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
        # For example a full disk under the output: not a defect in zvault.
        stopped = ZvaultError("zvaultctl could not continue", str(error))
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
    """End quietly after stdout was closed, for example by ``| head``."""
    # The interpreter flushes stdout once more at exit, so it must be writable.
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
