"""zvaultctl: the command line. Each verb has its own file; this one assembles them and handles errors."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Annotated

import typer
import typer.main

from zvault import __version__
from zvault.cli.daemon_client import choose_daemon
from zvault.cli.help_text import GroupedHelp, WholeHelp
from zvault.cli.output import (
    TROUBLE_STATUS,
    USAGE_STATUS,
    choose_exit_status,
    expect_document,
    print_error,
    print_error_document,
    print_line,
    print_trouble,
)
from zvault.core.errors import ZvaultError

VERB_COMMANDS = {
    "status": ("status", "status"),
    "top": ("top", "top"),
    "lag": ("lag", "lag"),
    "list": ("backups", "list_"),
    "plan": ("plan", "plan"),
    "prune": ("prune", "prune"),
    "fit": ("fit", "fit"),
    "explain": ("explain", "explain"),
    "doctor": ("doctor", "doctor"),
    "holds": ("holds", "holds"),
    "run": ("run", "run"),
    "follow": ("run", "follow_"),
    "history": ("backups", "history"),
    "scrub": ("scrub", "scrub"),
    "heal": ("scrub", "heal"),
    "verify": ("verify", "verify"),
    "find": ("find", "find"),
    "browse": ("browse", "browse"),
    "diff": ("diff", "diff"),
    "mount": ("mount", "mount"),
    "restore": ("restore", "restore"),
    "adopt": ("adopt", "adopt"),
    "check-config": ("check", "check_config"),
    "install-units": ("install_units", "install_units"),
}
"""The verbs, each with its file and its function there."""

VERB_GROUPS = {
    "vault": ("vaults", "Bring a vault up or down, or show its pool and devices."),
    "tune": ("tune", "Show the module parameters that vaults want, and why."),
    "notify": ("notify", "Show whom zvaultd tells of what is wrong, or send a test."),
    "blockstore": ("blockstore", "Make, check, repair, clean up or copy block stores in buckets."),
}
"""The verbs that have verbs below them, each with its file and what it is for."""


def _version(wanted: bool) -> None:
    if wanted:
        print_line(f"zvault {__version__}")
        raise typer.Exit


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
            metavar="HOST,…",
            show_default=False,
            help="Ask the daemons of these hosts, by ssh: names are HOST:NAME then.",
        ),
    ] = "",
) -> None:
    """Back up ZFS into vaults: query and control the daemon zvaultd.

    Exit status: 0 fine; 1 a warning, or something failed or is critical; 2 wrong usage, or the daemon cannot be
    reached; 3 of a status: something is not known to be well.
    Members of the group zvault may read; those of zvault-operator too may start runs and scrubs; only root may change
    anything else. Of another host (--hosts) the same goes for the user that ssh logs in as.
    """
    if hosts:
        from zvault.cli.hosts import choose_hosts
        from zvault.config.paths import Paths

        choose_daemon(choose_hosts(hosts, called.invoked_subcommand, Paths().socket))


def assemble_app(only: str = "") -> typer.Typer:
    """zvaultctl with all its verbs, or with one alone: importing the others takes as long as all else of a start."""
    app = typer.Typer(
        name="zvaultctl",
        cls=GroupedHelp,
        no_args_is_help=True,
        add_completion=False,
        # Plain help, readable on a serial console.
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(zvaultctl)
    for name, (file, function) in VERB_COMMANDS.items():
        if only in ("", name):
            app.command(name)(getattr(_verb(file), function))
    for name, (file, text) in VERB_GROUPS.items():
        if only in ("", name):
            app.add_typer(_verb(file).app, name=name, help=text, cls=WholeHelp)
    return app


def _verb(file: str) -> ModuleType:
    return importlib.import_module(f"zvault.cli.verbs.{file}")


def _asked(argv: Sequence[str]) -> str:
    """The one verb that a command line is for, empty where it may be any: after options, and where it is mistyped.

    The version is told without any.
    """
    completing = "_ZVAULTCTL_COMPLETE" in os.environ
    known = {*VERB_COMMANDS, *VERB_GROUPS, "-V", "--version"}
    return argv[0] if argv and not completing and argv[0] in known else ""


@functools.cache
def make_command(only: str = "") -> Callable[..., object]:
    """Return what a command line is parsed by, worked out of ``assemble_app`` once in a process."""
    return typer.main.get_command(assemble_app(only))


def main() -> None:
    """Run zvaultctl and exit. Prints no traceback unless ZVAULT_DEBUG is set."""
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A name with characters that the terminal cannot show must not end a listing.
            stream.reconfigure(errors="replace")
    expect_document(None)
    choose_daemon(None)
    if "_ZVAULTCTL_COMPLETE" in os.environ:
        # typer knows the shells only where it also offers to install their completion.
        from typer._completion_classes import completion_init

        completion_init()
    try:
        try:
            make_command(_asked(sys.argv[1:]))(prog_name="zvaultctl")
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _leave_pipe()
    except KeyboardInterrupt:
        sys.exit(130)
    except ZvaultError as error:
        print_error(error)
        _report(error)
        sys.exit(choose_exit_status(error))
    except OSError as error:
        # For example a full disk under the output: not a defect in zvault.
        stopped = ZvaultError("zvaultctl could not continue", str(error))
        print_error(stopped)
        _report(stopped)
        _leave_pipe()
    except Exception as error:
        _complain_of_defect(error)
        sys.exit(USAGE_STATUS)


def _open_what_is_closed() -> None:
    """Stand in for the standard streams that the caller closed (``>&-``), which Python leaves None.

    Writing results to what is closed fails, as it does for every program; what would go to standard error is lost.
    It comes before any other file is opened, which would get their numbers.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115 - it stays open until the end
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115


def _report(error: ZvaultError) -> None:
    with contextlib.suppress(OSError):  # stdout itself may be what failed
        print_error_document(error)


def _leave_pipe() -> None:
    """End quietly after stdout was closed, for example by ``| head``."""
    # The interpreter flushes stdout once more at exit, so it must be writable.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(TROUBLE_STATUS)


def _complain_of_defect(error: Exception) -> None:
    if os.environ.get("ZVAULT_DEBUG"):
        import traceback

        traceback.print_exception(error)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    what, advice = (
        f"unexpected error: {text}",
        "Run it again with ZVAULT_DEBUG=1 in the environment for the details.",
    )
    print_trouble(f"zvaultctl: {what}")
    print_trouble(f"This is a defect in zvault. {advice}")
    _report(ZvaultError(what, "this is a defect in zvault", advice))
