"""How backups, vaults and the daemon are, in words: the verdicts are zvaultd's. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from zvault.api.health import HealthDocument, HealthLevel
from zvault.api.status import BackupDocument, StatusDocument
from zvault.api.vaults import DeviceDocument, JudgedVault, VaultDocument
from zvault.cli.output import OK_STATUS, RED, TROUBLE_STATUS, UNKNOWN_STATUS, YELLOW
from zvault.core.errors import ErrorDocument
from zvault.core.health.vault_conditions import CONTENT_CONDITIONS
from zvault.core.health.verdict import select_worst_level

LEVEL_EXITS: dict[HealthLevel, int] = {
    "ok": OK_STATUS,
    "unknown": UNKNOWN_STATUS,
    "warning": TROUBLE_STATUS,
    "critical": TROUBLE_STATUS,
}
"""The exit status by the worst level."""

LEVEL_COLOURS: dict[HealthLevel, str | None] = {
    "ok": None,
    "unknown": YELLOW,
    "warning": YELLOW,
    "critical": RED,
}

WELL_VERDICT: HealthDocument = {"level": "ok", "state": "ok", "findings": []}


def find_state_word(one: BackupDocument | JudgedVault) -> str:
    """The state of a backup or vault in one word."""
    return one["verdict"]["state"]


def find_vault_place(vault: VaultDocument) -> str:
    """``up``, ``down``, ``partial`` or ``gone``; ``away`` while its disk is not plugged in."""
    return "away" if vault["away"] and vault["state"] == "down" else vault["state"]


def is_well(one: BackupDocument | JudgedVault) -> bool:
    """True if nothing about it needs attention."""
    return one["verdict"]["level"] == "ok"


def find_worst_level(status: StatusDocument) -> HealthLevel:
    """The worst level of all."""
    verdicts = [status["daemon"]["verdict"]]
    verdicts += [backup["verdict"] for backup in status["backups"]]
    verdicts += [vault["verdict"] for vault in status["vaults"]]
    return select_worst_level(verdict["level"] for verdict in verdicts)


def find_proven_time(backup: BackupDocument) -> float | None:
    """Return when contents of a backup were last compared and found the same, in seconds since the epoch.

    None where they never were, or ``backup["proofs"]`` is None: then nobody knows.
    """
    known = [proof["proven"] for level, proof in (backup["proofs"] or {}).items() if level != "guids"]
    return max((one for one in known if one is not None), default=None)


def describe_store_trouble(device: DeviceDocument) -> str:
    """Say what is wrong with the block store behind a device; "" for nothing, and for other devices."""
    store = device["store"]
    return (store["trouble"] or "") if store is not None else ""


def is_storage_well(vault: JudgedVault) -> bool:
    """True if bringing it up or down went well: what is wrong, if anything, is wrong with what is in it."""
    contents = {condition.key for condition in CONTENT_CONDITIONS}
    return all(one["condition"] in contents for one in vault["verdict"]["findings"])


def list_finding_lines(
    verdict: HealthDocument, error: ErrorDocument | None = None
) -> Iterator[tuple[str, str]]:
    """The level of each finding, and what is wrong; why, too, unless the ``error`` that is shown beside it says so."""
    for one in verdict["findings"]:
        known = error is not None and error["what"] in one["why"]
        yield one["level"], one["what"] if known else f"{one['what']}: {one['why']}"
