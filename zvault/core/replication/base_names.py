"""What zvault's holds and bookmarks of a vault's base are called on the source: after the vault pool's GUID."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from zvault.core.model import Bookmark, Dataset

HOLD: Final = "zvault:"
MARK: Final = "zvault_"

LARGEST_GUID: Final = (1 << 64) - 1


def hold_tag(vault_guid: int) -> str:
    """The tag that holds a vault's base on the source."""
    return f"{HOLD}{vault_guid:x}"


def vault_of_tag(tag: str) -> int | None:
    """The GUID in a hold's tag; None unless it has exactly the form that zvault gives it."""
    try:
        guid = int(tag.removeprefix(HOLD), 16)
    except ValueError:
        return None
    return guid if hold_tag(guid) == tag else None


def mark_name(vault_guid: int, snapshot_guid: int) -> str:
    """The name, after ``#``, of the bookmark of a vault's base."""
    return f"{MARK}{vault_guid:x}_{snapshot_guid:x}"


def marks_by_vault(dataset: Dataset) -> dict[int, list[Bookmark]]:
    """zvault's bookmarks of a source dataset, by the GUID of the vault they were made for."""
    found: dict[int, list[Bookmark]] = {}
    for mark in dataset.bookmarks:
        prefix, _, rest = mark.markname.partition("_")
        vault, _, _ = rest.partition("_")
        if f"{prefix}_" == MARK and vault:
            try:
                found.setdefault(int(vault, 16), []).append(mark)
            except ValueError:
                continue
    return found


def vaults_of(datasets: Iterable[Dataset], tags: Iterable[str]) -> set[int]:
    """The GUIDs of all vaults for which these datasets have bookmarks, or which have any of these holds' tags."""
    found = {guid for dataset in datasets for guid in marks_by_vault(dataset)}
    return found | {guid for tag in tags if (guid := vault_of_tag(tag)) is not None}
