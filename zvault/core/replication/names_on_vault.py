"""Where each dataset of a vault lies while plans are made that rename some, and which names are taken."""

from __future__ import annotations

from collections.abc import Iterable

from zvault.core.model import Tree
from zvault.core.names import DatasetName
from zvault.core.replication.vault_changes import RenameDataset, VaultChange

MOVING_ENDING = "_zvault-moving"
"""Ends the name of a dataset of the vault that is on its way to another name."""


class NamesOnVault:
    """By the name that each was listed with, its name by now (``at``); and what will be ``made``."""

    def __init__(self, vault: Tree) -> None:
        self.at = {dataset.name: dataset.name for dataset in vault}
        self.made: set[DatasetName] = set()
        self._occupants: dict[DatasetName, DatasetName] | None = None  # None: to be made anew after a rename

    @property
    def taken(self) -> set[DatasetName]:
        """All names that are, or will be, something's."""
        return {*self.at.values(), *self.made}

    def occupant(self, name: DatasetName) -> DatasetName | None:
        """The dataset, by the name it was listed with, that has this name by now."""
        if self._occupants is None:
            self._occupants = {}
            for listed, now in self.at.items():
                self._occupants.setdefault(now, listed)
        return self._occupants.get(name)

    def rename(self, old: DatasetName, new: DatasetName, reason: str) -> RenameDataset:
        """Rename one, and with it what lies below."""
        self._occupants = None
        for listed, now in self.at.items():
            if now.is_within(old):
                self.at[listed] = now.moved(old, new)
        self.made = {name.moved(old, new) if name.is_within(old) else name for name in self.made}
        return RenameDataset(old, new, reason)

    def follow(self, changes: Iterable[VaultChange]) -> None:
        """Take in what is renamed by these."""
        for change in changes:
            if isinstance(change, RenameDataset):
                self.rename(change.old, change.new, change.reason)

    def free_name(self, name: DatasetName) -> DatasetName:
        """A name beside that one that nothing has."""
        taken = self.taken
        number = 1
        free = name.add_suffix(MOVING_ENDING)
        while free in taken:
            number += 1
            free = name.add_suffix(f"{MOVING_ENDING}{number}")
        return free
