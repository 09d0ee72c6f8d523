"""Which datasets of a source a user property selects, as zfs-autobackup reads it. Pure.

Only what was set on this pool counts: a property that came with a stream was set by whoever sent it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from zvault.core.name_rules import Choice
from zvault.core.names import DatasetName

OWN = ("true", "on", "parent")
"""Values that select the dataset on which they are set."""

BELOW = ("true", "on", "child")
"""Values that select what inherits them."""

_INHERITED = "inherited from "
_PROPERTY = re.compile(r"(?!-)[a-z0-9._+-]*:[a-z0-9:._+-]*")

MAX_PROPERTY = 255
"""Bytes in the name of a user property (ZAP_MAXNAMELEN less its final zero; see zfsprops(7))."""


def check_user_property(name: str) -> None:
    """Check the name of a user property that selects datasets. Raises ValueError."""
    if not _PROPERTY.fullmatch(name) or len(name) > MAX_PROPERTY:
        raise ValueError(
            f"{name!r} is no name of a user property: it has a ':' and else a-z 0-9 . _ + -, as org.example:backup"
        )
    if name.startswith("org.zvault:"):
        raise ValueError(
            f"{name!r} is a property of zvault's own: choose a name of yours, as org.example:backup"
        )


def choices(values: Mapping[str, tuple[str, str]], root: DatasetName) -> dict[str, Choice]:
    """Which datasets are selected, of those within ``root`` with the property's value and source (zfs get(8)).

    One is, where OWN is set on it, or BELOW on the dataset within the root from which it inherits.
    """
    return {name: _choice(value, source, values, root) for name, (value, source) in values.items()}


def _choice(value: str, source: str, values: Mapping[str, tuple[str, str]], root: DatasetName) -> Choice:
    if source == "local":
        return Choice(value in OWN, f"set to '{value}' on it, {_meaning(value in OWN, value in BELOW)}")
    if source == "received":
        return Choice(False, f"'{value}' came with a stream, which does not count")
    if not source.startswith(_INHERITED):
        return Choice(False, "not set")
    giver = DatasetName(source.removeprefix(_INHERITED))
    told = f"'{value}' is inherited from {giver}"
    if not giver.is_within(root):
        return Choice(False, f"{told}, which is above the source")
    # What a dataset above received it passes on all the same: ZFS calls that inherited, too.
    if values.get(giver) != (value, "local"):
        return Choice(False, f"{told}, where it is not set by hand")
    return Choice(value in BELOW, f"{told}, {_meaning(value in BELOW, value in OWN, 'that one')}")


def _meaning(taken: bool, other: bool, others: str = "what is below") -> str:
    if taken:
        return "which selects it"
    return f"which selects only {others}" if other else "which selects nothing"
