"""What a shell may complete: the names of backups, vaults, datasets and snapshots, as the daemon knows them.

A shell waits for the answer and shows nothing but words, so whatever goes wrong there are just no names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import typer

from zvault.api import routes
from zvault.api.routes import ApiRoute
from zvault.cli.daemon_client import HttpClient, find_socket_path
from zvault.core.errors import ZvaultError

A = TypeVar("A")


def complete_backups(incomplete: str) -> list[str]:
    """The backups whose names begin so."""
    status = _asked(routes.STATUS)
    return _beginning(incomplete, (backup["name"] for backup in status["backups"]) if status else ())


def complete_vaults(incomplete: str) -> list[str]:
    """The vaults whose names begin so."""
    status = _asked(routes.STATUS)
    return _beginning(incomplete, (vault["name"] for vault in status["vaults"]) if status else ())


def complete_notifications(incomplete: str) -> list[str]:
    """The targets of notifications whose names begin so."""
    found = _asked(routes.NOTIFY)
    return _beginning(incomplete, (one["name"] for one in found["targets"]) if found else ())


def complete_backups_and_vaults(incomplete: str) -> list[str]:
    """Complete the name of a backup or a vault."""
    return [*complete_backups(incomplete), *complete_vaults(incomplete)]


def complete_datasets_and_snapshots(ctx: typer.Context, incomplete: str) -> list[str]:
    """The datasets of the backup named before; behind an @ the snapshots of one."""
    at = "@" in incomplete
    found = _asked(routes.LIST, backup=ctx.params.get("backup"), snapshots="1" if at else None)
    if found is None:
        return []
    names = (dataset["dataset"] for dataset in found["datasets"])
    snapshots = (f"{one['dataset']}@{one['snapname']}" for one in found.get("snapshots", ()))
    return _beginning(incomplete, snapshots if at else names)


def complete_any_dataset_or_snapshot(incomplete: str) -> list[str]:
    """The datasets of all backups, on both sides; behind an @ the snapshots of one."""
    at = "@" in incomplete
    found = _asked(routes.LIST, snapshots="1" if at else None)
    if found is None:
        return []
    names = [one for row in found["datasets"] for one in (row["dataset"], row["vault_dataset"])]
    snapshots = [f"{one['dataset']}@{one['snapname']}" for one in found.get("snapshots", ())]
    return _beginning(incomplete, dict.fromkeys(snapshots if at else names))


def _asked(route: ApiRoute[A], **arguments: object) -> A | None:
    """What the daemon answers; None where it does not."""
    try:
        return HttpClient(find_socket_path()).get(route, arguments)
    except (ZvaultError, OSError, ValueError):
        return None


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
