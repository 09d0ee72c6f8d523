"""The page of a dataset in words. Pure."""

from __future__ import annotations

from datetime import tzinfo
from typing import Any

from zvault.api.status import NEXT_RUN_UNKNOWN
from zvault.core.health.headlines import counted
from zvault.daemon.page.model import DatasetPage, Mark, SideDocument
from zvault.daemon.page.words import moment


def dataset(found: DatasetPage, zone: tzinfo) -> dict[str, Any]:
    """Show how many snapshots of it there are where, when that was listed, and what the next run prunes."""
    now, vault = found["now"], found["vault"]
    counts = {mark: found["counts"][str(mark.name)] for mark in Mark}
    return {
        "name": found["dataset"],
        "backup": found["backup"],
        "vault": vault,
        "into": found["into"],
        "source_listed": moment(found["source_listed"], now, zone),
        "vault_listed": moment(found["vault_listed"], now, zone),
        "on_source": counts[Mark.SOURCE],
        "on_vault": counts[Mark.VAULT],
        "waiting": counts[Mark.WAITING],
        "foreign": counts[Mark.FOREIGN],
        "next_run": moment(found["next_run"], now, zone),
        "no_next": NEXT_RUN_UNKNOWN if found["scheduled"] else "by hand",
        "goes": _goes(found, counts),
        "told": _told(found, counts),
        "left_out": max(0, found["total"] - len(found["drawn"])),
        "total": found["total"],
    }


def _goes(found: DatasetPage, counts: dict[Mark, int]) -> str:
    """What the next run would prune, or of which side that is not known."""
    sides = ["source", "vault"] if found["vault"] is not None else ["source"]
    words = {"source": counts[Mark.GOES_ON_SOURCE], "vault": counts[Mark.GOES_ON_VAULT]}
    known = [f"{words[side]} on the {side}" for side in sides if side in found["foreseen"]]
    unknown = [f"on the {side}" for side in sides if side not in found["foreseen"]]
    told = " and ".join(known)
    if not unknown:
        return told
    return f"{told}; {' and '.join(unknown)} it is not known" if told else "not known"


def _told(found: DatasetPage, counts: dict[Mark, int]) -> str:
    """The drawing in a sentence."""
    told = [f"{counted(counts[Mark.SOURCE], 'snapshot')} on the source"]
    if found["vault"] is not None:
        told.append(f"{counts[Mark.VAULT]} on the vault" if found["vault_listed"] is not None else "")
        told.append(f"{counts[Mark.WAITING]} to be sent" if counts[Mark.WAITING] else "")
    return ", ".join([*filter(None, told), f"a run would prune {_goes(found, counts)}"])


def points(found: DatasetPage, zone: tzinfo) -> list[dict[str, Any]]:
    """Snapshots, and what becomes of each on either side."""
    return [
        {
            "name": one["name"],
            "made": moment(one["made"], found["now"], zone),
            "source": _side(one["source"]),
            "vault": _side(one["vault"], listed=found["vault_listed"] is not None),
            "base": one["base"],
        }
        for one in found["points"]
    ]


def _side(one: SideDocument | None, *, listed: bool = True) -> dict[str, str]:
    if one is None:
        return {"level": "", "word": "none" if listed else "not known", "why": ""}
    if one["keep"] is None:
        return {"level": "", "word": "there", "why": ""}
    if one["keep"]:
        return {"level": "ok", "word": "kept", "why": one["why"]}
    return {"level": "warning", "word": "pruned next", "why": one["why"]}
