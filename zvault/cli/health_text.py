"""Whether a backup or vault needs attention, in one word. Pure."""

from __future__ import annotations

from zvault.api.status import BackupDocument, StatusDocument
from zvault.api.vaults import DeviceDocument, VaultDocument
from zvault.cli.event_text import plural


def backup_health(backup: BackupDocument) -> str:
    """``ok``, ``new`` (never ran), or what is wrong: ``differs``, ``late``, ``failed``, ``partial``, ``interrupted``,
    ``held-back`` (prune_limit lets not all go that no rule keeps).

    A failed run outranks lateness: it says why, and lag stands in its own column. What a verification found not to be
    the same on both sides outranks all but that.
    """
    result = backup["last_result"]
    if result == "failed":
        return "failed"
    if any(proof["result"] == "differs" for proof in (backup["proofs"] or {}).values()):
        return "differs"
    if backup["late"]:
        return "late"
    if result is None:
        return "new"
    return "held-back" if result == "ok" and backup["held_back"] else result


def proven(backup: BackupDocument) -> float | None:
    """When contents of a backup were last compared and found the same, in seconds since the epoch.

    None where they never were, or ``backup["proofs"]`` is None: then nobody knows.
    """
    known = [proof["proven"] for level, proof in (backup["proofs"] or {}).items() if level != "guids"]
    return max((one for one in known if one is not None), default=None)


def backup_well(backup: BackupDocument) -> bool:
    """Whether nothing about this backup needs attention."""
    return backup_health(backup) in ("ok", "new") and not backup["late"]


def vault_health(vault: VaultDocument) -> str:
    """``ok``, or what is wrong: the stack's state if not whole, the pool's if not ONLINE, ``failed``, ``damaged``.

    ``troubled``: a block store of its works, and its object store does not, or the like.
    """
    if vault["state"] in ("partial", "gone"):
        return vault["state"]
    if vault["health"] is not None and vault["health"] != "ONLINE":
        return vault["health"]
    if vault["error"]:
        return "failed"
    if vault["scrub"] is not None and vault["scrub"]["errors"]:
        return "damaged"
    return "troubled" if any(map(store_trouble, vault["devices"])) else "ok"


def store_trouble(device: DeviceDocument) -> str:
    """What is wrong with the block store behind a device; "" for nothing, and for other devices."""
    store = device["store"]
    return (store["trouble"] or "") if store is not None else ""


def vault_well(vault: VaultDocument) -> bool:
    """Whether nothing about this vault needs attention. One that is down on demand is well."""
    return vault_health(vault) == "ok"


def storage_well(vault: VaultDocument) -> bool:
    """The same of its storage alone: to bring it up or down went well also where something in it is damaged."""
    return vault_health(vault) in {"ok", "damaged"}


def all_well(status: StatusDocument) -> bool:
    """Whether nothing at all needs attention."""
    return (
        not status["daemon"]["warnings"]
        and all(map(backup_well, status["backups"]))
        and all(map(vault_well, status["vaults"]))
    )


def headlines(status: StatusDocument) -> list[str]:
    """The state of everything: a sentence for each kind that needs attention, or that all is well."""
    backups, vaults, warnings = status["backups"], status["vaults"], status["daemon"]["warnings"]
    lines = [
        _attention(
            "backup", len(backups), [f"{b['name']} {backup_health(b)}" for b in backups if not backup_well(b)]
        ),
        _attention(
            "vault", len(vaults), [f"{v['name']} {vault_health(v)}" for v in vaults if not vault_well(v)]
        ),
        f"zvaultd has {plural(len(warnings), 'warning')}" if warnings else "",
    ]
    if any(lines):
        return [line for line in lines if line]
    counts = [
        plural(len(things), noun) for things, noun in ((backups, "backup"), (vaults, "vault")) if things
    ]
    return [f"all is well: {', '.join(counts)}" if counts else "nothing is configured"]


def _attention(noun: str, total: int, troubled: list[str]) -> str:
    if not troubled:
        return ""
    needs = "needs" if len(troubled) == 1 else "need"
    return f"{len(troubled)} of {plural(total, noun)} {needs} attention: {', '.join(troubled)}"
