"""zvaultctl mount: a snapshot of a vault in a folder, to look into it."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from typing import Annotated

import typer

from zvault.api import routes
from zvault.api.restore import MountBody, MountedAnswer
from zvault.cli import completion
from zvault.cli.choose_vault import OfVault, ask_of_best, name_of_vault
from zvault.cli.daemon_client import connect_daemon
from zvault.cli.options import AsJson, BackupName, Quiet, VaultAt
from zvault.cli.output import (
    OK_STATUS,
    TROUBLE_STATUS,
    YELLOW,
    clean_line,
    print_document,
    print_line,
    print_trouble,
)
from zvault.cli.parse_times import parse_last_moment
from zvault.core.units import parse_duration
from zvault.system.mount import is_mount_point

UNMOUNTED_WITHIN = 30.0
"""Seconds to wait for the daemon to unmount after Ctrl-C: it tries for 20."""


def mount(  # noqa: PLR0913, PLR0917 - each is an option of the command
    backup: BackupName,
    place: Annotated[
        list[str],
        typer.Argument(
            metavar="[DATASET] DIR",
            help="A dataset, by its name on the source or the vault, and where to mount it.",
            autocompletion=completion.complete_datasets_and_snapshots,
            show_default=False,
        ),
    ],
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="The newest snapshot up to TIME.", show_default=False),
    ] = None,
    vault: OfVault = None,
    vault_at: VaultAt = None,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="DURATION", help="Unmount it after that long.", show_default=False),
    ] = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Mount a snapshot of BACKUP in its vault at DIR, to look into it.

    Without DATASET it is that of the backup's own dataset, without --at the newest.

    It is read-only, and nothing in it is run or gives anybody rights (ro,nosuid,nodev,noexec); what lies in datasets
    below it is not in it. The vault is brought up and kept up, and the snapshot held, until Ctrl-C, 'umount DIR', the
    timeout, or the end of zvaultd; also after a crash nothing stays. DIR is an empty folder that only root can change.
    With --vault-at it is that of the vault as it was then, which is opened for it and closed afterwards. TIME is for
    example '2026-11-21 09:30' or '2d ago', DURATION 30m.

    Exit status: 0 it was mounted, and is not any more; 1 it could not be unmounted, as somebody reads there; 2 it was
    not mounted.
    """
    if len(place) > 2:
        raise typer.BadParameter("write BACKUP [DATASET] DIR", param_hint="DIR")
    *dataset, folder = place
    request: MountBody = {
        "backup": name_of_vault(backup, vault),
        "dataset": dataset[0] if dataset else None,
        "folder": os.path.abspath(folder),  # noqa: PTH100 - links are not followed: the daemon refuses them
        "at": None if at is None else parse_last_moment(at),
        "seconds": None if timeout is None else _seconds(timeout),
        "vault_at": None if vault_at is None else parse_last_moment(vault_at, "--vault-at"),
    }

    def begin(name: str) -> tuple[Generator[str, None, MountedAnswer], str]:
        told = connect_daemon().followed(routes.MOUNT, {**request, "backup": name})
        return told, next(told)

    telling: Generator[str, None, MountedAnswer] | None = None
    try:
        telling, text = ask_of_best(request["backup"], begin)
        while True:
            if not quiet:
                (print_trouble if json else print_line)(clean_line(text))
            text = next(telling)
    except KeyboardInterrupt:
        if telling is not None:
            telling.close()
        raise typer.Exit(_ended(request["folder"])) from None
    except StopIteration as end:
        found = end.value
        if json:
            print_document("mount", found)
        elif not quiet:
            print_line(f"{clean_line(found['folder'])} is unmounted: {clean_line(found['ended'])}")
    raise typer.Exit(OK_STATUS)


def _ended(folder: str) -> int:
    """After Ctrl-C: wait until the daemon has unmounted it."""
    print_trouble(f"\nunmounting {clean_line(folder)}")
    until = time.monotonic() + UNMOUNTED_WITHIN
    while is_mount_point(folder):
        if time.monotonic() > until:
            print_trouble(
                f"{clean_line(folder)} is still mounted: 'fuser -vm {clean_line(folder)}' shows who reads there",
                YELLOW,
            )
            return TROUBLE_STATUS
        time.sleep(0.1)
    return OK_STATUS


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--timeout") from None
