"""The page of a dataset in words. Pure."""

from __future__ import annotations

from datetime import tzinfo
from typing import Any

from zvault.api.status import NEXT_RUN_UNKNOWN
from zvault.core.health.headlines import format_count
from zvault.daemon.page.page_model import DatasetPage, SideDocument, TimelineMark
from zvault.daemon.page.page_words import show_moment


def show_dataset(found: DatasetPage, zone: tzinfo) -> dict[str, Any]:
    """Show how many snapshots of it there are where, when that was listed, and what the next run prunes."""
    now, vault = found["now"], found["vault"]
    counts = {mark: found["counts"][str(mark.name)] for mark in TimelineMark}
    return {
        "name": found["dataset"],
        "backup": found["backup"],
        "vault": vault,
        "into": found["into"],
        "source_listed": show_moment(found["source_listed"], now, zone),
        "vault_listed": show_moment(found["vault_listed"], now, zone),
        "on_source": counts[TimelineMark.SOURCE],
        "on_vault": counts[TimelineMark.VAULT],
        "waiting": counts[TimelineMark.WAITING],
        "foreign": counts[TimelineMark.FOREIGN],
        "next_run": show_moment(found["next_run"], now, zone),
        "no_next": NEXT_RUN_UNKNOWN if found["scheduled"] else "by hand",
        "goes": _goes(found, counts),
        "told": _told(found, counts),
        "left_out": max(0, found["total"] - len(found["drawn"])),
        "total": found["total"],
    }


def _goes(found: DatasetPage, counts: dict[TimelineMark, int]) -> str:
    """What the next run would prune, or of which side that is not known."""
    sides = ["source", "vault"] if found["vault"] is not None else ["source"]
    words = {"source": counts[TimelineMark.GOES_ON_SOURCE], "vault": counts[TimelineMark.GOES_ON_VAULT]}
    known = [f"{words[side]} on the {side}" for side in sides if side in found["foreseen"]]
    unknown = [f"on the {side}" for side in sides if side not in found["foreseen"]]
    told = " and ".join(known)
    if not unknown:
        return told
    return f"{told}; {' and '.join(unknown)} it is not known" if told else "not known"


def _told(found: DatasetPage, counts: dict[TimelineMark, int]) -> str:
    """The drawing in a sentence."""
    told = [f"{format_count(counts[TimelineMark.SOURCE], 'snapshot')} on the source"]
    if found["vault"] is not None:
        told.append(f"{counts[TimelineMark.VAULT]} on the vault" if found["vault_listed"] is not None else "")
        told.append(f"{counts[TimelineMark.WAITING]} to be sent" if counts[TimelineMark.WAITING] else "")
    return ", ".join([*filter(None, told), f"a run would prune {_goes(found, counts)}"])


def show_points(found: DatasetPage, zone: tzinfo) -> list[dict[str, Any]]:
    """Snapshots, and what becomes of each on either side."""
    return [
        {
            "name": one["name"],
            "made": show_moment(one["made"], found["now"], zone),
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
