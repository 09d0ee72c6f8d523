"""zvaultctl check-config: read the configuration as the daemon would, without one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zvault.cli.event_text import format_plural
from zvault.cli.options import AsJson, Quiet
from zvault.cli.output import (
    OK_STATUS,
    RED,
    USAGE_STATUS,
    YELLOW,
    clean_line,
    print_document,
    print_line,
    print_lines,
    print_trouble,
    print_wrapped_trouble,
)
from zvault.core.errors import ConfigError

if TYPE_CHECKING:
    from zvault.config.paths import Paths
    from zvault.config.schema import Config


_BEGIN = (
    "  next: begin with the sample ('cp /usr/share/doc/zvault/zvault.toml /etc/zvault/'), or, where another tool made a"
    " replica, with what 'zvaultctl adopt SOURCE REPLICA' prints"
)
"""What to do on a machine that has no configuration yet."""


def check_config(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="The configuration file; conf.d/*.toml beside it is read too.", show_default=False
        ),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Look at the files only: ask no pool, host or server.")
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "-v", "--verbose", help="Show each backup with what it has from defaults and templates."
        ),
    ] = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Check the configuration; names every problem, and warns of what may be one on this host.

    It also asks whether the sources exist, here and over ssh, whether the names of their datasets are short enough, and
    whether the vaults' devices, and files and credentials with secrets, are there; what is not, or cannot be asked, is
    a warning. Of vaults that are up it tells whose key is not loaded that a run needs, and what lies in the clear below
    what is encrypted. Buckets are not asked. A configuration that others than root may write is refused: its hooks run
    as root. Needs no daemon.

    Exit status: 0 zvaultd would take it, whatever it was warned of; 2 it would not.
    """
    # pydantic is slow to import, and no other verb needs it.
    from zvault.config.load_config import has_config, list_doubts, list_resolved_lines, load_config
    from zvault.config.paths import Paths

    paths = Paths()
    try:
        config = load_config(paths, file)
    except ConfigError as error:
        problems = error.why.splitlines()
        if json:
            print_document(
                "check-config", {"ok": False, "problems": problems or [error.what], "warnings": []}
            )
        else:
            print_trouble(error.what, RED)
            # As compilers print them, so that editors and grep find file and line.
            for problem in problems:
                print_wrapped_trouble(problem)
            if file is None and not has_config(paths):
                print_wrapped_trouble(_BEGIN)
        raise typer.Exit(USAGE_STATUS) from None
    warnings = list_doubts(paths, config, file)
    if not offline:
        warnings += _asked(paths, config)
    if json:
        print_document("check-config", {"ok": True, "problems": [], "warnings": warnings})
        raise typer.Exit(OK_STATUS)
    for warning in warnings:
        print_wrapped_trouble(f"warning: {warning}", YELLOW)
    if not quiet:
        place = file or (paths.config_file if paths.config_file.exists() else paths.etc / "conf.d")
        print_line(f"OK: {place}: {_summary(config)}")
    if verbose:
        print_line()
        print_lines(map(clean_line, list_resolved_lines(paths, file)))
    raise typer.Exit(OK_STATUS)


def _asked(paths: Paths, config: Config) -> list[str]:
    """What the configuration names and is not there."""
    import asyncio

    from zvault.ops.context import Context
    from zvault.ops.diagnosis.config_check import list_config_warnings
    from zvault.ops.replication.encryption_check import list_encryption_warnings
    from zvault.ops.state.environment import Environment
    from zvault.system.process.runner import HostRunner

    async def ask() -> list[str]:
        context = Context.of(Environment.of(config, paths, HostRunner()))
        try:
            return await list_config_warnings(context) + await list_encryption_warnings(context)
        finally:
            await context.clients.close()

    return asyncio.run(ask())


def _summary(config: Config) -> str:
    """``1 vault (cold), 2 backups (db, home)``."""
    parts = []
    for noun, named in (("vault", config.vault), ("backup", config.backup)):
        names = f" ({', '.join(named)})" if named else ""
        parts.append(f"{format_plural(len(named), noun) if named else f'no {noun}s'}{names}")
    return ", ".join(parts)
