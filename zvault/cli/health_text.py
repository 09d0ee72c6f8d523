"""How backups, vaults and the daemon are, in words: the verdicts are zvaultd's. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from zvault.api.health import HealthDocument, Level
from zvault.api.status import BackupDocument, StatusDocument
from zvault.api.vaults import DeviceDocument, JudgedVault
from zvault.cli.output import OK, RED, TROUBLE, UNKNOWN, YELLOW
from zvault.core.errors import ErrorDocument
from zvault.core.health.vault_conditions import CONTENTS
from zvault.core.health.verdict import worst

EXITS: dict[Level, int] = {"ok": OK, "unknown": UNKNOWN, "warning": TROUBLE, "critical": TROUBLE}
"""The exit status by the worst level."""

COLOURS: dict[Level, str | None] = {"ok": None, "unknown": YELLOW, "warning": YELLOW, "critical": RED}

WELL: HealthDocument = {"level": "ok", "state": "ok", "findings": []}


def state_of(one: BackupDocument | JudgedVault) -> str:
    """The state of a backup or vault in one word."""
    return one["verdict"]["state"]


def well(one: BackupDocument | JudgedVault) -> bool:
    """True if nothing about it needs attention."""
    return one["verdict"]["level"] == "ok"


def level_of(status: StatusDocument) -> Level:
    """The worst level of all."""
    verdicts = [status["daemon"]["verdict"]]
    verdicts += [backup["verdict"] for backup in status["backups"]]
    verdicts += [vault["verdict"] for vault in status["vaults"]]
    return worst(verdict["level"] for verdict in verdicts)


def proven(backup: BackupDocument) -> float | None:
    """Return when contents of a backup were last compared and found the same, in seconds since the epoch.

    None where they never were, or ``backup["proofs"]`` is None: then nobody knows.
    """
    known = [proof["proven"] for level, proof in (backup["proofs"] or {}).items() if level != "guids"]
    return max((one for one in known if one is not None), default=None)


def store_trouble(device: DeviceDocument) -> str:
    """Say what is wrong with the block store behind a device; "" for nothing, and for other devices."""
    store = device["store"]
    return (store["trouble"] or "") if store is not None else ""


def storage_well(vault: JudgedVault) -> bool:
    """True if bringing it up or down went well: what is wrong, if anything, is wrong with what is in it."""
    contents = {condition.key for condition in CONTENTS}
    return all(one["condition"] in contents for one in vault["verdict"]["findings"])


def findings_told(verdict: HealthDocument, error: ErrorDocument | None = None) -> Iterator[tuple[str, str]]:
    """The level of each finding, and what is wrong; why, too, unless the ``error`` that is shown beside it says so."""
    for one in verdict["findings"]:
        known = error is not None and error["what"] in one["why"]
        yield one["level"], one["what"] if known else f"{one['what']}: {one['why']}"
