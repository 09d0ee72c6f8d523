"""What zvault's holds and bookmarks are called: those of a vault's base, on a source, after the vault pool's GUID."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from zvault.core.model import Bookmark, Dataset

HOLD_PREFIX: Final = "zvault:"
KEEP_HOLD: Final = "zvault:keep"
"""The tag that holds a snapshot on a vault (core/policy/vault_holds.py). No GUID is spelled so."""

MOUNT_HOLD: Final = "zvault:mount-"
"""What the tags begin with that hold a snapshot on a vault while it is mounted for somebody."""

MARK_PREFIX: Final = "zvault_"
UNSENT_MARK: Final = "zvault-"
DISPROVED_MARK: Final = "zvault."
"""Both as long as MARK: ZFS limits the length of a bookmark's name together with its dataset's."""

_MARK_NAME = re.compile(rf"(?:{MARK_PREFIX}|{UNSENT_MARK}|{re.escape(DISPROVED_MARK)})([0-9a-f]+)_[0-9a-f]+")

LARGEST_GUID: Final = (1 << 64) - 1


def make_hold_tag(vault_guid: int) -> str:
    """The tag that holds a vault's base on the source."""
    return f"{HOLD_PREFIX}{vault_guid:x}"


def parse_hold_tag(tag: str) -> int | None:
    """The GUID in a hold's tag; None unless it has exactly the form that zvault gives it."""
    try:
        guid = int(tag.removeprefix(HOLD_PREFIX), 16)
    except ValueError:
        return None
    return guid if make_hold_tag(guid) == tag else None


def make_mark_name(vault_guid: int, snapshot_guid: int) -> str:
    """The name, after ``#``, of the bookmark of a snapshot that a vault has."""
    return f"{MARK_PREFIX}{vault_guid:x}_{snapshot_guid:x}"


def make_unsent_mark_name(vault_guid: int, snapshot_guid: int) -> str:
    """The same of one that is protected for a vault, though the vault may not have it."""
    return f"{UNSENT_MARK}{vault_guid:x}_{snapshot_guid:x}"


def make_disproved_mark_name(vault_guid: int, snapshot_guid: int) -> str:
    """The same of one that a vault had, and was seen not to have any more."""
    return f"{DISPROVED_MARK}{vault_guid:x}_{snapshot_guid:x}"


def group_marks_by_vault(dataset: Dataset) -> dict[int, list[Bookmark]]:
    """zvault's bookmarks of a source dataset, oldest first, by the GUID of the vault they were made for."""
    found: dict[int, list[Bookmark]] = {}
    for mark in dataset.bookmarks:
        if (form := _MARK_NAME.fullmatch(mark.markname)) is not None:
            found.setdefault(int(form[1], 16), []).append(mark)
    return found


def list_sent_marks(dataset: Dataset, vault_guid: int) -> list[Bookmark]:
    """The bookmarks of what a vault had when it was last seen by a run, oldest first."""
    marks = group_marks_by_vault(dataset).get(vault_guid, [])
    return [mark for mark in marks if mark.markname == make_mark_name(vault_guid, mark.guid)]


def was_once_sent(dataset: Dataset, vault_guid: int) -> bool:
    """True if a bookmark tells that a vault has, or had, anything of a dataset."""
    marks = group_marks_by_vault(dataset).get(vault_guid, [])
    return any(not mark.markname.startswith(UNSENT_MARK) for mark in marks)


def find_former_mark(dataset: Dataset, vault_guid: int, base: int) -> Bookmark | None:
    """The bookmark of the base before the one whose transaction group on the source is ``base``; None where none is.

    It stays, so that a vault which goes back by one run has a base yet.
    """
    older = [mark for mark in list_sent_marks(dataset, vault_guid) if mark.createtxg < base]
    return older[-1] if older else None


def list_vault_guids(datasets: Iterable[Dataset], tags: Iterable[str]) -> set[int]:
    """The GUIDs of all vaults for which these datasets have bookmarks, or which have any of these holds' tags."""
    found = {guid for dataset in datasets for guid in group_marks_by_vault(dataset)}
    return found | {guid for tag in tags if (guid := parse_hold_tag(tag)) is not None}
