"""User properties by which other tools choose what they snapshot, send or destroy: they stay out of vaults. Pure.

zfs-autobackup took a vault for a source of its own: ``autobackup:offsite`` had arrived there as a received property. It
snapshotted the vault, which then differed from its source. A backup asks for them all the same with ``let_in``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from zvault.core.replication.receive_properties import ReceiveProperties, parse_property_words

STEERING_TOOLS = {
    "autobackup:*": "zfs-autobackup",
    "bzfs*": "bzfs",
    "com.sun:auto-snapshot*": "zfs-auto-snapshot",
    "org.znapzend:*": "znapzend",
    "org.zrepl*": "zrepl",
    "sanoid:*": "sanoid",
    "syncoid:*": "syncoid",
    "zfs-auto-*": "zfs-auto-snapshot",
    "zrepl:*": "zrepl",
}
"""By the pattern of their names, the tool that they steer."""

LOCAL_ONLY = frozenset({"zrepl:placeholder"})
"""Those that their tool reads where they are set, and nowhere below: zrepl has placeholders above each replica."""


def find_steered_tool(name: str) -> str:
    """The tool that a property steers; "" for any other property."""
    if ":" not in name:
        return ""
    return next((tool for pattern, tool in STEERING_TOOLS.items() if fnmatchcase(name, pattern)), "")


def check_let_in(pattern: str) -> None:
    """Check what a backup lets in: a steering property, or a pattern of such. Raises ValueError."""
    known = pattern == "*" or any(fnmatchcase(pattern, steering) for steering in STEERING_TOOLS)
    if not known:
        raise ValueError(
            f"{pattern!r} is no property that steers another tool ({', '.join(STEERING_TOOLS)}, or '*' for all of "
            "them): any other user property comes in by itself"
        )


def select_steering(names: Iterable[str], let_in: Collection[str] = ()) -> tuple[str, ...]:
    """Those of the properties that steer another tool, without what a backup lets in (names or patterns); sorted."""
    return tuple(
        sorted(
            name
            for name in set(names)
            if find_steered_tool(name) and not any(fnmatchcase(name, pattern) for pattern in let_in)
        )
    )


def leave_out_steering(
    own: ReceiveProperties, names: Iterable[str], let_in: Collection[str]
) -> ReceiveProperties:
    """Return what a backup sets and leaves out, with the steering ones of ``names`` left out too, but those it sets."""
    more = (name for name in select_steering(names, let_in) if name not in own.values)
    left_out = tuple(dict.fromkeys((*own.left_out, *more)))
    return own if left_out == own.left_out else replace(own, left_out=left_out)


def list_left_out_steering(record: str) -> tuple[str, ...]:
    """The steering properties that are left out of a vault's dataset, by its record of receive properties."""
    words: Sequence[str] = sorted(parse_property_words(record))
    return select_steering(word[1:] for word in words if word.startswith("-"))


@dataclass(frozen=True, slots=True)
class SteeringProperty:
    """A property that steers ``tool``, and the datasets where it is: set on the source (``source``), brought to the
    replica by a stream (``received``), set on the replica by hand (``local``), or inherited from above the replica
    (``above`` names the datasets that give it).
    """

    name: str
    tool: str
    source: list[str] = field(default_factory=list)
    received: list[str] = field(default_factory=list)
    local: list[str] = field(default_factory=list)
    above: list[str] = field(default_factory=list)


_INHERITED = "inherited from "


def list_steering(
    here: Mapping[str, Mapping[str, str]], there: Mapping[str, Mapping[str, str]]
) -> list[SteeringProperty]:
    """The steering properties on a source (``here``) and on its replica, each by dataset and property with where it
    comes from (zfs get(8)); sorted by name.
    """
    found: dict[str, SteeringProperty] = {}

    def of(name: str) -> SteeringProperty:
        return found.setdefault(name, SteeringProperty(name, find_steered_tool(name)))

    for dataset, sources in here.items():
        for name in select_steering(sources):
            of(name).source.append(dataset)
    above: dict[str, set[str]] = defaultdict(set)
    for dataset, sources in there.items():
        for name in select_steering(sources):
            giver = sources[name].removeprefix(_INHERITED)
            if giver == sources[name]:
                (of(name).received if giver == "received" else of(name).local).append(dataset)
            elif giver not in there and name not in LOCAL_ONLY:
                above[name].add(giver)
    for name, givers in above.items():
        of(name).above.extend(sorted(givers))
    return [found[name] for name in sorted(found)]
