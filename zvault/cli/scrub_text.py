"""A vault's scrub and damage in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from zvault.api.vaults import DamageDocument, ScrubDocument
from zvault.cli.event_text import format_plural
from zvault.cli.tables import format_ago
from zvault.core.units import format_duration, format_rate, format_size

SHOWN_DAMAGED_FILES = 20
"""Maximum number of damaged files shown; -j shows all."""


def describe_scrub(scrub: ScrubDocument | None) -> str:
    """``43% of 1.20T, 80M/s, 2h 5m to go``; ``3 days ago, 0 errors``; empty if nothing is known."""
    if scrub is None:
        return ""
    if scrub["state"] == "scanning":
        return ", ".join(filter(None, [_progress(scrub), *_pace(scrub)]))
    if scrub["state"] == "paused":
        why = scrub["pausing"] or ("by hand, until 'zvaultctl scrub' resumes it" if scrub["held"] else "")
        return f"paused at {_progress(scrub)}" + (f": {why}" if why else "")
    if scrub["state"] == "resilver":
        return "a resilver runs"
    last = f"the last one ended {format_ago(scrub['last'])}" if scrub["last"] is not None else "never"
    return f"{last}; paused by hand" if scrub["held"] else last


def _progress(scrub: ScrubDocument) -> str:
    share = "" if scrub["share"] is None else f"{scrub['share']:.0%} of "
    return f"{share}{format_size(scrub['bytes_total'])}"


def _pace(scrub: ScrubDocument) -> Iterator[str]:
    if scrub["rate"]:
        yield format_rate(scrub["rate"])
    if scrub["left_seconds"] is not None:
        yield f"{format_duration(scrub['left_seconds'])} to go"


def describe_scrub_damage(scrub: ScrubDocument | None) -> str:
    """The damaged files, one a line; empty if there are none."""
    if scrub is None or not scrub["errors"]:
        return ""
    damages = scrub["damages"]
    if not damages:
        return (
            f"{format_plural(scrub['errors'], 'error')}, in nothing that has a name: 'zvaultctl scrub' "
            "names what is damaged"
        )
    head = f"{format_plural(scrub['errors'], 'error')}, {format_plural(scrub['files'], 'file')}"
    more = (
        [f"and {len(damages) - SHOWN_DAMAGED_FILES} more: -j shows all"]
        if len(damages) > SHOWN_DAMAGED_FILES
        else []
    )
    return "\n".join([head, *map(_named, damages[:SHOWN_DAMAGED_FILES]), *more])


def _named(damage: DamageDocument) -> str:
    place = damage["dataset"] or "<unknown>"
    if damage["snapshot"] is not None:
        place = f"{place}@{damage['snapshot']}"
    return f"{place}:{damage['file']}"
