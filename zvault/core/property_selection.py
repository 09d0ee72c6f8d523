"""Which datasets of a source a user property selects, as zfs-autobackup reads it. Pure.

Only what was set on this pool counts: a property that came with a stream was set by whoever sent it.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping

from zvault.core.name_rules import DatasetChoice
from zvault.core.names import DatasetName

OWN_SELECTING_VALUES = ("true", "on", "parent")
"""Values that select the dataset on which they are set."""

INHERITED_SELECTING_VALUES = ("true", "on", "child")
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


def choose_by_property(
    values: Mapping[str, tuple[str, str]], root: DatasetName, unlisted: Container[str] = ()
) -> dict[str, DatasetChoice]:
    """Which datasets are selected, of those within ``root`` with the property's value and source (zfs get(8)).

    One is, where OWN is set on it, or BELOW on the dataset within the root from which it inherits. What that one has by
    hand, and what by a stream, is not known where it is ``unlisted``: it counts as by hand, for what is backed up
    needlessly is not lost.
    """
    return {name: _choice(value, source, values, root, unlisted) for name, (value, source) in values.items()}


def _choice(
    value: str,
    source: str,
    values: Mapping[str, tuple[str, str]],
    root: DatasetName,
    unlisted: Container[str],
) -> DatasetChoice:
    if source == "local":
        return DatasetChoice(
            value in OWN_SELECTING_VALUES,
            f"set to '{value}' on it, {_meaning(value in OWN_SELECTING_VALUES, value in INHERITED_SELECTING_VALUES)}",
        )
    if source == "received":
        return DatasetChoice(False, f"'{value}' came with a stream, which does not count")
    if not source.startswith(_INHERITED):
        return DatasetChoice(False, "not set")
    giver = DatasetName(source.removeprefix(_INHERITED))
    told = f"'{value}' is inherited from {giver}"
    if not giver.is_within(root):
        return DatasetChoice(False, f"{told}, which is above the source")
    # What a dataset above received it passes on all the same: ZFS calls that inherited, too.
    if giver not in unlisted and values.get(giver) != (value, "local"):
        return DatasetChoice(False, f"{told}, where it is not set by hand")
    return DatasetChoice(
        value in INHERITED_SELECTING_VALUES,
        f"{told}, {_meaning(value in INHERITED_SELECTING_VALUES, value in OWN_SELECTING_VALUES, 'that one')}",
    )


def _meaning(taken: bool, other: bool, others: str = "what is below") -> str:
    if taken:
        return "which selects it"
    return f"which selects only {others}" if other else "which selects nothing"
