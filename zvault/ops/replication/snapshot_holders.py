"""What keeps a snapshot from being destroyed, in words: holds, clones and receives."""

from __future__ import annotations

from collections.abc import Sequence

from zvault.core.names import DatasetName
from zvault.core.replication.base_names import HOLD_PREFIX, MOUNT_HOLD

RECEIVING_CLONE = "%recv"
"""What the kernel calls the clone of a receive under way, below the dataset it goes into (dmu_recv.c)."""


def describe_holds(name: str, tags: set[str]) -> str:
    """Holds in words, with the way to lift them. Those of a vault's base zvault lifts itself."""
    if not tags:
        return ""
    names = sorted(tags)
    advice = f" ('zfs release {names[0]} {name}' releases it)"
    mounted = ", while it is looked into ('zvaultctl mount', 'browse' or 'diff')" * any(
        tag.startswith(MOUNT_HOLD) for tag in names
    )
    return f"held by {', '.join(names)}{mounted}" + advice * all(
        not tag.startswith(HOLD_PREFIX) for tag in names
    )


def describe_clones(clones: Sequence[DatasetName]) -> str:
    """Say in words which clones need a snapshot."""
    receives = [clone.parent for clone in clones if clone.name == RECEIVING_CLONE]
    others = [clone for clone in clones if clone.name != RECEIVING_CLONE]
    texts = [f"a receive into {dataset} is under way, or waits to be resumed" for dataset in receives]
    if others:
        texts.append(f"cloned as {', '.join(others)} ('zfs promote {others[0]}' or destroying it frees it)")
    return "; ".join(texts)
