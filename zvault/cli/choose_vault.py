"""Chooses among the vaults of a backup that has several: the one that is named, the best one, or each in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Annotated, TypeVar

import typer

from zvault.api import routes
from zvault.api.status import BackupDocument, StatusDocument
from zvault.api.vaults import JudgedVault
from zvault.cli import completion
from zvault.cli.daemon_client import DaemonNotRunning, connect_daemon
from zvault.cli.output import print_line, print_trouble
from zvault.core.errors import SeveralVaults
from zvault.core.units import format_duration

A = TypeVar("A")

OfVault = Annotated[
    str | None,
    typer.Option(
        "--vault",
        metavar="VAULT",
        help="Of a backup with several vaults, this one.",
        show_default=False,
        autocompletion=completion.complete_vaults,
    ),
]


def name_of_vault(backup: str, vault: str | None) -> str:
    """The name of a backup into one of its vaults; without a ``vault`` as it was given."""
    _, at, named = backup.partition("@")
    if vault is None or (at and named == vault):
        return backup
    if at:
        raise typer.BadParameter(f"{backup} names another vault", param_hint="--vault")
    return f"{backup}@{vault}"


def expand_name(name: str, known: Iterable[str]) -> list[str]:
    """The backups that a name means: the one of that name, or one for each vault; none where it is not ``known``."""
    names = list(known)
    return [name] if name in names else [one for one in names if one.startswith(f"{name}@")]


def list_best_first(backup: str) -> list[str]:
    """The names of the backups that a name means, the one with the best vault first; the name itself where it is
    another's. Raises DaemonNotRunning.
    """
    status = connect_daemon().get(routes.STATUS, {})
    names = expand_name(backup, [one["name"] for one in status["backups"]])
    parts = [one for one in status["backups"] if one["name"] in names]
    return [one["name"] for one in sorted(parts, key=lambda one: _rank(one, status))] or [backup]


def ask_of_best(backup: str, ask: Callable[[str], A]) -> A:
    """Ask about a backup; of one with several vaults about the best, and say which that is."""
    try:
        return ask(backup)
    except SeveralVaults as several:
        status = _read_status(several)
        names = expand_name(backup, [one["name"] for one in status["backups"]])
        parts = [one for one in status["backups"] if one["name"] in names]
        if not parts:
            raise
        best, *others = sorted(parts, key=lambda one: _rank(one, status))
        told = ", ".join(
            f"{one['vault']}: {_tell_age(one)}" + ", and not to be had now" * _is_away(one, status)
            for one in others
        )
        print_trouble(
            f"vault {best['vault']} is taken, its newest state is {_tell_age(best)}"
            + (f"; --vault takes another ({told})" if told else "")
        )
        return ask(best["name"])


def show_each(backup: str, show: Callable[[str], int], *, alone: bool) -> int:
    """Show something of a backup, or of each of its vaults in turn unless that has to stand ``alone``.

    Returns the highest of the exit statuses. Raises SeveralVaults where only one can be shown.
    """
    try:
        return show(backup)
    except SeveralVaults as several:
        if alone:
            raise
        names = expand_name(backup, [one["name"] for one in _read_status(several)["backups"]])
        if not names:
            raise
    worst = 0
    for number, name in enumerate(names):
        if number:
            print_line()
        worst = max(worst, show(name))
    return worst


def _read_status(several: SeveralVaults) -> StatusDocument:
    try:
        return connect_daemon().get(routes.STATUS, {})
    except DaemonNotRunning:
        raise several from None


def _rank(backup: BackupDocument, status: StatusDocument) -> tuple[bool, bool, float, bool, float]:
    """The lower the better: a vault that can be had, then the newest state, then one that is up, then the fastest."""
    vault = _find_vault(backup, status)
    up, lag, restore = vault is not None and vault["state"] == "up", backup["lag_seconds"], backup["restore"]
    seconds = restore["seconds"] if restore is not None else None
    newest = time.time() - lag if lag is not None else 0.0
    # What one run snapshotted for all vaults is one state.
    return (
        _is_away(backup, status),
        lag is None,
        -round(newest),
        not up,
        seconds if seconds is not None else float("inf"),
    )


def _find_vault(backup: BackupDocument, status: StatusDocument) -> JudgedVault | None:
    return next((one for one in status["vaults"] if one["name"] == backup["vault"]), None)


def _is_away(backup: BackupDocument, status: StatusDocument) -> bool:
    """Whether its vault cannot be had. A disk in the cupboard is no error, nor is a vault that another host has."""
    vault = _find_vault(backup, status)
    if vault is None or vault["state"] == "up":
        return vault is None
    return vault["error"] is not None or vault["away"] or vault["held_by"] is not None


def _tell_age(backup: BackupDocument) -> str:
    lag = backup["lag_seconds"]
    return f"{format_duration(lag)} old" if lag is not None else "not known"
